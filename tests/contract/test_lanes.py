"""What keeps live work apart from the backlog: windows with an end, rates of lanes, claims that leave room."""

from __future__ import annotations

from typing import Any

import pytest

from foliot.domain.gates import Gate
from foliot.domain.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from foliot.domain.run import Lane, Promise
from foliot.domain.schedule import TickDecision
from tests.contract.stage import BEGINNING, START, Entry, Stage, declared, entries

# ----------------------------------------------------------------------------------------------------------------- load


async def test_the_past_is_loaded_apart_from_what_is_live_and_nothing_falls_between(stage: Stage) -> None:
    for after in (-DAY, -HOUR - 1, -HOUR, -1, HOUR):
        await stage.promise(after=after)
    lease = await stage.lease()
    past = await stage.store.load(lease, BEGINNING, 10, START - HOUR)
    assert [fire_at for fire_at, _ in entries(past)] == [START - DAY, START - HOUR - 1]
    assert past.exhausted
    live = await stage.loaded(lease, (START - HOUR, -1))
    assert [fire_at for fire_at, _ in live] == [START - HOUR, START - 1, START + HOUR]


async def test_the_past_is_loaded_in_pieces(stage: Stage) -> None:
    kept = await stage.store.promise([Promise("job", b"", START - DAY + place) for place in range(5)])
    await stage.promise()
    lease, start, found = await stage.lease(), BEGINNING, list[Entry]()
    for _ in range(2):
        cells = await stage.store.load(lease, start, 2, START)
        assert not cells.exhausted
        found, start = found + entries(cells), cells.last
    cells = await stage.store.load(lease, start, 2, START)
    assert cells.exhausted
    assert found + entries(cells) == [(one.fire_at, one.number) for one in kept]


async def test_the_past_ends_at_the_mark_too(stage: Stage) -> None:
    for after in (-2 * HOUR, -HOUR, 0):
        await stage.promise(after=after)
    lease = await stage.lease(high_water=START - HOUR)
    assert len(entries(await stage.store.load(lease, BEGINNING, 10, START + DAY))) == 1


async def test_what_was_handed_off_is_left_out_of_both_parts_whichever_is_loaded_first(stage: Stage) -> None:
    for after in (-DAY, 0):
        await stage.promise(after=after)
    await stage.fire()
    late, live = await stage.promise(after=-DAY), await stage.promise()
    lease = await stage.lease()
    assert await stage.loaded(lease, (START - MINUTE, -1)) == [(START, live.number)]
    assert entries(await stage.store.load(lease, BEGINNING, 10, START - MINUTE)) == [(START - DAY, late.number)]


# ---------------------------------------------------------------------------------------------------------------- rates


async def test_a_lane_has_no_rate_unless_somebody_gave_it_one(stage: Stage) -> None:
    assert await stage.store.lane_rates() == {}


async def test_the_rate_of_a_lane_is_what_its_gate_says_and_can_change(stage: Stage) -> None:
    store: Any = stage.store

    async def give(name: str, every: int | None) -> None:
        gate = (name, None, every, None, None, "test", START, "")
        await store.write(lambda tx: tx.run_each("put_gate", [gate]))

    await give("lane:catch-up", 2 * MILLISECOND)
    await give("lane:catch-up/job:job", SECOND)  # a limit of one job is no rate of the lane
    assert await store.lane_rates() == {Lane.CATCH_UP: 500.0}
    await give("lane:catch-up", None)
    await give("lane:backfill", 20 * SECOND)
    assert await store.lane_rates() == {Lane.BACKFILL: 0.05}


async def test_a_concurrency_of_a_lane_holds_what_is_in_it_and_nothing_else(stage: Stage) -> None:
    await stage.store.set_limit(Gate("lane:catch-up", most=2, every=SECOND), actor="ana")
    times = [START] * 3 + [START - HOUR] * 5
    await stage.store.promise([Promise("job", b"", time) for time in times])
    fired = await stage.fire()
    assert (fired.handed_off, fired.held) == (5, 3)
    claimed = await stage.claim()
    assert [run.lane for run in claimed] == [Lane.LIVE] * 3 + [Lane.CATCH_UP] * 2
    await stage.finish(*map(stage.succeeded, claimed[-2:]))
    await stage.fire()
    again = await stage.claim()
    assert [run.lane for run in again] == [Lane.CATCH_UP] * 2
    [view] = await stage.store.limits()
    assert (view.gate.name, view.used, view.waiting) == ("lane:catch-up", 2, 1)
    await stage.store.drop_limit("lane:catch-up", actor="ana", note="")
    await stage.fire()
    assert len(await stage.claim()) == 1


# --------------------------------------------------------------------------------------------------------------- claims


async def handed_off(stage: Stage, live: int, late: int) -> None:
    times = [START] * live + [START - HOUR] * late
    await stage.store.promise([Promise("job", b"", time) for time in times])
    await stage.fire()


async def lanes(stage: Stage, limit: int, backlog: int | None) -> list[Lane]:
    claimed = await stage.store.claim(await stage.worker(), ["default"], ["job"], limit, True, backlog)
    return [Lane(run.lane) for run in claimed]


LIVE, CATCH_UP = Lane.LIVE, Lane.CATCH_UP


@pytest.mark.parametrize(
    ("live", "late", "limit", "backlog", "expected"),
    [
        (2, 5, 10, None, [LIVE] * 2 + [CATCH_UP] * 5),
        (2, 5, 10, 3, [LIVE] * 2 + [CATCH_UP] * 3),
        (2, 5, 10, 0, [LIVE] * 2),
        (2, 5, 4, 3, [LIVE] * 2 + [CATCH_UP] * 2),
        (5, 2, 4, 1, [LIVE] * 4),
        (0, 5, 10, 2, [CATCH_UP] * 2),
        (0, 5, 10, 0, []),
        (0, 0, 10, 2, []),
    ],
)
async def test_of_the_backlog_no_more_is_claimed_than_was_asked_for(
    stage: Stage, live: int, late: int, limit: int, backlog: int | None, expected: list[Lane]
) -> None:
    await handed_off(stage, live, late)
    assert await lanes(stage, limit, backlog) == expected


async def test_what_a_claim_leaves_of_the_backlog_is_there_for_the_next(stage: Stage) -> None:
    await handed_off(stage, 1, 5)
    assert await lanes(stage, 10, 2) == [LIVE, CATCH_UP, CATCH_UP]
    assert await lanes(stage, 10, 0) == []
    assert await lanes(stage, 10, 2) == [CATCH_UP, CATCH_UP]
    assert await lanes(stage, 10, None) == [CATCH_UP]


async def test_the_backlog_of_several_chunks_counts_together(stage: Stage) -> None:
    for _ in range(3):
        await handed_off(stage, 0, 2)
    await handed_off(stage, 1, 0)
    assert await lanes(stage, 10, 3) == [LIVE, CATCH_UP, CATCH_UP, CATCH_UP]
    assert await lanes(stage, 10, 10) == [CATCH_UP] * 3


async def test_a_tick_with_the_decision_later_is_left_as_it_was(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    [before] = await stage.waiting("hourly")
    fired = await stage.fire(lambda fact: TickDecision(fact.number, "later"))
    assert (fired.handed_off, fired.created, list(fired.paced)) == (0, 0, [(START, before.number)])
    assert await stage.waiting("hourly") == [before]
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [before.id]
