"""Fair shares: tenants have their turns by weight, whoever floods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from foliot.domain.fairness import BAND, LIGHT, TenantView
from foliot.domain.gates import Gate
from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.run import Claimed, Lane, Promise
from foliot.domain.store import Lease
from tests.contract.stage import BEGINNING, START, Stage, deciding, declared, entries, fires


class Fleet:
    """One scheduler that goes on: what it fires, it fires in one process, with one memory."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.lease: Lease | None = None

    async def fire(self) -> None:
        """Everything that has come since the last time."""
        stage = self.stage
        if self.lease is None:
            self.lease = await stage.lease()
            due = await stage.loaded(self.lease, BEGINNING, 10_000)
        else:
            told = await stage.store.arrivals([self.lease], self.lease.cursor)
            due = entries(told)
            self.lease = self.lease._replace(cursor=told.cursor)
        for start in range(0, len(due), 500):
            await stage.store.fire([self.lease], sorted(due)[start : start + 500], self.lease.cursor, deciding(fires))


@pytest.fixture
def fleet(stage: Stage) -> Fleet:
    return Fleet(stage)


async def promise(stage: Stage, tenant: str | None, count: int, **more: object) -> None:
    wanted = [Promise("job", b"{}", stage.now, tenant=tenant, **more) for _ in range(count)]  # type: ignore[arg-type]
    await stage.store.promise(wanted)


def tenants(claimed: Sequence[Claimed]) -> Counter[str | None]:
    return Counter(run.tenant for run in claimed)


async def test_who_trickles_does_not_wait_for_who_floods(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 2_000)
    await fleet.fire()
    assert tenants(await stage.claim(500)) == {"flood": 500}
    await promise(stage, "trickle", 3)
    await fleet.fire()
    assert tenants(await stage.claim(3)) == {"trickle": 3}


async def test_runs_without_a_tenant_are_those_of_one(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, None, 1_000)
    await fleet.fire()
    await promise(stage, "acme", 3)
    await fleet.fire()
    assert tenants(await stage.claim(3)) == {"acme": 3}
    await promise(stage, None, 1_000)
    await fleet.fire()
    await promise(stage, "other", 3)
    await fleet.fire()
    assert tenants(await stage.claim(BAND + 3)) == {None: BAND, "other": 3}


async def test_two_who_flood_share(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "first", 1_000)
    await fleet.fire()
    await promise(stage, "second", 1_000)
    await fleet.fire()
    claimed = tenants(await stage.claim(1_000))
    assert abs(claimed["first"] - claimed["second"]) <= 2 * BAND


async def test_tenants_share_by_weight(stage: Stage, fleet: Fleet) -> None:
    await put_weight(stage, "large", 3.0)
    await promise(stage, "large", 1_500)
    await promise(stage, "small", 1_500)
    await fleet.fire()
    claimed = tenants(await stage.claim(1_200))
    assert abs(claimed["large"] - 900) <= 4 * BAND
    assert abs(claimed["small"] - 300) <= 4 * BAND


async def test_who_has_ten_times_longer_runs_has_a_tenth_of_the_starts(stage: Stage, fleet: Fleet) -> None:
    for tenant, took in (("long", 10 * SECOND), ("short", SECOND)):
        await promise(stage, tenant, 50)
        await fleet.fire()
        runs = await stage.claim(50)
        await stage.finish(*(stage.succeeded(run, finished_at=stage.now + took) for run in runs))
    stage.clock.advance(2 * SECOND)
    await promise(stage, "long", 500)
    await promise(stage, "short", 1_500)
    await fleet.fire()
    claimed = tenants(await stage.claim(1_100))
    assert claimed["short"] > 6 * claimed["long"] > 0


async def test_priority_comes_before_fairness(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 200, priority=1)
    await promise(stage, "trickle", 3)
    await fleet.fire()
    assert tenants(await stage.claim(200)) == {"flood": 200}


async def test_one_tenants_runs_keep_their_order(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 700)
    await promise(stage, "trickle", 3)
    await fleet.fire()
    runs = [run.number for run in await stage.claim(703) if run.tenant == "flood"]
    assert len(runs) == 700
    assert runs == sorted(runs)


async def test_the_rest_of_a_chunk_stays_where_it_was(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 300)
    await fleet.fire()
    await stage.claim(BAND + 10)
    await promise(stage, "trickle", 1)
    await fleet.fire()
    claimed = await stage.claim(11)
    assert claimed[0].tenant == "trickle"
    assert [run.number for run in claimed[1:]] == sorted(run.number for run in claimed[1:])


async def test_what_is_given_back_is_next(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 500)
    await fleet.fire()
    await stage.claim(200)
    given = await stage.claim(5)
    await stage.store.give_back(await stage.worker(), given)
    assert {run.number for run in await stage.claim(5)} == {run.number for run in given}


async def test_ticks_share_too(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 500)
    await fleet.fire()
    await stage.claim(200)
    await stage.apply(declared("nightly", START, tenant="acme"))
    await fleet.fire()
    [run] = await stage.claim(1)
    assert (run.schedule, run.tenant) == ("nightly", "acme")


