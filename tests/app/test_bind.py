"""Arguments that come from the tick: what a run is about, not when it happened to run."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest

from foliot import Foliot, after, at, cron, every
from foliot.errors import InvalidInput
from foliot.operate.shapes import run_shape
from foliot.testing import virtual_time

START = datetime(2026, 4, 1, 12, tzinfo=UTC)


def _app() -> tuple[Foliot, list[Any]]:
    return Foliot("sqlite:///:memory:"), []


def test_a_run_gets_the_local_date_of_its_tick() -> None:
    app, seen = _app()

    @app.job
    def settle(day: date, account: int) -> None:
        seen.append((day, account))

    rule = cron("30 22 * * *", tz="America/New_York")
    app.schedule("books", settle, rule, args={"account": 7}, bind={"day": "tick.date"})
    with virtual_time(app, start=START) as world:
        world.run_for("2d")
        # At 22:30 in New York it is the next day already in UTC.
        assert seen == [(date(2026, 4, 1), 7), (date(2026, 4, 2), 7)]
        run = world.run("books@2026-04-02T02:30:00Z")
        assert run_shape(run)["arguments"] == {"account": 7, "day": "2026-04-01"}


def test_every_part_of_a_tick_can_be_bound_and_has_its_type() -> None:
    app, seen = _app()

    @app.job
    def report(
        run: str, at: datetime, start: datetime, end: datetime, day: date, clock: time, first: date, last: time
    ) -> None:
        seen.append((run, at, start, end, day, clock, first, last))

    bind = {
        "run": "tick.id",
        "at": "tick.at",
        "start": "tick.start",
        "end": "tick.end",
        "day": "tick.date",
        "clock": "tick.time",
        "first": "tick.start.date",
        "last": "tick.end.time",
    }
    app.schedule("report", report, cron("0 9 * * *", tz="Asia/Tokyo"), bind=bind)
    with virtual_time(app, start=START) as world:
        world.run_for("13h")
    at, before = datetime(2026, 4, 2, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    assert seen == [("report@2026-04-02T00:00:00Z", at, before, at, at.date(), time(9), before.date(), time(9))]
    assert seen[0][1].isoformat() == "2026-04-02T09:00:00+09:00"


def test_ticks_that_were_merged_are_bound_to_the_whole_span() -> None:
    app, seen = _app()

    @app.job
    async def load(start: datetime, end: datetime) -> None:
        seen.append((start, end))

    app.schedule("load", load, every("1h"), bind={"start": "tick.start", "end": "tick.end"})
    with virtual_time(app, start=START) as world:
        world.outage("3h30m")
        world.run_for("1m")
    assert seen == [(datetime(2026, 4, 1, 12, tzinfo=UTC), datetime(2026, 4, 1, 15, tzinfo=UTC))]


def test_a_run_by_hand_stands_for_the_time_since_the_last_tick() -> None:
    app, seen = _app()

    @app.job
    async def load(start: datetime) -> None:
        seen.append(start)

    app.schedule("load", load, every("1h"), bind={"start": "tick.start"})
    with virtual_time(app, start=START) as world:
        world.run_for("20m")
        world.call(app.operate.trigger_async("load", reason="look", actor="ada"))
        world.run_for("1m")
    assert seen == [datetime(2026, 4, 1, 12, tzinfo=UTC)]


def test_the_first_tick_of_a_rule_stands_for_the_time_since_it_was_declared() -> None:
    app, seen = _app()

    @app.job
    async def load(start: datetime) -> None:
        seen.append(start)

    app.schedule("once", load, at(START + timedelta(hours=2)), bind={"start": "tick.start"})
    app.schedule("load", load, every("1h", start=START + timedelta(hours=1)), bind={"start": "tick.start"})
    with virtual_time(app, start=START) as world:
        world.run_for("90m")
        world.run_for("1h")
    assert seen == [START, START, START + timedelta(hours=1)]


def test_a_fixed_delay_has_no_interval_to_bind_to() -> None:
    app, _ = _app()

    @app.job
    async def load(start: datetime) -> None: ...

    with pytest.raises(InvalidInput, match="no interval"):
        app.schedule("load", load, after("10m"), bind={"start": "tick.start"})
    app.schedule("load", load, after("10m"), bind={"start": "tick.at"})


def test_a_rule_in_several_zones_has_no_date_to_bind_to() -> None:
    app, _ = _app()

    @app.job
    async def load(day: date) -> None: ...

    joined = cron("0 9 * * *", tz="Asia/Tokyo") | cron("0 9 * * *", tz="Europe/Paris")
    with pytest.raises(InvalidInput, match="different zones"):
        app.schedule("load", load, joined, bind={"day": "tick.date"})


def test_what_is_only_left_out_does_not_change_the_zone_of_the_rest() -> None:
    app, seen = _app()

    @app.job
    async def load(day: date) -> None:
        seen.append(day)

    rule = cron("30 22 * * *", tz="America/New_York") - at(START)
    assert rule.tz == rule.outside(every("7d"), "1s").tz == "America/New_York"
    app.schedule("load", load, rule, bind={"day": "tick.date"})
    with virtual_time(app, start=START) as world:
        world.run_for("1d")
    assert seen == [date(2026, 4, 1)]


@pytest.mark.parametrize(
    ("bind", "told"),
    [
        ({"day": "tick.dat"}, "did you mean 'tick.date'"),
        ({"day": "now"}, "not a field of a tick"),
        ({"day": 5}, "not a field of a tick"),
        ("tick.date", "give a dict of argument names"),
        ({"day": "tick.time"}, "is invalid"),
        ({"dya": "tick.date"}, "did you mean day"),
        ({}, "missing"),
        ({"day": "tick.date", "account": "tick.date"}, "account"),
    ],
)
def test_a_binding_that_cannot_work_is_refused_when_declared(bind: Any, told: str) -> None:
    app, _ = _app()

    @app.job
    def settle(day: date, account: int = 0) -> None: ...

    with pytest.raises(InvalidInput, match=told):
        app.schedule("books", settle, every("1d"), bind=bind)


def test_an_argument_is_given_or_bound_and_not_both() -> None:
    app, _ = _app()

    @app.job
    def settle(day: date) -> None: ...

    with pytest.raises(InvalidInput, match="leave one out"):
        app.schedule("books", settle, every("1d"), args={"day": date(2026, 1, 1)}, bind={"day": "tick.date"})


def test_a_changed_binding_is_a_changed_declaration() -> None:
    prints = set()
    for bind in ({"day": "tick.date"}, {"day": "tick.start.date"}):
        app, _ = _app()

        @app.job
        def settle(day: date) -> None: ...

        app.schedule("books", settle, every("1d"), bind=bind)
        [declaration] = app.declarations()
        prints.add(declaration.fingerprint)
    assert len(prints) == 2
