"""What operators do about runs that came to no good end: with a store, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

import pytest

from foliot import Context, Foliot, cron
from foliot.domain.state import State
from foliot.errors import Conflict, InvalidInput, UnknownName
from foliot.operate.report import Verdict
from foliot.testing import World, virtual_time

START = datetime(2026, 4, 3, 5, 59, tzinfo=UTC)
RUN = "settlement@2026-04-03T06:00:00Z"
WHY: dict[str, Any] = {"reason": "a test", "actor": "ana"}


class Bank:
    """The world outside: what really happened there, and how it behaves."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.breaks_at: str | None = None
        self.books_are_right = True

    def pay(self, account: str) -> None:
        self.paid.append(account)
        if account == self.breaks_at:
            self.breaks_at = None
            raise TimeoutError("no answer")


@contextmanager
def settlement(bank: Bank, *, checked: bool = False, **settings: Any) -> Iterator[tuple[Foliot, World]]:
    app = Foliot("sqlite:///:memory:")

    @app.job(effects=("payout", "mail"), attempts=1, **settings)
    async def settle(ctx: Context) -> None:
        for account in ("a", "b", "c"):
            async with ctx.effect("payout", key=account) as payout:
                if payout.needed:
                    bank.pay(account)

    if checked:

        @settle.verify
        def right() -> bool:
            return bank.books_are_right

    app.schedule("settlement", settle, cron("0 6 * * *"), overlap="skip", catch_up="once")
    with virtual_time(app, start=START) as world:
        world.run_for("2m")
        yield app, world


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def broken(bank: Bank) -> Iterator[tuple[Foliot, World]]:
    """A run that paid a, and perhaps b."""
    bank.breaks_at = "b"
    with settlement(bank) as (app, world):
        assert world.run(RUN).state is State.AMBIGUOUS
        yield app, world


def said(app: Foliot) -> str:
    [one] = app.operate.report("settlement", date(2026, 4, 3)).statements
    return one.text


def test_a_run_that_may_have_paid_is_not_retried_without_an_override(broken: tuple[Foliot, World], bank: Bank) -> None:
    app, world = broken
    with pytest.raises(Conflict, match=r"it may have happened \(payout:b\).*foliot runs reconcile"):
        app.operate.retry(RUN, **WHY)
    with pytest.raises(Conflict, match="cannot be resumed"):
        app.operate.resume_run(RUN, **WHY)
    with pytest.raises(Conflict, match="refuses the action without an override"):
        app.operate.rerun(RUN, **WHY)
    world.run_for("1h")
    assert bank.paid == ["a", "b"]


def test_an_override_is_kept_with_its_reason_and_takes_certainty_from_the_report(
    broken: tuple[Foliot, World], bank: Bank
) -> None:
    app, world = broken
    app.operate.retry(RUN, override=True, **WHY)
    world.run_for("1m")
    assert bank.paid == ["a", "b", "b", "c"]
    assert "Only a person confirms that it happened exactly once: ana overrode the advice" in said(app)
    assert any("ana retried the run: override: a test" in line.text for line in app.operate.story(RUN))


def test_what_was_settled_is_not_done_again_and_a_rerun_does_the_rest(broken: tuple[Foliot, World], bank: Bank) -> None:
    app, world = broken
    kept = app.operate.reconcile(RUN, evidence="on the statement", actor="ana", effects=["payout:b=done"])
    assert (kept.state, world.run(RUN).detail) == (State.RECONCILED, "on the statement")
    made = app.operate.rerun(RUN, **WHY)
    world.run_for("1m")
    assert (made.id, world.run(made.id).state) == (f"{RUN}#r1", State.SUCCEEDED)
    assert bank.paid == ["a", "b", "c"]
    text = said(app)
    assert f"by a rerun, {RUN}#r1, exactly once. Confirmed by: payout:b (ana: on the statement)." in text


def test_what_a_person_found_not_to_have_happened_is_done_by_the_rerun(
    broken: tuple[Foliot, World], bank: Bank
) -> None:
    app, world = broken
    app.operate.reconcile(RUN, evidence="not on it", actor="ana", effects={("payout", "b"): "not_done"})
    app.operate.rerun(RUN, **WHY)
    world.run_for("1m")
    assert bank.paid == ["a", "b", "b", "c"]


def test_to_reconcile_needs_evidence_and_effects_that_exist(broken: tuple[Foliot, World]) -> None:
    app, world = broken
    with pytest.raises(InvalidInput, match="evidence is missing"):
        app.operate.reconcile(RUN, evidence=" ", actor="ana")
    with pytest.raises(InvalidInput, match="did you mean payout:"):
        app.operate.reconcile(RUN, evidence="x", actor="ana", effects=["payout:d=done"])
    assert world.run(RUN).state is State.AMBIGUOUS


