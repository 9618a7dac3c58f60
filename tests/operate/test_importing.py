"""What becomes of imported schedules: their ticks, in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from foliot import Foliot, every
from foliot.domain.instant import HOUR, rfc3339
from foliot.domain.schedule import Declaration
from foliot.errors import Conflict
from foliot.operate.crontab import SOURCE, declarations, schedule_ids
from foliot.testing import World, virtual_time
from foliot.timing.crontab import read_crontab

START = datetime(2026, 4, 1, 0, 30, tzinfo=UTC)
HOURLY = "cron-report"


def _declared(line: str = "0 * * * * report%all\n", tz: str = "UTC") -> list[Declaration]:
    table = read_crontab(line, system=False, tz=tz)
    return declarations(table, schedule_ids(table, "cron-"))


def _app() -> tuple[Foliot, list[tuple[Any, ...]]]:
    app = Foliot("sqlite:///:memory:")
    seen: list[tuple[Any, ...]] = []

    @app.job(name="foliot.shell")
    def shell(command: str, stdin: str, env: dict[str, str], user: str | None) -> None:
        seen.append((command, stdin, env, user))

    return app, seen


def _story(world: World) -> list[tuple[str, str, str | None]]:
    return [(rfc3339(run.nominal)[11:16], str(run.state), run.reason) for run in world.runs()]


def test_no_tick_runs_until_the_schedule_is_resumed_and_the_next_one_runs_its_command_then() -> None:
    app, seen = _app()
    with virtual_time(app, start=START) as world:
        assert app.operate.import_schedules(_declared(), source=SOURCE, actor="ana").created == [HOURLY]
        world.run_for("1h")
        app.operate.resume(HOURLY, reason="imported from a crontab: remove its line from the crontab, and", actor="ana")
        world.run_for("1h")
        assert _story(world) == [
            ("01:00", "skipped", "paused"),
            ("02:00", "succeeded", None),
            ("03:00", "scheduled", None),
        ]
    assert seen == [("report", "all\n", {}, None)]


def test_the_interval_of_the_first_tick_begins_where_the_rule_says() -> None:
    app, _ = _app()
    with virtual_time(app, start=START) as world:
        app.operate.import_schedules(_declared(tz="Europe/Paris"), source=SOURCE, actor="ana")
        [run] = world.runs()
        assert (run.since, run.nominal, run.fire_at) == (run.nominal - HOUR, run.nominal, run.nominal)
        assert world.schedule(HOURLY).schedule.source == "crontab"


def test_an_import_leaves_a_resumed_schedule_resumed() -> None:
    app, _ = _app()
    with virtual_time(app, start=START) as world:
        app.operate.import_schedules(_declared(), source=SOURCE, actor="ana")
        app.operate.resume(HOURLY, reason="imported from a crontab: remove its line from the crontab, and", actor="ana")
        changed = _declared("30 * * * * report%all\n")
        assert app.operate.import_schedules(changed, source=SOURCE, actor="ana").changed == [HOURLY]
        world.run_for("1h")
        assert _story(world)[0] == ("01:30", "succeeded", None)


def test_a_tick_that_was_made_before_is_not_made_again() -> None:
    app, _ = _app()
    with virtual_time(app, start=START) as world:
        app.operate.import_schedules(_declared(), source=SOURCE, actor="ana")
        app.operate.resume(HOURLY, reason="imported from a crontab: remove its line from the crontab, and", actor="ana")
        world.run_for("2h")
        world.call(world.store.apply([], prune=True, actor="ana", source=SOURCE))
        world.clock.step(-2 * HOUR)
        app.operate.import_schedules(_declared(), source=SOURCE, actor="ana")
        assert [time for time, _, _ in _story(world)] == ["01:00", "02:00", "03:00"]


def test_an_edit_never_goes_back_behind_what_was_decided_also_when_the_clock_did() -> None:
    app, _ = _app()
    with virtual_time(app, start=START) as world:
        app.operate.import_schedules(_declared(), source=SOURCE, actor="ana")
        app.operate.resume(HOURLY, reason="imported from a crontab: remove its line from the crontab, and", actor="ana")
        world.run_for("2h")
        world.clock.step(-2 * HOUR)
        app.operate.import_schedules(_declared("15 * * * * report%all\n"), source=SOURCE, actor="ana")
        assert [time for time, _, _ in _story(world)] == ["01:00", "02:00", "02:15"]


def test_what_code_states_is_not_imported_over_and_code_does_not_prune_imports() -> None:
    app, _ = _app()
    app.schedule(
        "cron-report",
        app.jobs["foliot.shell"],
        every("1h"),
        args=dict.fromkeys(("command", "stdin"), "x") | {"env": {}, "user": None},
    )
    with virtual_time(app, start=START) as world:
        with pytest.raises(Conflict, match="cron-report"):
            app.operate.import_schedules(_declared(), source=SOURCE, actor="ana")
        app.operate.import_schedules(_declared("0 * * * * other\n"), source=SOURCE, actor="ana")
        assert app.apply(prune=True).pruned == []
        assert world.schedule("cron-other").schedule.job == "foliot.shell"
