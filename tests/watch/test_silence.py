"""Silence is an alert: whatever stops, vanishes or stalls is told of, by name, once, and resolved when it is cured."""

from __future__ import annotations

import pytest

from foliot import Foliot, after, bootstrap, cron, every
from foliot.domain.alerts import Kind, Rules
from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.pauses import What
from foliot.domain.run import Lane
from foliot.domain.state import State
from foliot.testing import virtual_time
from foliot.watch.alarm import AT_WORK_FOR, DUE_FOR, Alarm
from tests.tiers import only_in_full
from tests.watch.watched import START, an_app, one, sql, told, watched


def test_nothing_is_told_while_all_is_well() -> None:
    app = an_app(jitter="5m")

    @app.job
    async def sweep() -> None:
        await app.clock.sleep(2 * SECOND)

    app.schedule("sweep", sweep, after("50m"))
    app.schedule("daily", sweep, cron("30 2 * * *", tz="Europe/Paris"), overlap="allow", expect_within="1h")
    with watched(app, "13m") as world:
        world.run_for("27h")
        assert told(world) == []


def test_the_run_of_a_fixed_delay_is_missed_when_none_is_active_or_pending() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def sweep() -> None: ...

    app.schedule("sweep", sweep, after("10m"))
    with watched(app) as world:
        world.run_for("25m")
        sql(world, "DELETE FROM run WHERE schedule = 'sweep'")
        world.run_for("1m")
        assert "no run of it is active or pending" in one(world, Kind.MISSING).cause


@pytest.mark.parametrize("catch_up", ["once", "skip", only_in_full("all")])
def test_ticks_of_an_outage_or_a_pause_that_became_rows_are_not_missing(catch_up: str) -> None:
    app = an_app(catch_up=catch_up)
    with watched(app, "7m") as world:
        world.run_for("65m")
        world.outage("5h")
        world.run_for("65m")
        app.operate.pause("hourly", reason="maintenance", actor="ana")
        world.run_for("130m")
        app.operate.resume("hourly", reason="done", actor="ana")
        world.run_for("65m")
        assert Kind.MISSING not in {alert.kind for alert in world.alerts(everything=True)}


def test_a_paused_schedule_is_neither_late_nor_stale() -> None:
    app = an_app(expect_every="2h")
    with watched(app, "5m") as world:
        world.run_for("90m")
        app.operate.pause("hourly", reason="maintenance", actor="ana")
        world.run_for("6h")
        assert told(world) == []
        app.operate.resume("hourly", reason="done", actor="ana")
        world.run_for("90m")
        assert told(world) == []


def test_a_required_schedule_that_does_not_exist_is_no_alert_of_a_paused_schedule() -> None:
    app = an_app(requires="feed")
    with watched(app, "1m") as world:
        app.operate.pause("hourly", reason="the feed comes later", actor="ana")
        world.run_for("4m")
        assert told(world) == []
        app.operate.resume("hourly", reason="the feed is said to be here", actor="ana")
        world.run_for("4m")
        assert told(world) == [("unknown_required", "schedule:hourly")]


def test_what_waits_behind_a_pause_of_claims_is_neither_late_nor_stale_and_has_its_time_again_afterwards() -> None:
    with watched(an_app(expect_every="2h", overlap="queue", queue_limit=100), "5m") as world:
        world.run_for("90m")
        world.call(world.store.put_pause("job:work", What.CLAIMS, until=None, actor="ana", note="the disk is full"))
        world.run_for("5h")
        assert told(world) == []
        world.kill_worker()
        world.call(world.store.end_pause("job:work", What.CLAIMS, actor="ana", note="it is not", catch_up=False))
        world.run_for("1m")
        assert ("stale", "schedule:hourly") not in told(world)
        world.run_for("3h")
        assert ("stale", "schedule:hourly") in told(world)


def test_what_is_made_up_for_at_a_rate_is_not_late() -> None:
    app = an_app(catch_up="all", overlap="allow")
    with watched(app, "1m") as world:
        world.run_for("10m")
        app.operate.limit("lane:catch-up", rate="6/h", reason="gently", actor="ana")
        world.outage("5h")
        world.run_for("25m")
        assert [run.state for run in world.runs() if run.lane is Lane.CATCH_UP]
        assert told(world) == []


