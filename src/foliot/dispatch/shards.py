"""The shards that one process holds: of each its lease, its wheel, and how far it is loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from foliot.dispatch.wheel import Entry, Wheel
from foliot.domain.instant import Instant
from foliot.domain.store import Arrivals, Cells, Lease, shard_of

BEGINNING: Entry = (-(1 << 63), -1)


class HeldShard:
    """One shard, from its taking until it is lost or given up.

    The wheel holds a part of what is pending below the lease's high-water mark: everything up to `loaded_to` that was
    visible at the cursor of the lease, and everything that arrivals told since. Only the store knows whether the lease
    is still true; it says so in `renew` and in `fire`, and then all of this is dropped.
    """

    __slots__ = ("fresh", "lease", "loaded_to", "wheel", "window_open")

    def __init__(self, lease: Lease) -> None:
        self.fresh = True
        """Just taken; it has no mark yet."""
        self.lease = lease
        self.wheel = Wheel()
        self.loaded_to = BEGINNING
        # Its window is open from the beginning of time; the first renewal gives it an end.
        self.window_open = True

    def add(self, cells: Cells) -> None:
        self.wheel.add_cells(cells)
        self.loaded_to, self.window_open = cells.last, not cells.exhausted

    def renew(self, lease: Lease, cursor: int) -> None:
        """What the store answered to a renewal, while arrivals had been told up to `cursor`."""
        raised = lease.high_water > self.lease.high_water
        if raised and not self.window_open:
            # All below the old mark is loaded, or told by arrivals: go on from the mark, not from the last run.
            self.loaded_to, self.window_open = (self.lease.high_water, -1), True
        self.lease = lease._replace(cursor=cursor if raised and not self.fresh else self.lease.cursor)
        self.fresh = False


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
    3. *A window is still being loaded when its mark is raised.* Below `loaded_to` there is nothing to add: cells held
       what the old K had seen, arrivals told the rest, because it lay below the old mark. Above it, cells are loaded
       as of the new K, and may bring runs that arrivals told before.
    4. *Other shards are lost or given up.* C does not move.

    Twins that come of 1 and 3 leave the wheel together; one that is handed off twice all the same is claimed once.
    """

    def __init__(self, shard_count: int) -> None:
        self.cursor = 0
        self._shard_count = shard_count
        self._held: dict[int, HeldShard] = {}

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
        return self._held.keys() - {lease.shard for lease in leases}

    def marks(self) -> set[Instant]:
        """The high-water marks: one, except when some shard was just taken."""
        return {held.lease.high_water for held in self._held.values()}

    # Entries

    def waiting(self) -> int:
        return sum(len(held.wheel) for held in self._held.values())

    def add_arrivals(self, arrivals: Arrivals) -> None:
        self.put_back(zip(arrivals.fire_at, arrivals.number, strict=True))
        self.cursor = arrivals.cursor

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Entries for the wheels of their shards; what belongs to a shard that is not held is not ours to keep."""
        if self._shard_count == 1:
            parts: dict[int, Iterable[Entry]] = {0: entries}
        else:
            sorted_out: dict[int, list[Entry]] = {}
            for entry in entries:
                sorted_out.setdefault(shard_of(entry[1], self._shard_count), []).append(entry)
            parts = {**sorted_out}
        for shard, part in parts.items():
            held = self._held.get(shard)
            if held is not None:
                held.wheel.put_back(part)

    def due(self, now: Instant, limit: int) -> list[Entry]:
        """Up to `limit` entries whose time is not after `now`, removed, in order.

        Where more are due, the shards have equal shares of the batch. The fullest wheels come last: what others leave
        of their shares is theirs.
        """
        ready = [held.wheel for held in self._held.values() if (at := held.wheel.next_at()) is not None and at <= now]
        if len(ready) == 1:
            return ready[0].due(now, limit)
        found: list[Entry] = []
        for place, wheel in enumerate(sorted(ready, key=len)):
            found += wheel.due(now, (limit - len(found)) // (len(ready) - place))
        found.sort()
        return found

    def next_at(self) -> Instant | None:
        """The time of the next entry; None when there is none."""
        times = (held.wheel.next_at() for held in self._held.values())
        return min((time for time in times if time is not None), default=None)

    def to_load(self, most: int) -> HeldShard | None:
        """The shard to load next: of those that have an open window and no more than `most` entries loaded, the one
        that is furthest behind."""
        wanting = (held for held in self._held.values() if held.window_open and held.wheel.loaded <= most)
        return min(wanting, key=lambda held: held.loaded_to, default=None)
