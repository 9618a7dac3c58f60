"""The wheel against a sorted list."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from foliot.dispatch.wheel import Entry, Wheel
from foliot.domain.store import Arrivals, Cells

LARGEST = (1 << 63) - 1
times = some.integers(-20, 60) | some.integers(-(1 << 62), 1 << 62)
numbers = some.integers(0, 30) | some.integers(0, LARGEST)
entries = some.lists(some.tuples(times, numbers), max_size=30)


def cells(given: list[Entry]) -> Cells:
    ordered = sorted(set(given))
    return Cells(
        array("q", [entry[0] for entry in ordered]),
        array("q", [entry[1] for entry in ordered]),
        last=ordered[-1] if ordered else (0, 0),
        exhausted=True,
    )


def arrivals(given: list[Entry]) -> Arrivals:
    return Arrivals(array("q", [entry[0] for entry in given]), array("q", [entry[1] for entry in given]), cursor=0)


class WheelAgainstASortedList(RuleBasedStateMachine):
    """Both hold a set of entries: whatever was added twice without having come out is one entry."""

    def __init__(self) -> None:
        super().__init__()
        self.wheel = Wheel()
        self.model: set[Entry] = set()
        self.loaded_to: Entry = (-(1 << 63), -1)

    @rule(given=some.lists(some.tuples(some.integers(0, 3), some.integers(0, 5)), max_size=8))
    def load_a_slice_that_goes_on_where_the_last_ended(self, given: list[Entry]) -> None:
        start = max(self.loaded_to[0], -20)
        later = [(start + ahead, number) for ahead, number in given if (start + ahead, number) > self.loaded_to]
        self.wheel.add_cells(cells(later))
        self.model |= set(later)
        self.loaded_to = max([self.loaded_to, *later])

    @rule(given=some.lists(some.tuples(some.integers(-20, 60), numbers), max_size=8))
    def load_a_slice_out_of_order(self, given: list[Entry]) -> None:
        self.wheel.add_cells(cells(given))
        self.model |= set(given)
        self.loaded_to = max([self.loaded_to, *given])

    @rule(given=entries)
    def hear_of_arrivals(self, given: list[Entry]) -> None:
        self.wheel.add_arrivals(arrivals(given))
        self.model |= set(given)

    @rule(given=entries)
    def put_back(self, given: list[Entry]) -> None:
        self.wheel.put_back(given)
        self.model |= set(given)

    @rule(now=times, limit=some.integers(0, 12))
    def take_what_is_due(self, now: int, limit: int) -> None:
        expected = sorted(entry for entry in self.model if entry[0] <= now)[:limit]
        assert self.wheel.due(now, limit) == expected
        self.model -= set(expected)

    @rule(limit=some.integers(0, 12))
    def take_the_newest(self, limit: int) -> None:
        expected = sorted(self.model)[-limit:] if limit else []
        assert self.wheel.newest(limit) == expected
        self.model -= set(expected)

    @rule(now=times)
    def move_what_is_due_away_and_back(self, now: int) -> None:
        """What is left behind is not due; what moved is all there, and in order."""
        other = Wheel()
        self.wheel.move_due(now, other)
        assert (first := self.wheel.next_at()) is None or first > now
        moved = other.due(now, len(self.model) + 1)
        assert moved == sorted(entry for entry in self.model if entry[0] <= now)
        assert len(other) == 0
        self.wheel.put_back(moved)

    @precondition(lambda self: self.model)
    @rule()
    def clear(self) -> None:
        self.wheel.clear()
        self.model.clear()
        self.loaded_to = (-(1 << 63), -1)

    @invariant()
    def the_next_is_the_smallest(self) -> None:
        assert self.wheel.next_at() == min((entry[0] for entry in self.model), default=None)

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.wheel) >= len(self.model)
        assert bool(len(self.wheel)) == bool(self.model)


TestWheelAgainstASortedList = WheelAgainstASortedList.TestCase


@given(entries, entries)
def test_everything_comes_out_once_and_in_order(loaded: list[Entry], arrived: list[Entry]) -> None:
    wheel = Wheel()
    wheel.add_cells(cells(loaded))
    wheel.add_arrivals(arrivals(arrived))
    out: list[Entry] = []
    while batch := wheel.due(1 << 62, 3):
        out += batch
    assert out == sorted({*loaded, *arrived})
    assert len(wheel) == 0


def test_a_batch_is_cut_across_slices() -> None:
    wheel = Wheel()
    for first in range(0, 50, 10):
        wheel.add_cells(cells([(time, time) for time in range(first, first + 10)]))
    assert wheel.due(100, 25) == [(time, time) for time in range(25)]
    assert wheel.due(33, 25) == [(time, time) for time in range(25, 34)]


def test_a_loaded_run_that_is_told_again_as_an_arrival_comes_out_once() -> None:
    wheel = Wheel()
    wheel.add_cells(cells([(10, 1), (20, 2)]))
    wheel.add_arrivals(arrivals([(10, 1), (10, 1)]))
    assert wheel.due(15, 100) == [(10, 1)]
    assert wheel.due(100, 100) == [(20, 2)]


def test_arrivals_behind_a_full_batch_of_loaded_runs_stay_where_they_are() -> None:
    wheel = Wheel()
    wheel.add_cells(cells([(time, time) for time in range(100)]))
    wheel.add_arrivals(arrivals([(5, 1_000), (50, 1_001)]))
    assert wheel.due(1_000, 6) == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]
    assert wheel.due(1_000, 2) == [(5, 1_000), (6, 6)]
    assert wheel.next_at() == 7
    assert (wheel.loaded, len(wheel)) == (93, 94)


def test_an_entry_costs_sixteen_bytes_while_it_waits_in_a_slice() -> None:
    given = cells([(time, time) for time in range(1_000)])
    assert given.fire_at.itemsize + given.number.itemsize == 16
    wheel = Wheel()
    wheel.add_cells(given)
    assert wheel._slices[0].fire_at is given.fire_at  # kept as it came, not copied into objects
