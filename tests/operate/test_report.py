"""What can be said of a day, from records alone."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from foliot.domain.instant import HOUR, MINUTE, SECOND, Instant, parse_rfc3339
from foliot.domain.ledger import BatchView, EffectState, Traits
from foliot.domain.policy import Policy
from foliot.domain.run import Origin, Phase, RunView
from foliot.domain.schedule import Schedule, ScheduleView
from foliot.domain.state import Reason, State
from foliot.domain.store import AuditRow
from foliot.operate.report import Day, Report, Verdict, report, report_shape
from foliot.timing import cron
from foliot.timing.preview import day_bounds
from tests.operate.values import DUE, NOW, done, effect, view

DAY = date(2026, 4, 3)
NAME = "The 2026-04-03 run of settlement"
CHECKED = Traits(effects=("payout",), checked=True)
TRACKED = Traits(effects=("payout",))
SHORT = [BatchView("accounts", 400, 313, 0, [])]
UNKNOWN = "It finished without a check or declared effects, so it is not recorded whether it happened exactly once."


def of(*views: RunView, traits: Traits = TRACKED, tz: str = "UTC", now: Instant = NOW, **given: Any) -> Report:
    start, end = day_bounds(DAY, tz)
    return report(Day("settlement", DAY, tz, start, end, now, views, {"settle": traits}, **given))


def said(*views: RunView, **given: Any) -> tuple[Verdict, str]:
    [one] = of(*views, **given).statements
    return one.verdict, one.text


def scheduled(expression: str = "0 6 * * *", tz: str = "UTC", **given: Any) -> ScheduleView:
    template: dict[str, Any] = {"fault": None, "made_at": 0, **given}
    schedule = Schedule(
        id="settlement",
        job="settle",
        rule=cron(expression, tz=tz).encode(),
        payload=b"{}",
        policy=Policy(),
        options=None,
        delay=None,
        queue=None,
        priority=0,
        tenant=None,
        owner=None,
        runbook=None,
        changes=None,
        revision=1,
        fingerprint="",
        **template,
    )
    return ScheduleView(schedule, None, None, None, None, None, None, 0)


def test_a_verified_run_is_told_with_scope_certainty_and_time() -> None:
    run = view(State.VERIFIED, detail="412 of 412 accounts", attempt=2, effects=[done("7")])
    assert said(run, traits=CHECKED) == (
        Verdict.COMPLETE,
        f"{NAME} completed for all 412 accounts, exactly once, verified 06:14:03Z.",
    )


def test_a_check_alone_does_not_prove_that_it_happened_once() -> None:
    told = "It declares no effects: its check confirms the result, not that it happened exactly once."
    assert said(view(State.VERIFIED), traits=Traits(checked=True)) == (
        Verdict.COMPLETE,
        f"{NAME} completed, verified 06:14:03Z. {told}",
    )


def test_a_run_that_its_own_transaction_completed_happened_once() -> None:
    assert said(view(reason=Reason.COMMITTED), traits=Traits()) == (
        Verdict.COMPLETE,
        f"{NAME} completed at 06:14:03Z, exactly once.",
    )


def test_what_was_not_verified_says_when_it_finished_and_what_the_ledger_proves() -> None:
    batches = [BatchView("accounts", 412, 412, 0, [])]
    assert said(view(effects=[done("7")], batches=batches)) == (
        Verdict.COMPLETE,
        f"{NAME} completed at 06:14:03Z for all 412 accounts, exactly once.",
    )


def test_exactly_once_is_never_said_where_nothing_is_on_record() -> None:
    verdict, text = said(view(), traits=Traits())
    assert (verdict, text) == (Verdict.COMPLETE, f"{NAME} finished at 06:14:03Z. {UNKNOWN}")
    assert "exactly once." not in said(view(), traits=Traits(idempotent=True))[1].replace(UNKNOWN, "")


def test_an_override_takes_the_certainty_away() -> None:
    run = view(attempt=3, effects=[done("7")])
    row = AuditRow(NOW, "ana", "retry", "override: the bank is sure")
    assert said(run, overrides={run.id: row})[1] == (
        f"{NAME} finished at 06:14:03Z on attempt 3. Only a person confirms that it happened exactly once: "
        f"ana overrode the advice (override: the bank is sure)."
    )


def test_a_run_that_left_items_out_is_not_complete() -> None:
    batches = [BatchView("accounts", 412, 397, 15, [("17", "E: no")])]
    assert said(view(batches=batches)) == (
        Verdict.PARTIAL,
        f"{NAME} finished at 06:14:03Z, but not completely: accounts: 397 of 412 done, "
        "15 failed: 17 (E: no) and 14 more.",
    )


def test_a_rerun_answers_for_the_run_that_it_repeats() -> None:
    first = view(State.RECONCILED, detail="replaced by rerun X")
    again = view(number=8, name=f"{first.id}#r1", origin=Origin.RERUN, effects=[done("7")], repair=True)
    assert said(first, again) == (
        Verdict.COMPLETE,
        f"{NAME} completed at 06:14:03Z by a repair, {again.id}, exactly once.",
    )


def test_a_rerun_that_fails_is_what_counts_although_the_first_had_completed() -> None:
    again = view(State.RUNNING, number=8, name=f"{view().id}#r1", origin=Origin.RERUN, finished_at=None)
    verdict, text = said(view(), again)
    assert verdict is Verdict.RUNNING
    assert text.endswith(f"An earlier run of it, {view().id}, had completed.")


@pytest.mark.parametrize(
    ("run", "verdict", "text"),
    [
        (
            view(State.DEAD, reason=Reason.ATTEMPTS, detail="shop.CardError: no", attempt=4, effects=[done("6")]),
            Verdict.FAILED,
            "failed after 4 attempts: CardError: no. Recorded as done: payout:6.",
        ),
        (
            view(State.AMBIGUOUS, reason=Reason.EFFECT, effects=[effect("7")]),
            Verdict.AMBIGUOUS,
            "has an unknown outcome: an effect started and has no recorded outcome. A person must find out. "
            "Started, without a recorded outcome: payout:7.",
        ),
        (
            view(State.UNVERIFIED, reason=Reason.CHECK, detail="3 accounts are off", attempt=2),
            Verdict.UNVERIFIED,
            "finished, and its check rejected the result: 3 accounts are off.",
        ),
        (
            view(State.SKIPPED, reason=Reason.OVERLAP, detail="settlement@x is busy"),
            Verdict.SKIPPED,
            "did not run: an earlier run was busy: settlement@x is busy.",
        ),
        (
            view(State.SKIPPED, reason=Reason.COALESCED, detail="into settlement@y", span_count=3, span_until=NOW),
            Verdict.MERGED,
            "was merged into a later one: into settlement@y (3 ticks).",
        ),
        (
            view(State.CANCELLED, reason=Reason.OPERATOR, detail="called off"),
            Verdict.CANCELLED,
            "was cancelled: by an operator: called off.",
        ),
        (
            view(State.RUNNING, finished_at=None, progress=b'{"done": 397, "of": 412}'),
            Verdict.RUNNING,
            "is running since 06:00:00Z, at 397 of 412.",
        ),
        (
            view(State.AMBIGUOUS, reason=Reason.CHECK, detail="312 of 400 accounts"),
            Verdict.AMBIGUOUS,
            "has an unknown outcome, and its check could not confirm it: 312 of 400 accounts. A person must find out.",
        ),
        (view(State.VERIFYING, finished_at=None), Verdict.RUNNING, "finished, and is being checked."),
        (
            view(State.VERIFYING, finished_at=None, phase=Phase.DOUBT),
            Verdict.RUNNING,
            "has an unknown outcome, and is being checked.",
        ),
        (
            view(State.RETRYING, finished_at=None, reason=Reason.FAILED, detail="E: no", fire_at=NOW + MINUTE),
            Verdict.WAITING,
            "has not succeeded yet: failed: E: no; the scheduler retries it at 06:21:00Z.",
        ),
        (
            view(State.SCHEDULED, finished_at=None, nominal=NOW + HOUR, fire_at=NOW + HOUR),
            Verdict.WAITING,
            "is due at 07:20:00Z.",
        ),
        (view(State.READY, finished_at=None), Verdict.WAITING, "is due, and waits for a worker."),
        (
            view(State.SETTLED, reason=Reason.SETTLED, detail="statement 17", effects=[done("7")], batches=SHORT),
            Verdict.PARTIAL,
            'is not complete: a person reconciled its effects: "statement 17", and the remaining work is not done. '
            "Recorded as done: payout:7. accounts: 313 of 400 done, 87 not done.",
        ),
        (
            view(State.RECONCILED, detail="statement 17", effects=[done("7")], batches=SHORT),
            Verdict.PARTIAL,
            'was reconciled by a person at 06:14:03Z: "statement 17". accounts: 313 of 400 done, 87 not done.',
        ),
        (
            view(
                State.RECONCILED,
                reason=Reason.NOT_NEEDED,
                detail="the remaining work is not needed: a drill",
                batches=SHORT,
            ),
            Verdict.RECONCILED,
            'was reconciled by a person at 06:14:03Z: "the remaining work is not needed: a drill". '
            "accounts: 313 of 400 done, 87 not done.",
        ),
        (
            view(State.RECONCILED, reason=Reason.NOT_NEEDED, detail="lost for good", effects=[effect("7")]),
            Verdict.PARTIAL,
            'was reconciled by a person at 06:14:03Z: "lost for good". It is not recorded whether payout:7 happened.',
        ),
        (
            view(State.RECONCILED, detail="the bank says so", effects=[done("7")]),
            Verdict.RECONCILED,
            'was reconciled by a person at 06:14:03Z: "the bank says so".',
        ),
        (
            view(State.RECONCILED, detail="the bank says no", effects=[effect("7", EffectState.NOT_DONE)]),
            Verdict.PARTIAL,
            'was reconciled by a person at 06:14:03Z: "the bank says no". Recorded as not done: payout:7.',
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Verdict) else "",
)
def test_whatever_became_of_it_has_its_sentence(run: RunView, verdict: Verdict, text: str) -> None:
    assert said(run) == (verdict, f"{NAME} {text}")


def test_only_what_is_done_is_good() -> None:
    assert of(view(effects=[done("7")])).is_good
    assert not of(view(effects=[done("7")]), view(State.DEAD, number=8, nominal=DUE + HOUR, name="s@2")).is_good
    assert not of(view(State.RUNNING, finished_at=None)).is_good
    assert of().is_good


def test_a_tick_that_the_rule_names_and_no_row_tells_of_is_missing() -> None:
    assert said(schedules=[scheduled()]) == (
        Verdict.MISSING,
        f"{NAME} is missing: its tick has no recorded run.",
    )
    assert of(schedules=[scheduled()]).statements[0].run == "settlement@2026-04-03T06:00:00Z"


def test_a_schedule_that_was_set_aside_says_so_where_its_tick_is_missing() -> None:
    assert said(schedules=[scheduled(fault="its rule cannot be read")])[1].endswith(
        "The schedule was set aside: its rule cannot be read."
    )


@pytest.mark.parametrize(
    "given",
    [
        {"now": DUE - HOUR},
        {"now": DUE + 30 * SECOND},
        {"in_force_since": {"settlement": DUE + MINUTE}},
        {"spans": [view(State.SKIPPED, nominal=DUE - 48 * HOUR, span_until=DUE + HOUR, span_count=3)]},
    ],
    ids=["is due at", "on its way", "another rule was in force", "a row of another day stands for it"],
)
def test_nothing_is_missing_that_need_not_be_there(given: dict[str, Any]) -> None:
    assert of(schedules=[scheduled()], **given).statements == []
    assert of(schedules=[scheduled(made_at=DUE + MINUTE)]).statements == []


def test_of_several_runs_a_day_each_is_told_with_its_time_on_the_clock_of_the_zone() -> None:
    later = view(number=8, name="settlement@2026-04-03T07:00:00Z", nominal=DUE + HOUR)
    names = [one.text[:36] for one in of(view(), later, tz="Europe/Paris").statements]
    assert names == ["The 2026-04-03 08:00 run of settleme", "The 2026-04-03 09:00 run of settleme"]


def test_a_day_is_one_of_its_zone() -> None:
    start, end = day_bounds(date(2026, 3, 29), "Europe/Paris")
    assert (start, end - start) == (parse_rfc3339("2026-03-28T23:00:00Z"), 23 * HOUR)


def test_a_promise_is_told_by_its_id_and_tenant() -> None:
    run = view(origin=Origin.DELAYED, schedule=None, name="class:7[acme]#1", tenant="acme")
    assert said(run)[1].startswith("Run class:7[acme]#1 of settle for tenant acme completed at 06:14:03Z")


def test_another_days_end_is_told_with_its_date() -> None:
    assert "completed at 2026-04-04T06:00:00Z" in said(view(finished_at=DUE + 24 * HOUR))[1]


def test_a_report_for_programs_says_what_is_well() -> None:
    shape = report_shape(of(view(State.DEAD)))
    assert (shape["ok"], shape["statements"][0]["ok"], shape["statements"][0]["verdict"]) == (False, False, "failed")
    assert shape["date"] == "2026-04-03"
