"""A run's story, as a tired person reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foliot.domain.identity import number_at
from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.ledger import BatchView, EffectState, Stage
from foliot.domain.run import Origin, Phase, RunView
from foliot.domain.state import Outcome, Reason, State
from foliot.domain.store import AuditRow, EventRow
from foliot.operate.advising import batch_words
from foliot.operate.story import Kind, Lineage, how_far, lineage_shape, story
from tests.operate.values import DUE, NOW, SETTLEMENT, attempt, card, done, effect, view

MADE = number_at(DUE - MINUTE, 1)


def texts(run: RunView, **given: Any) -> list[str]:
    return [line.text for line in story(Lineage(run, NOW, **{"card": card(effects=("payout",)), **given}))]


def of_kind(kind: Kind, run: RunView, **given: Any) -> list[str]:
    return [line.text for line in story(Lineage(run, NOW, **given)) if line.kind is kind]


def test_a_plain_success_is_told_from_its_making_to_its_end() -> None:
    ended = attempt(1, Outcome.SUCCEEDED, None, started_at=DUE + 5_000, finished_at=DUE + 2 * SECOND)
    run = view(number=MADE, since=DUE - 60 * MINUTE, attempts=[ended], finished_at=DUE + 2 * SECOND)
    assert texts(run) == [
        "created by schedule settlement, revision 3, for the interval since 2026-04-03T05:00:00Z",
        "due",
        "handed off to workers (+3 ms)",
        "claimed by worker 12",
        "attempt 1 started on worker 12",
        "attempt 1 succeeded after 1.9 s",
        "succeeded",
    ]


def test_lines_come_in_the_order_of_time() -> None:
    run = view(number=MADE, state=State.DEAD, attempts=[attempt(1), attempt(2)], effects=[done("6")])
    events = [EventRow(1, DUE + 90 * SECOND, "overrun", SETTLEMENT, "it goes on")]
    lines = story(Lineage(run, NOW, events=events, audit=[AuditRow(NOW, "ana", "retry", "again")]))
    assert [line.at for line in lines] == sorted(line.at for line in lines)


def test_a_failed_attempt_says_how_far_it_came_where_it_broke_and_what_followed() -> None:
    progress = json.dumps({"done": 397, "of": 412, "note": "paying"}).encode()
    failed = attempt(2, stage=Stage.AFTER_EFFECT, reason=Reason.BUDGET, progress=progress)
    [_, ended] = of_kind(Kind.ATTEMPT, view(State.RETRYING, attempts=[failed]))
    assert ended == (
        "attempt 2 failed after 1.0 s, after an effect was done; progress 397 of 412 (paying): CardError: no; "
        "the job has used up this hour's retries; the run waits for the next hour"
    )


def test_an_attempt_that_left_an_effect_open_says_what_its_handler_raised() -> None:
    error = "payout 7 started and has no recorded outcome\nshop.CardError: no\nTraceback ..."
    broken = attempt(1, error=error, stage=Stage.INSIDE_EFFECT, reason=Reason.EFFECT)
    [_, ended] = of_kind(Kind.ATTEMPT, view(State.AMBIGUOUS, attempts=[broken]))
    assert ended.startswith("attempt 1 failed after 1.0 s, during an effect: CardError: no; not retried")


def test_a_lost_attempt_says_its_last_reported_progress() -> None:
    lost = attempt(1, Outcome.LOST, "the worker process has ended", progress=b'{"done": 3, "of": 4}')
    assert of_kind(Kind.ATTEMPT, view(State.RETRYING, attempts=[lost]))[1] == (
        "attempt 1 was lost after 1.0 s; last reported progress 3 of 4: the worker process has ended"
    )


@pytest.mark.parametrize("words", ["the check says no", "the check rejected the result"])
@pytest.mark.parametrize(("scope", "told"), [("", ""), (": 3 accounts are off", "3 accounts are off")])
def test_a_check_that_says_no_says_it_once(scope: str, told: str, words: str) -> None:
    error = f"{words}{scope}"
    check = attempt(2, error=error, stage=Stage.CHECK, reason=Reason.CHECK, progress=b'{"done": 3, "of": 4}')
    run = view(State.UNVERIFIED, attempt=2, reason=Reason.CHECK, detail=error, attempts=[check])
    assert of_kind(Kind.CHECK, run)[1] == "the check rejected the result after 1.0 s" + (told and f": {told}")
    assert of_kind(Kind.ENDED, run) == [f"unverified: check{told and f', {told}'}: needs attention"]


def test_an_effect_tells_its_result_and_who_settled_it() -> None:
    run = view(
        effects=[
            done("6", result=b'{"id": "tr_1"}'),
            effect("7", EffectState.NOT_DONE, note="ana: not in the bank's list"),
            effect("8", run=5),
        ]
    )
    assert of_kind(Kind.EFFECT, run) == [
        "effect payout:8 started (another run of its lineage)",
        "effect payout:6 started (attempt 1)",
        "effect payout:7 started (attempt 1)",
        'effect payout:6 done: {"id": "tr_1"}',
        "effect payout:7 did not happen (ana: not in the bank's list)",
    ]


def test_many_effects_that_are_done_are_told_together_and_the_open_one_by_itself() -> None:
    run = view(State.AMBIGUOUS, effects=[*(done(str(number)) for number in range(400)), effect("x")])
    assert of_kind(Kind.EFFECT, run) == [
        "effect payout:x started (attempt 1)",
        "effect payout done for the last of 400 keys",
    ]


def test_an_effect_that_a_person_settled_keeps_its_line_among_many() -> None:
    settled = done("x")._replace(note="ana: on the statement")
    run = view(State.VERIFIED, effects=[*(done(str(number)) for number in range(399)), settled])
    assert of_kind(Kind.EFFECT, run) == [
        "effect payout:x started (attempt 1)",
        "effect payout:x done (ana: on the statement)",
        "effect payout done for the last of 400 keys",
    ]


def test_items_say_how_many_are_done_and_which_failed() -> None:
    batch = BatchView("accounts", 412, 397, 15, [(str(number), "shop.CardError: no") for number in range(10)])
    assert batch_words(batch) == (
        "accounts: 397 of 412 done, 15 failed: 0 (CardError: no), 1 (CardError: no), 2 (CardError: no) and 12 more"
    )
    assert batch_words(batch) in texts(view(State.DEAD, batches=[batch]))


def test_a_check_is_told_apart_from_the_work() -> None:
    check = attempt(2, Outcome.SUCCEEDED, None, stage=Stage.CHECK)
    work = attempt(1, Outcome.SUCCEEDED, None, finished_at=check.started_at)
    run = view(State.VERIFIED, detail="412 of 412 accounts", attempt=2, attempts=[work, check])
    assert of_kind(Kind.CHECK, run) == ["the check started on worker 12", "the check succeeded after 1.0 s"]
    assert of_kind(Kind.ENDED, run) == ["verified: 412 of 412 accounts"]


def test_at_one_moment_an_attempt_ends_before_the_next_begins_and_after_what_it_did() -> None:
    work = attempt(1, Outcome.SUCCEEDED, None, started_at=DUE, finished_at=DUE)
    check = attempt(2, Outcome.SUCCEEDED, None, started_at=DUE, finished_at=DUE)
    times = {"fired_at": DUE, "claimed_at": DUE, "finished_at": DUE, "nominal": DUE}
    paid = done("7", started_at=DUE, ended_at=DUE)
    run = view(
        State.VERIFIED, number=MADE, attempt=2, attempts=[work, check], effects=[paid._replace(run=MADE)], **times
    )
    assert texts(run)[2:] == [
        "attempt 1 started on worker 12",
        "effect payout:7 started (attempt 1)",
        "effect payout:7 done",
        "attempt 1 succeeded after 0 ms",
        "handed off to workers",
        "claimed by worker 12",
        "the check started on worker 12",
        "the check succeeded after 0 ms",
        "verified",
    ]


def test_a_run_that_is_being_checked_says_that_nobody_knows_when_nobody_does() -> None:
    assert of_kind(Kind.NOW, view(State.VERIFYING, finished_at=None, phase=Phase.DOUBT)) == [
        "verifying: it is unknown whether the work was done, and the check decides"
    ]


def test_people_are_named_with_what_they_did_and_why() -> None:
    audit = [AuditRow(NOW, "ana", "reconcile", "evidence: the bank says so")]
    assert of_kind(Kind.PERSON, view(State.RECONCILED), audit=audit) == [
        "ana reconciled the run: evidence: the bank says so"
    ]


def test_a_run_by_hand_names_who_made_it() -> None:
    maker = AuditRow(DUE, "ana", "trigger", "the report was late")
    assert texts(view(origin=Origin.MANUAL), maker=maker)[0] == (
        "triggered on schedule settlement by ana: the report was late"
    )
    assert texts(view(origin=Origin.RERUN, name="a#1#r1", schedule=None))[0] == "created as a rerun of a#1"


def test_what_is_due_at_once_is_not_due_before_it_was_made() -> None:
    run = view(number=number_at(DUE + SECOND, 1), origin=Origin.DELAYED, schedule=None)
    assert texts(run)[:4] == ["handed off to workers (+3 ms)", "claimed by worker 12", "promised", "due"]


def test_an_event_that_an_attempt_tells_already_is_not_told_twice() -> None:
    lost = attempt(1, Outcome.LOST, "the worker process has ended")
    events = [EventRow(1, DUE, "lost", SETTLEMENT, "x"), EventRow(2, DUE, "overrun", SETTLEMENT, "it goes on")]
    assert of_kind(Kind.EVENT, view(attempts=[lost]), events=events) == ["overrun: it goes on"]


def test_the_story_ends_with_what_is_safe_now() -> None:
    run = view(State.AMBIGUOUS, reason=Reason.EFFECT, effects=[effect("7")])
    assert texts(run)[-2:] == [
        "ambiguous: effect: needs attention",
        "safe now: reconcile (an effect started and has no recorded outcome: it may have happened)",
    ]


def test_a_running_one_says_how_far_it_is_and_how_long_it_has_been_silent() -> None:
    run = view(State.RUNNING, finished_at=None, started_at=NOW - 2 * MINUTE, progress=b'{"done": 3, "of": 4}')
    assert texts(run)[-1] == "attempt 1 is running, at 3 of 4; no progress reported for 2 min"


@pytest.mark.parametrize(
    ("slots", "rule"),
    [
        (100, "a worker with 100 slots executes at most 25 such runs together"),
        (8, "a worker with 8 slots executes at most 2 such runs together"),
        (4, "a worker with 4 slots executes it in an isolated process"),
        (None, "a worker executes at most slots / 4 such runs together, at least one"),
    ],
)
def test_a_run_that_waits_under_suspicion_says_why(slots: int | None, rule: str) -> None:
    lost = [attempt(number, Outcome.LOST, "its worker was lost") for number in (1, 2, 3)]
    run = view(State.READY, reason=Reason.LOST, deaths=0, finished_at=None, attempts=lost)
    assert texts(run, slots=slots)[-1] == f"suspected of crashing workers: lost 3 times in a row; {rule}"


def test_a_skipped_row_says_how_many_ticks_it_stands_for() -> None:
    run = view(State.SKIPPED, reason="misfire", detail="nothing was there", span_count=1_200, span_until=NOW)
    assert of_kind(Kind.ENDED, run) == [
        "skipped: misfire, nothing was there; this row represents 1,200 ticks, up to 2026-04-03T06:20:00Z"
    ]


def test_text_of_others_stays_on_its_line() -> None:
    run = view(State.DEAD, attempts=[attempt(error="E: \x1b[2J\nTraceback")], detail="a\nb")
    assert all("\n" not in text and "\x1b" not in text for text in texts(run))


def test_progress_that_is_none_says_nothing() -> None:
    assert [how_far(note) for note in (None, b"{", b"[]", b'{"done": "x"}', b'{"of": 3}')] == [None] * 5
    assert how_far(b'{"done": 1397}') == "1,397"


def test_the_whole_lineage_is_there_for_programs() -> None:
    run = view(State.DEAD, effects=[effect("7")], batches=[BatchView("accounts", 2, 1, 1, [("b", "E")])], reruns=["r"])
    shape = lineage_shape(Lineage(run, NOW, card=card(effects=("payout",)), audit=[AuditRow(NOW, "ana", "retry", "x")]))
    assert json.loads(json.dumps(shape)) == shape
    assert shape["effects"][0]["maybe"] is True
    assert shape["effects"][0]["idempotency_key"] == f"{SETTLEMENT}/payout/7"
    assert shape["batches"][0]["failures"] == [{"key": "b", "error": "E"}]
    assert shape["advice"]["class"] == "maybe"
    assert shape["story"][-1]["kind"] == "now"
    assert (shape["audit"][0]["actor"], shape["reruns"]) == ("ana", ["r"])