async def test_a_run_of_a_job_that_nobody_knows_does_not_hold_the_line_up(stage: Stage, fleet: Fleet) -> None:
    await stage.promise(job="nobody's", tenant="odd")
    await fleet.fire()
    assert await stage.claim() == []
    await promise(stage, "flood", 1_000)
    await fleet.fire()
    await stage.claim(500)
    await promise(stage, "new", 2 * BAND)
    await fleet.fire()
    # It begins where the line stands, not where the one stands that nobody takes.
    assert tenants(await stage.claim(2 * BAND)) == {"new": BAND, "flood": BAND}


async def test_a_line_that_was_empty_begins_beside_the_others(stage: Stage, fleet: Fleet) -> None:
    both = ["default", "mail"]
    await promise(stage, "flood", 2_000)
    await fleet.fire()
    await stage.claim(1_000, queues=both)
    await promise(stage, "flood", 1_000, queue="mail")
    await fleet.fire()
    claimed = Counter(run.queue for run in await stage.claim(500, queues=both))
    assert claimed[None] >= 3 * BAND
    assert claimed["mail"] >= 3 * BAND


async def test_late_runs_of_tenants_share_in_their_lane(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 500)
    await promise(stage, "trickle", 2)
    stage.clock.advance(2 * MINUTE)
    await fleet.fire()
    await stage.claim(100)
    claimed = await stage.claim(200)
    assert {run.lane for run in claimed} == {Lane.CATCH_UP}
    await promise(stage, "flood", 500)
    await fleet.fire()
    assert {run.lane for run in await stage.claim(10)} == {Lane.LIVE}


async def test_it_is_told_who_waits(stage: Stage, fleet: Fleet) -> None:
    assert await stage.store.tenants_waiting(10) == []
    await promise(stage, "flood", 100)
    await fleet.fire()
    stage.clock.advance(SECOND)
    await promise(stage, "trickle", 3)
    await promise(stage, None, 2)
    await fleet.fire()
    await put_weight(stage, "flood", 2.0)
    claimed = tenants(await stage.claim(20))
    told = {view.tenant: view for view in await stage.store.tenants_waiting(10)}
    assert {tenant: view.running for tenant, view in told.items() if view.running} == claimed
    assert told["flood"] == TenantView("flood", 100 - claimed["flood"], claimed["flood"], START, 2.0)
    assert sum(view.waiting for view in told.values()) == 85
    assert [view.tenant for view in await stage.store.tenants_waiting(1)] == ["flood"]


async def test_another_scheduler_goes_on_where_the_line_stands(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 1_000)
    await fleet.fire()
    await stage.claim(500)
    await stage.store.release([fleet.lease] if fleet.lease else [])
    store = stage.store.again()
    if store is None:
        pytest.skip("a store in memory is one process's")
    await store.open()
    try:
        another = Fleet(Stage(store, stage.clock))
        await promise(stage, "trickle", 2)
        await another.fire()
    finally:
        await store.close()
    assert tenants(await stage.claim(2)) == {"trickle": 2}


# ------------------------------------------------------------------------------------- room for whoever has had less


async def claim(stage: Stage, limit: int, put_off: int | None) -> Counter[str | None]:
    return tenants(await stage.store.claim(await stage.worker(), ["default"], ["job"], limit, put_off=put_off))


@pytest.mark.parametrize(("put_off", "taken"), [(None, 100), (100, 100), (90, 90), (LIGHT + 1, LIGHT + 1), (0, LIGHT)])
async def test_who_has_had_its_share_leaves_the_rest_of_a_claim_to_others(
    stage: Stage, fleet: Fleet, put_off: int | None, taken: int
) -> None:
    await promise(stage, "flood", 1_000)
    await fleet.fire()
    assert await claim(stage, 100, put_off) == {"flood": taken}


async def test_what_is_left_by_who_has_had_its_share_is_there_for_others(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 1_000)
    await fleet.fire()
    assert await claim(stage, 100, 90) == {"flood": 90}
    assert await claim(stage, 10, 0) == {}
    await promise(stage, "trickle", 3)
    await promise(stage, "flood", 100)
    await fleet.fire()
    assert await claim(stage, 10, 0) == {"trickle": 3}
    assert await claim(stage, 7, 2) == {"flood": 2}


async def test_others_count_towards_what_is_taken_before_who_has_had_its_share(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 1_000)
    await fleet.fire()
    await claim(stage, 100, None)
    await promise(stage, "trickle", 3)
    await fleet.fire()
    taken = await claim(stage, 10, 5)  # an engine may take fewer than there are, and be asked again
    taken += await claim(stage, 10 - taken.total(), 5 - taken.total())
    assert taken == {"trickle": 3, "flood": 2}


async def test_behind_who_has_had_its_share_the_next_in_priority_is_found(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 1_000, priority=1)
    await fleet.fire()
    await claim(stage, 100, None)
    await promise(stage, "trickle", 3)
    await fleet.fire()
    assert await claim(stage, 10, 0) == {"trickle": 3}


async def test_a_store_without_tenants_leaves_nothing_to_anybody(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, None, 1_000)
    await fleet.fire()
    assert await claim(stage, 100, 0) == {None: 100}


async def test_what_is_given_back_has_not_had_its_share(stage: Stage, fleet: Fleet) -> None:
    await promise(stage, "flood", 500)
    await fleet.fire()
    given = await stage.claim(200)
    await stage.store.give_back(await stage.worker(), given[100:])
    assert await claim(stage, 200, 0) == {"flood": 100}


async def put_weight(stage: Stage, tenant: str, weight: float) -> None:
    await stage.store.set_limit(Gate(f"tenant:{tenant}", weight=weight), actor="tester")
