"""How much comes and goes, and who has room for it: acted out, told once, and resolved when it is cured."""

from __future__ import annotations

from foliot import Foliot, every
from foliot.domain.alerts import Kind
from foliot.domain.instant import HOUR
from foliot.errors import Permanent
from tests.watch.watched import kinds, one, told, watched


def a_feed() -> Foliot:
    """Three runs a minute."""
    app = Foliot("sqlite:///:memory:")

    @app.job(no_alerts=["late", "failing"])
    def feed() -> None: ...

    app.schedule("feed", feed, every("20s"), overlap="allow")
    return app


def test_completions_that_fall_while_work_is_triggered_are_told_for_as_long_as_they_do() -> None:
    with watched(a_feed(), "30s") as world:
        world.run_for("12m")
        assert told(world) == []
        world.kill_worker()
        world.run_for("10m")
        assert Kind.COMPLETIONS in kinds(world)
        alert = one(world, Kind.COMPLETIONS)
        assert (alert.subject, alert.severity) == ("fleet", "warning")
        assert "runs succeeded in the last ten minutes" in alert.cause
        world.run_for("20m")
        assert one(world, Kind.COMPLETIONS).is_open  # nothing is better than it was
        world.add_worker()
        world.run_for("5m")
        assert not one(world, Kind.COMPLETIONS).is_open


def test_completions_that_fall_because_nothing_is_triggered_are_no_alert() -> None:
    app = a_feed()
    with watched(app, "30s") as world:
        world.run_for("12m")
        app.operate.pause("feed", reason="maintenance", actor="ana")
        world.run_for("12m")
        assert told(world) == []


def test_retries_that_rise_are_told_and_resolved_when_the_destination_is_back() -> None:
    app = Foliot("sqlite:///:memory:")
    is_down = [True]

    @app.job(attempts=50, backoff="5m", backoff_cap="5m", no_alerts=["late"])
    def call(number: int) -> None:
        if is_down[0]:
            raise ConnectionError("the destination is down")

    with watched(app, "30s") as world:
        world.run_for("11m")
        for number in range(30):
            call.now(number=number)
        world.run_for("4m")
        alert = one(world, Kind.RETRIES)
        assert (alert.subject, alert.is_open) == ("fleet", True)
        assert "wait for a retry, 0 waited ten minutes ago" in alert.cause
        is_down[0] = False
        world.run_for("15m")
        assert told(world) == [("retries", "fleet")]
        assert world.alerts() == []


def test_dead_letters_that_grow_are_told_and_resolved_once_they_are_replayed() -> None:
    app = Foliot("sqlite:///:memory:")
    is_closed = [True]

    @app.job(no_alerts=["dead", "failing"])
    def pay(account: int) -> None:
        if is_closed[0]:
            raise Permanent("closed")

    with watched(app, "10s") as world:
        world.run_for("10s")
        for account in range(9):
            pay.now(account=account)
        world.run_for("20s")
        assert told(world) == []
        pay.now(account=9)
        world.run_for("10s")  # all within the first minute of the watch
        alert = one(world, Kind.DEAD_LETTERS)
        assert (alert.subject, alert.count) == ("fleet", 10)
        assert "10 dead letters (+10 in the past hour)" in alert.cause
        is_closed[0] = False
        app.operate.replay_dead(reason="the bank is back", actor="ana")
        world.run_for("12m")
        assert told(world) == [("dead_letters", "fleet")]
        assert world.alerts() == []


def test_a_queue_whose_workers_have_no_free_slot_is_saturated_until_one_is_added() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(timeout="5h", no_alerts=["late"])
    async def load() -> None:
        await app.clock.sleep(HOUR)

    with watched(app, "30s", slots=2) as world:
        for _ in range(2):
            load.now()
        world.run_for("5m")
        assert told(world) == []  # busy, and nothing waits
        load.now()
        world.run_for("2m")
        assert Kind.SATURATED not in kinds(world)  # not for long
        world.run_for("1m")
        alert = one(world, Kind.SATURATED)
        assert (alert.subject, alert.count) == ("queue:default", 1)
        assert "all 2 slots of its workers are busy, and 1 runs wait" in alert.cause
        world.add_worker()
        world.run_for("2m")
        assert world.alerts() == []
        assert told(world).count(("saturated", "queue:default")) == 1
