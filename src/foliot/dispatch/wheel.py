"""The wheel: what is due soon, in memory. A cache of the store, and nothing more: a restart rebuilds it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush, nlargest
from itertools import islice
from operator import eq

from foliot.domain.instant import Instant
from foliot.domain.store import Arrivals, Cells

Entry = tuple[Instant, int]
"""A fire time and a run number: what the store needs to find the run, and to see that it was not moved meanwhile."""

_NUMBER_BITS = 63
_NUMBER_MASK = (1 << _NUMBER_BITS) - 1


def _packed(entry: Entry) -> int:
    """One integer that sorts as the entry does: run numbers are never negative and fit into 63 bits."""
    return entry[0] << _NUMBER_BITS | entry[1]


class _Slice:
    """A sorted piece of loaded cells, eaten from the front. Sixteen bytes an entry; eating moves only `position`."""

    __slots__ = ("fire_at", "number", "position")

    def __init__(self, fire_at: array[int], number: array[int]) -> None:
        self.fire_at = fire_at
        self.number = number
        self.position = 0

    def __len__(self) -> int:
        return len(self.fire_at) - self.position

    def peek(self, now: Instant, limit: int) -> list[Entry]:
        end = bisect_right(self.fire_at, now, self.position, min(self.position + limit, len(self.fire_at)))
        return list(zip(self.fire_at[self.position : end], self.number[self.position : end], strict=True))


class Wheel:
    """Loaded cells in sorted slices, late arrivals in a heap; both are eaten together, in the order of time.

    Slices follow one another: each load begins where the one before ended, so all of them are one long sorted array
    and a batch is cut off its front by bisection. Arrivals come in any order and are few; the heap holds them as
    packed integers, which take a third of the room of tuples and compare three times as fast.
    """

    def __init__(self) -> None:
        self._slices: deque[_Slice] = deque()
        self._last: Entry | None = None
        self._loaded = 0
        self._heap: list[int] = []

    def __len__(self) -> int:
        return self._loaded + len(self._heap)

    @property
    def loaded(self) -> int:
        """Entries that came with cells: what the dispatcher keeps bounded. Arrivals are not its choice."""
        return self._loaded

    def add_cells(self, cells: Cells) -> None:
        """Appends a slice. One that does not begin after the last one's end joins the arrivals: order never breaks."""
        if not cells.fire_at:
            return
        first, last = (cells.fire_at[0], cells.number[0]), (cells.fire_at[-1], cells.number[-1])
        if self._slices and self._last is not None and first <= self._last:
            self.put_back(zip(cells.fire_at, cells.number, strict=True))
            return
        self._slices.append(_Slice(cells.fire_at, cells.number))
        self._last = last
        self._loaded += len(cells.fire_at)

    def add_arrivals(self, arrivals: Arrivals) -> None:
        self.put_back(zip(arrivals.fire_at, arrivals.number, strict=True))

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Entries that were refused because the store's clock had not reached them, or whose firing failed."""
        self._push([_packed(entry) for entry in entries])

    def _push(self, packed: list[int]) -> None:
        if len(packed) > len(self._heap) // 8:
            # So many that building the heap anew is cheaper than sifting each of them into its place.
            self._heap.extend(packed)
            heapify(self._heap)
            return
        for entry in packed:
            heappush(self._heap, entry)

    def due(self, now: Instant, limit: int) -> list[Entry]:
        """Up to `limit` entries whose time is not after `now`, removed, in order; the same entry twice counts once.

        Why the cut is right: each source gives its `limit` smallest different entries, or all that can matter. So the
        `limit` smallest of both together are among them, and whatever stays behind is larger than the last one taken.
        """
        if limit < 1:
            return []
        loaded = self._peek_loaded(now, limit)
        # With a full batch of loaded entries, no arrival beyond the last of them can belong to it.
        bound = _packed(loaded[-1]) if len(loaded) == limit else (now << _NUMBER_BITS) | _NUMBER_MASK
        arrived = self._pop_arrived(bound, limit)
        if not arrived:
            self._eat(len(loaded))
            return loaded
        # Two sorted runs: sorting merges them in one pass.
        taken = list(dict.fromkeys(sorted(loaded + arrived)))[:limit]
        self._eat(bisect_right(loaded, taken[-1]))
        self.put_back(arrived[bisect_right(arrived, taken[-1]) :])
        return taken

    def before(self, moment: Instant) -> list[Entry]:
        """All entries whose time is before `moment`, removed, in any order."""
        found = self._peek_loaded(moment - 1, self._loaded)
        self._eat(len(found))
        bound = moment << _NUMBER_BITS
        if self._heap and self._heap[0] < bound:
            found += [(entry >> _NUMBER_BITS, entry & _NUMBER_MASK) for entry in self._heap if entry < bound]
            self._heap = [entry for entry in self._heap if entry >= bound]
            heapify(self._heap)
        return found

    def move_due(self, now: Instant, other: Wheel) -> None:
        """Everything whose time is not after `now` goes to another wheel. Slices go as they lie here; arrivals become
        one, because so many are sorted sooner than they are sifted out one by one."""
        while self._slices:
            first = self._slices[0]
            begin, end = first.position, bisect_right(first.fire_at, now, first.position)
            if end == begin:
                break
            last = (first.fire_at[end - 1], first.number[end - 1])
            other.add_cells(Cells(first.fire_at[begin:end], first.number[begin:end], last, False))
            self._eat(end - begin)
        bound = (now << _NUMBER_BITS) | _NUMBER_MASK
        if self._heap and self._heap[0] <= bound:
            ordered = sorted(self._heap)
            end = bisect_right(ordered, bound)
            other._add_sorted(ordered[:end])
            self._heap = ordered[end:]  # what is sorted is a heap

    def _add_sorted(self, packed: list[int]) -> None:
        """As a slice. Nothing is fired meanwhile: so most herds, which are of one moment and without twins, are looked
        through once."""
        if any(map(eq, packed, islice(packed, 1, None))):
            packed = list(dict.fromkeys(packed))
        first, last = packed[0] >> _NUMBER_BITS, packed[-1] >> _NUMBER_BITS
        if first == last:
            times = array("q", [first]) * len(packed)
        else:
            times = array("q", [entry >> _NUMBER_BITS for entry in packed])
        numbers = array("q", [entry & _NUMBER_MASK for entry in packed])
        self.add_cells(Cells(times, numbers, (times[-1], numbers[-1]), False))

    def newest(self, limit: int) -> list[Entry]:
        """The last `limit` entries, removed, in order."""
        loaded: list[int] = []
        while self._slices and len(loaded) < limit:
            last = self._slices.pop()
            begin = max(len(last.fire_at) - (limit - len(loaded)), last.position)
            loaded += map(_packed, zip(last.fire_at[begin:], last.number[begin:], strict=True))
            del last.fire_at[begin:], last.number[begin:]
            if len(last):
                self._slices.append(last)
        self._loaded -= len(loaded)
        self._last = None if not self._slices else (self._slices[-1].fire_at[-1], self._slices[-1].number[-1])
        chosen = set(nlargest(limit, {*loaded, *self._heap}))
        kept = [entry for entry in loaded if entry not in chosen]
        if kept or self._heap:
            self._heap = [entry for entry in self._heap if entry not in chosen] + kept
            heapify(self._heap)
        return sorted((entry >> _NUMBER_BITS, entry & _NUMBER_MASK) for entry in chosen)

    def next_at(self) -> Instant | None:
        """The time of the next entry; None when there is none."""
        arrived = self._heap[0] >> _NUMBER_BITS if self._heap else None
        if not self._slices:
            return arrived
        first = self._slices[0]
        loaded = first.fire_at[first.position]
        return loaded if arrived is None or loaded < arrived else arrived

    def count_due(self, now: Instant, limit: int) -> int:
        """How many entries have a time that is not after `now`. Counts to `limit` at most, and looks at few others."""
        count = 0
        for piece in self._slices:
            count += bisect_right(piece.fire_at, now, piece.position) - piece.position
            if count >= limit or piece.fire_at[-1] > now:
                break
        # From the top of the heap down: below an entry that is later there are only later ones.
        heap, bound, below = self._heap, (now << _NUMBER_BITS) | _NUMBER_MASK, [0]
        while below and count < limit:
            place = below.pop()
            if place < len(heap) and heap[place] <= bound:
                count += 1
                below += (2 * place + 1, 2 * place + 2)
        return min(count, limit)

    def clear(self) -> None:
        self._slices.clear()
        self._last = None
        self._loaded = 0
        self._heap.clear()

    def _peek_loaded(self, now: Instant, limit: int) -> list[Entry]:
        found: list[Entry] = []
        for piece in self._slices:
            found += piece.peek(now, limit - len(found))
            # Not eaten to its end: the rest of it is too late or too much, and so are the slices after it.
            if len(found) >= limit or piece.fire_at[-1] > now:
                break
        return found

    def _pop_arrived(self, bound: int, limit: int) -> list[Entry]:
        heap = self._heap
        popped: list[int] = []
        while heap and heap[0] <= bound and (len(popped) < limit or heap[0] == popped[-1]):
            entry = heappop(heap)
            # A cursor may tell an arrival twice. Twins leave together, or the second would come out in a later batch.
            if not popped or entry != popped[-1]:
                popped.append(entry)
        return [(entry >> _NUMBER_BITS, entry & _NUMBER_MASK) for entry in popped]

    def _eat(self, count: int) -> None:
        self._loaded -= count
        while count:
            piece = self._slices[0]
            step = min(count, len(piece))
            piece.position += step
            count -= step
            if not len(piece):
                self._slices.popleft()