def test_a_done_effect_is_repeated_only_by_name_and_with_an_override(bank: Bank) -> None:
    with settlement(bank) as (app, world):
        with pytest.raises(Conflict, match="payout would happen again"):
            app.operate.rerun(RUN, repeat=["payout"], **WHY)
        app.operate.rerun(RUN, **WHY)
        world.run_for("1m")
        assert bank.paid == ["a", "b", "c"]
        app.operate.rerun(RUN, repeat=["payout"], override=True, **WHY)
        world.run_for("1m")
        assert bank.paid == ["a", "b", "c"] * 2
        assert "Only a person confirms that it happened exactly once: ana overrode the advice" in said(app)


def test_a_run_that_had_begun_nothing_can_be_resumed(bank: Bank) -> None:
    app = Foliot("sqlite:///:memory:")
    ways = [ValueError("no"), None]

    @app.job(effects=(), attempts=1)
    def load() -> None:
        way = ways.pop(0)
        if way is not None:
            raise way

    with virtual_time(app) as world:
        kept = load.now()
        world.run_for("1m")
        assert world.run(kept.id).state is State.DEAD
        app.operate.resume_run(kept.id, **WHY)
        world.run_for("1m")
        assert world.run(kept.id).state is State.SUCCEEDED
        assert any(line.text.startswith("ana resumed the run: ") for line in app.operate.story(kept.id))


def test_a_job_that_declares_nothing_cannot_go_on_where_it_stopped(bank: Bank) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(attempts=1)
    def load() -> None:
        raise ValueError("no")

    with virtual_time(app) as world:
        kept = load.now()
        world.run_for("1m")
        with pytest.raises(Conflict, match=r"what it completed.*For its safe steps: foliot runs show"):
            app.operate.resume_run(kept.id, **WHY)
        assert app.operate.retry(kept.id, **WHY).outcome == "retried"


def test_a_check_can_look_again_when_the_books_were_put_right(bank: Bank) -> None:
    bank.books_are_right = False
    with settlement(bank, checked=True) as (app, world):
        assert world.run(RUN).state is State.UNVERIFIED
        assert not app.operate.report("settlement").is_good
        bank.books_are_right = True
        app.operate.verify(RUN, **WHY)
        world.run_for("1m")
        assert world.run(RUN).state is State.VERIFIED
        assert bank.paid == ["a", "b", "c"]
        assert said(app) == "The 2026-04-03 run of settlement completed, exactly once, verified 06:01:00Z."


def test_a_job_without_a_check_cannot_be_verified(broken: tuple[Foliot, World]) -> None:
    app, _ = broken
    with pytest.raises(Conflict, match="has no check"):
        app.operate.verify(RUN, **WHY)


# Many at once


@contextmanager
def transfers() -> Iterator[tuple[Foliot, World]]:
    """Three transfers that nobody knows of; one of them may have sent a mail, too."""
    app = Foliot("sqlite:///:memory:")

    @app.job(effects=("wire", "mail"), attempts=1)
    async def transfer(ctx: Context, number: int) -> None:
        wire = ctx.effect("wire", key=str(number))
        await wire.__aenter__()
        if number == 2:
            await ctx.effect("mail", key="2").__aenter__()
        raise TimeoutError("no answer")

    with virtual_time(app) as world:
        for number in (1, 2, 3):
            transfer.using(key=f"wire:{number}").now(number)
        world.run_for("1m")
        assert world.states() == [State.AMBIGUOUS] * 3
        yield app, world


def test_a_dry_run_lists_what_it_would_settle_and_touches_nothing() -> None:
    with transfers() as (app, world):
        found = app.operate.reconcile_many(evidence="", actor="ana", effect="wire", state="done", dry_run=True)
        assert [(one.run, one.outcome) for one in found] == [
            ("wire:1#1", "would"),
            ("wire:2#1", "refused"),
            ("wire:3#1", "would"),
        ]
        assert world.states() == [State.AMBIGUOUS] * 3


def test_one_that_cannot_be_settled_never_stops_the_rest() -> None:
    with transfers() as (app, world):
        found = app.operate.reconcile_many(
            evidence="the list", actor="ana", job="transfer", effect="wire", state="done"
        )
        assert [one.outcome for one in found] == ["reconciled", "refused", "reconciled"]
        assert found[1].problem == "the run has other ambiguous effects: mail:2; reconcile the run separately"
        assert world.states() == [State.RECONCILED, State.AMBIGUOUS, State.RECONCILED]
        [line] = world.run("wire:1#1").effects
        assert (str(line.state), line.note) == ("done", "ana: the list")


def test_many_are_settled_and_resumed_together() -> None:
    with transfers() as (app, world):
        found = app.operate.reconcile_many(
            evidence="the list", actor="ana", effect="wire", state="not_done", then="resume"
        )
        assert [one.outcome for one in found] == ["resumed", "refused", "resumed"]
        assert world.states() == [State.RETRYING, State.AMBIGUOUS, State.RETRYING]


