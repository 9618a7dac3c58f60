"""The pace of a backfill: rate, room and window; and what people may ask of one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.domain.backfill import (
    BURST,
    Allowance,
    Backfill,
    BackfillProgress,
    BackfillState,
    Pace,
    Window,
    allowance,
    checked_turn,
    due_by_rate,
    fails_too_often,
    paced,
    refuse_ended,
    repaced,
    stored_window,
    time_needed,
    window,
)
from foliot.domain.gates import Rate
from foliot.domain.instant import HOUR, MINUTE, SECOND, Instant
from foliot.domain.state import State
from foliot.errors import Conflict, InvalidInput

NOW: Instant = 1_800_000_000 * SECOND
TEN_A_MINUTE = Rate.parse("10/m")


def filling(**more: Any) -> Backfill:
    given: dict[str, Any] = {
        "number": 7,
        "schedule": "nightly",
        "state": BackfillState.RUNNING,
        "version": 1,
        "start": 0,
        "end": 100,
        "newest_first": False,
        "cursor": -1,
        "total": 20,
        "made": 0,
        "existed": 0,
        "pace": Pace(),
        "pace_at": NOW,
        "stop_after": 10,
        "forgiven": None,
        "reason": None,
        "job": "job",
        "rule": "{}",
        "revision": 1,
        "actor": "ada",
        "note": "because",
        "made_at": NOW,
        "ended_at": None,
        "first_number": None,
        "last_number": None,
    }
    return Backfill(**given | more)


# ----------------------------------------------------------------------------------------------------------------- pace


def test_as_many_as_there_is_room_for_are_made_where_there_is_no_rate() -> None:
    backfill = filling(pace=Pace(at_once=5))
    assert allowance(backfill, unfinished=2, opens_at=None, now=NOW) == Allowance(3, None)


def test_without_room_only_the_end_of_a_run_helps() -> None:
    backfill = filling(pace=Pace(TEN_A_MINUTE, at_once=2), pace_at=NOW + HOUR)
    assert allowance(backfill, unfinished=2, opens_at=None, now=NOW) == Allowance(0, None)
    assert allowance(backfill, unfinished=3, opens_at=None, now=NOW) == Allowance(0, None)


def test_a_rate_says_when_the_next_one_is_due() -> None:
    backfill = filling(pace=Pace(TEN_A_MINUTE, at_once=5))
    assert allowance(backfill, unfinished=0, opens_at=None, now=NOW) == Allowance(1, NOW + 6 * SECOND)
    later = filling(pace=Pace(TEN_A_MINUTE, at_once=5), pace_at=NOW + 6 * SECOND)
    assert allowance(later, unfinished=1, opens_at=None, now=NOW) == Allowance(0, NOW + 6 * SECOND)


def test_nothing_is_made_while_the_window_is_closed() -> None:
    backfill = filling(pace=Pace(TEN_A_MINUTE, at_once=5))
    assert allowance(backfill, unfinished=0, opens_at=NOW + HOUR, now=NOW) == Allowance(0, NOW + HOUR)
    assert allowance(backfill, unfinished=0, opens_at=NOW, now=NOW).runs == 1


@given(
    every=st.integers(1, 100 * SECOND),
    looks=st.lists(st.integers(0, 10 * SECOND), min_size=1, max_size=60),
    wanted=st.lists(st.integers(0, 1_000), min_size=60, max_size=60),
)
def test_a_rate_is_never_exceeded_in_any_span_of_time(every: int, looks: list[int], wanted: list[int]) -> None:
    """Whatever is looked when, and however many are taken: between any two looks there are no more than the rate allows
    in that time, and what a second of inattention left behind."""
    pace_at, now = NOW, NOW
    taken: list[tuple[Instant, int]] = []
    for step, most in zip(looks, wanted, strict=False):
        now += step
        count = min(due_by_rate(pace_at, every, now), most)
        pace_at = paced(pace_at, every, now, count)
        taken.append((now, count))
    for first in range(len(taken)):
        total = 0
        for when, count in taken[first:]:
            total += count
            assert total <= (when - taken[first][0] + BURST) // every + 1


@given(every=st.integers(1, SECOND), steps=st.lists(st.integers(1, SECOND), min_size=1, max_size=60))
def test_who_looks_at_least_once_a_second_keeps_up_with_the_rate(every: int, steps: list[int]) -> None:
    pace_at, now, made = NOW, NOW, 0
    for step in (0, *steps):
        now += step
        count = due_by_rate(pace_at, every, now)
        pace_at = paced(pace_at, every, now, count)
        made += count
    assert made == (now - NOW) // every + 1


@given(every=st.integers(1, HOUR), idle=st.integers(0, 100 * HOUR))
def test_when_the_next_is_said_to_be_due_it_is_due_and_not_before(every: int, idle: int) -> None:
    now = NOW + idle
    count = due_by_rate(NOW, every, now)
    following = paced(NOW, every, now, count)
    assert following > now
    assert due_by_rate(following, every, following - 1) == 0
    assert due_by_rate(following, every, following) == 1


def test_a_faster_rate_does_not_wait_for_what_the_slower_one_had_in_mind() -> None:
    backfill = filling(pace=Pace(Rate.parse("1/h")), pace_at=NOW + HOUR)
    assert repaced(backfill, Pace(Rate.parse("1/s")), NOW) == NOW + SECOND
    assert repaced(backfill, Pace(Rate.parse("1/d")), NOW) == NOW + HOUR
    assert repaced(backfill, Pace(), NOW) == NOW + HOUR


# --------------------------------------------------------------------------------------------------------------- window


def test_a_window_is_read_and_written() -> None:
    night = window("22:00-06:30", "Europe/Paris")
    assert night == Window((22, 0), (6, 30), "Europe/Paris")
    assert str(night) == "22:00-06:30 Europe/Paris"
    assert stored_window(str(night)) == night
    assert stored_window(None) is None


@pytest.mark.parametrize("text", ["", "22-6", "22:00", "24:00-06:00", "22:60-06:00", "22:00-22:00", "22:00-06:00x"])
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        window(text, "UTC")


# --------------------------------------------------------------------------------------------------------- what follows


def test_failures_in_a_row_stop_it_unless_nothing_shall() -> None:
    assert fails_too_often(filling(stop_after=3), 2) is None
    assert "3 runs in a row" in (fails_too_often(filling(stop_after=3), 3) or "")
    assert fails_too_often(filling(stop_after=None), 1_000) is None


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (BackfillState.RUNNING, BackfillState.RUNNING),
        (BackfillState.PAUSED, BackfillState.PAUSED),
        (BackfillState.DONE, BackfillState.CANCELLED),
        (BackfillState.CANCELLED, BackfillState.RUNNING),
        (BackfillState.RUNNING, BackfillState.DONE),
    ],
)
def test_what_makes_no_sense_is_refused(state: BackfillState, wanted: BackfillState) -> None:
    with pytest.raises(Conflict, match=f"backfill 7 is {state}"):
        checked_turn(filling(state=state), wanted)


def test_the_pace_of_what_has_ended_cannot_be_changed() -> None:
    refuse_ended(filling(state=BackfillState.PAUSED))
    with pytest.raises(Conflict, match="cancelled"):
        refuse_ended(filling(state=BackfillState.CANCELLED))


@pytest.mark.parametrize(
    ("pace", "usual", "abreast", "needed"),
    [
        (Pace(), None, False, None),
        (Pace(TEN_A_MINUTE), None, False, MINUTE),
        (Pace(TEN_A_MINUTE), SECOND, False, MINUTE),
        (Pace(TEN_A_MINUTE), MINUTE, False, 10 * MINUTE),
        (Pace(None, at_once=5), MINUTE, True, 2 * MINUTE),
        (Pace(None, at_once=5), MINUTE, False, 10 * MINUTE),
    ],
)
def test_how_long_it_takes_follows_from_rate_work_and_room(
    pace: Pace, usual: int | None, abreast: bool, needed: int | None
) -> None:
    assert time_needed(10, pace, usual=usual, abreast=abreast) == needed
    assert time_needed(0, pace, usual=usual, abreast=abreast) == 0


def test_progress_counts_what_needs_nothing_any_more() -> None:
    backfill = filling(made=6, existed=3)
    states = {State.SUCCEEDED: 2, State.DEAD: 1, State.RUNNING: 1, State.HELD: 1}  # one was forgotten by history
    progress = BackfillProgress(backfill, states, NOW)
    assert (progress.ended, progress.unfinished, progress.waiting_for_people) == (3, 2, 1)
    assert (progress.settled, backfill.left) == (7, 11)