@pytest.mark.parametrize("is_written", [True, False])
def test_of_a_schedule_with_another_rule_no_tick_is_expected_from_before_that(is_written: bool) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def work() -> None: ...

    app.schedule("daily", work, cron("0 2 * * *"), expect_within="1h")
    with watched(app, "15m") as world:
        world.run_for("12h")
        if not is_written:
            sql(world, "UPDATE schedule SET source = 'operator'")  # no edit of it is written down
        app.operate.edit_schedule("daily", {"rule": "0 10 * * *"}, revision=1, reason="later", actor="ana")
        world.run_for("30m")
        assert told(world) == []
        if is_written:
            world._alarm = bootstrap.make_alarm(world.store, clock=world.clock)  # whoever watches next knows it, too
            world.run_for("30m")
            assert told(world) == []
        world.kill_worker()
        world.run_for("23h")
        assert ("stale", "schedule:daily") in told(world)


@pytest.mark.parametrize("rules", [Rules(silent=frozenset({"dead"})), Rules(graces={"dead": 10 * MINUTE})])
def test_one_dead_run_that_has_no_alert_is_counted_once_as_a_failure(rules: Rules) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(attempts=1)
    def pay() -> None:
        raise ValueError("closed")

    with watched(app) as world:
        world._alarm = bootstrap.make_alarm(world.store, clock=world.clock, rules=rules)
        pay.now()
        world.run_for("2m")
        assert told(world) == []
        for _ in range(2):
            pay.now()
        world.run_for("1m")
        assert told(world) == [("failing", "job:pay")]


def test_a_schedule_whose_rule_is_broken_is_told_as_faulted_until_it_is_mended() -> None:
    app = an_app()
    with watched(app, "30s") as world:
        world.run_for("55m")
        sql(world, "UPDATE schedule SET rule = '{}' WHERE id = 'hourly'")
        world.run_for("6m")
        assert told(world) == [("faulted", "schedule:hourly")]
        sql(world, "UPDATE schedule SET fingerprint = 'x' WHERE id = 'hourly'")
        app.apply()
        world.run_for("30s")
        assert world.alerts() == []


def test_a_result_that_is_expected_and_does_not_come_is_told_and_resolved_by_the_next_useful_one() -> None:
    app = Foliot("sqlite:///:memory:")
    broken = [True]

    @app.job(attempts=1, owner="data", runbook="https://wiki/feed")
    def feed() -> None:
        if broken[0]:
            raise ValueError("no route to the shop")

    app.schedule("feed", feed, every("1h"), expect_every="3h", expect_within="10m")
    with watched(app, "2m") as world:
        world.run_for("65m")
        assert {alert.kind for alert in world.alerts()} == {Kind.DEAD}
        world.run_for("10m")
        stale = one(world, Kind.STALE)
        assert "no useful result for its tick 2026-01-01T01:00:00Z within 10m" in stale.cause
        assert (stale.owner, stale.runbook) == ("data", "https://wiki/feed")
        world.run_for("2h")
        assert {alert.kind for alert in world.alerts()} == {Kind.DEAD, Kind.STALE}
        broken[0] = False
        world.run_for("1h")
        assert {alert.kind for alert in world.alerts()} == {Kind.DEAD}


def test_attempts_that_fail_open_an_alert_before_their_run_is_dead() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(attempts=99, backoff="1h")
    def feed() -> None:
        raise ValueError("no route to the shop")

    app.schedule("feed", feed, every("1000d"))
    with watched(app, "2m") as world:
        app.operate.trigger("feed", reason="now", actor="ana")
        world.run_for("1d")
        failing = one(world, Kind.FAILING)
        assert (failing.subject, State.DEAD in world.states()) == ("schedule:feed", False)
        assert "failures in a row, and no useful result in between: " in failing.cause
        assert "no route to the shop" in failing.cause


