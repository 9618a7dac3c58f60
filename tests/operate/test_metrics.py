"""Metrics of the whole fleet: what the store knows, in so many series at the most."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from foliot import Context, Foliot, Permanent, every
from foliot.domain.alerts import Finding, Kind
from foliot.domain.instant import HOUR, SECOND
from foliot.domain.metrics import ALL, MOST_SERIES, OF_THE_STORE
from foliot.domain.state import State
from foliot.domain.store.measuring import ScheduleAge
from foliot.domain.survey import Conclusion
from foliot.operate.metrics import PART, FleetMetrics
from foliot.testing import virtual_time

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(rendered: bytes) -> Samples:
    found = [one for family in text_string_to_metric_families(rendered.decode()) for one in family.samples]
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for one in found}


def named(found: Samples, name: str) -> dict[str, float]:
    """By the values of its labels."""
    return {"/".join(value for _, value in labels): number for (one, labels), number in found.items() if one == name}


def test_one_look_tells_of_the_whole_fleet() -> None:
    app = Foliot("sqlite:///:memory:", backoff="0s")

    @app.job(attempts=2)
    async def pay() -> None:
        raise ValueError

    @app.job(effects=())
    async def greet(ctx: Context) -> None: ...

    @app.job(destination="api.bank.example", breaker_after=1, attempts=50)
    async def wire() -> None:
        raise ValueError

    @app.job
    async def skip() -> None:
        raise Permanent("never")

    app.schedule("hello", greet, every("1h"), overlap="skip", catch_up="once")
    app.limit("queue:default", concurrency=50)
    with virtual_time(app) as world:
        fleet = FleetMetrics(app.opened, tenants=3)
        before = samples(world.call(fleet.render()))
        assert named(before, "foliot_runs_ended_total") == {}, "counted from the first look on"
        for job in (pay, skip, wire):
            job.using(tenant="acme").now()
        world.run_for("1h")
        world.kill_worker()
        greet.now()
        world.run_for("10s")
        world.call(world.store.open_alert(Conclusion(b"", [Finding(Kind.DEAD, "run:x", "it is dead")])))
        fleet._slow = None  # as if enough time had passed
        found = samples(world.call(fleet.render()))
    assert named(found, "foliot_runs_ended_total") == {"greet/succeeded": 1}
    assert named(found, "foliot_runs_attempts_total") == {"greet": 1}
    assert named(found, "foliot_runs_for_a_person") == {"pay/dead": 1, "skip/dead": 1}
    assert named(found, "foliot_queue_waiting_runs") == {"default": 1}
    assert named(found, "foliot_queue_oldest_seconds") == {"default": 10}
    assert named(found, "foliot_lane_waiting_runs") == {"live": 1}
    assert named(found, "foliot_tenant_waiting_runs") == {"": 1}
    assert named(found, "foliot_breaker_open") == {"api.bank.example": 1}
    assert named(found, "foliot_limit_used")["queue:default"] >= 0
    assert named(found, "foliot_schedules") == {"active": 1, "paused": 0, "set_aside": 0}
    assert named(found, "foliot_schedule_useful_age_seconds") == {"hello": 10}
    assert named(found, "foliot_alerts_open") == {"dead/warning": 1}
    assert named(found, "foliot_runs_early") == {"": 0}
    assert set(named(found, "foliot_instances")) >= {"scheduler/", "worker/"}
    told = {name for name, _ in found}
    assert told == {metric.name for metric in OF_THE_STORE} <= {metric.name for metric in ALL}


def test_a_schedule_that_was_never_useful_counts_from_its_making() -> None:
    app = Foliot()

    @app.job
    async def fail() -> None:
        raise Permanent("never")

    app.schedule("fails", fail, every("1h"), overlap="skip", catch_up="once")
    with virtual_time(app) as world:
        world.run_for("5h")
        found = samples(world.call(FleetMetrics(app.opened, tenants=3).render()))
    assert named(found, "foliot_schedule_useful_age_seconds") == {"fails": 5 * 3600}


class Counting:
    """A store that has very many schedules, and takes its time to count them."""

    def __init__(self, schedules: int) -> None:
        self.passed = 0.0
        self.looks = 0
        self._schedules = schedules

    async def live_counts(self) -> dict[State, int]:
        self.looks += 1
        self.passed += 2.0
        return {State.SCHEDULED: self._schedules}

    async def schedule_ages(self) -> list[ScheduleAge]:
        return [ScheduleAge(f"every-{n:05}", 0, n * SECOND, False, False) for n in range(self._schedules)]

    async def measured(self, fleet: FleetMetrics) -> Samples:
        from foliot.exposition import rendered

        slow = await fleet._measured(self)  # type: ignore[arg-type]
        return samples(rendered(fleet._of_schedules(slow, HOUR)))


async def test_ten_thousand_schedules_make_no_more_series_than_two_hundred() -> None:
    store = Counting(10_000)
    fleet = FleetMetrics(None, passed=lambda: store.passed)  # type: ignore[arg-type]
    ages = named(await store.measured(fleet), "foliot_schedule_useful_age_seconds")
    assert len(ages) == MOST_SERIES + 1
    assert ages["every-00007"] == 3600 - 7
    assert ages["other"] == 3600 - MOST_SERIES, "the one of the rest that was longest of no use"
    assert named(await store.measured(fleet), "foliot_schedules")["active"] == 10_000


async def test_what_takes_long_to_count_is_counted_seldom() -> None:
    store = Counting(1)
    fleet = FleetMetrics(None, passed=lambda: store.passed)  # type: ignore[arg-type]
    await store.measured(fleet)
    store.passed += 2.0 * PART - 1
    await store.measured(fleet)
    assert store.looks == 1
    store.passed += 1
    await store.measured(fleet)
    assert store.looks == 2


async def test_keys_and_tenants_are_told_together() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(concurrency_key="account:{number}")
    async def move(number: int) -> None: ...

    await app.apply_async()
    for number in range(5):
        app.limit(f"tenant:t{number}", concurrency=1)
    await app.apply_async()
    found = named(samples(await app.operate.metrics_async()), "foliot_limit_used")
    assert found == {"tenant:other": 0}
    await app.close_async()
