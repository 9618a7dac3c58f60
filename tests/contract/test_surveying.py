"""schedule_page, schedule_facts, pulse, count_endings, parked: what operators see of all of it at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration
from foliot.domain.listing import NONE, RunFilter
from foliot.domain.overview import Tally
from foliot.domain.pauses import What
from foliot.domain.policy import Policy
from foliot.domain.replay import DeadFilter
from foliot.domain.run import Lane
from foliot.domain.standing import Mark, ScheduleFilter, ScheduleOrder, standing
from foliot.domain.state import Reason, State
from foliot.domain.store import Duty
from foliot.errors import InvalidInput, UnknownName
from foliot.store.sqlite import SqliteStore
from tests.contract.stage import START, Stage, declared, fires_hourly, skips


async def names(stage: Stage, limit: int = 50, **wanted: object) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await stage.store.schedule_page(ScheduleFilter(**wanted), cursor=cursor, limit=limit)  # type: ignore[arg-type]
        found += [one.schedule.id for one in page.schedules]
        cursor = page.cursor
        if cursor is None:
            return found


async def ticked(stage: Stage, **endings: list[str]) -> None:
    """A tick of each schedule an hour, ended as it is said."""
    await stage.apply(*(declared(name, stage.now) for name in endings))
    for hour in range(max(map(len, endings.values()))):
        await stage.fire(fires_hourly)
        for run in await stage.claim():
            assert run.schedule is not None
            await stage.finish(getattr(stage, endings[run.schedule][hour])(run))
        stage.clock.advance(HOUR)


# ------------------------------------------------------------------------------------------------------------ schedules


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_pages_of_schedules_join_in_either_order(stage: Stage, limit: int) -> None:
    due = {"a": 3, "b": 1, "c": 2, "d": 1}
    await stage.apply(*(declared(name, START + hours * HOUR) for name, hours in due.items()))
    assert await names(stage, limit) == ["a", "b", "c", "d"]
    assert await names(stage, limit, order=ScheduleOrder.NEXT) == ["b", "d", "c", "a"]


async def test_schedules_are_found_by_what_is_said_of_them(stage: Stage) -> None:
    await stage.apply(
        declared("Nightly-report", START + HOUR, owner="Finance"),
        declared("sweep", START + HOUR, job="clean"),
        declared("mail", START + HOUR, tenant="acme"),
    )
    await stage.store.pause("mail", until=START + MINUTE, actor="test", note="")
    assert await names(stage, text="NIGHT") == await names(stage, text="finance") == ["Nightly-report"]
    assert await names(stage, text="lea") == await names(stage, job="clean") == ["sweep"]
    assert await names(stage, tenant="acme") == await names(stage, paused=True) == ["mail"]
    assert await names(stage, paused=False) == ["Nightly-report", "sweep"]
    stage.clock.advance(MINUTE)
    assert await names(stage, paused=True) == []


async def test_schedules_are_found_whose_job_queue_or_tenant_is_paused(stage: Stage) -> None:
    await stage.apply(
        declared("own", START + HOUR, job="other"),
        declared("by-job", START + HOUR, job="clean"),
        declared("by-queue", START + HOUR, queue="slow"),
        declared("by-tenant", START + HOUR, tenant="acme", queue="fast"),
        declared("plain", START + HOUR, queue="fast"),
    )

    async def pause(name: str, what: What, until: Duration | None = None) -> None:
        await stage.store.put_pause(name, what, until=until, actor="ana", note="")

    await pause("schedule:own", What.CLAIMS)
    await pause("job:clean", What.CREATION)
    await pause("queue:slow", What.CLAIMS, START + MINUTE)
    await pause("tenant:acme", What.CREATION)
    await pause("queue:fast", What.RETRIES)
    assert await names(stage, paused=True) == ["by-job", "by-queue", "by-tenant", "own"]
    assert await names(stage, paused=False) == ["plain"]
    assert await names(stage, paused=True, order=ScheduleOrder.NEXT) == ["by-job", "by-queue", "by-tenant", "own"]
    stage.clock.advance(MINUTE)
    assert await names(stage, paused=False) == ["by-queue", "plain"]
    await pause("queue:default", What.CLAIMS)
    assert await names(stage, paused=False) == ["by-queue", "plain"]  # the others are in it, and were paused before
    await stage.store.end_pause("job:clean", What.CREATION, actor="ana", note="", catch_up=False)
    assert "by-job" in await names(stage, paused=True)


async def test_schedules_are_found_by_how_their_last_run_stands(stage: Stage) -> None:
    await ticked(stage, bad=["succeeded", "died"], good=["died", "succeeded"])
    await stage.apply(declared("new", stage.now + DAY))
    assert await names(stage, last=(State.DEAD,)) == ["bad"]
    assert await names(stage, last=(State.SUCCEEDED, State.VERIFIED)) == ["good"]
    assert await names(stage, needs_person=True) == ["bad", "good"]


async def test_a_schedule_stands_as_its_runs_say(stage: Stage) -> None:
    await ticked(stage, hourly=["succeeded", "died"])
    ended = stage.now - HOUR
    await stage.fire(fires_hourly)
    stage.clock.advance(5 * SECOND)
    [run] = await stage.claim()
    facts = await stage.store.schedule_facts("hourly")
    found = standing(facts, stage.now)
    assert found.next is not None
    assert found.next.fire_at == stage.now - 5 * SECOND + HOUR
    assert found.last is not None
    assert found.last.id == run.id
    assert [one.view.id for one in found.active] == [run.id]
    assert found.active[0].heard is not None
    assert found.strip == (Mark.KEPT, Mark.FAILED)
    assert facts.useful_at == ended - HOUR
    assert (found.useful, found.attempts, found.emitted, found.completed) == (1, 2, 3, 1)
    assert found.needs == ("dead",)
    assert facts.tenants == {None: 1}


@pytest.mark.parametrize("away", [HOUR, 4 * DAY, 60 * DAY])
async def test_what_ended_long_ago_is_told_behind_what_ended_lately(stage: Stage, away: Duration) -> None:
    await ticked(stage, one=["succeeded", "succeeded"], two=["succeeded", "succeeded"])
    useful = stage.now - HOUR
    stage.clock.advance(away)
    await stage.fire(lambda fact: skips(fact) if fact.id.startswith("two@") else fires_hourly(fact))
    for run in await stage.claim():
        await stage.finish(stage.succeeded(run))
    page = await stage.store.schedule_page(ScheduleFilter())
    facts = {one.schedule.id: one for one in page.schedules}
    assert [tick.state for tick in facts["one"].recent] == [State.SUCCEEDED] * 3
    assert [tick.state for tick in facts["two"].recent] == [State.SKIPPED, State.SUCCEEDED, State.SUCCEEDED]
    for one in facts.values():
        assert [tick.nominal for tick in one.recent] == sorted((tick.nominal for tick in one.recent), reverse=True)
    assert (facts["one"].useful_at, facts["two"].useful_at) == (stage.now, useful)
    assert await names(stage, last=(State.SKIPPED,)) == ["two"]
    ages = {one.schedule: one.useful_at for one in await stage.store.schedule_ages()}
    assert ages == {"one": stage.now, "two": useful}


async def test_of_runs_with_one_nominal_time_the_later_run_comes_first_whichever_ended_first(stage: Stage) -> None:
    await stage.apply(declared("hourly", stage.now))
    for _ in range(2):
        await stage.store.trigger("hourly", actor="ann", note="now")
    await stage.fire(fires_hourly)
    runs = sorted(await stage.claim(), key=lambda run: run.number)
    for run in (runs[1], runs[2], runs[0]):
        await stage.finish(stage.succeeded(run))
        stage.clock.advance(SECOND)
    for count in (1, 2, 3):
        facts = await stage.store.schedule_facts("hourly", recent=count)
        assert len({tick.nominal for tick in facts.recent}) == 1
        assert [tick.number for tick in facts.recent] == [run.number for run in reversed(runs)][:count]
        assert facts.useful_at == stage.now - 2 * SECOND


async def test_three_failures_in_a_row_are_a_persons_business(stage: Stage) -> None:
    good, died = "succeeded", "died"
    await ticked(stage, worse=[died, good, died, died, died], bad=[died, died, died, good, died])
    found = {one.schedule.id: standing(one, stage.now) for one in await stage.store.failing(10)}
    assert {name: one.in_a_row for name, one in found.items()} == {"worse": 3, "bad": 1}
    assert found["worse"].needs == ("dead", "in_a_row")


async def test_what_fails_of_a_tenant_is_found_behind_any_number_of_others(stage: Stage) -> None:
    await stage.apply(
        *(declared(name, stage.now, tenant="globex") for name in ("a", "b")),
        declared("theirs", stage.now, tenant="acme"),
    )
    for _ in range(3):
        await stage.fire(fires_hourly)
        for run in await stage.claim():
            await stage.finish(stage.died(run))
        stage.clock.advance(HOUR)
    assert [one.schedule.id for one in await stage.store.failing(2)] == ["a", "b"]
    assert [one.schedule.id for one in await stage.store.failing(2, "acme")] == ["theirs"]
    assert await stage.store.failing(2, "nobody") == []


async def test_a_row_that_stands_for_many_ticks_counts_for_as_many(stage: Stage) -> None:
    await ticked(stage, hourly=["succeeded"])

    def merged(fact):
        decision = replace(skips(fact), reason=Reason.MISFIRE, span_until=fact.nominal + 3 * HOUR, span_count=4)
        return replace(decision, successor=fires_hourly(fact).successor)

    await stage.fire(merged)
    found = standing(await stage.store.schedule_facts("hourly"), stage.now)
    assert found.strip == (Mark.KEPT, *[Mark.MISSED] * 4)


async def test_a_schedule_that_does_not_exist_is_unknown_and_nonsense_is_refused(stage: Stage) -> None:
    with pytest.raises(UnknownName):
        await stage.store.schedule_facts("nobody")
    with pytest.raises(InvalidInput, match="1 to 1,000"):
        await stage.store.schedule_page(ScheduleFilter(), limit=0)
    with pytest.raises(InvalidInput, match="not a cursor"):
        await stage.store.schedule_page(ScheduleFilter(order=ScheduleOrder.NEXT), cursor="x")


# ---------------------------------------------------------------------------------------------------------------- tally


async def test_promises_are_counted_by_how_they_were_kept(stage: Stage) -> None:
    await stage.finish(stage.succeeded(await stage.running()))
    late = await stage.promise()
    stage.clock.advance(2 * MINUTE)
    await stage.fire()
    [run] = await stage.claim()
    assert run.id == late.id
    await stage.finish(stage.succeeded(run))
    await stage.finish(stage.died(await stage.running()))
    gone = await stage.promise(after=HOUR)
    await stage.store.cancel(gone.id, actor="test", note="")
    await stage.apply(declared("skipped", stage.now))
    await stage.fire(skips)
    await stage.store.count_endings()
    pulse = await stage.store.pulse()
    assert pulse.hour == pulse.day == Tally(on_time=1, late=1, skipped=1, cancelled=1, failed=1)
    stage.clock.advance(2 * HOUR)
    later = await stage.store.pulse()
    assert (later.hour, later.day) == (Tally(), pulse.day)


@pytest.mark.parametrize(("waited", "tally"), [(0, Tally(on_time=1)), (2 * MINUTE, Tally(late=1))])
async def test_a_run_that_is_tried_again_is_as_late_as_it_first_began(
    stage: Stage, waited: Duration, tally: Tally
) -> None:
    await stage.apply(declared("hourly", stage.now))
    stage.clock.advance(waited)
    await stage.fire(fires_hourly)
    [run] = await stage.claim()
    await stage.finish(stage.failed(run, 10 * MINUTE))
    stage.clock.advance(10 * MINUTE)
    await stage.fire(fires_hourly)
    [again] = await stage.claim()
    await stage.finish(stage.succeeded(again))
    await stage.store.count_endings()
    assert (await stage.store.pulse()).day == tally


async def test_the_count_of_endings_costs_as_much_for_many_schedules_as_for_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds one row for each minute, by the same statements, also where each schedule is late."""
    asked: list[str] = []

    async def ended_late(names: range) -> list[str]:
        await stage.apply(*(declared(f"hourly{name}", stage.now, first_fire_at=stage.now) for name in names))
        stage.clock.advance(2 * MINUTE)
        await stage.fire(fires_hourly)
        ticks = await stage.claim()
        await stage.finish(*map(stage.succeeded, ticks))
        assert len(ticks) == len(names)
        asked.clear()
        await stage.store.count_endings()
        return list(asked)

    class Counted(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            asked.append(name)
            return super().__getitem__(name)

    await stage.store.count_endings()
    monkeypatch.setattr(stage.store, "_queries", Counted(stage.store._queries))  # type: ignore[attr-defined]
    if isinstance(stage.store, SqliteStore):
        assert stage.store._writer is not None
        monkeypatch.setattr(stage.store._writer, "_queries", stage.store._queries)
    one = await ended_late(range(1))
    assert one.count("add_tally") == 1
    assert await ended_late(range(1, 60)) == one
    minutes = [tally for _, tally in await stage.store.kept_by_minute(5) if tally != Tally()]
    assert minutes == [Tally(late=1), Tally(late=59)]


async def test_an_ending_is_counted_once_however_often_and_by_however_many(stage: Stage) -> None:
    for _ in range(3):
        await stage.finish(stage.succeeded(await stage.running()))
        await asyncio.gather(*(stage.store.count_endings() for _ in range(3)))
        await stage.store.tidy()
    assert (await stage.store.pulse()).day.on_time == 3


async def test_failures_of_the_last_hour_add_up_by_minute_and_in_the_pulse(stage: Stage) -> None:
    for _ in range(4):  # 75 minutes ago to now: the first lies before the hour
        await stage.finish(stage.died(await stage.running()))
        stage.clock.advance(25 * MINUTE)
    minutes = await stage.store.kept_by_minute(60)
    pulse = await stage.store.pulse()
    assert [tally.failed for _, tally in minutes if tally.failed] == [1, 1]
    assert (sum(tally.failed for _, tally in minutes), pulse.day.failed) == (pulse.hour.failed, 4)


async def test_jitter_makes_no_tick_late_and_what_people_make_has_no_time_to_keep(stage: Stage) -> None:
    spread = declared("spread", stage.now, policy=Policy(jitter=HOUR), first_fire_at=stage.now + 30 * MINUTE)
    await stage.apply(spread)
    stage.clock.advance(30 * MINUTE)
    await stage.fire(fires_hourly)
    [run] = await stage.claim()
    await stage.finish(stage.succeeded(run))
    await stage.store.trigger("spread", actor="test", note="")
    await stage.fire()
    [wish] = await stage.claim()
    await stage.finish(stage.succeeded(wish))
    await stage.store.count_endings()
    assert (await stage.store.pulse()).day == Tally(on_time=1)
    facts = await stage.store.schedule_facts("spread")
    assert standing(facts, stage.now).strip == (Mark.KEPT,)


# ---------------------------------------------------------------------------------------------------------------- pulse


async def test_the_pulse_tells_what_waits_runs_and_comes(stage: Stage) -> None:
    await stage.running("a:1")
    await stage.promise("ready:1")
    await stage.fire()
    stage.clock.advance(SECOND)
    await stage.promise("overdue:1")
    await stage.promise("soon:1", after=90 * SECOND)
    await stage.promise("far:1", after=DAY)
    stage.clock.advance(SECOND)
    await stage.finish(stage.failed(await stage.running("b:1", job="job"), HOUR))
    pulse = await stage.store.pulse()
    assert (pulse.running, pulse.retrying, pulse.early) == (3, 1, 0)
    assert pulse.coming == {1: 1}
    assert [held.shard for held in pulse.holdings if held.shard >= 0] == [0]
    await stage.promise("late:1")
    stage.clock.advance(MINUTE)
    assert (await stage.store.pulse()).overdue == 1
    await stage.fire()
    pulse = await stage.store.pulse()
    assert (pulse.overdue, pulse.waiting) == (0, 1)
    assert sum(lane.waiting for lane in pulse.lanes.values()) == 1
    assert set(pulse.lanes) == set(Lane)


async def test_the_pulse_tells_who_has_which_duty(stage: Stage) -> None:
    owner = await stage.scheduler()
    await stage.store.take(Duty.WATCH, owner, MINUTE)
    assert [(one.shard, one.owner) for one in (await stage.store.pulse()).holdings] == [(Duty.WATCH, owner)]
    stage.clock.advance(2 * MINUTE)
    assert (await stage.store.pulse()).holdings == ()


async def test_all_runs_that_wait_for_a_person_are_counted_by_what_they_have_in_common(stage: Stage) -> None:
    dead = [await stage.running(f"dead:{number}") for number in range(3)]
    await stage.finish(*map(stage.died, dead))
    tick = await stage.running_tick("hourly")
    await stage.finish(stage.died(tick, reason=Reason.PERMANENT))
    doubt = await stage.ambiguous("doubt:1")
    groups = await stage.store.parked_groups(10)
    assert [(one.state, one.schedule, one.job, one.size) for one in groups] == [
        (State.AMBIGUOUS, None, "job", 1),
        (State.DEAD, "hourly", None, 1),
        (State.DEAD, None, "job", 3),
    ]
    assert [one.reason for one in groups[1:]] == ["permanent", "attempts"]
    assert [one.newest for one in groups] == [doubt.number, tick.number, dead[-1].number]
    assert [one.first for one in groups] == [doubt.number, tick.number, dead[0].number]
    assert await stage.store.parked_groups(1) == groups[:1]


async def test_runs_that_wait_for_a_person_come_with_what_is_known_of_them(stage: Stage) -> None:
    doubt = await stage.ambiguous("doubt:1")
    stage.clock.advance(MINUTE)
    dead = await stage.running("bad:1")
    await stage.finish(stage.died(dead))
    first, second = await stage.store.parked([dead.number, doubt.number])
    assert (first.view.id, first.begun, first.parked_at) == (dead.id, True, START + MINUTE)
    assert (second.facts.maybe, [effect.name for effect in second.view.effects]) == (1, ["pay"])
    assert await stage.store.parked([12345]) == []


async def test_failures_in_a_row_are_counted_beyond_the_ticks_that_are_looked_at(stage: Stage) -> None:
    await ticked(stage, hourly=["succeeded", *["died"] * 4])
    first = stage.now - 4 * HOUR
    for recent in (2, 30):
        found = standing(await stage.store.schedule_facts("hourly", recent=recent), stage.now)
        assert found.failures == (4, first), recent
    [known] = [standing(one, stage.now) for one in await stage.store.failing(10)]
    assert known.failures == (4, first)


async def test_a_run_that_waits_for_a_worker_again_is_ready_and_not_retrying(stage: Stage) -> None:
    await stage.apply(declared("hourly", stage.now))
    await stage.fire(fires_hourly)
    [run] = await stage.claim()
    await stage.finish(stage.failed(run))
    assert (await stage.store.pulse()).retrying == 1
    stage.clock.advance(MINUTE)
    await stage.fire()
    pulse = await stage.store.pulse()
    assert (await stage.state(run), pulse.retrying, pulse.waiting) == (State.READY, 0, 1)
    assert standing(await stage.store.schedule_facts("hourly"), stage.now).retrying == 0


async def test_runs_without_a_schedule_or_a_tenant_can_be_chosen(stage: Stage) -> None:
    await stage.apply(declared("hourly", stage.now), declared("acmes", stage.now, tenant="acme"))
    await stage.promise("one")
    await stage.promise("of-acme", tenant="acme")
    await stage.fire(fires_hourly)
    await stage.finish(*[stage.died(run) for run in await stage.claim()])
    wanted = {"schedule": {"one#1", "of-acme[acme]#1"}, "tenant": {"one#1", "hourly"}}
    for name, expected in wanted.items():
        listed = await stage.store.list_runs(RunFilter(states=(State.DEAD,), **{name: NONE}))  # type: ignore[arg-type]
        assert {one.view.id.partition("@")[0] for one in listed.runs} == expected
        chosen = DeadFilter(schedule=NONE) if name == "schedule" else DeadFilter(tenant=NONE)
        dead = await stage.store.dead(chosen, limit=10)
        assert {one.view.id.partition("@")[0] for one in dead} == expected


async def test_what_was_cancelled_or_moved_waits_for_no_worker(stage: Stage) -> None:
    kept = [await stage.promise(f"k{number}") for number in range(5)]
    await stage.fire()
    await stage.store.cancel(kept[0].id, actor="ana", note="no longer")
    await stage.store.move("k1", None, stage.now + HOUR)
    pulse = await stage.store.pulse()
    assert (pulse.waiting, pulse.lanes[Lane.LIVE].waiting) == (3, 3)
    assert [one.waiting for one in await stage.store.queues_waiting()] == [3]
