"""A new release of the zone tables: pending ticks move to where they belong, and a wall time that ran never runs again.

A zone that changes is had by serving the tables of one place under the name of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from foliot import Context, Foliot, cron
from foliot.dispatch import admission
from foliot.domain.instant import instant, to_datetime
from foliot.domain.rule import Rule
from foliot.testing import World, virtual_time
from foliot.timing import Composable, business_day, business_days, tables, zones

START = datetime(2026, 1, 4, 22, tzinfo=UTC)
HERE = "Europe/Paris"

Release = Callable[[str, str], None]
"""Installs a release: its name, and the place whose tables it has for HERE."""


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    """Each release is as good as a new process: nothing that was read before is remembered."""

    def install(name: str, place: str) -> None:
        made = zones.Zone(HERE, zones.table(place))
        monkeypatch.setattr(zones, "_zone", lambda asked: made if asked == HERE else read(asked))
        monkeypatch.setattr(zones, "VERSION", name)
        forget()

    def forget() -> None:
        tables.stamp.cache_clear()
        admission._rule.cache_clear()

    read = zones._zone
    yield install
    monkeypatch.undo()
    forget()


def _app(expression: str, **settings: Any) -> tuple[Foliot, list[str]]:
    app = Foliot("sqlite:///:memory:")
    seen: list[str] = []

    @app.job
    async def report(ctx: Context) -> None:
        seen.append(f"{ctx.nominal:%d %H:%M}")

    app.schedule("report", report, cron(expression, tz=HERE), **settings)
    return app, seen


def _restart(world: World) -> None:
    world.kill_scheduler()
    world.add_scheduler()
    world.run_for("10s")


def _next(world: World) -> str | None:
    return world.schedule("report").next_id


def _at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 1, day, hour, minute, tzinfo=UTC)


def test_a_pending_tick_moves_with_its_zone(release: Release) -> None:
    release("2026a", "Europe/Berlin")
    app, seen = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        world.run_until(_at(5, 6))
        assert _next(world) == "report@2026-01-05T08:00:00Z"
        release("2026b", "Europe/London")
        _restart(world)
        assert _next(world) == "report@2026-01-05T09:00:00Z"
        world.run_until(_at(6, 12))
        assert seen == ["05 09:00", "06 09:00"]
        [moved] = [event for event in world.events() if event.kind == "tick_moved"]
        assert (moved.subject, moved.detail) == (
            "report",
            "tzdata=2026b: from 2026-01-05T08:00:00Z to 2026-01-05T09:00:00Z",
        )
        assert world.schedule("report").schedule.tables == "tzdata=2026b"


def test_a_wall_time_that_ran_does_not_run_again_when_its_zone_sets_the_clocks_back(release: Release) -> None:
    release("2026a", "Europe/Berlin")
    app, seen = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        world.run_until(_at(5, 8, 30))
        release("2026b", "Europe/London")
        _restart(world)
        assert _next(world) == "report@2026-01-06T09:00:00Z"
        world.run_until(_at(6, 12))
        assert seen == ["05 08:00", "06 09:00"]


def test_a_tick_that_is_due_was_promised_and_its_wall_time_is_not_run_once_more(release: Release) -> None:
    release("2026a", "Europe/Berlin")
    app, seen = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        world.run_until(_at(5, 7))
        release("2026b", "Europe/London")
        world.outage("70m")
        world.run_until(_at(6, 12))
        assert seen == ["05 08:00", "06 09:00"]


def test_a_tick_that_now_lies_in_the_past_was_missed_and_is_caught_up(release: Release) -> None:
    release("2026a", "Europe/London")
    app, seen = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        world.run_until(_at(5, 8, 30))
        release("2026b", "Europe/Berlin")
        _restart(world)
        assert seen == ["05 08:00"]
        assert _next(world) == "report@2026-01-06T08:00:00Z"


def test_an_older_release_takes_nothing_back(release: Release) -> None:
    release("2026b", "Europe/London")
    app, _ = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        world.run_until(_at(5, 6))
        release("2026a", "Europe/Berlin")
        _restart(world)
        assert _next(world) == "report@2026-01-05T09:00:00Z"
        assert world.schedule("report").schedule.tables == "tzdata=2026b"


def test_a_release_that_changes_nothing_for_a_schedule_only_leaves_its_name(release: Release) -> None:
    release("2026a", "Europe/Berlin")
    app, seen = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        release("2026b", "Europe/Rome")
        _restart(world)
        assert world.schedule("report").schedule.tables == "tzdata=2026b"
        assert not world.events()
        world.run_until(_at(5, 12))
        assert seen == ["05 08:00"]


def test_a_rule_that_means_elapsed_time_runs_on_through_the_change(release: Release) -> None:
    release("2026a", "Europe/Berlin")
    app, seen = _app("0 * * * *")
    with virtual_time(app, start=START) as world:
        world.run_until(_at(5, 0, 30))
        release("2026b", "Europe/London")
        _restart(world)
        world.run_until(_at(5, 3, 30))
    assert seen == ["04 23:00", "05 00:00", "05 01:00", "05 02:00", "05 03:00"]


def test_an_edit_is_no_promise_about_the_time_before_it(release: Release) -> None:
    release("2026a", "Europe/Berlin")
    app, _ = _app("0 9 1 1 *")
    with virtual_time(app, start=START) as world:
        world.run_for("2d")
        edited, seen = _app("0 9 * * *")
        world.app = edited
        with edited.standing_on(world.store, world.clock):
            world.call(edited.apply_async())
            world.kill_worker()
            world.add_worker()
            release("2026b", "Europe/London")
            _restart(world)
            assert _next(world) == "report@2026-01-07T09:00:00Z"
            world.run_for("1d")
    assert seen == ["07 09:00"]


def test_what_an_operator_said_of_a_tick_moves_with_it(release: Release) -> None:
    release("2026a", "Europe/Berlin")
    app, seen = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        world.call(app.operate.cancel_async("report@2026-01-05T08:00:00Z", reason="a holiday", actor="ada"))
        release("2026b", "Europe/London")
        _restart(world)
        world.run_until(_at(5, 12))
        run = world.run("report@2026-01-05T09:00:00Z")
        assert (str(run.state), run.reason) == ("skipped", "operator")
    assert seen == []


def _deploy(world: World, app: Foliot) -> None:
    """A new process with other code: it applies its schedules, and runs the jobs from now on."""
    app.store, app.clock, app._is_open = world.store, world.clock, True
    world.app = app
    world.call(app.apply_async())
    world.kill_worker()
    world.add_worker()


def test_a_wall_time_that_ran_does_not_run_again_when_the_deploy_also_edits_the_schedule(release: Release) -> None:
    release("2026a", "Europe/Berlin")
    app, before = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        world.run_until(_at(5, 8, 30))
        release("2026b", "Europe/London")
        edited, seen = _app("0 9 * * *", attempts=2)
        _deploy(world, edited)
        assert _next(world) == "report@2026-01-06T09:00:00Z"
        again, seen = _app("0 9 * * *", attempts=3)
        _deploy(world, again)
        assert _next(world) == "report@2026-01-06T09:00:00Z"
        _restart(world)
        world.run_until(_at(6, 12))
        assert (before, seen) == (["05 08:00"], ["06 09:00"])


def test_an_edit_while_a_tick_is_due_leaves_its_wall_time_its_own(release: Release) -> None:
    release("2026a", "Europe/Paris")
    app, _ = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        world.schedulers.clear()
        world.clock.set(instant(_at(5, 10)))
        edited, seen = _app("0 9 * * *", attempts=2)
        _deploy(world, edited)
        world.add_scheduler()
        world.run_for("1m")
        release("2026b", "Europe/Rome")
        _restart(world)
        world.run_until(_at(7, 9))
        assert seen == ["05 08:00", "06 08:00", "07 08:00"]


def test_wall_times_of_another_zone_say_nothing_about_a_rule_that_was_moved(release: Release) -> None:
    release("2026a", "Asia/Tokyo")
    app, _ = _app("0 9 * * *")
    with virtual_time(app, start=START) as world:
        world.run_until(_at(5, 1))
        moved = Foliot("sqlite:///:memory:")
        seen: list[str] = []

        @moved.job
        async def report(ctx: Context) -> None:
            seen.append(f"{ctx.nominal:%d %H:%M}")

        moved.schedule("report", report, cron("0 9 * * *", tz="America/Los_Angeles"))
        _deploy(world, moved)
        release("2026b", "Asia/Tokyo")
        _restart(world)
        world.run_until(_at(6, 18))
        assert seen == ["05 17:00", "06 17:00"]


@pytest.mark.parametrize(
    ("ours", "stored", "newer"),
    [
        ("tzdata=2026b", "tzdata=2026a", True),
        ("tzdata=2026a", "tzdata=2026b", False),
        ("tzdata=2027a", "tzdata=2026f", True),
        ("holidays=0.108 tzdata=2026a", "holidays=0.99 tzdata=2026a", True),
        ("holidays=0.99 tzdata=2026b", "holidays=0.108 tzdata=2026a", False),
        ("tzdata=2026a", "tzdata=2026a", False),
        (None, "tzdata=2026a", True),
        ("tzdata=2026b", "later=1 tzdata=2026a", False),
    ],
)
def test_a_release_is_newer_when_no_table_is_older(ours: str | None, stored: str, newer: bool) -> None:
    assert tables.is_newer(ours, stored) is newer


def test_a_rule_names_the_tables_that_it_depends_on() -> None:
    def stamp(rule: Composable) -> str | None:
        return tables.stamp_of(rule)

    assert stamp(cron("0 9 * * *")) is None
    assert stamp(cron("0 9 * * *", tz=HERE)) == f"tzdata={zones.VERSION}"
    assert stamp(cron("0 9 * * *") | cron("0 9 * * *", tz=HERE)) == f"tzdata={zones.VERSION}"


def test_a_rule_whose_holidays_end_does_not_end_in_silence() -> None:
    app = Foliot("sqlite:///:memory:")
    seen: list[str] = []

    @app.job
    async def report(ctx: Context) -> None:
        seen.append(f"{ctx.nominal:%Y-%m-%d}")

    # The package knows the holidays of Sri Lanka for few years.
    rule = business_day(-1, country="LK", at="09:00", tz="Asia/Colombo")
    last = rule.previous(instant(datetime(9000, 1, 1, tzinfo=UTC)))
    assert last is not None
    app.schedule("report", report, rule)
    app.schedule("bounded", report, rule.between(end=to_datetime(last + 1)))
    with virtual_time(app, start=to_datetime(last) - timedelta(hours=2)) as world:
        world.run_for("3h")
        assert len(seen) == 2
        assert "install a newer release" in str(world.schedule("report").schedule.fault)
        assert world.schedule("bounded").schedule.fault is None
        assert [event.subject for event in world.events() if event.kind == "schedule_set_aside"] == ["report"]
        world.call(app.apply_async())
        assert "install a newer release" in str(world.schedule("report").schedule.fault)
        assert world.schedule("bounded").schedule.fault is None


def _faults(rule: Rule, last: datetime) -> tuple[list[str], str | None]:
    app = Foliot("sqlite:///:memory:")
    seen: list[str] = []

    @app.job
    async def report(ctx: Context) -> None:
        seen.append(f"{ctx.nominal:%Y-%m-%d}")

    app.schedule("report", report, rule)
    with virtual_time(app, start=last - timedelta(hours=3)) as world:
        world.run_for("30h")
        return seen, world.schedule("report").schedule.fault


def test_nothing_made_of_rules_whose_holidays_end_goes_on_in_silence() -> None:
    colombo = {"country": "LK", "at": "09:00", "tz": "Asia/Colombo"}
    working = business_days(**colombo)
    last = to_datetime(working.previous(instant(datetime(9000, 1, 1, tzinfo=UTC))) or 0)
    morning = cron("0 9 * * *", tz="Asia/Colombo")
    for rule in (working.between(end=last + timedelta(days=9_000)), working | cron("0 9 1 1 *"), morning - working):
        seen, fault = _faults(rule, last)
        assert "install a newer release" in str(fault), rule.explain()
        # The last one leaves out days that are not known any more, so it has none: better none than a wrong one.
        assert [day for day in seen if day > f"{last:%Y-%m-%d}"] == [], rule.explain()
    assert _faults(working.between(end=last + timedelta(hours=1)), last)[1] is None
