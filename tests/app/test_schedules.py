"""Standing rules, from the declaration to their rows, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from foliot import Context, Foliot, after, cron, every
from foliot.domain.instant import HOUR, rfc3339
from foliot.domain.run import RunView
from foliot.domain.state import State
from foliot.errors import InvalidInput, UnknownName
from foliot.testing import World, virtual_time

START = datetime(2026, 4, 1, 0, 30, tzinfo=UTC)


def _app(rule: Any, **settings: Any) -> tuple[Foliot, list[tuple[datetime, Any]]]:
    app = Foliot("sqlite:///:memory:")
    seen: list[tuple[datetime, Any]] = []

    @app.job
    async def report(ctx: Context) -> None:
        seen.append((ctx.nominal, ctx.interval))

    app.schedule("report", report, rule, **settings)
    return app, seen


def _story(runs: list[RunView]) -> list[tuple[str, str, str | None, int]]:
    return [(rfc3339(run.nominal)[5:16], str(run.state), run.reason, run.span_count) for run in runs]


def test_a_schedule_runs_at_each_tick_and_always_has_one_next_run() -> None:
    app, seen = _app(cron("0 2 * * *"))
    with virtual_time(app, start=START) as world:
        world.run_for("3d")
        first = datetime(2026, 4, 1, 2, tzinfo=UTC)
        assert [nominal for nominal, _ in seen] == [first + timedelta(days=day) for day in range(3)]
        assert [run.id for run in world.runs()] == [
            "report@2026-04-01T02:00:00Z",
            "report@2026-04-02T02:00:00Z",
            "report@2026-04-03T02:00:00Z",
            "report@2026-04-04T02:00:00Z",
        ]
        assert world.states() == [State.SUCCEEDED] * 3 + [State.SCHEDULED]
        view = world.schedule("report")
        assert view.next_id == "report@2026-04-04T02:00:00Z"
        assert view.last_run_id == "report@2026-04-03T02:00:00Z"


def test_a_tick_stands_for_the_interval_since_the_one_before() -> None:
    app, seen = _app(every("6h"))
    with virtual_time(app, start=START) as world:
        world.run_for("1d")
    assert seen[1][1] == (seen[0][0], seen[1][0])


def test_missed_ticks_run_once_late_and_say_what_they_merged() -> None:
    app, seen = _app(every("1h"), catch_up="once")
    with virtual_time(app, start=START) as world:
        world.run_for("1h")
        world.outage("5h")
        world.run_for("1h")
        assert _story(world.runs()) == [
            ("04-01T01:00", "succeeded", None, 1),
            ("04-01T02:00", "skipped", "coalesced", 4),
            ("04-01T06:00", "succeeded", None, 1),
            ("04-01T07:00", "succeeded", None, 1),
            ("04-01T08:00", "scheduled", None, 1),
        ]
        assert world.runs()[1].detail == "into report@2026-04-01T06:00:00Z"
    assert seen[1][1] == (seen[0][0], seen[1][0]), "the late run spans all that it merged"


def test_missed_ticks_run_each_oldest_first_one_after_another() -> None:
    order: list[datetime] = []
    active = most = 0
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def close_books(ctx: Context) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        order.append(ctx.nominal)
        await world.clock.sleep(60_000_000)
        active -= 1

    app.schedule("books", close_books, every("1h"), catch_up="all")
    with virtual_time(app, start=START) as world:
        world.run_for("1h")
        world.outage("5h")
        world.run_for("2h")
        states = world.states()
    assert order == [datetime(2026, 4, 1, hour, tzinfo=UTC) for hour in range(1, 9)]
    assert most == 1
    assert states == [State.SUCCEEDED] * 8 + [State.SCHEDULED]


def test_missed_ticks_are_skipped_in_one_row() -> None:
    app, seen = _app(every("1h"), catch_up="skip")
    with virtual_time(app, start=START) as world:
        world.run_for("1h")
        world.outage("5h")
        world.run_for("1h")
        assert _story(world.runs())[1] == ("04-01T02:00", "skipped", "misfire", 5)
    assert len(seen) == 2


def test_a_tick_that_comes_while_the_last_one_runs_is_skipped_and_names_it() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(timeout="5m")
    async def long() -> None:
        await world.clock.sleep(150 * 1_000_000)

    app.schedule("long", long, every("1m"), overlap="skip")
    with virtual_time(app, start=START) as world:
        world.run_for("5m")
        assert _story(world.runs()) == [
            ("04-01T00:31", "succeeded", None, 1),
            ("04-01T00:32", "skipped", "overlap", 1),
            ("04-01T00:33", "skipped", "overlap", 1),
            ("04-01T00:34", "running", None, 1),
            ("04-01T00:35", "skipped", "overlap", 1),
            ("04-01T00:36", "scheduled", None, 1),
        ]
        assert "long@2026-04-01T00:31:00Z" in (world.runs()[1].detail or "")


def test_a_fixed_delay_counts_from_the_end_of_the_run_whatever_its_outcome() -> None:
    app = Foliot("sqlite:///:memory:")
    starts: list[datetime] = []

    @app.job(attempts=1)
    async def sweep() -> None:
        starts.append(world.now)
        await world.clock.sleep(5 * 60_000_000)
        if len(starts) == 2:
            raise ValueError("broken")

    app.schedule("sweep", sweep, after("10m"))
    with virtual_time(app, start=START) as world:
        world.run_for("1h")
        minutes = [int((start - START).total_seconds() // 60) for start in starts]
        assert minutes == [10, 25, 40, 55]
        assert len([run for run in world.runs() if run.state in (State.SCHEDULED, State.RUNNING)]) == 1


def test_a_paused_schedule_holds_its_tick_and_resumes_without_firing_old_ones() -> None:
    app, seen = _app(every("1h"))
    with virtual_time(app, start=START) as world:
        app.operate.pause("report", reason="the warehouse moves", actor="ana")
        world.run_for("3h")
        assert _story(world.runs()) == [("04-01T01:00", "held", "paused", 1)]
        app.operate.resume("report", reason="done", actor="ana")
        world.run_for("1h")
        assert _story(world.runs()) == [
            ("04-01T01:00", "skipped", "paused", 3),
            ("04-01T04:00", "succeeded", None, 1),
            ("04-01T05:00", "scheduled", None, 1),
        ]
        assert world.runs()[0].detail == "the warehouse moves"
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("catch_up", "story"),
    [
        ("once", [("04-01T01:00", "skipped", "coalesced", 2), ("04-01T03:00", "succeeded", None, 1)]),
        ("all", [(f"04-01T0{hour}:00", "succeeded", None, 1) for hour in (1, 2, 3)]),
        ("skip", [("04-01T01:00", "skipped", "misfire", 3)]),
    ],
)
def test_a_schedule_that_is_resumed_with_catch_up_treats_its_pause_as_missed(
    catch_up: str, story: list[tuple[Any, ...]]
) -> None:
    app, _ = _app(every("1h"), catch_up=catch_up)
    with virtual_time(app, start=START) as world:
        app.operate.pause("report", reason="the warehouse moves", actor="ana")
        world.run_for("3h")
        app.operate.resume("report", reason="done", actor="ana", catch_up=True)
        world.run_for("10m")
        assert _story(world.runs())[:-1] == story


def test_a_pause_ends_by_itself_when_it_was_given_an_end() -> None:
    app, seen = _app(every("1h"))
    with virtual_time(app, start=START) as world:
        until = world.clock.now() + 2 * HOUR
        app.operate.pause("report", reason="night", actor="ana", until=until)
        world.run_for("4h")
        assert _story(world.runs())[0] == ("04-01T01:00", "skipped", "paused", 2)
    assert len(seen) == 2


def test_a_triggered_run_is_one_more_and_leaves_the_ticks_alone() -> None:
    app, seen = _app(every("1h"))
    with virtual_time(app, start=START) as world:
        kept = app.operate.trigger("report", reason="show it", actor="ana")
        world.run_for("1m")
        assert world.run(kept.id).state is State.SUCCEEDED
        assert str(world.run(kept.id).origin) == "manual"
        world.run_for("2h")
        assert len(seen) == 3
        with pytest.raises(UnknownName, match="weekly"):
            app.operate.trigger("weekly", reason="x", actor="ana")
        with pytest.raises(InvalidInput, match="reason is missing"):
            app.operate.trigger("report", reason=" ", actor="ana")


def test_applying_the_same_declaration_again_changes_nothing_and_a_new_one_moves_the_next_run() -> None:
    app, _ = _app(every("1h"))
    with virtual_time(app, start=START) as world:
        assert app.apply().unchanged == ["report"]
        changed, _ = _app(cron("15 * * * *"))
        with changed.standing_on(world.store, world.clock):
            assert changed.apply().changed == ["report"]
        view = world.schedule("report")
        assert (view.schedule.revision, view.next_id) == (2, "report@2026-04-01T01:15:00Z")
        assert len(world.runs()) == 1


def test_one_unreadable_rule_is_set_aside_and_the_others_go_on() -> None:
    app, seen = _app(every("1h"))
    app.schedule("broken", app.job_named("report"), every("1h"))
    with virtual_time(app, start=START) as world:
        _spoil(world, "broken")
        world.run_for("3h")
        assert len([run for run in world.runs(schedule="report") if run.state is State.SUCCEEDED]) == 3
        assert len([run for run in world.runs(schedule="broken") if run.state is State.SUCCEEDED]) == 1
        assert [event.subject for event in world.events() if event.kind == "schedule_set_aside"] == ["broken"]
        assert world.schedule("broken").schedule.fault is not None
    assert len(seen) == 4


def _spoil(world: World, schedule: str) -> None:
    """Writes a rule that no release of Foliot could have written."""
    [declared] = [one for one in world.app.declarations() if one.id == schedule]
    world.call(world.store.apply([replace(declared, rule="{nonsense", fingerprint="x")], prune=False, actor="test"))


def test_two_schedulers_make_one_run_per_tick_and_the_second_takes_over_when_the_first_dies() -> None:
    app, seen = _app(every("1m"))
    with virtual_time(app, start=START) as world:
        world.add_scheduler()
        world.run_for("5m")
        world.kill_scheduler(0)
        world.run_for("5m")
        assert world.states() == [State.SUCCEEDED] * 10 + [State.SCHEDULED]
    assert len(seen) == 10


def test_what_cannot_be_a_schedule_is_refused_when_it_is_declared() -> None:
    app, _ = _app(every("1h"))
    report = app.job_named("report")
    with pytest.raises(InvalidInput, match="already"):
        app.schedule("report", report, every("1h"))
    with pytest.raises(InvalidInput, match="not a job of this app"):
        app.schedule("other", print, every("1h"))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="not a rule"):
        app.schedule("other", report, "0 2 * * *")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="did you mean 'overlap'"):
        app.schedule("other", report, every("1h"), overlp="skip")
    with pytest.raises(InvalidInput, match=r"give one of .*coalesce"):
        app.schedule("other", report, every("1h"), overlap="sideways")
    with pytest.raises(InvalidInput, match="nothing"):
        app.schedule("other", report, every("1h"), args={"nothing": 1})


def test_a_cancelled_next_run_is_skipped_when_due_and_its_schedule_goes_on() -> None:
    app, seen = _app(every("1h"))
    with virtual_time(app, start=START) as world:
        kept = app.operate.cancel("report@2026-04-01T01:00:00Z", reason="a public holiday", actor="ana")
        assert kept.outcome == "withdrawn"
        world.run_for("2h")
        assert _story(world.runs()) == [
            ("04-01T01:00", "skipped", "operator", 1),
            ("04-01T02:00", "succeeded", None, 1),
            ("04-01T03:00", "scheduled", None, 1),
        ]
        assert world.runs()[0].detail == "a public holiday"
    assert len(seen) == 1
