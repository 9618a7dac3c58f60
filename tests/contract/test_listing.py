"""list_runs: every list holds exactly the runs that are wanted, in its order, page by page."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foliot.domain.conditions import Condition
from foliot.domain.instant import FIRST, HOUR, LAST, MINUTE
from foliot.domain.listing import COMING, ListedRun, Order, RunFilter, matches
from foliot.domain.run import Lane, Origin, RunView
from foliot.domain.state import State
from foliot.errors import InvalidInput
from foliot.store.verbs import listing
from tests.contract.stage import START, Stage, declared, holds
from tests.tiers import by_tier


async def lived(stage: Stage) -> None:
    """Runs in every state, of schedules and without, with tenants, queues, reasons and errors."""
    await stage.finish(stage.succeeded(await stage.running("class:7")))
    await stage.finish(stage.succeeded(await stage.running("class:8", tenant="acme")))
    await stage.promise("Order:1", after=HOUR, queue="mail")
    await stage.finish(stage.died(await stage.running("bad:1", tenant="acme")))
    await stage.finish(stage.failed(await stage.running(job="job"), error="KeyError: Montague"))
    await stage.ambiguous("doubt:1")
    tick = await stage.running_tick("nightly")
    await stage.finish(stage.succeeded(tick))
    await stage.apply(declared("hourly", stage.now))
    await stage.fire(holds)
    await stage.checking("check:1")
    await stage.running("long:1", tenant="zenith")
    gone = await stage.promise("gone:1", after=HOUR)
    await stage.store.cancel(gone.id, actor="test", note="")
    await stage.store.trigger("nightly", actor="test", note="")
    await stage.promise("soon:1", after=MINUTE, job="other")
    await stage.promise(after=2 * HOUR, tenant="acme")
    await stage.promise("ready:1")
    await stage.fire()


async def pages(stage: Stage, wanted: RunFilter, limit: int) -> list[ListedRun]:
    found: list[ListedRun] = []
    cursor: str | None = None
    while True:
        page = await stage.store.list_runs(wanted, cursor=cursor, limit=limit)
        assert len(page.runs) <= limit
        assert len(page.runs) == limit or page.cursor is None or not page.complete
        found += page.runs
        cursor = page.cursor
        if cursor is None:
            return found


def some(values: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.just(()) | st.lists(st.sampled_from(list(values)), max_size=3, unique=True).map(tuple)


def filters() -> st.SearchStrategy[RunFilter]:
    times = st.sampled_from([START - HOUR, START, START + MINUTE, START + HOUR])
    schedule = st.sampled_from(["nightly", "hourly", "none"])
    return st.builds(
        RunFilter,
        states=some(State),
        schedule=st.none() | schedule,
        job=st.sampled_from([None, None, "job", "other"]),
        tenant=st.sampled_from([None, None, "acme", "zenith"]),
        queue=st.sampled_from([None, None, "default", "mail"]),
        origins=some(Origin),
        lanes=some(Lane),
        reasons=some(["attempts", "overlap", "requested"]),
        nominal_from=st.just(FIRST) | times,
        nominal_to=st.just(LAST) | st.just(START + 3 * HOUR),
        fire_from=st.just(FIRST) | times,
        fire_to=st.just(LAST) | st.just(START + 3 * HOUR),
        prefix=st.sampled_from([None, None, "class:", "CLASS", "nightly@"]),
        text=st.sampled_from([None, None, "CLASS", "montague", "1", "class:7#1"]),
        needs_person=st.booleans(),
    )


def test_a_list_holds_exactly_what_is_wanted_newest_first(stage: Stage, runner: asyncio.Runner) -> None:
    runner.run(lived(stage))
    known: list[RunView] = runner.run(stage.store.runs(limit=1_000))
    assert len({view.state for view in known}) > 8, "there is something of everything"
    told = {view.number: runner.run(stage.store.run(view.id)) for view in known}
    errors = {number: "\n".join(one.error or "" for one in view.attempts) for number, view in told.items()}

    @settings(max_examples=by_tier(40, 250, 2_500))
    @given(filters(), st.sampled_from([1, 3, 100]))
    def holds_exactly(wanted: RunFilter, limit: int) -> None:
        found = [one.view for one in runner.run(pages(stage, wanted, limit))]
        expected = [view for view in known if matches(wanted, view, errors[view.number])]
        assert [view.id for view in found] == [view.id for view in expected]

    holds_exactly()


def test_what_is_to_come_is_listed_soonest_first(stage: Stage, runner: asyncio.Runner) -> None:
    runner.run(lived(stage))
    known = [view for view in runner.run(stage.store.runs(limit=1_000)) if view.state in COMING]
    for limit in (1, 2, 100):
        found = [one.view for one in runner.run(pages(stage, RunFilter(order=Order.SOONEST), limit))]
        assert [view.fire_at for view in found] == sorted(view.fire_at for view in found)
        assert len({view.number for view in found}) == len(found)
        assert {view.id for view in found} <= {view.id for view in known}
        assert {"soon:1#1", "Order:1#1"} <= {view.id for view in found}


async def test_a_search_that_no_index_knows_ends_and_says_where_it_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "BUDGET", 5)
    made = [await stage.promise(f"key:{place}", after=HOUR, job="rare" if place == 0 else "job") for place in range(12)]
    page = await stage.store.list_runs(RunFilter(job="rare"), limit=2)
    assert (page.runs, page.complete) == ([], False)
    assert page.cursor is not None
    while page.cursor is not None:
        page = await stage.store.list_runs(RunFilter(job="rare"), cursor=page.cursor, limit=2)
    assert [one.view.id for one in page.runs] == [made[0].id]


async def test_conditions_are_told_and_asked_for(stage: Stage) -> None:
    late = await stage.promise("late:1")
    await stage.promise("later:1", after=HOUR)
    stage.clock.advance(2 * MINUTE)
    first, second = await stage.running("a:1"), await stage.running("b:1")
    [listed] = (await stage.store.list_runs(RunFilter(conditions=(Condition.LATE,)))).runs
    assert (listed.view.id, listed.conditions) == (late.id, (Condition.LATE,))
    held = {one.view.id: one.conditions for one in (await stage.store.list_runs(RunFilter())).runs}
    assert held[first.id] == held[second.id] == ()
    assert held[late.id] == (Condition.LATE,)


async def test_a_silent_worker_makes_its_runs_stale(stage: Stage) -> None:
    run = await stage.running("long:1")
    stage.clock.advance(MINUTE)
    [listed] = (await stage.store.list_runs(RunFilter(conditions=(Condition.HEARTBEAT_STALE,)))).runs
    assert listed.view.id == run.id


@pytest.mark.parametrize(
    ("wanted", "more", "told"),
    [
        (RunFilter(), {"limit": 0}, "1 to 1,000"),
        (RunFilter(), {"cursor": "x"}, "not a cursor"),
        (RunFilter(order=Order.SOONEST), {"cursor": "7"}, "not a cursor"),
        (RunFilter(member="acme"), {}, "schedule="),
        (RunFilter(text=""), {}, "1 to 500"),
        (RunFilter(nominal_from=5, nominal_to=5), {}, "swap"),
        (RunFilter(order=Order.SOONEST, needs_person=True), {}, "order=soonest"),
    ],
)
async def test_a_list_that_makes_no_sense_is_refused(stage: Stage, wanted: RunFilter, more: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        await stage.store.list_runs(wanted, **more)
