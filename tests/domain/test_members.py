"""Completeness of ticks over many members: what is counted, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.domain.members import Spread, completeness, gathered, spread_from, start_within
from foliot.domain.state import Event, State


@given(st.integers(1, 2_000), st.data())
def test_a_percentage_of_members_is_enough_exactly_when_so_many_are_done(total: int, data: st.DataObject) -> None:
    percent = data.draw(st.integers(1, 100))
    done = data.draw(st.integers(0, total))
    states = {State.SUCCEEDED: done, State.DEAD: total - done}
    enough = done * 100 >= percent * total
    assert gathered(states, percent / 100) is (Event.CHECK_PASSED if enough else Event.CHECK_REFUSED)


@pytest.mark.parametrize(
    ("states", "event"),
    [
        ({State.SUCCEEDED: 3}, Event.GATHERED),
        ({State.SUCCEEDED: 1, State.DEAD: 9}, Event.GATHERED),
        ({State.DEAD: 9}, Event.CHECK_REFUSED),
        ({State.SKIPPED: 9}, Event.GATHERED),
        ({State.SKIPPED: 8, State.AMBIGUOUS: 1}, Event.CHECK_REFUSED),
    ],
)
def test_a_tick_that_need_not_be_complete_fails_only_when_it_came_to_nothing(
    states: dict[State, int], event: Event
) -> None:
    assert gathered(states, None) is event


def test_completeness_is_told_with_what_is_lacking() -> None:
    states = {State.SUCCEEDED: 39_980, State.RECONCILED: 8, State.DEAD: 7, State.SKIPPED: 5}
    assert completeness(states) == "39,988 of 40,000; 7 dead, 5 skipped"


@given(st.text(min_size=1, max_size=20), st.integers(0, 10**15), st.integers(0, 10**10))
def test_a_member_starts_within_its_room_and_always_at_the_same_moment(name: str, nominal: int, room: int) -> None:
    found = start_within(name, nominal, room)
    assert nominal <= found <= nominal + room
    assert found == start_within(name, nominal, room)


@given(st.text(max_size=100), st.integers(0, 10**6))
def test_how_far_a_tick_has_come_is_read_as_it_was_written(last: str, made: int) -> None:
    assert spread_from(Spread(last, made).encoded()) == Spread(last, made)


@pytest.mark.parametrize("stored", [None, b"", b"nonsense", b"[1]", b'{"made": "x"}'])
def test_what_cannot_be_read_begins_anew(stored: bytes | None) -> None:
    assert spread_from(stored) == Spread()
