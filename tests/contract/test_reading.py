"""runs, run, ended_since, events_since, counts: what people look at."""

from __future__ import annotations

from typing import Any

import pytest

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND
from foliot.domain.run import Promise
from foliot.domain.state import State
from foliot.domain.store import QueueView
from foliot.errors import UnknownName
from tests.contract.stage import START, Stage, declared, fires_hourly, holds


async def one_of_each(stage: Stage) -> dict[State, str]:
    """A run in every state that this release can bring it to."""
    found: dict[State, str] = {}
    await stage.apply(declared("held", START))
    await stage.fire(holds)
    [held] = await stage.store.runs()
    found[State.HELD] = held.id
    for state, ending in (
        (State.SUCCEEDED, Stage.succeeded),
        (State.DEAD, Stage.died),
        (State.AMBIGUOUS, Stage.puzzled),
        (State.CANCELLED, Stage.stopped),
        (State.RETRYING, Stage.failed),
    ):
        run = await stage.running()
        await stage.finish(ending(stage, run))
        found[state] = run.id
    late = await stage.promise(useful_until=START - 1)
    await stage.fire()
    found[State.SKIPPED] = late.id
    found[State.RUNNING] = (await stage.running()).id
    found[State.READY] = (await stage.promise()).id
    await stage.fire()
    found[State.SCHEDULED] = (await stage.promise(after=HOUR)).id
    return found


async def test_every_state_is_shown_as_what_it_is(stage: Stage) -> None:
    expected = await one_of_each(stage)
    listed = await stage.store.runs()
    assert {run.state: run.id for run in listed} == expected
    assert len(listed) == len(expected)
    for state, identifier in expected.items():
        assert await stage.state(identifier) is state


async def test_runs_can_be_asked_for_by_state(stage: Stage) -> None:
    expected = await one_of_each(stage)
    for state, identifier in expected.items():
        assert [run.id for run in await stage.store.runs(states=[state])] == [identifier]
    pair = await stage.store.runs(states=[State.READY, State.SUCCEEDED])
    assert {run.id for run in pair} == {expected[State.READY], expected[State.SUCCEEDED]}
    assert await stage.store.runs(states=[State.VERIFIED]) == []


async def test_counts_agree_with_the_runs_they_count(stage: Stage) -> None:
    expected = await one_of_each(stage)
    counts = await stage.store.counts()
    ended = {State.SUCCEEDED, State.CANCELLED, State.SKIPPED}
    for state in State:
        assert counts[str(state)] == (1 if state in expected and state not in ended else 0), state
    assert (counts["history"], counts["early"]) == (3, 0)


async def test_a_retry_that_was_handed_off_is_counted_as_ready_and_only_so(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.failed(run, 0))
    await stage.fire()
    await stage.promise(after=HOUR)
    counts = await stage.store.counts()
    assert (counts["ready"], counts["retrying"], counts["scheduled"]) == (1, 0, 1)


async def test_what_was_cancelled_or_moved_after_its_hand_off_is_not_counted_as_ready(stage: Stage) -> None:
    gone = await stage.promise()
    await stage.promise("class:7")
    await stage.promise()
    await stage.fire()
    await stage.store.cancel(gone.id, actor="test", note="")
    await stage.store.move("class:7", None, START + HOUR)
    counts = await stage.store.counts()
    assert (counts["ready"], counts["scheduled"]) == (1, 1)


async def test_what_was_moved_after_its_hand_off_is_shown_as_scheduled_in_every_list(stage: Stage) -> None:
    kept, ready = await stage.promise("class:7"), await stage.promise()
    await stage.fire()
    await stage.store.move("class:7", None, START + HOUR)
    assert [run.id for run in await stage.store.runs(states=[State.READY])] == [ready.id]
    assert [run.id for run in await stage.store.runs(states=[State.SCHEDULED])] == [kept.id]


async def test_an_empty_store_counts_nothing(stage: Stage) -> None:
    assert set((await stage.store.counts()).values()) == {0}


# ---------------------------------------------------------------------------------------------------------------- pages


async def test_live_and_ended_runs_are_listed_together_newest_first(stage: Stage) -> None:
    made = []
    for place in range(6):
        if place % 2:
            run = await stage.running()
            await stage.finish(stage.succeeded(run))
            made.append(run.id)
        else:
            made.append((await stage.promise(after=HOUR)).id)
    assert [run.id for run in await stage.store.runs()] == made[::-1]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_join_without_a_gap_and_without_a_repetition(stage: Stage, limit: int) -> None:
    kept = await stage.store.promise([Promise("job", b"", START + HOUR) for _ in range(7)])
    for one in kept[::3]:
        await stage.store.cancel(one.id, actor="test", note="")
    found: list[int] = []
    before: int | None = None
    while page := await stage.store.runs(limit=limit, before=before):
        assert len(page) <= limit
        found += [run.number for run in page]
        before = page[-1].number
    assert found == [one.number for one in kept][::-1]


