"""How a schedule stands: pure reckoning about its runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.policy import Policy
from foliot.domain.run import Origin
from foliot.domain.schedule import Schedule
from foliot.domain.standing import STRIP, EndedTick, Mark, ScheduleFacts, mark_of, standing
from foliot.domain.state import Reason, State

NOW = 1_000 * HOUR


def tick(place: int = 0, **more: Any) -> EndedTick:
    nominal = NOW - (place + 1) * HOUR
    given_: dict[str, Any] = {
        "number": 1_000 - place,
        "name": None,
        "state": State.SUCCEEDED,
        "origin": Origin.SCHEDULED,
        "nominal": nominal,
        "since": nominal - HOUR,
        "attempt": 1,
        "spent": 1,
        "reason": None,
        "fired_at": nominal,
        "claimed_at": nominal + SECOND,
        "started_at": nominal + 2 * SECOND,
        "finished_at": nominal + 8 * SECOND,
        "span_count": 1,
    }
    return EndedTick(**given_ | more)


def facts(*recent: EndedTick, **policy: Any) -> ScheduleFacts:
    rest = (None, None, None, 0, None, None, None, None, 1, "v1", 0)
    schedule = Schedule("hourly", "job", "{}", b"{}", Policy(**policy), *rest)
    return ScheduleFacts(schedule, recent=recent, useful_at=recent[0].finished_at if recent else None)


@pytest.mark.parametrize(
    ("changed", "mark"),
    [
        ({}, Mark.KEPT),
        ({"state": State.VERIFIED}, Mark.KEPT),
        ({"started_at": NOW}, Mark.LATE),
        ({"spent": 2}, Mark.RETRIED),
        ({"state": State.VERIFIED, "attempt": 2}, Mark.KEPT),
        ({"state": State.VERIFIED, "attempt": 3}, Mark.RETRIED),
        ({"reason": Reason.PARTIAL, "spent": 2}, Mark.PARTIAL),
        ({"state": State.SKIPPED, "reason": Reason.OVERLAP}, Mark.SKIPPED),
        ({"state": State.SKIPPED, "reason": Reason.MISFIRE}, Mark.MISSED),
        ({"state": State.SKIPPED, "reason": Reason.TOO_LATE}, Mark.MISSED),
        ({"state": State.CANCELLED}, Mark.SKIPPED),
        ({"state": State.RECONCILED}, Mark.SETTLED),
        ({"state": State.DEAD}, Mark.FAILED),
        ({"state": State.RUNNING}, None),
    ],
)
def test_what_became_of_a_tick_is_one_word(changed: dict[str, Any], mark: Mark | None) -> None:
    assert mark_of(tick(**changed), MINUTE) is mark


def test_a_tick_that_was_not_done_for_all_members_is_not_counted_as_useful() -> None:
    found = standing(facts(tick(), tick(1, reason=Reason.PARTIAL)), NOW)
    assert (found.useful, found.partial, found.strip) == (1, 1, (Mark.PARTIAL, Mark.KEPT))


def test_what_a_schedules_runs_say_of_it_is_reckoned_from_the_last_of_them() -> None:
    slow = tick(1, finished_at=NOW - 2 * HOUR + 32 * MINUTE, spent=3, attempt=3)
    found = standing(facts(tick(), slow, tick(2, state=State.SKIPPED, reason=Reason.OVERLAP, spent=0)), NOW)
    assert found.strip == (Mark.SKIPPED, Mark.RETRIED, Mark.KEPT)
    assert found.durations == (32 * MINUTE - 2 * SECOND, 6 * SECOND)
    assert (found.queue_delay, found.lateness, found.retries, found.overlaps) == (SECOND, 2 * SECOND, 2, 1)
    assert found.useful_per_attempt == pytest.approx(0.5)
    assert found.ratio == pytest.approx((16 * MINUTE + 2 * SECOND) / HOUR, abs=0.01)
    assert (found.emitted, found.completed, found.needs) == (3, 3, ())


def test_a_backfill_is_not_late() -> None:
    old = tick(9, origin=Origin.BACKFILL, claimed_at=NOW, started_at=NOW)
    found = standing(facts(tick(), old), NOW)
    assert (found.lateness, found.worst, mark_of(old, MINUTE)) == (2 * SECOND, 2 * SECOND, Mark.KEPT)


def test_a_schedule_without_a_past_has_nothing_to_say() -> None:
    found = standing(facts(), NOW)
    assert (found.strip, found.last, found.ratio, found.useful_per_attempt, found.lateness) == (
        (),
        None,
        None,
        None,
        None,
    )


@given(st.lists(st.sampled_from([State.SUCCEEDED, State.SKIPPED, State.CANCELLED]), max_size=40), st.integers(1, 50))
def test_a_strip_is_never_longer_than_thirty_and_ends_with_the_latest(states: list[State], span: int) -> None:
    rows = [
        tick(place, state=state, span_count=span if state is State.SKIPPED else 1) for place, state in enumerate(states)
    ]
    strip = standing(facts(*rows), NOW).strip
    assert len(strip) == min(sum(row.span_count for row in rows), STRIP)
    if rows:
        assert strip[-1] is mark_of(rows[0], MINUTE)
