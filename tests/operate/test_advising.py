"""What is safe now, and what to type: for every way in which a run can come to no good end."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from foliot.domain.conditions import conditions, overlapping
from foliot.domain.instant import MINUTE, SECOND, rfc3339
from foliot.domain.ledger import BatchView
from foliot.domain.policy import Policy, choices
from foliot.domain.recovery import Action, Recovery
from foliot.domain.run import RunView
from foliot.domain.state import Outcome, Reason, State
from foliot.domain.store import JobCard
from foliot.operate.advising import Guidance, guidance, guidance_shape, refusal, situation
from tests.operate.values import IDEMPOTENT, NOW, SETTLEMENT, attempt, card, done, effect, view


def told(run: RunView, job: JobCard | None = None) -> Guidance:
    found = guidance(run, job, NOW)
    assert found is not None
    return found


def dead(**given: Any) -> RunView:
    return view(State.DEAD, **{"reason": Reason.ATTEMPTS, "attempts": [attempt()], **given})


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.VERIFIED, State.RECONCILED, State.SKIPPED, State.SCHEDULED])
def test_nothing_is_advised_where_nothing_needs_to_be_done(state: State) -> None:
    assert guidance(view(state), card(), NOW) is None


def test_a_run_whose_effect_has_no_end_is_reconciled_first_and_retrying_it_is_refused() -> None:
    found = told(
        view(State.AMBIGUOUS, reason=Reason.EFFECT, effects=[done("6"), effect("7")]), card(effects=("payout",))
    )
    assert found.advice.recovery is Recovery.MAYBE
    assert [step.command for step in found.steps] == [
        f'foliot runs reconcile "{SETTLEMENT}" --effect "payout:7=done" --then resume --evidence "..."',
        f'foliot runs reconcile "{SETTLEMENT}" --effect "payout:7=not_done" --then resume --evidence "..."',
    ]
    assert found.counts == ("effects: 1 done, 1 ambiguous",)
    assert [step.command for step in found.refused] == [
        f'foliot runs retry "{SETTLEMENT}" --override --reason "..."',
        f'foliot runs rerun "{SETTLEMENT}" --override --reason "..."',
    ]
    assert found.refused[0].text == "payout:7 may happen a second time"


def test_what_to_look_for_outside_is_named_by_its_idempotency_key() -> None:
    [line] = told(view(State.AMBIGUOUS, effects=[done("6"), effect("7")], name="settlement#r2")).look
    assert line.startswith("payout:7 started at 2026-04-03T06:00:02Z, in attempt 1, and has no recorded outcome")
    assert line.endswith("its idempotency key is settlement/payout/7")


def test_a_job_with_a_check_is_asked_first_when_nobody_knows() -> None:
    found = told(view(State.AMBIGUOUS, reason=Reason.LOST), card(checked=True))
    assert found.steps[0].command == f'foliot runs verify "{SETTLEMENT}" --reason "..."'


def test_a_dead_run_that_had_begun_nothing_is_retried() -> None:
    found = told(dead(), card(effects=("payout",)))
    assert (found.advice.recovery, found.steps[0].action) == (Recovery.CLEAN, Action.RETRY)
    assert found.lead == "No attempts are left after 1 attempt. Fix the cause of the last error first."
    lead = told(dead(detail="shop.CardError: no card.\nTraceback …")).lead
    assert lead == "No attempts are left after 1 attempt. Fix the cause of the last error first: CardError: no card."


@pytest.mark.parametrize(
    "kept",
    [
        {"effects": [done("6")]},
        {"has_checkpoint": True},
        {"batches": [BatchView("accounts", 412, 397, 15, [])]},
    ],
)
def test_a_dead_run_whose_work_is_on_record_goes_on_where_it_stopped(kept: dict[str, Any]) -> None:
    assert told(dead(**kept), card(effects=("payout",))).steps[0].command == (
        f'foliot runs resume "{SETTLEMENT}" --reason "..."'
    )


def test_a_dead_run_of_a_job_that_declares_nothing_says_that_the_ledger_is_blind() -> None:
    found = told(dead(), card({"on_lost": "ask"}))
    assert found.advice.recovery is Recovery.UNTRACKED
    assert "the job declares no effects, so Foliot cannot tell what it" in found.advice.why
    assert [step.action for step in found.refused] == [Action.RETRY, Action.RERUN]


def test_what_a_run_itself_chose_counts_more_than_its_job() -> None:
    asked = dead(options=json.dumps({"on_lost": "ask"}).encode())
    assert [step.action for step in told(asked, card({"on_lost": "retry"})).refused] == [Action.RETRY, Action.RERUN]


def test_an_attempt_that_was_lost_may_have_begun_although_nobody_saw_it() -> None:
    lost = view(State.DEAD, started_at=None, attempts=[attempt(1, Outcome.LOST, None, started_at=None)])
    assert situation(lost, card(), NOW).begun
    never = view(State.DEAD, started_at=None, attempts=[])
    assert not situation(never, card(), NOW).begun


def test_a_poisonous_run_says_how_often_its_own_process_died() -> None:
    lead = told(dead(reason=Reason.POISON, deaths=3)).lead
    assert lead.startswith("A worker process that executed only this run crashed 3 times.")


def test_a_check_that_said_no_is_not_offered_again_as_if_it_had_not_answered() -> None:
    run = view(State.AMBIGUOUS, reason=Reason.CHECK, effects=[effect("7")])
    found = told(run, card(effects=("payout",), checked=True))
    assert [step.action for step in found.steps] == [Action.RECONCILE, Action.RECONCILE, Action.VERIFY]
    assert (
        found.steps[-1].text
        == "runs the job's check again, which changes nothing else; the check rejected the result last time"
    )


def test_members_are_counted_again_only_after_their_runs_are_done() -> None:
    steps = told(view(State.UNVERIFIED, reason=Reason.INCOMPLETE), card()).steps
    assert steps[0].text == "after the runs of the members are done: counts them again"


def test_a_result_that_its_check_refused_is_repaired_where_doing_it_again_does_no_harm() -> None:
    found = told(view(State.UNVERIFIED, reason=Reason.CHECK, detail="3 accounts are off"), card(rewritable=True))
    assert found.steps[0].command == f'foliot runs rerun "{SETTLEMENT}" --repair --reason "..."'
    assert found.lead == "The handler finished, and the check rejected the result: 3 accounts are off."


def test_a_run_that_died_of_what_a_retry_cannot_help_is_tried_only_after_its_cause_is_removed() -> None:
    found = told(dead(reason=Reason.PERMANENT), card(effects=("payout",)))
    assert found.lead == "The handler reported a permanent error. Fix its cause first."
    assert found.steps[0].text == "after the cause is fixed: retries the run, with new attempts"
    assert found.advice.fix_first
    assert not told(dead(), card(effects=("payout",))).advice.fix_first
    assert not told(dead(reason=Reason.PERMANENT, effects=[effect("7")])).steps[0].text.startswith("after its cause")


def test_a_refusal_says_why_and_what_to_do_instead() -> None:
    run = view(State.AMBIGUOUS, effects=[effect("7")])
    text = refusal(run, told(run, card(effects=("payout",))))
    assert "it may have happened (payout:7). Foliot refuses the action without an override and a reason." in text
    assert text.endswith(
        "First find out whether the work was done, then record the answer: "
        f'foliot runs reconcile "{SETTLEMENT}" --effect "payout:7=done" --then resume --evidence "..."'
    )


def test_a_settled_run_is_resumed_or_closed_with_a_reason() -> None:
    batches = [BatchView("accounts", 400, 313, 0, [])]
    found = told(view(State.SETTLED, reason=Reason.SETTLED, detail="statement 17", batches=batches), card())
    assert found.lead == "The effects are reconciled, and part of the work is not done: statement 17."
    assert found.counts == ("accounts: 313 of 400 done, 87 not done",)
    assert [step.command for step in found.steps] == [
        f'foliot runs resume "{SETTLEMENT}" --reason "..."',
        f'foliot runs reconcile "{SETTLEMENT}" --then close --reason "..."',
    ]
    assert found.refused == ()


def test_items_in_doubt_and_not_done_and_done_add_up() -> None:
    batches = [BatchView("accounts", 400, 312, 0, [], in_doubt=1)]
    found = told(view(State.AMBIGUOUS, effects=[done("6"), effect("7")], batches=batches))
    assert found.counts == ("accounts: 312 of 400 done, 1 ambiguous, 87 not done", "effects: 1 done, 1 ambiguous")


def test_a_run_that_killed_its_workers_is_not_resumed_in_passing() -> None:
    found = told(dead(reason=Reason.POISON, deaths=3, effects=[effect("7")]))
    assert [step.command for step in found.steps] == [
        f'foliot runs reconcile "{SETTLEMENT}" --effect "payout:7={answer}" --evidence "..."'
        for answer in ("done", "not_done")
    ]


def test_lost_items_without_effects_are_resumed_or_closed_by_a_person() -> None:
    batches = [BatchView("accounts", 400, 312, 0, [])]
    found = told(view(State.AMBIGUOUS, reason=Reason.LOST, batches=batches), card({"on_lost": "ask"}))
    assert [step.command for step in found.steps] == [
        f'foliot runs reconcile "{SETTLEMENT}" --then resume --evidence "..."',
        f'foliot runs reconcile "{SETTLEMENT}" --then close --evidence "..." --reason "..."',
    ]


@pytest.mark.parametrize("key", ["it's", 'a "b"', "$HOME", "back`tick", "a b"])
def test_a_command_survives_a_shell_whatever_is_in_the_key(key: str) -> None:
    run = view(State.AMBIGUOUS, name=f"{key}#1", effects=[effect(key)])
    words = shlex.split(told(run).steps[0].command or "")
    assert words[:4] == ["foliot", "runs", "reconcile", f"{key}#1"]
    assert f"payout:{key}=done" in words


def test_many_open_effects_are_not_named_one_by_one_to_look_for() -> None:
    run = view(State.AMBIGUOUS, effects=[effect(str(number)) for number in range(40)])
    assert told(run).look[-1] == "and 35 more such effects"


def test_advice_for_programs_has_every_field() -> None:
    shape = guidance_shape(told(dead(), card()))
    assert shape is not None
    assert list(shape) == ["class", "why", "action", "fix_first", "lead", "counts", "look", "steps", "refused"]
    assert list(shape["steps"][0]) == ["action", "text", "command"]


# Conditions

STALLING = Policy().merged(choices({"stall_after": "5m"}))


def running(**given: Any) -> RunView:
    return view(State.RUNNING, **{"finished_at": None, **given})


def test_a_run_that_lives_and_says_nothing_for_too_long_is_stuck() -> None:
    assert conditions(running(), STALLING, NOW) == ["stuck"]
    assert conditions(running(), Policy(), NOW) == []
    assert guidance(running(), card({"stall_after": "5m"}), NOW) is not None


def test_a_run_that_was_asked_to_stop_and_goes_on_offers_force_with_the_command_to_type() -> None:
    advice = guidance(running(cancel_requested=True), card(), NOW)
    assert advice is not None
    assert (advice.lead, advice.advice.action) == (
        "Cancellation was requested, and the run has not stopped yet.",
        Action.WAIT,
    )
    assert [step.command for step in advice.steps] == [
        None,
        f'foliot runs cancel "{running().id}" --force --reason "..."',
    ]
    advice = guidance(running(cancel_requested=True, cancel_forced=True, worker=7), card(), NOW)
    assert advice is not None
    assert "end the process of worker 7 yourself" in advice.lead
    assert [step.action for step in advice.steps] == [Action.WAIT]


@pytest.mark.parametrize("form", [int, rfc3339])
def test_whoever_reports_progress_is_not_stuck(form: Any) -> None:
    said = json.dumps({"done": 1, "at": form(NOW - MINUTE)}).encode()
    assert conditions(running(progress=said), STALLING, NOW) == []
    assert conditions(running(progress=said), STALLING, NOW + 5 * MINUTE) == ["stuck"]


@pytest.mark.parametrize("note", [b"", b"[]", b"{", b'"x"', b'{"at": []}', b'{"at": "soon"}'])
def test_progress_that_cannot_be_read_counts_as_none(note: bytes) -> None:
    assert conditions(running(progress=note), STALLING, NOW) == ["stuck"]


def test_what_is_due_and_has_not_begun_within_a_minute_is_late() -> None:
    waiting = view(State.READY, started_at=None, claimed_at=None, finished_at=None, fire_at=NOW - 61 * SECOND)
    assert conditions(waiting, Policy(), NOW) == ["late"]
    assert conditions(waiting, Policy(), NOW - 2 * SECOND) == []
    assert conditions(running(started_at=NOW, fire_at=NOW - 2 * MINUTE), Policy(), NOW) == ["late"]
    assert conditions(view(State.SUCCEEDED, started_at=NOW, fire_at=NOW - 2 * MINUTE), Policy(), NOW) == []


def test_two_runs_of_a_schedule_at_work_overlap() -> None:
    one, two, other = running(number=1), running(number=2), running(number=3, schedule="books")
    assert overlapping([one, two, other, view(number=4)]) == {1, 2}


def test_an_effect_that_the_next_attempt_can_settle_is_no_reason_to_hide_it() -> None:
    found = told(view(State.AMBIGUOUS, effects=[effect("7", settles=IDEMPOTENT)]), card(effects=("payout",)))
    assert found.advice.recovery is Recovery.MAYBE
    assert len(found.look) == 1