def test_parked_runs_of_a_job_are_one_alert_until_a_person_has_acted_on_each() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(attempts=1)
    def pay(account: int) -> None:
        raise ValueError(f"account {account} is closed")

    with watched(app) as world:
        runs = [pay.now(account=number) for number in (1, 2)]
        world.run_for("20s")
        [alert] = world.alerts()
        assert (alert.subject, alert.count, alert.run) == ("job:pay", 2, runs[1].id)
        assert alert.cause == (
            f"pay: 2 runs are dead; the newest is {runs[1].id}, attempts: ValueError: account 2 is closed"
        )
        assert alert.action == 'foliot dead list --job "pay"'
        app.operate.reconcile(runs[1].id, evidence="paid by hand", actor="ana")
        world.run_for("20s")
        [left] = world.alerts()
        assert (left.number, left.count, left.run) == (alert.number, 1, runs[0].id)
        assert "account 1 is closed" in left.cause
        app.operate.reconcile(runs[0].id, evidence="paid by hand", actor="ana")
        world.run_for("20s")
        assert world.alerts() == []


def test_a_worker_that_vanishes_is_told_and_forgotten_after_a_while() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def slow() -> None:
        await app.clock.sleep(10 * MINUTE)

    with watched(app, "30s") as world:
        slow.now()
        world.run_for("1m")
        world.kill_worker()
        world.add_worker()
        world.run_for("2m")
        assert one(world, Kind.LOST).is_open
        world.run_for("20m")
        assert world.alerts() == []


def test_runs_that_overlap_against_their_policy_are_told_of() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def slow() -> None:
        await app.clock.sleep(4 * MINUTE)

    app.schedule("slow", slow, every("20m"), overlap="queue")
    with watched(app) as world:
        world.run_for("21m")
        run = app.operate.trigger("slow", reason="to see", actor="ana")
        world.run_for("1s")
        app.operate.release(run.id, reason="to see", actor="ana")
        world.run_for("30s")
        assert one(world, Kind.OVERLAPPING).subject == "schedule:slow"
        world.run_for("6m")
        assert world.alerts() == []


def test_a_run_that_takes_far_longer_than_usual_is_told_while_it_runs() -> None:
    app = Foliot("sqlite:///:memory:")
    length = [10 * SECOND]

    @app.job(timeout="5h")
    async def load() -> None:
        await app.clock.sleep(length[0])

    app.schedule("load", load, every("10m"))
    with watched(app, "1m") as world:
        world.run_for("95m")
        assert told(world) == []
        length[0] = 9 * MINUTE
        world.run_for("10m")
        duration = one(world, Kind.DURATION)
        assert "far longer than the median of 10 s" in duration.cause
        world.run_for("15m")
        assert one(world, Kind.RATIO).subject == "schedule:load"
        length[0] = 10 * SECOND
        world.run_for("20m")
        assert world.alerts() == []


def test_a_job_without_a_schedule_is_expected_to_be_of_use_too() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(expect_every="1h")
    def webhook() -> None: ...

    with watched(app, "5m") as world:
        world.run_for("30m")
        webhook.now()
        world.run_for("50m")
        assert told(world) == []
        world.run_for("30m")
        assert told(world) == [("stale", "job:webhook")]
        webhook.now()
        world.run_for("10m")
        assert world.alerts() == []


def test_a_deleted_schedule_takes_its_alerts_with_it() -> None:
    app = an_app()
    with watched(app) as world:
        sql(world, "DELETE FROM run WHERE schedule = 'hourly'")
        world.run_for("1m")
        assert told(world, everything=False) == [("missing", "schedule:hourly")]
        world.call(world.store.delete("hourly", actor="ana", note="not needed"))
        world.run_for("1m")
        assert world.alerts() == []


def test_of_a_crowd_that_will_be_over_in_a_moment_nothing_is_read() -> None:
    """Whoever watches has runs to fire, too."""
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def work() -> None:
        await app.clock.sleep(MINUTE)

    with virtual_time(app, start=START, slots=1) as world:
        alarm = Alarm(world.store, world.clock)
        app.promise_many([work.promise_delay(0), work.promise_delay(0)])
        world.run_for("100ms")
        for elapsed, seen in (("0s", (0, 0)), (f"{AT_WORK_FOR // SECOND}s", (0, 1)), (f"{DUE_FOR // SECOND}s", (1, 1))):
            world.run_for(elapsed)
            survey = world.call(world.store.survey(alarm.asked(world.call(alarm._remember()))))
            assert (len(survey.due), len(survey.at_work)) == seen
