"""The account of what happens: its lines, and what of it is printed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from foliot.cli import account
from foliot.cli.account import Account, Line, rendered
from foliot.domain.instant import MILLISECOND, MINUTE, SECOND, parse_rfc3339
from foliot.domain.run import AttemptView, Lane, Origin, RunView
from foliot.domain.state import Outcome, State
from foliot.domain.store import EventRow

NOW = parse_rfc3339("2026-04-03T02:00:00Z")


def view(state: State = State.SUCCEEDED, **given: Any) -> RunView:
    ran = state in (State.SUCCEEDED, State.RUNNING)
    columns: dict[str, Any] = {
        "number": 1,
        "name": "class:7#1",
        "state": state,
        "origin": Origin.DELAYED,
        "job": "send_reminder",
        "schedule": None,
        "revision": None,
        "tenant": None,
        "queue": "default",
        "lane": Lane.LIVE,
        "priority": 0,
        "nominal": NOW,
        "since": None,
        "fire_at": NOW,
        "attempt": 1,
        "spent": 0,
        "reason": None,
        "detail": None,
        "payload": b"{}",
        "worker": 1,
        "fired_at": None,
        "claimed_at": NOW + 2 * MILLISECOND if ran else None,
        "started_at": NOW + 3 * MILLISECOND if ran else None,
        "finished_at": NOW + 15 * MILLISECOND if state is not State.RUNNING else None,
        "progress": None,
        "result": None,
    }
    return RunView(**{**columns, **given})


def failed(error: str, **given: Any) -> list[AttemptView]:
    return [AttemptView(1, Outcome.FAILED, 1, NOW + 4 * MILLISECOND, NOW + 9 * MILLISECOND, error)]


def text(line: Line, width: int | None = None) -> str:
    return "\n".join(part.plain for part in rendered(line, width))


def test_a_kept_promise_is_one_line_with_how_late_and_how_long():
    assert text(account.ended(view())) == "02:00:00 ✓ succeeded    +3 ms   12 ms  class:7#1  send_reminder"


def test_a_success_of_a_later_attempt_says_which():
    line = account.ended(view(attempt=3))
    assert text(line).endswith("send_reminder  attempt 3")
    assert not line.ordinary


def test_a_skipped_tick_says_why_and_how_many_it_stands_for():
    line = account.ended(view(State.SKIPPED, reason="misfire", detail="nothing was there", span_count=1_200))
    assert text(line).endswith("misfire: nothing was there, 1,200 ticks")


def test_an_early_start_cannot_be_overlooked():
    assert "EARLY 5 ms" in text(account.ended(view(started_at=NOW - 5 * MILLISECOND)))


def test_a_dead_run_tells_its_error_without_the_stack():
    dead = view(State.DEAD, reason="attempts", attempt=4, attempts=failed("shop.errors.CardError: no\nTraceback ..."))
    line = account.parked(dead, NOW)
    assert text(line).endswith("gave up after 4 attempts: CardError: no")
    assert (line.late, line.took) == (4 * MILLISECOND, 5 * MILLISECOND)


def test_a_retried_run_tells_when_it_is_tried_again():
    again = view(State.RETRYING, fire_at=NOW + 2 * SECOND, attempts=failed("ValueError: no"))
    assert text(account.retrying(again, NOW)).endswith("attempt 1 failed: ValueError: no; retry in 2.0 s")


def test_a_run_that_takes_long_says_how_long_so_far():
    line = account.running(view(State.RUNNING), NOW + 2 * SECOND)
    assert text(line) == "02:00:02 ▸ running      +3 ms   1.9 s  class:7#1  send_reminder"


def test_an_event_is_told_with_its_subject():
    line = account.noticed(EventRow(1, NOW, "schedule_set_aside", "books", "its rule cannot be read"))
    assert text(line) == "02:00:00 ! schedule set aside                  books  its rule cannot be read"


def test_text_of_others_cannot_command_the_terminal():
    assert "\x1b" not in text(account.ended(view(State.CANCELLED, detail="\x1b[2J\x1b]0;owned\x07")))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_on_a_terminal_nothing_is_wider_than_the_terminal(width: int):
    line = account.ended(view(State.SKIPPED, reason="overlap", detail="x " * 200))
    assert all(len(part) <= width for part in text(line, width).splitlines())
    assert len(text(line, width).splitlines()) <= 4
    assert "\n" not in text(line, None)


def test_what_a_person_can_follow_is_told_at_once():
    followed = Account()
    lines = [account.ended(view()) for _ in range(20)]
    assert followed.tell(lines, NOW) == lines


def test_beyond_that_a_second_is_summed_up():
    followed = Account()
    crowd = [account.ended(view()) for _ in range(1_224)]
    assert len(followed.tell(crowd, NOW)) == 20
    (summed,) = followed.tell([], NOW + SECOND)
    assert summed.why == "1,204 succeeded in the last second, late median 3 ms, p99 3 ms, 0 early"
    assert summed.shape()["kind"] == "summary"


def test_after_a_crowded_second_the_next_is_summed_up_from_its_first_line():
    followed = Account()
    followed.tell([account.ended(view()) for _ in range(100)], NOW)
    assert len(followed.tell([account.ended(view()) for _ in range(100)], NOW + SECOND)) == 1
    assert followed.tell([account.ended(view())], NOW + 2 * SECOND)[0].why.startswith("100 succeeded")
    assert followed.tell([], NOW + 3 * SECOND)[0].why.startswith("1 succeeded")
    calm = [account.ended(view())]
    assert followed.tell(calm, NOW + 4 * SECOND) == calm


def test_a_crowd_does_not_hide_what_is_unusual():
    followed = Account()
    dead = account.parked(view(State.DEAD), NOW)
    followed.tell([account.ended(view()) for _ in range(100)], NOW)
    told = followed.tell([*(account.ended(view()) for _ in range(100)), *[dead] * 8], NOW + SECOND)
    assert told[1:] == [dead] * 5
    assert followed.tell([], NOW + 2 * SECOND)[0].why.endswith("0 early; 3 dead")


def test_notes_of_the_supervisor_are_always_told():
    followed = Account(most=0)
    note = account.note(NOW, "worker started (pid 7)")
    assert followed.tell([account.ended(view()), note], NOW) == [note]
    assert text(note) == "02:00:00 · worker started (pid 7)"


def test_a_summary_of_a_longer_span_says_so():
    summed = account.summary(Counter(succeeded=7), [MILLISECOND], MINUTE, NOW)
    assert summed.why == "7 succeeded in the last 1 min, late median 1 ms, p99 1 ms, 0 early"


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        (State.AMBIGUOUS, "effect", "? ambiguous"),
        (State.AMBIGUOUS, "effect", "an effect started and has no recorded outcome: CardError: no"),
        (State.UNVERIFIED, "check", "its check rejected the result: CardError: no"),
        (State.UNVERIFIED, "check_failed", "its check raised an error: CardError: no"),
        (State.DEAD, "poison", "poison: a worker process that executed only this run crashed 3 times: CardError: no"),
        (State.DEAD, "permanent", "permanent error, not retried: CardError: no"),
    ],
)
def test_what_waits_for_a_person_says_why_in_words(state: State, reason: str, told: str):
    waiting = view(state, reason=reason, deaths=3, attempts=failed("shop.CardError: no"))
    assert told in text(account.parked(waiting, NOW))


def test_what_a_check_rejected_is_said_once():
    run = view(State.UNVERIFIED, reason="check", attempts=failed("the check rejected the result: 3 of 5 things"))
    assert text(account.parked(run, NOW)).endswith("its check rejected the result: 3 of 5 things")


def test_a_retry_under_suspicion_says_so():
    again = view(State.RETRYING, reason="lost", fire_at=NOW, deaths=0, attempts=failed("its worker was lost"))
    assert text(account.retrying(again, NOW)).endswith("(suspected of crashing its worker)")


def test_a_retry_that_waits_for_the_next_hour_says_so():
    again = view(State.RETRYING, reason="budget", fire_at=NOW + 40 * MINUTE, attempts=failed("ValueError: no"))
    assert text(account.retrying(again, NOW)).endswith("retry in 40 min (the job has used up this hour's retries)")


def test_a_check_is_no_second_try():
    line = account.ended(view(State.VERIFIED, attempt=2, detail="412 of 412 accounts"))
    assert line.ordinary
    assert text(line).startswith("02:00:00 ✓ verified")
    assert text(line).endswith("send_reminder  412 of 412 accounts")
    assert not account.ended(view(State.VERIFIED, attempt=3)).ordinary


def test_a_run_that_takes_long_says_how_far_it_is():
    line = account.running(view(State.RUNNING, progress=b'{"done": 397, "of": 412}'), NOW + 2 * SECOND)
    assert text(line).endswith("send_reminder  397 of 412")


@pytest.mark.parametrize("kind", ["stuck", "stalled"])
def test_an_attempt_that_does_not_move_stands_out(kind: str):
    line = account.noticed(EventRow(1, NOW, kind, "class:7#1", "no progress for 5 min"))
    assert text(line).startswith(f"02:00:00 ⧗ {kind}")
