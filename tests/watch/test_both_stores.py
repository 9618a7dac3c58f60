"""What the watch asks of each engine in its own words, acted out on both: told by name, once, and resolved when cured.

Short stories, because a look costs a server some fifty milliseconds; `test_silence` has the long ones.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from foliot import Context, Foliot, every
from foliot.bootstrap import make_herald
from foliot.clock import DisciplinedClock, ManualClock
from foliot.domain.alerts import Kind
from foliot.domain.instant import MINUTE, SECOND, instant
from foliot.domain.state import State
from foliot.store.process import this_host
from foliot.testing import World
from foliot.watch.clocks import ClockWatch
from tests.watch.test_heralding import Pager
from tests.watch.watched import START, Place, an_app, kinds, one, sql, told, watched

HERE = f"host:{this_host().partition(' ')[0]}"


def often() -> Foliot:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def work() -> None: ...

    app.schedule("often", work, every("10m"))
    return app


def test_a_pending_run_that_was_deleted_by_hand_is_missed_by_name_once_and_resolved_when_it_is_back(
    place: Place | None,
) -> None:
    app = an_app()
    with watched(app, "20s", place=place) as world:
        world.run_for("1m")
        sql(world, "DELETE FROM run WHERE schedule = 'hourly' AND state = 0")
        world.run_for("1m")
        alert = one(world, Kind.MISSING)
        assert alert.subject == "schedule:hourly"
        assert "next tick 2026-01-01T01:00:00Z" in alert.cause
        world.run_for("1m")
        assert told(world) == [("missing", "schedule:hourly")]  # once
        app.apply()
        assert [run.id for run in world.runs()] == ["hourly@2026-01-01T01:00:00Z"]
        world.run_for("20s")
        assert world.alerts() == []
        assert one(world, Kind.MISSING).resolved_at is not None


def test_an_ended_row_that_is_deleted_within_the_expected_window_is_missed(place: Place | None) -> None:
    with watched(an_app(expect_within="6h"), "5m", place=place) as world:
        world.run_for("3h30m")
        assert told(world) == []
        sql(world, "DELETE FROM history WHERE name = 'hourly@2026-01-01T02:00:00Z'")
        world.run_for("10m")
        alert = one(world, Kind.MISSING)
        assert "its tick 2026-01-01T02:00:00Z has no run" in alert.cause
        world.run_for("10m")
        assert one(world, Kind.MISSING).number == alert.number


def test_a_tick_that_never_became_a_row_is_missed_until_a_backfill_makes_up_for_it(place: Place | None) -> None:
    app = often()
    with watched(app, "5m", place=place) as world:
        world.run_for("11m")
        # The pending run is moved on, as a scheduler with a bug would do.
        later, name = instant(START + timedelta(minutes=40)), "often@2026-01-01T00:40:00Z"
        sql(world, f"UPDATE run SET nominal = {later}, fire_at = {later}, name = '{name}'")
        if place is not None:
            sql(world, f"UPDATE named SET name = '{name}' WHERE name LIKE '%00:20:00Z'")
        world.run_for("31m")
        assert "tick 2026-01-01T00:20:00Z and 1 more" in one(world, Kind.MISSING).cause
        sql(world, "DELETE FROM history WHERE name LIKE '%00:10:00Z'")
        minutes = [START + timedelta(minutes=minute) for minute in (5, 35)]
        app.operate.backfill("often", *minutes, reason="three are missing", actor="ana")
        world.run_for("6m")
        states = {run.id.partition("@")[2]: str(run.state) for run in world.runs()}
        assert states == {
            **{f"2026-01-01T00:{minute}:00Z": "succeeded" for minute in (10, 20, 30, 40)},
            "2026-01-01T00:50:00Z": "scheduled",
        }
        assert world.alerts() == []


def test_work_that_nobody_takes_is_told_as_late_as_an_old_queue_and_as_lacking_a_worker(place: Place | None) -> None:
    with watched(often(), "1m", place=place) as world:
        world.run_for("5m")
        world.kill_worker()
        world.run_for("9m")
        assert kinds(world) >= {Kind.LATE, Kind.QUEUE_AGE, Kind.NO_WORKER}
        assert one(world, Kind.LATE).subject == "schedule:often"
        world.add_worker()
        world.run_for("2m")
        assert world.alerts() == []


def test_a_result_that_does_not_come_is_stale_until_one_does(place: Place | None) -> None:
    app = Foliot("sqlite:///:memory:")
    broken = [True]

    @app.job(attempts=1, no_alerts=["dead"])
    def feed() -> None:
        if broken[0]:
            raise ValueError("no route to the shop")

    app.schedule("feed", feed, every("10m"), expect_within="3m")
    with watched(app, "2m", place=place) as world:
        world.run_for("12m")
        assert told(world) == []
        world.run_for("2m")
        stale = one(world, Kind.STALE)
        assert "feed: no useful result for its tick 2026-01-01T00:10:00Z within 3m" in stale.cause
        broken[0] = False
        world.run_for("8m")
        assert told(world) == [("stale", "schedule:feed")]
        assert world.alerts() == []


def test_a_required_schedule_that_does_not_exist_is_an_alert_until_it_exists_or_is_not_required(
    place: Place | None,
) -> None:
    app = an_app(requires="feed", cutoff="6h")
    why: dict[str, Any] = {"reason": "the feed is declared elsewhere", "actor": "ana"}
    with watched(app, "1m", place=place) as world:
        world._alarm._page = 1  # it looks at each of two schedules in its turn
        world.run_for("90s")
        assert told(world) == []
        world.run_for("2m")
        alert = one(world, Kind.UNKNOWN_REQUIRED)
        assert alert.subject == "schedule:hourly"
        assert alert.cause == ("hourly: it requires feed, which does not exist: each tick waits 6h and then is skipped")
        assert "foliot schedules edit hourly --set requires=OTHER" in alert.action
        app.operate.put_schedule({"name": "feed", "job": "work", "rule": "every 1h"}, **why)
        world.run_for("2m")
        assert world.alerts() == []
        app.operate.delete("feed", **why)
        world.run_for("4m")
        assert kinds(world) == {Kind.UNKNOWN_REQUIRED}
        app.operate.edit_schedule("hourly", {"requires": None}, revision=1, **why)
        world.run_for("2m")
        assert world.alerts() == []
        assert told(world) == [("unknown_required", "schedule:hourly")] * 2


def test_a_schedule_that_keeps_failing_has_one_alert_and_a_message_again_when_its_count_has_doubled(
    place: Place | None,
) -> None:
    app, pager, broken = Foliot("sqlite:///:memory:"), Pager(), [True]

    @app.job(attempts=1, no_alerts=["dead_letters"])
    def feed() -> None:
        if broken[0]:
            raise ValueError("no route to the shop")

    app.schedule("feed", feed, every("30s"))
    with watched(app, "10s", place=place) as world:
        herald = make_herald(world.store, [pager], clock=world.clock, public_url="https://jobs.example.com")
        for _ in range(34):
            world.run_for("20s")
            world.call(herald.run_once())
        dead = one(world, Kind.DEAD)
        counted = len([run for run in world.runs() if run.state is State.DEAD])
        assert (dead.subject, dead.count, counted) == ("schedule:feed", 22, 22)
        assert {alert.kind for alert in world.alerts()} == {Kind.DEAD, Kind.DEAD_LETTERS}
        assert [message.title for message in pager.taken if message.alerts[0].kind is Kind.DEAD] == [
            "[foliot] warning: dead: schedule:feed",
            "[foliot] warning again: dead: schedule:feed, 21 runs",
        ]
        assert "https://jobs.example.com/runs?state=dead&schedule=feed" in pager.taken[-1].body
        broken[0] = False
        app.operate.replay_dead(reason="the shop is back", actor="ana")
        for _ in range(2):
            world.run_for("20s")
            world.call(herald.run_once())
        assert one(world, Kind.DEAD).resolved_at is not None
        assert "[foliot] resolved: dead: schedule:feed" in [message.title for message in pager.taken]


def test_a_handler_that_stalls_is_stuck_until_it_moves(place: Place | None) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(timeout="2h", stall_after="1m", on_stall="alert")
    async def load(ctx: Context) -> None:
        ctx.progress(1)
        await app.clock.sleep(3 * MINUTE)
        ctx.progress(2)
        await app.clock.sleep(2 * MINUTE)

    with watched(app, "30s", place=place) as world:
        run = load.now()
        world.run_for("1m")
        assert told(world) == []
        world.run_for("45s")
        stuck = one(world, Kind.STUCK)
        assert (stuck.run, stuck.subject, stuck.resolved_at) == (run.id, "job:load", None)
        world.run_for("2m30s")
        assert one(world, Kind.STUCK).resolved_at is not None


def test_runs_that_nobody_fires_are_told_although_the_watch_lives(place: Place | None) -> None:
    """The watch of a scheduler that does nothing else any more."""
    with watched(an_app(), place=place) as world:
        world.run_for("20s")
        world.kill_scheduler()
        for _ in range(4):
            world.clock.advance(10 * SECOND)
            world.call(world._alarm.run_once())
        alert = one(world, Kind.SCHEDULER_SILENT)
        assert (alert.subject, alert.is_open) == ("fleet", True)
        assert "no live scheduler holds" in alert.cause
        world.add_scheduler()
        world.run_for("40s")
        assert world.alerts() == []
        assert told(world) == [("scheduler_silent", "fleet")]


def test_a_check_that_nobody_makes_is_overdue_until_somebody_does(place: Place | None) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(timeout="3m")
    def settle() -> None: ...

    @settle.verify
    async def settled() -> bool:
        await app.clock.sleep(20 * SECOND)
        return True

    with watched(app, "1m", place=place) as world:
        run = settle.now()
        world.run_for("10s")
        world.kill_worker()
        world.run_for("8m")
        assert Kind.CHECK_OVERDUE not in kinds(world)
        world.run_for("2m")
        alert = one(world, Kind.CHECK_OVERDUE)
        assert (alert.run, alert.subject, alert.job) == (run.id, "job:settle", "settle")
        world.add_worker()
        world.run_for("2m")
        assert not one(world, Kind.CHECK_OVERDUE).is_open
        assert str(world.run(run.id).state) == "verified"


def test_a_check_that_follows_long_work_is_not_overdue_for_that() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(timeout="3m")
    async def settle() -> None:
        await app.clock.sleep(170 * SECOND)

    @settle.verify(timeout="20m")
    async def settled() -> bool:
        await app.clock.sleep(6 * MINUTE)
        return True

    with watched(app, "30s") as world:
        settle.now()
        world.run_for("10m")
        assert told(world) == []
        assert [str(state) for state in world.states()] == ["verified"]


class Skewed:
    """A host whose clock goes beside the store's, and what it measures of that."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.base = ManualClock(world.clock.now())
        number = world.workers[0].number
        self._watch = ClockWatch(world.store, DisciplinedClock(self.base), "worker", this_host(), lambda: number)

    def run_for(self, length: int) -> None:
        for _ in range(length // (10 * SECOND)):
            self.base.advance(10 * SECOND)
            self.world.run_for("10s")
            self.world.call(self._watch.run_once())


def test_a_host_whose_clock_is_wrong_is_told_by_name_until_it_is_right(place: Place | None) -> None:
    with watched(an_app(), place=place) as world:
        host = Skewed(world)
        host.base.step(3 * SECOND)
        host.run_for(20 * SECOND)
        assert told(world) == []  # not for long
        host.run_for(10 * SECOND)
        alert = one(world, Kind.CLOCK)
        assert alert.subject == HERE
        assert "is 3,000.0 to 3,000.0 ms ahead of the store's; its processes start no new work" in alert.cause
        host.base.step(-3 * SECOND)
        host.run_for(50 * SECOND)
        assert told(world) == [("clock", HERE)]
        assert world.alerts() == []


def test_a_host_that_vanished_has_no_wrong_clock_any_more() -> None:
    with watched(an_app()) as world:
        world.add_worker()
        host = Skewed(world)
        host.base.step(-3 * SECOND)
        host.run_for(40 * SECOND)
        assert one(world, Kind.CLOCK).is_open
        world.kill_worker()
        world.run_for("3m")
        assert not one(world, Kind.CLOCK).is_open


def test_an_attempt_that_began_too_early_is_told_for_a_day(place: Place | None) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def good() -> None: ...

    @app.job(attempts=1, no_alerts=["dead"])
    def bad() -> None:
        raise ValueError("no")

    with watched(app, "1m", place=place) as world:
        good.now()
        bad.now()
        world.run_for("1m")
        assert told(world) == []
        # Nothing in here begins early: what a wrong clock would leave is put into the rows.
        for table in ("history", "attempt"):
            sql(world, f"UPDATE {table} SET fire_at = started_at + 1")
        world.run_for("1m")
        alert = one(world, Kind.EARLY)
        assert (alert.subject, alert.count, str(alert.severity)) == ("fleet", 2, "critical")
        assert "2 attempts of the last day started before their fire time" in alert.cause
        world.outage("23h")
        world.run_for("1m")
        assert one(world, Kind.EARLY).is_open
        world.outage("1h")
        world.run_for("1m")
        assert told(world) == [("early", "fleet")]
        assert world.alerts() == []
