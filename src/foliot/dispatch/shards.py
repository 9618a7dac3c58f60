"""The shards that one process holds: of each its lease, its two wheels, and how far they are loaded."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from foliot.dispatch.wheel import Entry, Wheel
from foliot.domain.instant import MILLISECOND, Duration, Instant
from foliot.domain.store import Arrivals, Cells, Lease, shard_of

BEGINNING: Entry = (-(1 << 63), -1)
_NOTHING_IS_LATE: Instant = -(1 << 62)
_AGES_EVERY: Duration = 50 * MILLISECOND
"""Of what grows late by a minute: all wheels are looked through for it, and most of the time there is none."""


class Window:
    """Fire times that are still to be loaded: those after `loaded_to`, and before `until` (None: the mark)."""

    __slots__ = ("loaded_to", "until")

    def __init__(self, loaded_to: Entry, until: Instant | None) -> None:
        self.loaded_to = loaded_to
        self.until = until


class HeldShard:
    """One shard, from its taking until it is lost or given up.

    The wheels hold a part of what is pending below the lease's high-water mark: everything outside the open windows
    that was visible at the cursor of the lease, and everything that arrivals told since. Only the store knows whether
    the lease is still true; it says so in `renew` and in `fire`, and then all of this is dropped.

    What was late when it came here is in `backlog`, the rest in `live`. The live window is loaded ahead of time. Behind
    it lie the windows of the past, the oldest first: they are loaded as the backlog drains.
    """

    __slots__ = ("ahead", "backlog", "fresh", "herd", "is_open", "lease", "live", "past", "patient")

    def __init__(self, lease: Lease) -> None:
        self.fresh = True
        """Just taken; it has no mark yet."""
        self.lease = lease
        self.live = Wheel()
        self.herd = Wheel()
        """What was due of `live` when more than a batch of it was: what falls due later does not wait for all of it."""
        self.patient = Wheel()
        """What cannot be handed off before its time; see `DispatchStore.lead`."""
        self.backlog = Wheel()
        # Its window is open from the beginning of time; the first renewal gives it an end.
        self.ahead = Window(BEGINNING, None)
        self.is_open = True
        """Whether there is anything left to load of the window ahead."""
        self.past: deque[Window] = deque()

    def add(self, window: Window, cells: Cells) -> None:
        """What the store answered to a load of one of the windows."""
        (self.live if window is self.ahead else self.backlog).add_cells(cells)
        window.loaded_to = cells.last
        if window is self.ahead:
            self.is_open = not cells.exhausted
        elif cells.exhausted:
            self.past.remove(window)

    def renew(self, lease: Lease, cursor: int) -> None:
        """What the store answered to a renewal, while arrivals had been told up to `cursor`."""
        raised = lease.high_water > self.lease.high_water
        if raised and not self.is_open:
            # All below the old mark is loaded, or told by arrivals: go on from the mark, not from the last run.
            self.ahead.loaded_to, self.is_open = (self.lease.high_water, -1), True
        self.lease = lease._replace(cursor=cursor if raised and not self.fresh else self.lease.cursor)
        self.fresh = False

    def put_back(self, entries: list[Entry], late_before: Instant) -> None:
        late = [entry for entry in entries if entry[0] < late_before]
        if late:
            self.backlog.put_back(late)
            entries = [entry for entry in entries if entry[0] >= late_before]
        self.live.put_back(entries)

    def age(self, late_before: Instant) -> None:
        """What is late by now, and was not fired, joins the backlog; so does the part of the live window that is."""
        for wheel in (self.live, self.herd, self.patient):
            first = wheel.next_at()
            if first is not None and first < late_before:
                self.backlog.put_back(wheel.before(late_before))
        begin = self.ahead.loaded_to
        if begin[0] >= late_before or not self.is_open or self.fresh:
            return
        end = min(late_before, self.lease.high_water)
        if self.past and (self.past[-1].until, -1) == begin:
            self.past[-1].until = end
        else:
            self.past.append(Window(begin, end))
        self.ahead.loaded_to = (end, -1)


class Shards:
    """All shards that this process holds, and the one cursor up to which arrivals were told for all of them.

    Why every pending run is told at least once. Write C for the shared cursor, K for that of a shard's lease. A cursor
    stands for what was visible when the store gave it; of two, the one that was given later has seen all that the other
    had. A run is told in one of two ways: with the cells, which are loaded as of K and hold what K has seen; or by
    arrivals, which go on from C and hold what C has not seen, below the mark. So nothing falls between the two if,
    whenever a window opens, K was not given before C, and if arrivals never skip.

    1. *A shard is taken.* Its K is given by the taking, so later than C. C stays; if nothing else was held, C = K. The
       first mark is set before arrivals are read again, so K is still the later one when the window opens. What came
       between C and K may be told by both.
    2. *A mark is raised.* Arrivals up to C passed by what lay above the old mark; so the new window is loaded as of C.
    3. *A window is still being loaded when a mark is raised.* Outside the open windows there is nothing to add: cells
       held what the old K had seen, arrivals told the rest, because it lay below the old mark. Inside, cells are loaded
       as of the new K, and may bring runs that arrivals told before.
    4. *A window is cut in two*, because its older part is late. Every fire time below the mark is either outside all
       windows or inside one: the part begins where the window began, and ends where the rest goes on. So 3 holds for
       each of them, whichever is loaded first, and however long the other waits.
    5. *An entry is late* before it was fired. It goes from one wheel of its shard to the other, and is fired there.
    6. *Other shards are lost or given up.* C does not move.

    Twins that come of 1 and 3 leave the wheel together; one that is handed off twice all the same is claimed once.
    """

    def __init__(self, shard_count: int) -> None:
        self.cursor = 0
        self._shard_count = shard_count
        self._held: dict[int, HeldShard] = {}
        self._late_before = _NOTHING_IS_LATE
        self._aged_to = _NOTHING_IS_LATE
        """What was due before this is where it belongs, but for windows that were opened since."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[int]:
        return iter(self._held)

    def __contains__(self, shard: int) -> bool:
        return shard in self._held

    # Leases

    def hold(self, lease: Lease) -> None:
        if not self._held:
            self.cursor = lease.cursor
        self._held[lease.shard] = HeldShard(lease)

    def drop(self, shards: Iterable[int]) -> list[Lease]:
        """Forgets shards, with all that their wheels hold; answers the leases that were believed in."""
        dropped = (self._held.pop(shard, None) for shard in list(shards))
        return [held.lease for held in dropped if held is not None]

    def leases(self, shards: Collection[int] | None = None) -> list[Lease]:
        """All leases, or those of some shards."""
        return [held.lease for shard, held in self._held.items() if shards is None or shard in shards]

    def renew(self, leases: Sequence[Lease]) -> set[int]:
        """Takes in what the store answered to a renewal of all; returns the shards that were lost."""
        for lease in leases:
            self._held[lease.shard].renew(lease, self.cursor)
        self._aged_to = _NOTHING_IS_LATE
        return self._held.keys() - {lease.shard for lease in leases}

    def has_fresh(self) -> bool:
        """Whether some shard was just taken, so that arrivals must not be read before it has its first mark."""
        return any(held.fresh for held in self._held.values())

    def marks(self) -> set[Instant]:
        """The high-water marks: one, except when some shard was just taken."""
        return {held.lease.high_water for held in self._held.values()}

    # Entries

    def waiting(self) -> int:
        return sum(
            len(wheel) for held in self._held.values() for wheel in (held.live, held.herd, held.patient, held.backlog)
        )

    def age(self, late_before: Instant) -> None:
        """From now on what was due before this is backlog, wherever it comes from."""
        self._late_before = late_before
        if not self._aged_to <= late_before < self._aged_to + _AGES_EVERY:
            self._aged_to = late_before
            for held in self._held.values():
                held.age(late_before)

    def add_arrivals(self, arrivals: Arrivals) -> None:
        self.put_back(zip(arrivals.fire_at, arrivals.number, strict=True))
        self.cursor = arrivals.cursor

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Entries for the wheels of their shards; what belongs to a shard that is not held is not ours to keep."""
        for held, part in self._parts(entries):
            held.put_back(part, self._late_before)

    def put_off(self, entries: Iterable[Entry]) -> None:
        """The same, for what is to be fired at its time and not before."""
        for held, part in self._parts(entries):
            held.patient.put_back(part)

    def _parts(self, entries: Iterable[Entry]) -> Iterator[tuple[HeldShard, list[Entry]]]:
        parts: dict[int, list[Entry]] = {}
        if self._shard_count == 1:
            parts[0] = list(entries)
        else:
            for entry in entries:
                parts.setdefault(shard_of(entry[1], self._shard_count), []).append(entry)
        for shard, part in parts.items():
            held = self._held.get(shard)
            if held is not None:
                yield held, part

    def soon(self, until: Instant, limit: int) -> list[Entry]:
        """Up to `limit` live entries that are due by then and may be handed off before, removed, in order."""
        return _shared([held.live for held in self._held.values()], until, limit)

    def fresh(self, now: Instant, limit: int) -> list[Entry]:
        """Beside a herd, what is due and none of it, where that is less than `limit`: so few need not wait until a
        whole batch is handed off with them. Nothing otherwise."""
        if not self.has_herd():
            return []
        fresh = _shared(self._coming(), now, limit)
        if len(fresh) < limit:
            return fresh
        self.put_back(fresh)
        return []

    def has_herd(self) -> bool:
        return any(map(len, self._herds()))

    def due(self, now: Instant, limit: int) -> list[Entry]:
        """Up to `limit` live entries whose time is not after `now`, removed, in order.

        Where more than that is due, it is a herd, and is set apart. Half of each batch is for the newest of what is due
        then, the rest for the herd: a hundred thousand runs of one moment do not keep those of the next moment waiting
        until the last of them is handed off."""
        fresh = _shared(self._coming(), now, limit)
        if len(fresh) == limit > 1:
            fresh = self._newest_of_herd(fresh, now, limit // 2)
        return sorted(fresh + _shared(self._herds(), now, limit - len(fresh)))

    def _newest_of_herd(self, due: list[Entry], now: Instant, limit: int) -> list[Entry]:
        """Everything that is due joins the herds, but for the newest. Each shard has its share of these."""
        self.put_back(due)
        joining: list[tuple[HeldShard, Wheel]] = []
        for held in self._held.values():
            moved = Wheel()
            held.live.move_due(now, moved)
            joining += [(held, moved)] if len(moved) else []
        newest: list[Entry] = []
        for place, (held, moved) in enumerate(sorted(joining, key=lambda one: len(one[1]))):
            newest += moved.newest((limit - len(newest)) // (len(joining) - place))
            moved.move_due(now, held.herd)
        return newest

    def _herds(self) -> list[Wheel]:
        return [held.herd for held in self._held.values()]

    def _coming(self) -> list[Wheel]:
        return [wheel for held in self._held.values() for wheel in (held.live, held.patient)]

    def overdue(self, now: Instant, limit: int) -> list[Entry]:
        """The same of the backlog."""
        return _shared([held.backlog for held in self._held.values()], now, limit)

    def next_at(self) -> Instant | None:
        """The time of the next live entry; None when there is none."""
        return _next_at([*self._coming(), *self._herds()])

    def next_fresh(self) -> Instant | None:
        """The same, of those that are in no herd."""
        return _next_at(self._coming())

    def next_soon(self) -> Instant | None:
        """The same, of those that may be handed off before their time."""
        return _next_at(held.live for held in self._held.values())

    def next_overdue(self) -> Instant | None:
        """The same of the backlog."""
        return _next_at(held.backlog for held in self._held.values())

    def to_load(self, most: int, most_late: int) -> tuple[HeldShard, Window] | None:
        """The window to load next. Of the live ones that have no more than `most` entries loaded, the one that is
        furthest behind; if there is none, the same of the past and `most_late`."""
        live = [held for held in self._held.values() if held.is_open and held.live.loaded + len(held.herd) <= most]
        if live:
            held = min(live, key=lambda held: held.ahead.loaded_to)
            return held, held.ahead
        late = [held for held in self._held.values() if held.past and held.backlog.loaded <= most_late]
        if late:
            held = min(late, key=lambda held: held.past[0].loaded_to)
            return held, held.past[0]
        return None


def _shared(wheels: list[Wheel], now: Instant, limit: int) -> list[Entry]:
    """What is due of several wheels. Where more is due than the limit, they have equal shares of it. The fullest come
    last: what others leave of their shares is theirs."""
    ready = [wheel for wheel in wheels if (at := wheel.next_at()) is not None and at <= now]
    if len(ready) == 1:
        return ready[0].due(now, limit)
    found: list[Entry] = []
    for place, wheel in enumerate(sorted(ready, key=len)):
        found += wheel.due(now, (limit - len(found)) // (len(ready) - place))
    found.sort()
    return found


def _next_at(wheels: Iterable[Wheel]) -> Instant | None:
    times = (wheel.next_at() for wheel in wheels)
    return min((time for time in times if time is not None), default=None)
