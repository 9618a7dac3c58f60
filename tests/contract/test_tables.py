"""Ticks and the tables of the world: what is stored of them, and how a newer release moves them; sources, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foliot.domain.instant import HOUR, Instant
from foliot.domain.schedule import NewTick, Rearming, TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.errors import UnknownName
from tests.contract.stage import START, Stage, declared, fires_hourly

OLD, NEW = "tzdata=2026a", "tzdata=2026b"
DUE = START + HOUR


async def _armed(stage: Stage, name: str = "daily", **more: Any) -> None:
    given = {"after": START, "tables": OLD, "first_wall": "2026-04-03T05:00:00"} | more
    await stage.apply(declared(name, DUE, fingerprint=name, **given))


def _moved(to: Instant | None = DUE + HOUR, **more: Any) -> Rearming:
    tick = None if to is None else NewTick(to, None, to)
    return replace(Rearming("daily", 1, DUE, tick, "2026-04-03T06:00:00", NEW), **more)


async def test_a_schedule_remembers_the_tables_and_the_wall_time_of_its_pending_tick(stage: Stage) -> None:
    await _armed(stage)
    schedule = (await stage.store.schedule("daily")).schedule
    assert (schedule.tables, schedule.next_wall, schedule.last_wall) == (OLD, "2026-04-03T05:00:00", None)
    assert schedule.evaluated_through == START


async def test_firing_moves_the_walls_on(stage: Stage) -> None:
    def judge(fact: TickFacts) -> TickDecision:
        return TickDecision(fact.number, "fire", evaluated_through=DUE, last_wall="a", next_wall="b", tables=NEW)

    await _armed(stage)
    stage.clock.advance(HOUR)
    await stage.fire(judge)
    schedule = (await stage.store.schedule("daily")).schedule
    assert (schedule.last_wall, schedule.next_wall, schedule.tables) == ("a", "b", NEW)


async def test_a_tick_that_is_only_held_leaves_the_walls_where_they_are(stage: Stage) -> None:
    await _armed(stage)
    stage.clock.advance(HOUR)
    await stage.fire(lambda fact: TickDecision(fact.number, "hold", reason=Reason.OVERLAP))
    schedule = (await stage.store.schedule("daily")).schedule
    assert (schedule.tables, schedule.next_wall) == (OLD, "2026-04-03T05:00:00")


async def test_schedules_that_were_computed_with_other_tables_are_found_page_by_page(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        await _armed(stage, name)
    await _armed(stage, "current", tables=NEW)
    await _armed(stage, "elapsed", tables=None)
    page = await stage.store.computed_otherwise([NEW, "holidays=1 tzdata=2026b"], "", 2)
    assert [(armed.schedule.id, armed.nominal) for armed in page] == [("a", DUE), ("b", DUE)]
    assert [armed.schedule.id for armed in await stage.store.computed_otherwise([NEW], "b", 2)] == ["c"]
    assert await stage.store.computed_otherwise([OLD, NEW], "", 9) == []


async def test_a_pending_tick_is_moved_in_place_and_its_owner_hears_of_it(stage: Stage) -> None:
    await _armed(stage, first_since=START - HOUR)
    lease = await stage.lease()
    assert await stage.store.rearm([_moved()]) == 1
    [run] = await stage.waiting("daily")
    assert (run.id, run.nominal, run.fire_at, run.since) == (
        "daily@2026-04-03T04:00:00Z",
        DUE + HOUR,
        DUE + HOUR,
        START - HOUR,
    )
    assert await stage.told(lease.cursor) == [(DUE + HOUR, run.number)]
    view = await stage.store.schedule("daily")
    assert (view.next_id, view.schedule.tables, view.schedule.next_wall) == (run.id, NEW, "2026-04-03T06:00:00")
    assert view.schedule.last_created == run.id
    [event] = await stage.events("tick_moved")
    assert (event.subject, event.detail) == (
        "daily",
        "tzdata=2026b: from 2026-04-03T03:00:00Z to 2026-04-03T04:00:00Z",
    )
    stage.clock.advance(2 * HOUR)
    assert (await stage.fire()).handed_off == 1


async def test_a_tick_that_stays_only_learns_the_name_of_the_release(stage: Stage) -> None:
    await _armed(stage)
    assert await stage.store.rearm([_moved(None)]) == 0
    assert [run.nominal for run in await stage.waiting("daily")] == [DUE]
    assert (await stage.store.schedule("daily")).schedule.tables == NEW
    assert await stage.events("tick_moved") == []


async def test_the_tick_of_a_rule_that_has_ended_goes(stage: Stage) -> None:
    await _armed(stage)
    assert await stage.store.rearm([_moved(None, has_ended=True)]) == 1
    assert await stage.waiting("daily") == []
    [event] = await stage.events("tick_moved")
    assert "none: the rule has no further tick" in event.detail


@pytest.mark.parametrize("other", [{"revision": 2}, {"nominal": DUE + 1}, {"schedule": "nobody"}])
async def test_a_tick_or_revision_that_somebody_changed_meanwhile_is_passed_over(stage: Stage, other: Any) -> None:
    await _armed(stage)
    assert await stage.store.rearm([replace(_moved(), **other)]) == 0
    assert [run.nominal for run in await stage.waiting("daily")] == [DUE]
    assert (await stage.store.schedule("daily")).schedule.tables == OLD


async def test_a_tick_that_is_due_was_promised_and_stays(stage: Stage) -> None:
    await _armed(stage)
    stage.clock.advance(HOUR)
    assert await stage.store.rearm([_moved()]) == 0
    assert [run.nominal for run in await stage.waiting("daily")] == [DUE]


async def test_a_tick_is_never_moved_onto_one_that_exists(stage: Stage) -> None:
    await _armed(stage)
    stage.clock.advance(HOUR)
    following = NewTick(DUE + HOUR, DUE, DUE + HOUR)
    await stage.fire(lambda fact: TickDecision(fact.number, "fire", successor=following, evaluated_through=DUE))
    onto_itself = replace(_moved(DUE), nominal=DUE + HOUR)
    assert await stage.store.rearm([onto_itself]) == 0
    assert [run.nominal for run in await stage.waiting("daily")] == [DUE + HOUR]


# -------------------------------------------------------------------------------------------------------------- sources


async def _apply(stage: Stage, source: str, *names: str, prune: bool = False) -> Any:
    wanted = [declared(name, DUE) for name in names]
    return await stage.store.apply(wanted, prune=prune, actor="test", source=source)


async def test_a_source_drops_only_what_it_stated_itself(stage: Stage) -> None:
    await _apply(stage, "code", "ours")
    await _apply(stage, "crontab", "theirs")
    assert (await stage.store.schedule("theirs")).schedule.source == "crontab"
    applied = await _apply(stage, "code", prune=True)
    assert (applied.vanished, applied.pruned) == (["ours"], ["ours"])
    assert [view.schedule.id for view in await stage.store.schedules()] == ["theirs"]


async def test_a_source_cannot_take_another_ones_schedule_and_its_others_are_applied(stage: Stage) -> None:
    await _apply(stage, "code", "report")
    applied = await _apply(stage, "crontab", "report", "mine")
    assert (applied.refused, applied.created) == ({"report": "code"}, ["mine"])
    assert {view.schedule.id: view.schedule.source for view in await stage.store.schedules()} == {
        "report": "code",
        "mine": "crontab",
    }


async def test_a_deleted_schedule_goes_with_its_next_run_and_leaves_its_history(stage: Stage) -> None:
    claimed = await stage.running_tick("report", judge=fires_hourly)
    await stage.store.delete("report", actor="ada", note="not needed")
    assert await stage.store.schedules() == []
    assert await stage.waiting("report") == []
    await stage.finish(stage.succeeded(claimed))
    assert [run.state for run in await stage.store.runs(schedule="report")] == [State.SUCCEEDED]
    with pytest.raises(UnknownName):
        await stage.store.delete("report", actor="ada", note="again")


async def test_an_edit_keeps_the_wall_times_of_the_same_rule_and_drops_those_of_another(stage: Stage) -> None:
    await _armed(stage, rule="one")
    stage.clock.advance(HOUR)
    await stage.fire(
        lambda fact: TickDecision(fact.number, "fire", evaluated_through=DUE, last_wall="a", next_wall="b", tables=OLD)
    )
    for rule, kept in (("one", "a"), ("two", None)):
        await stage.apply(declared("daily", DUE + HOUR, rule=rule, fingerprint=rule, tables=NEW, first_wall="c"))
        schedule = (await stage.store.schedule("daily")).schedule
        assert (schedule.last_wall, schedule.next_wall, schedule.tables) == (kept, "c", NEW)


async def test_an_edit_leaves_a_tick_that_is_due_the_wall_time_that_it_was_made_for(stage: Stage) -> None:
    await _armed(stage)
    stage.clock.advance(HOUR)
    await stage.apply(declared("daily", DUE + HOUR, fingerprint="edited", tables=NEW, first_wall="c"))
    schedule = (await stage.store.schedule("daily")).schedule
    assert (schedule.next_wall, schedule.tables) == ("2026-04-03T05:00:00", OLD)


async def test_a_schedule_may_begin_its_life_paused_and_stays_as_operators_left_it(stage: Stage) -> None:
    paused = declared("backup", DUE, paused="until somebody allows it")
    await stage.apply(paused)
    view = await stage.store.schedule("backup")
    assert view.schedule.paused(stage.now)
    assert view.schedule.paused_note == "until somebody allows it"
    await stage.store.resume("backup", actor="ada", note="allowed")
    await stage.apply(replace(paused, fingerprint="v2"))
    assert not (await stage.store.schedule("backup")).schedule.paused(stage.now)


async def test_a_run_by_hand_may_have_an_interval(stage: Stage) -> None:
    await stage.apply(declared("report", DUE))
    kept = await stage.store.trigger("report", since=START - HOUR, actor="ada", note="now")
    run = await stage.run(kept)
    assert (run.since, run.nominal, run.state) == (START - HOUR, START, State.SCHEDULED)


async def test_a_declaration_without_a_first_tick_keeps_saying_why_until_it_has_one(stage: Stage) -> None:
    ended = declared("report", None, fault="the holidays end with 2026")
    await stage.apply(ended)
    assert (await stage.store.schedule("report")).schedule.fault == "the holidays end with 2026"
    await stage.apply(ended)
    assert (await stage.store.schedule("report")).schedule.fault == "the holidays end with 2026"
    await stage.apply(declared("report", DUE))
    view = await stage.store.schedule("report")
    assert (view.schedule.fault, view.next_nominal) == (None, DUE)
