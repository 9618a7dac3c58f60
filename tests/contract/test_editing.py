"""Schedules that operators edit: by the revision that they saw, and in force until a declaration changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.schedule import Declaration
from foliot.domain.state import Reason, State
from foliot.errors import Conflict, UnknownName
from foliot.timing import every
from tests.contract.stage import START, Stage, declared, fires_hourly

HOURLY = every("1h").encode()
QUARTERLY = every("15m").encode()


def edited(**more: object) -> Declaration:
    return declared("report", START + 15 * MINUTE, **({"rule": QUARTERLY, "fingerprint": "edited"} | more))


async def edit(stage: Stage, wanted: Declaration, revision: int = 1, actor: str = "ada") -> int:
    return await stage.store.edit(wanted, revision, fields=["rule"], actor=actor, note="rule: sooner")


async def test_an_edit_changes_the_template_and_its_one_next_run(stage: Stage) -> None:
    await stage.apply(declared("report", START + HOUR, rule=HOURLY))
    assert await edit(stage, edited(payload=b'{"a": 1}')) == 2
    view = await stage.store.schedule("report")
    assert (view.schedule.rule, view.schedule.revision, view.schedule.source) == (QUARTERLY, 2, "code")
    assert [(run.nominal, run.payload) for run in await stage.waiting("report")] == [(START + 15 * MINUTE, b'{"a": 1}')]
    assert view.edit is not None
    assert (view.edit.actor, view.edit.fields, view.edit.at) == ("ada", ("rule",), START)
    assert [row.action for row in await stage.store.audit_of("report")] == ["apply", "edit"]


async def test_an_edit_of_what_somebody_changed_meanwhile_is_refused_and_says_who_did(stage: Stage) -> None:
    await stage.apply(declared("report", START + HOUR, rule=HOURLY))
    await edit(stage, edited())
    with pytest.raises(Conflict, match=r"at revision 2, not at 1; ada changed it at 2026.*: rule: sooner"):
        await edit(stage, edited(rule=HOURLY), actor="bob")
    with pytest.raises(Conflict, match="revision 2"):
        await stage.store.delete("report", revision=1, actor="bob", note="away")
    assert (await stage.store.schedule("report")).schedule.rule == QUARTERLY
    with pytest.raises(UnknownName):
        await edit(stage, replace(edited(), id="nobody"))
    await stage.store.delete("report", revision=2, actor="bob", note="away")


async def test_an_edit_outlives_deploys_of_the_same_declaration_and_gives_way_to_another(stage: Stage) -> None:
    code = declared("report", START + HOUR, rule=HOURLY)
    await stage.apply(code)
    await edit(stage, edited())
    again = await stage.apply(replace(code, first=START + 2 * HOUR))
    assert (again.unchanged, again.overwritten) == (["report"], [])
    assert (await stage.store.schedule("report")).schedule.rule == QUARTERLY
    assert [run.nominal for run in await stage.waiting("report")] == [START + 15 * MINUTE]
    changed = await stage.apply(replace(code, fingerprint="v2"))
    assert (changed.changed, changed.overwritten) == (["report"], ["report"])
    view = await stage.store.schedule("report")
    assert (view.schedule.rule, view.edit) == (HOURLY, None)
    assert (await stage.store.audit_of("report"))[-1].note.startswith("replaced the edit by ada (rule): ")


async def test_a_deploy_makes_no_tick_of_its_own_rule_for_an_edited_schedule_that_has_none(stage: Stage) -> None:
    code = declared("report", START + HOUR, rule=HOURLY)
    await stage.apply(code)
    await edit(stage, replace(edited(), first=None, first_fire_at=None))
    assert await stage.waiting("report") == []
    await stage.apply(code)
    assert await stage.waiting("report") == []


async def test_a_deploy_repairs_an_edited_schedule_by_the_rule_that_it_has_now(stage: Stage) -> None:
    code = declared("report", START + HOUR, rule=HOURLY)
    how: dict[str, Any] = {"prune": False, "actor": "code"}
    await stage.apply(code)
    await edit(stage, replace(edited(), first=None, first_fire_at=None, fault="the tables end"))
    await stage.store.apply([code], standing=[replace(edited(), rule="edited meanwhile")], **how)
    assert await stage.waiting("report") == []
    await stage.store.apply([code], standing=[edited()], **how)
    assert [run.nominal for run in await stage.waiting("report")] == [START + 15 * MINUTE]
    schedule = (await stage.store.schedule("report")).schedule
    assert (schedule.rule, schedule.revision, schedule.fault) == (QUARTERLY, 2, None)


async def test_what_was_due_stays_and_pauses_survive_an_edit(stage: Stage) -> None:
    await stage.apply(declared("report", START, rule=HOURLY))
    await stage.store.pause("report", until=None, actor="ada", note="month end")
    await stage.fire_by_policy()
    await edit(stage, edited())
    view = await stage.store.schedule("report")
    assert (view.schedule.paused_by, view.next_nominal) == ("ada", START)
    await stage.fire_by_policy()
    assert ((await stage.run(view.next_id or "")).state, (await stage.run(view.next_id or "")).reason) == (
        State.HELD,
        Reason.PAUSED,
    )


async def test_what_operators_made_has_no_drift(stage: Stage) -> None:
    made = declared("report", START + HOUR, rule=HOURLY, fingerprint="made")
    await stage.store.apply([made], prune=False, actor="ada", source="operator")
    await edit(stage, edited())
    view = await stage.store.schedule("report")
    assert (view.edit, view.schedule.fingerprint, view.schedule.revision) == (None, "edited", 2)
    assert (await stage.apply(declared("report", START))).refused == {"report": "operator"}


async def test_an_edited_schedule_fires_by_its_new_rule_and_forgets_the_edit_when_it_goes(stage: Stage) -> None:
    await stage.apply(declared("report", START + HOUR, rule=HOURLY))
    await edit(stage, edited())
    stage.clock.advance(15 * MINUTE)
    await stage.fire(fires_hourly)
    assert [(run.id, run.revision) for run in await stage.claim()] == [("report@2026-04-03T02:15:00Z", 2)]
    await stage.store.delete("report", actor="ada", note="away")
    await stage.apply(declared("report", START + 5 * HOUR, rule=HOURLY))
    assert (await stage.store.schedule("report")).edit is None
