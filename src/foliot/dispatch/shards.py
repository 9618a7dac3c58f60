"""The shards that one process holds: of each its lease, its two wheels, and how far they are loaded."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from foliot.dispatch.wheel import Entry, Wheel
from foliot.domain.instant import MILLISECOND, Duration, Instant
from foliot.domain.lanes import BURST, HANDOVER, backlog_before
from foliot.domain.store import Arrivals, Cells, Lease, shard_of

BEGINNING: Entry = (-(1 << 63), -1)
_NOTHING_IS_LATE: Instant = -(1 << 62)
_AGES_EVERY: Duration = 50 * MILLISECOND
"""Of what grows late by a minute: all wheels are looked through for it, and most of the time there is none."""


class Window:
    """Fire times that are still to be loaded into a wheel: those after `loaded_to`, and before `until` (None: the
    mark)."""

    __slots__ = ("loaded_to", "until", "wheel")

    def __init__(self, loaded_to: Entry, until: Instant | None, wheel: Wheel) -> None:
        self.loaded_to = loaded_to
        self.until = until
        self.wheel = wheel


class HeldShard:
    """One shard, from its taking until it is lost or given up.

    The wheels hold a part of what is pending below the lease's high-water mark: everything outside the open windows
    that was visible at the cursor of the lease, and everything that arrivals told since. Only the store knows whether
    the lease is still true; it says so in `renew` and in `fire`, and then all of this is dropped.

    The backlog is in `backlog`, what is left of a burst in `burst`, the rest in `live`; see `foliot.domain.lanes`. The
    live window is loaded ahead of time. Behind it lie the windows of the past, the oldest first: they are loaded as the
    backlog and the burst drain.
    """

    __slots__ = (
        "ahead", "backlog", "burst", "burst_before", "fresh", "herd", "is_open", "late_before", "lease", "live",
        "past", "patient", "taken_at",
    )  # fmt: skip

    def __init__(self, lease: Lease, taken_at: Instant) -> None:
        self.fresh = True
        """Just taken; it has no mark yet."""
        self.lease = lease
        self.live = Wheel()
        self.herd = Wheel()
        """What was due of `live` when more than a batch of it was: what falls due later does not wait for all of it."""
        self.patient = Wheel()
        """What cannot be handed off before its time; see `DispatchStore.lead`."""
        self.burst = Wheel()
        self.backlog = Wheel()
        self.taken_at = taken_at
        self.late_before = backlog_before(taken_at, taken_at)
        """What was due before this is backlog."""
        self.burst_before = _NOTHING_IS_LATE
        """What was due before this, and is not backlog, is of the last burst."""
        # Its window is open from the beginning of time; the first renewal gives it an end.
        self.ahead = Window(BEGINNING, None, self.live)
        self.is_open = True
        """Whether there is anything left to load of the window ahead."""
        self.past: deque[Window] = deque()

    def add(self, window: Window, cells: Cells) -> None:
        """What the store answered to a load of one of the windows."""
        window.wheel.add_cells(cells)
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

    def put_back(self, entries: list[Entry]) -> None:
        for wheel, before in ((self.backlog, self.late_before), (self.burst, self.burst_before)):
            older = [entry for entry in entries if entry[0] < before]
            if older:
                wheel.put_back(older)
                entries = [entry for entry in entries if entry[0] >= before]
        self.live.put_back(entries)

    def age(self, now: Instant) -> None:
        """Runs that have become backlog and were not fired join it, and so does that part of the live window."""
        late_before = self.late_before = backlog_before(now, self.taken_at)
        for wheel in (self.live, self.herd, self.patient, self.burst):
            first = wheel.next_at()
            if first is not None and first < late_before:
                self.backlog.put_back(wheel.before(late_before))
        for window in self.past:
            if window.until is not None and window.until <= late_before:
                window.wheel = self.backlog
        self._cut(late_before, self.backlog)
        if self.burst_before > now + HANDOVER:
            self.burst_before = _NOTHING_IS_LATE  # the clock was set back

    def overflow(self, before: Instant) -> None:
        """What is due before this moment, and was not fired, is of a burst; so is that part of the live window."""
        self.burst_before = max(self.burst_before, before)
        self.herd.move_due(before - 1, self.burst)
        self.live.move_due(before - 1, self.burst)
        self._cut(before, self.burst)

    def _cut(self, before: Instant, wheel: Wheel) -> None:
        begin = self.ahead.loaded_to
        if begin[0] >= before or not self.is_open or self.fresh:
            return
        end, last = min(before, self.lease.high_water), self.past[-1] if self.past else None
        if last is not None and last.wheel is wheel and (last.until, -1) == begin:
            last.until = end
        else:
            self.past.append(Window(begin, end, wheel))
        self.ahead.loaded_to = (end, -1)

    def to_load(self, wheel: Wheel) -> Window | None:
        """The oldest window of the past that belongs to a wheel."""
        return next((window for window in self.past if window.wheel is wheel), None)


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
    4. *A window is cut in two*, because its older part is backlog or of a burst. Every fire time below the mark is
       either outside all windows or inside one: the part begins where the window began, and ends where the rest goes
       on. So 3 holds for each of them, whichever is loaded first, and however long the other waits.
    5. *An entry is backlog or of a burst* before it was fired. It goes from one wheel of its shard to another, and is
       fired there.
    6. *Other shards are lost or given up.* C does not move.

    Twins that come of 1 and 3 leave the wheel together; one that is handed off twice all the same is claimed once.
    """

    def __init__(self, shard_count: int, burst: int = BURST) -> None:
        """`burst`: the most live runs that may be due and wait to be handed off."""
        self.cursor = 0
        self._shard_count = shard_count
        self._most_live = burst
        self._held: dict[int, HeldShard] = {}
        self._aged_at = _NOTHING_IS_LATE
        """What was backlog then is where it belongs, but for windows that were opened since."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[int]:
        return iter(self._held)

    def __contains__(self, shard: int) -> bool:
        return shard in self._held

    # Leases

    def hold(self, lease: Lease, taken_at: Instant = _NOTHING_IS_LATE) -> None:
        """`taken_at`: when the lease was taken, by the store's clock."""
        if not self._held:
            self.cursor = lease.cursor
        self._held[lease.shard] = HeldShard(lease, taken_at)

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
        self._aged_at = _NOTHING_IS_LATE
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
            len(wheel)
            for held in self._held.values()
            for wheel in (held.live, held.herd, held.patient, held.burst, held.backlog)
        )

    def age(self, now: Instant) -> None:
        """What is backlog now joins it, wherever it comes from."""
        if not self._aged_at <= now < self._aged_at + _AGES_EVERY:
            self._aged_at = now
            for held in self._held.values():
                held.age(now)

    def add_arrivals(self, arrivals: Arrivals) -> None:
        self.put_back(zip(arrivals.fire_at, arrivals.number, strict=True))
        self.cursor = arrivals.cursor

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Entries for the wheels of their shards; what belongs to a shard that is not held is not ours to keep."""
        for held, part in self._parts(entries):
            held.put_back(part)

    def put_behind(self, entries: Iterable[Entry]) -> None:
        """The same, for what waits for the rate of catch-up, however late it is."""
        for held, part in self._parts(entries):
            held.backlog.put_back(part)

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
        then, the rest for the herd: thousands of runs of one moment do not keep those of the next moment waiting until
        the last of them is handed off. Where it is too much for the lane live, it is a burst, and no longer live."""
        fresh = _shared(self._coming(), now, limit)
        if len(fresh) == limit > 1:
            fresh = self._newest_of_herd(fresh, now, limit // 2)
            if sum(map(len, self._herds())) + len(fresh) > self._most_live:
                fresh = self._overflow(fresh, now)
        return sorted(fresh + _shared(self._herds(), now, limit - len(fresh)))

    def _newest_of_herd(self, due: list[Entry], now: Instant, limit: int) -> list[Entry]:
        """Everything that is due joins the herds, but for the newest. Each shard has its share of these."""
        self.put_back(due)
        joining: list[tuple[HeldShard, Wheel]] = []
        for held in self._held.values():
            moved = Wheel()
            held.live.move_due(now, moved)
            held.patient.move_due(now, moved)
            joining += [(held, moved)] if len(moved) else []
        newest: list[Entry] = []
        for place, (held, moved) in enumerate(sorted(joining, key=lambda one: len(one[1]))):
            newest += moved.newest((limit - len(newest)) // (len(joining) - place))
            moved.move_due(now, held.herd)
        return newest

    def _overflow(self, newest: list[Entry], now: Instant) -> list[Entry]:
        """Ends the burst where the newer half of `newest` begins, and returns what is due after that: what falls due
        just after the runs of one moment is not of their burst. Where not all that is due was loaded, the burst is all
        that is due now."""
        newest = sorted(newest)
        is_loaded = all(held.fresh or not held.is_open or held.ahead.loaded_to[0] > now for held in self._held.values())
        before = (newest[len(newest) // 2][0] if is_loaded else now) + 1
        for held in self._held.values():
            held.overflow(before)
        self.put_back(entry for entry in newest if entry[0] < before)
        return [entry for entry in newest if entry[0] >= before]

    def is_burst_by(self, moment: Instant, beside: int = 0) -> bool:
        """Whether more live runs than are allowed are due by then. `beside` more were taken out to be fired."""
        count = beside
        for wheel in (*self._coming(), *self._herds()):
            count += wheel.count_due(moment, self._most_live + 1 - count)
            if count > self._most_live:
                return True
        return False

    def has_burst(self) -> bool:
        return any(len(held.burst) for held in self._held.values())

    def burst(self, now: Instant, limit: int) -> list[Entry]:
        """The same as `due`, of a burst."""
        return _shared([held.burst for held in self._held.values()], now, limit)

    def next_burst(self) -> Instant | None:
        """The time of the next entry of a burst; None when there is none."""
        return _next_at(held.burst for held in self._held.values())

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
        furthest behind; if there is none, the same of bursts; then the same of the backlog and `most_late`."""
        live = [held for held in self._held.values() if held.is_open and held.live.loaded + len(held.herd) <= most]
        if live:
            held = min(live, key=lambda held: held.ahead.loaded_to)
            return held, held.ahead
        burst = [held for held in self._held.values() if len(held.live) + len(held.herd) + len(held.burst) <= most]
        late = [held for held in self._held.values() if held.backlog.loaded <= most_late]
        return _oldest((held, held.to_load(held.burst)) for held in burst) or _oldest(
            (held, held.to_load(held.backlog)) for held in late
        )


def _oldest(found: Iterable[tuple[HeldShard, Window | None]]) -> tuple[HeldShard, Window] | None:
    open_windows = [(held, window) for held, window in found if window is not None]
    return min(open_windows, key=lambda pair: pair[1].loaded_to, default=None)


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