async def test_fifty_are_listed_when_nothing_is_said(stage: Stage) -> None:
    await stage.store.promise([Promise("job", b"", START + HOUR) for _ in range(60)])
    assert len(await stage.store.runs()) == 50


@pytest.mark.parametrize("state", [State.READY, State.SCHEDULED])
async def test_a_page_of_one_state_is_full_as_long_as_there_are_such_runs(stage: Stage, state: State) -> None:
    """`ready` is derived, and must not make a page end before the list does."""
    first = await stage.store.promise([Promise("job", b"", START + (HOUR if state is State.SCHEDULED else 0))] * 3)
    if state is State.READY:
        await stage.fire()
    await stage.store.promise([Promise("job", b"", START + (0 if state is State.SCHEDULED else HOUR))] * 10)
    if state is State.SCHEDULED:
        await stage.fire()
    page = await stage.store.runs(states=[state], limit=3)
    assert [run.number for run in page] == [one.number for one in first][::-1]


async def test_runs_can_be_asked_for_by_schedule_job_and_tenant(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    tick = await stage.running_tick("daily")
    await stage.finish(stage.succeeded(tick))
    mail = await stage.promise(job="mail", tenant="acme")
    other = await stage.promise(job="mail", tenant="zenith")
    runs = stage.store.runs
    assert [run.schedule for run in await runs(schedule="hourly")] == ["hourly"]
    assert [run.id for run in await runs(schedule="daily")] == [tick.id]
    assert [run.id for run in await runs(job="mail")] == [other.id, mail.id]
    assert [run.id for run in await runs(tenant="acme")] == [mail.id]
    assert [run.id for run in await runs(job="mail", tenant="zenith", states=[State.SCHEDULED])] == [other.id]
    assert await runs(job="mail", tenant="nobody") == []
    assert await runs(schedule="hourly", job="mail") == []


async def test_a_run_is_found_by_its_name_or_by_its_number(stage: Stage) -> None:
    named, unnamed = await stage.promise("class:7"), await stage.promise()
    assert (await stage.run("class:7#1")).number == named.number
    assert (await stage.run(unnamed.id)).number == unnamed.number


@pytest.mark.parametrize("identifier", ["", "nobody", "class:7", "class:7#2", "0000000000000", "ZZZZZZZZZZZZZ"])
async def test_a_run_that_does_not_exist_is_unknown(stage: Stage, identifier: str) -> None:
    await stage.promise("class:7")
    with pytest.raises(UnknownName):
        await stage.run(identifier)


# ----------------------------------------------------------------------------------------------------- ended and events


async def test_ended_runs_are_told_in_the_order_of_their_endings(stage: Stage) -> None:
    for _ in range(4):
        await stage.promise()
    await stage.fire()
    runs = await stage.claim()
    for run in reversed(runs):
        await stage.finish(stage.succeeded(run))
    ended = await stage.store.ended_since(0, 10)
    assert [run.number for run in ended] == [run.number for run in reversed(runs)]
    assert [run.position for run in ended] == sorted({run.position for run in ended})
    rest = await stage.store.ended_since(ended[1].position, 1)
    assert [run.number for run in rest] == [ended[2].number]
    assert await stage.store.ended_since(ended[-1].position, 10) == []


async def test_every_way_to_end_is_told(stage: Stage) -> None:
    expected = await one_of_each(stage)
    ended = {run.id for run in await stage.store.ended_since(0, 100)}
    assert ended == {expected[state] for state in (State.SUCCEEDED, State.CANCELLED, State.SKIPPED)}


async def test_events_are_told_in_order_and_once(stage: Stage) -> None:
    for place in range(5):
        stage.clock.advance(SECOND)
        await stage.store.note("kind", f"subject {place}", "detail")
    events = await stage.store.events_since(0, 3)
    assert [event.subject for event in events] == ["subject 0", "subject 1", "subject 2"]
    assert [event.at for event in events] == [START + SECOND, START + 2 * SECOND, START + 3 * SECOND]
    rest = await stage.store.events_since(events[-1].position, 10)
    assert [event.subject for event in rest] == ["subject 3", "subject 4"]
    assert await stage.store.events_since(rest[-1].position, 10) == []


async def test_events_can_be_asked_for_by_their_subject(stage: Stage) -> None:
    for subject, detail in (("a", "1"), ("b", "2"), ("a", "3"), ("a b", "4")):
        await stage.store.note("kind", subject, detail)
    assert [event.detail for event in await stage.store.events_of("a")] == ["1", "3"]
    assert await stage.store.events_of("nobody") == []


async def test_the_last_positions_are_where_only_new_things_follow(stage: Stage) -> None:
    ended, events = await stage.store.last_positions()
    assert (await stage.store.ended_since(ended, 10), await stage.store.events_since(events, 10)) == ([], [])
    await stage.finish(stage.succeeded(await stage.running()))
    await stage.store.note("kind", "old", "")
    ended, events = await stage.store.last_positions()
    assert await stage.store.ended_since(ended, 10) == []
    assert await stage.store.events_since(events, 10) == []
    fresh = await stage.running()
    await stage.finish(stage.succeeded(fresh))
    await stage.store.note("kind", "new", "")
    assert [run.id for run in await stage.store.ended_since(ended, 10)] == [fresh.id]
    assert [event.subject for event in await stage.store.events_since(events, 10)] == ["new"]


async def test_the_next_pending_run_is_the_soonest_that_is_not_due_yet(stage: Stage) -> None:
    assert await stage.store.next_pending() is None
    await stage.promise()
    assert await stage.store.next_pending() is None
    await stage.promise(after=2 * HOUR)
    soonest = await stage.promise(after=HOUR)
    gone = await stage.promise(after=MINUTE)
    await stage.store.cancel(gone.id, actor="test", note="")
    found = await stage.store.next_pending()
    assert found is not None
    assert (found.id, found.fire_at, found.state) == (soonest.id, START + HOUR, State.SCHEDULED)


async def test_a_retry_can_be_the_next_pending_run(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.failed(run))
    found = await stage.store.next_pending()
    assert found is not None
    assert (found.id, found.state) == (run.id, State.RETRYING)


# ---------------------------------------------------------------------------------------------------------- never early


async def test_the_early_counter_reads_zero_for_work_that_was_on_time(stage: Stage) -> None:
    for ending in (Stage.succeeded, Stage.failed, Stage.died, Stage.stopped, Stage.interrupted):
        await stage.finish(ending(stage, await stage.running()))
        stage.clock.advance(DAY)
    tick = await stage.running_tick("hourly", fires_hourly)
    await stage.finish(stage.succeeded(tick))
    assert (await stage.store.counts())["early"] == 0


@pytest.mark.parametrize(
    "ending",
    [Stage.succeeded, Stage.failed, Stage.died, Stage.stopped],
    ids=["succeeded", "failed", "died", "stopped"],
)
async def test_the_early_counter_counts_a_start_before_the_fire_time_once(stage: Stage, ending) -> None:
    """It is not always zero because it cannot count: one early start is one."""
    run = await stage.running()
    await stage.finish(ending(stage, run)._replace(started_at=START - SECOND))
    assert (await stage.store.counts())["early"] == 1


async def test_a_retry_is_measured_by_its_own_fire_time(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.failed(run, MINUTE))
    stage.clock.advance(MINUTE)
    await stage.fire()
    [again] = await stage.claim()
    await stage.finish(stage.succeeded(again)._replace(started_at=START + MINUTE - SECOND))
    assert (await stage.store.counts())["early"] == 1


# --------------------------------------------------------------------------------------------------------------- health


async def test_health_says_which_engine_this_is_and_that_it_is_whole(stage: Stage) -> None:
    health = await stage.store.health()
    assert health["engine"]
    assert health["version"]
    assert health["schema"] >= 1
    assert health["integrity"] == "ok"


async def test_it_is_told_what_waits_in_which_queue(stage: Stage) -> None:
    assert await stage.store.queues_waiting() == []
    for _ in range(3):
        await stage.promise(queue="mail")
    await stage.fire()
    stage.clock.advance(SECOND)
    await stage.promise()
    await stage.promise(queue="mail")
    await stage.fire()
    assert await stage.store.queues_waiting() == [
        QueueView("default", 1, START + SECOND),
        QueueView("mail", 4, START),
    ]
    await stage.claim(queues=["mail", "default"])
    assert await stage.store.queues_waiting() == []


async def test_instances_tell_the_slots_that_they_keep_for_queues(stage: Stage) -> None:
    both: dict[str, Any] = {"version": "test", "queues": ["default", "mail"], "slots": 5, "jobs": []}
    entered = await stage.store.register("worker", reserved={"mail": 2}, **both)
    [found] = await stage.store.instances()
    assert entered.reserved == found.reserved == {"mail": 2}
