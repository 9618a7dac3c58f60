"""Schedules that operators make, edit and apply, and promises by name, without the code of the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from foliot import Foliot, cron, every, rrule
from foliot.domain.instant import rfc3339
from foliot.domain.listing import RunFilter
from foliot.domain.rule import Rule
from foliot.domain.state import State
from foliot.errors import Conflict, InvalidInput, InvalidRule, UnknownName
from foliot.operate.scheduling import Planned, planned_shape
from foliot.operate.shapes import policy_words
from foliot.operate.stating import change_words
from foliot.store.verbs.transaction import longs
from foliot.testing import World, virtual_time

START = datetime(2026, 4, 1, 0, 30, tzinfo=UTC)
WHY: dict[str, Any] = {"reason": "the books", "actor": "ana"}
SEEN: list[tuple[str, int]] = []
POLICY: dict[str, Any] = {"gap": "skip", "fold": "second", "interval_like": "never"}
WEEKLY = "FREQ=WEEKLY;BYDAY=MO;BYHOUR=3"


def _app() -> Foliot:
    app = Foliot("sqlite:///:memory:")

    @app.job(queue="books", owner="finance")
    def settle(day: str = "today", account: int = 0) -> None:
        SEEN.append((day, account))

    @app.job(concurrency_key="account:{account}", name="pay", effects=("transfer",))
    def pay(account: int) -> None:
        SEEN.append(("paid", account))

    app.schedule("nightly", settle, cron("0 2 * * *", tz="Europe/Paris"), args={"day": "monday"}, overlap="skip")
    return app


@pytest.fixture
def world() -> Iterator[World]:
    SEEN.clear()
    with virtual_time(_app(), start=START) as made:
        yield made


def _fields(planned: Planned) -> dict[str, tuple[Any, Any]]:
    return {change.field: (change.before, change.after) for change in planned.fields}


NEW: dict[str, Any] = {"name": "hourly", "job": "settle", "rule": "0 * * * *", "args": {"day": "friday"}}


def test_a_schedule_is_made_once_and_runs_as_one_of_code_does(world: World) -> None:
    operate = world.app.operate
    assert operate.put_schedule(NEW | {"catch_up": "all"}, **WHY).outcome == "created"
    assert operate.put_schedule(NEW | {"catch_up": "all"}, **WHY).outcome == "unchanged", "said twice, done once"
    schedule = world.schedule("hourly").schedule
    assert (schedule.source, schedule.queue, schedule.owner) == ("operator", "books", "finance")
    assert str(schedule.policy.catch_up) == "all"
    world.run_for("1h")
    assert SEEN == [("friday", 0)]
    assert [(row.actor, row.action) for row in world.call(world.store.audit_of("hourly"))] == [("ana", "apply")]
    with pytest.raises(Conflict, match=r"exists already and differs .*edit it, from revision 1"):
        operate.put_schedule(NEW, **WHY)
    with pytest.raises(Conflict, match="declared by code"):
        operate.put_schedule(NEW | {"name": "nightly"}, **WHY)


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"job": "setle"}, UnknownName, "did you mean settle"),
    ({"rule": "0 25 * * *"}, InvalidRule, "25"),
    ({"rule": None}, InvalidInput, "rule is missing"),
    ({"tz": "Europe/Pariss"}, InvalidRule, "Pariss"),
    ({"args": ["monday"]}, InvalidInput, "by name"),
    ({"args": {"day": float("nan")}}, InvalidInput, "JSON"),
    ({"overlapp": "skip"}, InvalidInput, "did you mean overlap"),
    ({"overlap": "sometimes"}, InvalidInput, "give one of"),
    ({"concurrency": 3}, InvalidInput, "foliot limits set"),
    ({"over": "tenants"}, UnknownName, "not a member set"),
    ({"bind": {"day": "tick.dat"}}, InvalidInput, "did you mean"),
    ({"job": "pay"}, InvalidInput, "has effects"),
    ({"name": "a b"}, InvalidInput, "name"),
    ({"priority": "high"}, InvalidInput, "priority"),
]


def test_input_is_checked_like_that_of_code(world: World) -> None:
    for wrong, error, told in WRONG:
        with pytest.raises(error, match=told):
            world.app.operate.put_schedule(NEW | wrong, **WHY)
    with pytest.raises(UnknownName):
        world.schedule("hourly")


def test_an_edit_is_previewed_then_made_and_only_from_the_revision_that_was_seen(world: World) -> None:
    operate = world.app.operate
    wanted = {"rule": "0 3 * * *", "tz": "Europe/Paris", "overlap": "queue", "args": {"day": "sunday"}, "owner": "ops"}
    preview = operate.preview_edit("nightly", wanted)
    assert _fields(preview).keys() == {"rule", "args", "overlap", "owner"}
    assert _fields(preview)["overlap"] == ("skip", "queue")
    assert [rfc3339(one)[:16] for one in (preview.ticks.before[0], preview.ticks.after[0])] == [
        "2026-04-02T00:00",
        "2026-04-01T01:00",
    ]
    assert planned_shape(preview)["changed"][0]["field"] == "rule"
    assert world.schedule("nightly").schedule.revision == 1, "a look changes nothing"
    assert operate.edit_schedule("nightly", wanted, revision=1, **WHY).revision == 2
    assert operate.edit_schedule("nightly", wanted, revision=1, **WHY).outcome == "unchanged", "it is so already"
    with pytest.raises(Conflict, match=r"ana changed it at .*: rule, args, owner, overlap: the books"):
        operate.edit_schedule("nightly", {"priority": 3}, revision=1, **WHY)
    world.run_for("1h")
    assert SEEN == [("sunday", 0)]
    view = world.schedule("nightly")
    assert view.edit is not None
    assert view.edit.fields == ("args", "overlap", "owner", "rule")


def test_an_edit_survives_a_deploy_until_the_declaration_itself_changes(world: World) -> None:
    operate, app = world.app.operate, world.app
    operate.edit_schedule("nightly", {"rule": "every 1h"}, revision=1, **WHY)
    assert world.call(app.apply_async()).unchanged == ["nightly"]
    assert world.schedule("nightly").schedule.rule == every("1h").encode()
    later = Foliot(world.store, clock=world.clock)
    settle = later.job(name="settle", queue="books", owner="finance")(lambda day="today", account=0: None)
    later.schedule("nightly", settle, cron("0 4 * * *"), args={"day": "monday"})
    applied = world.call(later.apply_async())
    assert (applied.changed, applied.overwritten) == (["nightly"], ["nightly"])
    assert world.schedule("nightly").edit is None


def test_a_setting_can_be_given_back_to_the_job(world: World) -> None:
    operate = world.app.operate
    operate.edit_schedule("nightly", {"attempts": 9, "queue": "slow"}, revision=1, **WHY)
    assert world.schedule("nightly").schedule.policy.attempts == 9
    operate.edit_schedule("nightly", {"attempts": None, "queue": None}, revision=2, **WHY)
    schedule = world.schedule("nightly").schedule
    assert (schedule.policy.attempts, schedule.queue, schedule.revision) == (4, None, 3)
    with pytest.raises(InvalidInput, match="is not a setting of a schedule"):
        operate.edit_schedule("nightly", {"job": "other"}, revision=3, **WHY)
    with pytest.raises(InvalidInput, match="the zone is part of the rule; also give rule"):
        operate.edit_schedule("nightly", {"tz": "UTC"}, revision=3, **WHY)


def test_other_arguments_make_another_key_where_the_job_names_it(world: World) -> None:
    operate = world.app.operate
    given = {"name": "payday", "job": "pay", "rule": "0 * * * *", "args": {"account": 7}}
    operate.put_schedule(given | {"overlap": "queue", "catch_up": "all"}, **WHY)
    assert b'"concurrency_key":"account:7"' in (world.schedule("payday").schedule.options or b"")
    operate.edit_schedule("payday", {"args": {"account": 8}}, revision=1, **WHY)
    assert b'"concurrency_key":"account:8"' in (world.schedule("payday").schedule.options or b"")
    assert world.schedule("payday").schedule.policy.concurrency_key == "account:8"


def test_a_file_is_applied_as_often_as_one_likes_and_prunes_only_its_own(world: World) -> None:
    operate = world.app.operate
    both = [NEW, NEW | {"name": "daily", "rule": "0 5 * * *"}]
    source: dict[str, Any] = {"source": "file:a.toml"}
    look = world.call(operate.preview_apply_async(both, **source))
    assert [(one.schedule, one.outcome) for one in look] == [("hourly", "created"), ("daily", "created")]
    assert operate.apply_schedules(both, **source, **WHY) == look
    assert [one.outcome for one in operate.apply_schedules(both, **source, **WHY)] == ["unchanged", "unchanged"]
    operate.put_schedule(NEW | {"name": "by-hand"}, **WHY)
    changed = [NEW | {"rule": "30 * * * *"}]
    told = operate.apply_schedules(changed, **source, **WHY)
    assert [(one.schedule, one.outcome) for one in told] == [("hourly", "changed"), ("daily", "vanished")]
    assert _fields(told[0])["rule"][1]["cron"] == "30 * * * *"
    told = operate.apply_schedules(changed, **source, prune=True, **WHY)
    assert [(one.schedule, one.outcome) for one in told] == [("hourly", "unchanged"), ("daily", "pruned")]
    assert {view.schedule.id for view in world.call(world.store.schedules())} == {"by-hand", "hourly", "nightly"}
    with pytest.raises(Conflict, match="declared by operator"):
        operate.apply_schedules([NEW | {"name": "by-hand"}], **source, **WHY)
    with pytest.raises(InvalidInput, match="occurs twice in the list"):
        operate.apply_schedules([NEW, NEW], **source, **WHY)


@pytest.mark.parametrize("given", [{"rule": "every 1h"}, {"priority": 3}])
def test_a_deploy_gives_an_edited_schedule_the_run_back_that_it_lost(world: World, given: dict[str, Any]) -> None:
    async def lose(tx: Any) -> None:
        [(_, number, *_)] = await tx.all("waiting_ticks", ids=["nightly"])
        await tx.run("forget_runs", numbers=longs([number]))

    world.app.operate.edit_schedule("nightly", given, revision=1, **WHY)
    lost = world.schedule("nightly").next_nominal
    world.call(world.store.write(lose))  # type: ignore[attr-defined]  # as a mishap would
    assert world.schedule("nightly").next_nominal is None
    assert world.call(world.app.apply_async()).unchanged == ["nightly"]
    assert (world.schedule("nightly").next_nominal, world.schedule("nightly").schedule.revision) == (lost, 2)


def test_a_trigger_foretells_overlap_and_refuses_a_run_that_would_be_skipped(world: World) -> None:
    operate = world.app.operate
    assert operate.preview_trigger("nightly") == (False, "the run starts now, unless a limit or a pause holds it")
    with pytest.raises(UnknownName, match="weekly"):
        operate.preview_trigger("weekly")
    assert operate.trigger("nightly", **WHY, override_overlap=True).outcome == "made"
    [row] = [row for row in world.call(world.store.audit_of("nightly")) if row.action == "trigger"]
    assert (row.actor, row.note) == ("ana", "overrides overlap: the books")


@pytest.mark.parametrize("source", ["operator", "code", "crontab"])
def test_no_list_speaks_for_operators_code_or_a_crontab(world: World, source: str) -> None:
    operate = world.app.operate
    operate.put_schedule(NEW | {"name": "by-hand"}, **WHY)
    with pytest.raises(InvalidInput, match="and cannot be replaced by a list; give the list its own source"):
        world.call(operate.preview_apply_async([NEW], source=source, prune=True))
    with pytest.raises(InvalidInput, match="and cannot be replaced by a list; give the list its own source"):
        operate.apply_schedules([NEW], source=source, prune=True, **WHY)
    assert {view.schedule.id for view in world.call(world.store.schedules())} == {"by-hand", "nightly"}


def test_a_promise_is_made_moved_and_cancelled_by_name_alone(world: World) -> None:
    operate = world.app.operate
    made = operate.promise("settle", {"day": "now"}, key="s:1", delay="1h", actor="ana")
    assert operate.promise("settle", {"day": "other"}, key="s:1", actor="ana").outcome == "kept", (
        "said twice, promised once"
    )
    moved = operate.move_promise("s:1", START + timedelta(minutes=10), actor="ben", reason="earlier")
    assert moved.outcome == "moved"
    world.run_for("15m")
    assert SEEN == [("now", 0)]
    run = world.run(made.id)
    assert (run.state, run.queue) == (State.SUCCEEDED, "books")
    operate.promise("settle", key="s:2", at=START + timedelta(days=1), actor="ana")
    assert operate.cancel_promise("s:2", actor="ana", reason="not needed").outcome == "cancelled"
    with pytest.raises(Conflict):
        operate.cancel_promise("s:2", actor="ana")
    paid = operate.promise("pay", {"account": 7}, delay="1d", actor="ana")
    assert world.run(paid.id).options == b'{"concurrency_key":"account:7"}'
    with pytest.raises(UnknownName, match="a worker that has its code registers it"):
        operate.promise("nobody", actor="ana")
    with pytest.raises(InvalidInput, match="not both"):
        operate.promise("settle", at=START, delay="1h", actor="ana")
    with pytest.raises(InvalidInput, match="give a later useful_until, or it can never run"):
        operate.promise("settle", delay="1h", useful_until=START, actor="ana")


# Many


def test_many_runs_are_counted_first_and_then_each_is_judged_by_itself(world: World) -> None:
    operate = world.app.operate
    for number in range(5):
        operate.promise("settle", key=f"k:{number}", delay="1h", tenant="acme" if number else None, actor="ana")
    tick = world.schedule("nightly").next_id
    meant = RunFilter(job="settle")
    preview = world.call(operate.preview_bulk_async("skip", meant))
    assert (preview.would, dict(preview.states), dict(preview.refused)) == (6, {"scheduled": 6}, {})
    told = operate.bulk("skip", RunFilter(tenant="acme"), **WHY)
    assert {one.outcome for one in told} == {"skipped"}
    assert len(told) == 4
    rest = {one.run: one.outcome for one in operate.bulk("cancel", meant, **WHY)}
    assert rest == {"k:0#1": "cancelled", tick: "withdrawn"}
    assert operate.bulk("skip", RunFilter(tenant="acme"), **WHY) == [], "said again, nothing is left"
    assert world.call(world.store.audit_of(told[0].run))[-1].action == "skip"
    with pytest.raises(InvalidInput, match="the filter is empty and would select every run; give at least"):
        operate.bulk("cancel", RunFilter(), **WHY)
    with pytest.raises(InvalidInput, match="runs; leave out other states"):
        operate.bulk("cancel", RunFilter(states=(State.DEAD,)), **WHY)


def test_what_ended_before_its_turn_came_is_refused_and_the_rest_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    operate = world.app.operate
    world.app.operate.promise("settle", key="a", delay="1h", actor="ana")
    operate.promise("settle", key="b", delay="1h", actor="ana")
    skip = world.store.skip

    async def first_it_is_cancelled(run: str, **more: Any) -> Any:
        if run == "b#1":
            await world.store.cancel(run, actor="bob", note="mine")
        return await skip(run, **more)

    monkeypatch.setattr(world.store, "skip", first_it_is_cancelled)
    told = operate.bulk("skip", RunFilter(job="settle", states=(State.SCHEDULED,), prefix="b"), **WHY)
    told += operate.bulk("skip", RunFilter(job="settle", prefix="a"), **WHY)
    assert [(one.run, one.outcome) for one in told] == [("b#1", "refused"), ("a#1", "skipped")]
    assert told[0].problem == "b#1 is cancelled already"


def test_schedules_are_paused_and_resumed_by_what_they_have_in_common(world: World) -> None:
    operate = world.app.operate
    operate.put_schedule(NEW, **WHY)
    operate.put_schedule(NEW | {"name": "hourly-acme", "tenant": "acme"}, **WHY)
    meant = world.call(operate.schedules_meant_async(prefix="hourly"))
    assert [view.schedule.id for view in meant] == ["hourly", "hourly-acme"]
    told = world.call(operate.pause_many_async(prefix="hourly", tenant="acme", **WHY))
    assert [(one.name, one.outcome) for one in told] == [("hourly-acme", "paused")]
    told = world.call(operate.resume_many_async(job="settle", **WHY))
    assert {one.name: one.outcome for one in told} == {
        "hourly": "unchanged",
        "hourly-acme": "resumed",
        "nightly": "unchanged",
    }
    with pytest.raises(InvalidInput, match="no filter is given"):
        world.call(operate.pause_many_async(**WHY))


# Pauses by kind


def test_a_kind_of_thing_is_paused_by_default_as_a_person_means_it(world: World) -> None:
    operate = world.app.operate
    assert [str(one.what) for one in operate.pause_of("schedule", "nightly", **WHY)] == ["creation"]
    assert [str(one.what) for one in operate.pause_of("queue", "books", **WHY)] == ["claims"]
    assert [one.name for one in operate.pauses()] == ["queue:books", "schedule:nightly"]
    whats = operate.pause_of("job", "settle", what=["claims", "creation"], until=START + timedelta(hours=1), **WHY)
    assert [str(one.what) for one in whats] == ["creation", "claims"]
    assert len(operate.resume_of("job", "settle", **WHY)) == 2
    assert operate.resume_of("job", "settle", **WHY) == []
    for kind, name, error in (("job", "nobody", UnknownName), ("lane", "x", InvalidInput), ("queue", "", InvalidInput)):
        with pytest.raises(error):
            operate.pause_of(kind, name, **WHY)
    with pytest.raises(InvalidInput, match="the pause would end in the past; give a later time"):
        operate.pause_of("job", "settle", until=START - timedelta(hours=1), **WHY)


def test_a_worker_in_quarantine_takes_nothing_until_it_works_again(world: World) -> None:
    operate, [worker] = world.app.operate, world.workers
    assert operate.wish(worker.number or 0, "quarantine", **WHY)
    world.run_for("2s")
    operate.promise("settle", {"day": "later"}, actor="ana")
    world.run_for("1m")
    assert SEEN == []
    assert operate.wish(worker.number or 0, None, **WHY)
    world.run_for("2s")
    assert SEEN == [("later", 0)]
    with pytest.raises(InvalidInput, match="is not a state that can be requested of a worker; give one of"):
        operate.wish(worker.number or 0, "dance", **WHY)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"rule": "0 3 * * *"}, cron("0 3 * * *", tz="Europe/Paris")),
        ({"rule": "0 3 * * *", "tz": None}, cron("0 3 * * *", tz="Europe/Paris")),
        ({"rule": "0 3 * * *", "tz": "UTC"}, cron("0 3 * * *")),
        ({"rule": "FREQ=WEEKLY;BYDAY=MO;BYHOUR=3"}, rrule("FREQ=WEEKLY;BYDAY=MO;BYHOUR=3", tz="Europe/Paris")),
        ({"rule": "every 1h"}, every("1h")),
        ({"rule": {"cron": "0 3 * * *", "tz": "Asia/Tokyo"}}, cron("0 3 * * *", tz="Asia/Tokyo")),
        ({"rule": 'cron("0 3 * * *", tz="Asia/Tokyo")'}, cron("0 3 * * *", tz="Asia/Tokyo")),
        ({"rule": cron("0 3 * * *", tz="Asia/Tokyo")}, cron("0 3 * * *", tz="Asia/Tokyo")),
        ({"rule": every("1h") | cron("0 3 * * *")}, every("1h") | cron("0 3 * * *")),
    ],
)
def test_a_rule_that_names_no_zone_keeps_the_zone_of_the_rule_before(
    world: World, given: dict[str, Any], rule: Rule
) -> None:
    world.app.operate.edit_schedule("nightly", given, revision=1, **WHY)
    assert world.schedule("nightly").schedule.rule == rule.encode()


def test_a_rule_of_several_zones_is_replaced_only_with_a_zone(world: World) -> None:
    operate = world.app.operate
    both = cron("0 3 * * *", tz="Asia/Tokyo") | cron("0 3 * * *", tz="Europe/Paris")
    operate.edit_schedule("nightly", {"rule": both}, revision=1, **WHY)
    with pytest.raises(InvalidInput, match=r"several zones \(Asia/Tokyo, Europe/Paris\); give tz"):
        operate.preview_edit("nightly", {"rule": "0 4 * * *"})
    assert operate.preview_edit("nightly", {"rule": "every 1h"}).outcome == "changed"


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"rule": "0 3 * * *"}, cron("0 3 * * *", tz="Europe/Paris", **POLICY)),
        ({"rule": "0 3 * * *", "tz": "UTC"}, cron("0 3 * * *", **POLICY)),
        ({"rule": WEEKLY}, rrule(WEEKLY, tz="Europe/Paris", **POLICY)),
        ({"rule": "every 1h"}, every("1h")),
        ({"rule": 'cron("0 3 * * *", tz="Europe/Paris")'}, cron("0 3 * * *", tz="Europe/Paris")),
        ({"rule": {"cron": "0 3 * * *", "tz": "UTC", "gap": "skip"}}, cron("0 3 * * *", gap="skip")),
        ({"rule": cron("0 3 * * *")}, cron("0 3 * * *")),
    ],
)
def test_a_text_keeps_the_policy_for_gaps_and_folds_of_the_rule_before(
    world: World, given: dict[str, Any], rule: Rule
) -> None:
    operate = world.app.operate
    operate.edit_schedule("nightly", {"rule": cron("0 2 * * *", tz="Europe/Paris", **POLICY)}, revision=1, **WHY)
    operate.edit_schedule("nightly", given, revision=2, **WHY)
    assert world.schedule("nightly").schedule.rule == rule.encode()


@pytest.mark.parametrize(
    ("before", "given", "rule"),
    [
        (rrule(WEEKLY, preset="vixie"), "FREQ=DAILY;BYHOUR=3", rrule("FREQ=DAILY;BYHOUR=3", preset="vixie")),
        (rrule(WEEKLY), "0 3 * * *", cron("0 3 * * *")),
        (rrule(WEEKLY, gap="skip") | every("1h"), "0 3 * * *", cron("0 3 * * *", gap="skip")),
        (cron("0 2 * * *").outside(cron("0 1 * * *", gap="skip"), "1h"), "0 3 * * *", cron("0 3 * * *")),
    ],
)
def test_the_default_policy_of_the_rule_before_is_not_carried_to_another_kind_of_rule(
    world: World, before: Rule, given: str, rule: Rule
) -> None:
    operate = world.app.operate
    operate.edit_schedule("nightly", {"rule": before}, revision=1, **WHY)
    operate.edit_schedule("nightly", {"rule": given, "tz": "UTC"}, revision=2, **WHY)
    assert world.schedule("nightly").schedule.rule == rule.encode()


def test_a_rule_of_several_policies_is_replaced_only_with_a_policy(world: World) -> None:
    operate = world.app.operate
    both = cron("0 3 * * *", gap="skip") | cron("0 5 * * *", gap="shift_forward")
    operate.edit_schedule("nightly", {"rule": both}, revision=1, **WHY)
    with pytest.raises(InvalidInput, match=r"different policies for gaps and folds; write the new rule as a call"):
        operate.preview_edit("nightly", {"rule": "0 4 * * *"})
    assert operate.preview_edit("nightly", {"rule": 'cron("0 4 * * *", gap="skip")'}).outcome == "changed"


def test_a_rule_object_and_a_zone_beside_it_are_refused(world: World) -> None:
    with pytest.raises(InvalidInput, match="has its own zone"):
        world.app.operate.preview_edit("nightly", {"rule": cron("0 3 * * *"), "tz": "UTC"})


def test_changes_show_rules_and_durations_as_people_write_them(world: World) -> None:
    given = {"rule": "every 90m", "timeout": "2m", "useful_until": "36h", "complete": None, "attempts": 5, "owner": "x"}
    planned = world.app.operate.preview_edit("nightly", given)
    words = {change.field: change_words(change) for change in planned.fields}
    assert words == {
        "rule": ("0 2 * * * (Europe/Paris)", "every 1h30m"),
        "timeout": ("15m", "2m"),
        "useful_until": ("-", "1d12h"),
        "attempts": ("4", "5"),
        "owner": ("finance", "x"),
    }


def test_a_required_schedule_must_exist_where_people_state_it(world: World) -> None:
    operate = world.app.operate
    with pytest.raises(UnknownName, match="requires='nightl': there is no such schedule; did you mean nightly"):
        operate.put_schedule(NEW | {"requires": "nightl"}, **WHY)
    both = [NEW | {"requires": "daily"}, NEW | {"name": "daily", "rule": "0 5 * * *"}]
    assert [one.outcome for one in operate.apply_schedules(both, source="file:a.toml", **WHY)] == ["created"] * 2
    with pytest.raises(UnknownName, match="create that schedule first"):
        operate.edit_schedule("hourly", {"requires": "zzz"}, revision=1, **WHY)
    assert operate.edit_schedule("hourly", {"requires": "nightly"}, revision=1, **WHY).revision == 2
    words = policy_words(world.schedule("hourly").schedule.policy)["required result"]
    assert words == "a useful result of nightly; a tick waits for it up to 1d, then is skipped"