def test_one_that_somebody_settled_meanwhile_is_reported_and_the_rest_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with transfers() as (app, world):
        settle = world.store.reconcile

        async def raced(run: str, **given: Any) -> Any:
            if run == "wire:1#1":
                raise Conflict(f"{run} is reconciled")
            return await settle(run, **given)

        monkeypatch.setattr(world.store, "reconcile", raced)
        found = app.operate.reconcile_many(
            evidence="the list", actor="ana", job="transfer", effect="wire", state="done"
        )
        assert [one.outcome for one in found] == ["refused", "refused", "reconciled"]
        assert found[0].problem == "wire:1#1 is reconciled"


def test_many_are_settled_only_when_it_is_said_which_and_how() -> None:
    with transfers() as (app, _):
        with pytest.raises(InvalidInput, match="no filter is given"):
            app.operate.reconcile_many(evidence="x", actor="ana")
        with pytest.raises(InvalidInput, match="no answer is given: set the state of these effects with"):
            app.operate.reconcile_many(evidence="", actor="ana", job="transfer")
        with pytest.raises(InvalidInput, match="evidence is missing"):
            app.operate.reconcile_many(evidence="", actor="ana", job="transfer", state="done")
        with pytest.raises(InvalidInput, match="why the remaining work is not needed"):
            app.operate.reconcile_many(evidence="the list", actor="ana", job="transfer", then="close")
        with pytest.raises(InvalidInput, match="is not a state of an effect; give done or not_done"):
            app.operate.reconcile_many(evidence="x", actor="ana", job="transfer", state="perhaps")


# Seeing


def test_who_triggered_a_run_is_in_its_story(bank: Bank) -> None:
    with settlement(bank) as (app, world):
        kept = app.operate.trigger("settlement", reason="the bank asked", actor="ana")
        world.run_for("1m")
        assert app.operate.story(kept.id)[0].text == "triggered on schedule settlement by ana: the bank asked"


def test_advice_is_there_for_programs_too(broken: tuple[Foliot, World]) -> None:
    app, _ = broken
    told = app.operate.advice(RUN)
    assert told is not None
    assert told.advice.recovery == "maybe"


def test_a_day_on_which_a_pause_skipped_the_tick_says_so(bank: Bank) -> None:
    with settlement(bank) as (app, world):
        app.operate.pause("settlement", reason="the bank is closed", actor="ana")
        world.run_for("24h")
        app.operate.resume("settlement", reason="it is open", actor="ana")
        world.run_for("1m")
        [one] = app.operate.report("settlement", date(2026, 4, 4)).statements
        assert (one.verdict, one.text) == (
            Verdict.SKIPPED,
            "The 2026-04-04 run of settlement did not run: the schedule was paused: the bank is closed.",
        )


def test_ticks_that_one_row_stands_for_are_not_missing(bank: Bank) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def tick() -> None: ...

    app.schedule("hourly", tick, cron("0 * * * *"), catch_up="skip")
    with virtual_time(app, start=START) as world:
        world.run_for("2m")
        world.outage("72h")
        world.run_for("1h")
        for day in (3, 4, 5, 6):
            found = app.operate.report("hourly", date(2026, 4, day)).statements
            assert [one.verdict for one in found if one.verdict is Verdict.MISSING] == []


def test_a_report_of_nobody_is_refused_and_one_of_a_quiet_day_is_empty(bank: Bank) -> None:
    with settlement(bank) as (app, _):
        with pytest.raises(UnknownName, match="no job and no schedule 'nobody'"):
            app.operate.report("nobody")
        assert app.operate.report("settlement", date(2020, 1, 1)).statements == []
        assert app.operate.report("settle").statements == app.operate.report("settlement").statements


def test_the_days_of_a_report_are_those_of_the_schedules_own_zone_unless_it_is_said_whose() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def close() -> None: ...

    app.schedule("close", close, cron("30 0 * * *", tz="Asia/Tokyo"))
    with virtual_time(app, start=datetime(2026, 4, 2, 15, 0, tzinfo=UTC)) as world:
        world.run_for("1h")
        assert len(app.operate.report("close", date(2026, 4, 3)).statements) == 1
        assert app.operate.report("close").date == date(2026, 4, 3)
        assert len(app.operate.report("close", date(2026, 4, 2), "UTC").statements) == 1
        assert app.operate.report("close", date(2026, 4, 2)).statements == []


def test_a_job_is_known_with_what_its_runs_took(bank: Bank) -> None:
    with settlement(bank) as (app, world):
        seen = world.call(app.operate.job_async("settle"))
        assert (seen.counts["succeeded"], seen.taken.count) == (1, 1)
        with pytest.raises(UnknownName, match="there is no job 'nobody'"):
            world.call(app.operate.job_async("nobody"))
