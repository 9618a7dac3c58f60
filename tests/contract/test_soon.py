"""fire: what is due soon may be handed off before its time, and nothing is different for it but when that was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from foliot.domain.fairness import LIGHT
from foliot.domain.gates import Gate
from foliot.domain.instant import MILLISECOND, SECOND, Instant
from foliot.domain.policy import Overlap, Policy
from foliot.domain.run import Claimed, Kept, OnConflict, Promise
from foliot.domain.state import Reason, State
from foliot.domain.store import Fired, Lease
from foliot.store.postgres import PostgresStore
from tests.contract.stage import START, TTL, Entry, Stage, deciding, declared, fires
from tests.contract.test_pausing import pause
from tests.contract.test_slots import keyed

SOON = 30 * MILLISECOND


@dataclass
class Scheduler:
    """Offers what it has loaded before its time, and fires what the store leaves for it when it is due."""

    stage: Stage
    lease: Lease
    waiting: list[Entry]

    @classmethod
    async def starts(cls, stage: Stage) -> Scheduler:
        lease = await stage.lease()
        return cls(stage, lease, await stage.loaded(lease))

    async def offers(self) -> Fired:
        fired = await self.stage.store.fire([self.lease], [], self.lease.cursor, deciding(fires), self.waiting)
        gone = len(self.waiting) - fired.ahead - fired.stale
        self.waiting = [*fired.patient, *fired.again]
        assert len(self.waiting) == gone, "whatever was not handed off is told"
        return fired

    async def fires(self) -> Fired:
        due = [entry for entry in self.waiting if entry[0] <= self.stage.now]
        self.waiting = [entry for entry in self.waiting if entry not in due]
        return await self.stage.store.fire([self.lease], due, self.lease.cursor, deciding(fires))

    async def hears(self) -> None:
        arrivals = await self.stage.store.arrivals([self.lease], self.lease.cursor)
        self.waiting += zip(arrivals.fire_at, arrivals.number, strict=True)
        self.lease = self.lease._replace(cursor=arrivals.cursor)

    async def claimed_at(self, moment: Instant) -> list[Claimed]:
        """What a worker gets then."""
        self.stage.clock.advance(moment - self.stage.now)
        await self.fires()
        return await self.stage.claim()


async def offered(stage: Stage, *, key: str | None = None, after: int = SOON, **more: Any) -> tuple[Scheduler, Kept]:
    kept = await stage.promise(key, after=after, **more)
    scheduler = await Scheduler.starts(stage)
    await scheduler.offers()
    return scheduler, kept


async def test_nothing_begins_before_its_time_however_early_it_was_handed_off(stage: Stage) -> None:
    scheduler, kept = await offered(stage)
    assert await scheduler.claimed_at(START) == []
    assert await scheduler.claimed_at(START + SOON - 1) == []
    [run] = await scheduler.claimed_at(START + SOON)
    assert run.id == kept.id
    await stage.finish(stage.succeeded(run))
    view = await stage.run(kept)
    assert view.fired_at is not None
    assert view.claimed_at is not None
    assert view.fire_at == START + SOON <= view.fired_at <= view.claimed_at


async def test_a_clock_that_is_set_back_meanwhile_is_waited_for(stage: Stage) -> None:
    scheduler, _ = await offered(stage)
    stage.clock.advance(-SECOND)
    assert await scheduler.claimed_at(START + SOON - 1) == []
    assert len(await scheduler.claimed_at(START + SOON)) == 1


async def test_until_then_it_is_scheduled_and_waits_for_nobody(stage: Stage) -> None:
    _, kept = await offered(stage)
    assert await stage.state(kept) is State.SCHEDULED
    assert await stage.store.queues_waiting() == []


async def test_what_is_not_due_soon_is_left_alone(stage: Stage) -> None:
    scheduler, kept = await offered(stage, after=SECOND)
    assert await scheduler.claimed_at(START + SECOND - 1) == []
    assert [entry[1] for entry in scheduler.waiting] == [kept.number]
    assert len(await scheduler.claimed_at(START + SECOND)) == 1


async def test_what_is_cancelled_meanwhile_does_not_run(stage: Stage) -> None:
    scheduler, kept = await offered(stage)
    await stage.store.cancel(kept.id, actor="test", note="")
    assert await scheduler.claimed_at(START + SOON) == []
    assert await stage.state(kept) is State.CANCELLED


@pytest.mark.parametrize("to", [START + SOON + 5 * MILLISECOND, START + SECOND])
async def test_what_is_moved_meanwhile_runs_once_at_its_new_time(stage: Stage, to: Instant) -> None:
    scheduler, kept = await offered(stage, key="class:7")
    await stage.store.move("class:7", None, to)
    assert await scheduler.claimed_at(START + SOON) == []
    await scheduler.hears()
    assert await scheduler.claimed_at(to - 1) == []
    assert [run.number for run in await scheduler.claimed_at(to)] == [kept.number]
    assert await scheduler.claimed_at(to + SECOND) == []


async def test_what_is_moved_to_an_earlier_time_meanwhile_runs_once(stage: Stage) -> None:
    scheduler, _ = await offered(stage, key="class:7")
    await stage.store.move("class:7", None, START + SOON // 2)
    await scheduler.hears()
    assert len(await scheduler.claimed_at(START + SOON // 2)) == 1
    assert await scheduler.claimed_at(START + SOON) == []


async def test_what_is_replaced_meanwhile_runs_as_it_was_replaced(stage: Stage) -> None:
    scheduler, kept = await offered(stage, key="class:7")
    await stage.promise("class:7", after=SOON, payload=b'{"new":1}', on_conflict=OnConflict.REPLACE)
    await scheduler.hears()
    [run] = await scheduler.claimed_at(START + SOON)
    assert (run.id, run.payload) == (kept.id, b'{"new":1}')


@pytest.mark.parametrize("name", ["job:job", "queue:default", "tenant:acme"])
async def test_what_is_paused_meanwhile_is_held(stage: Stage, name: str) -> None:
    scheduler, kept = await offered(stage, tenant="acme")
    await pause(stage, name)
    assert await scheduler.claimed_at(START + SOON) == []
    await scheduler.hears()
    assert await scheduler.claimed_at(START + SOON) == []
    assert ((await stage.run(kept)).state, (await stage.run(kept)).reason) == (State.HELD, Reason.PAUSED)


async def test_a_tick_is_decided_upon_at_its_time(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + SOON, policy=Policy(overlap=Overlap.SKIP)))
    scheduler = await Scheduler.starts(stage)
    assert (await scheduler.offers()).ahead == 0
    assert [run.state for run in await stage.waiting("hourly")] == [State.SCHEDULED]
    assert len(await scheduler.claimed_at(START + SOON)) == 1


async def test_a_run_that_needs_a_key_takes_it_at_its_time(stage: Stage) -> None:
    first = await stage.promise(after=SOON, options=keyed())
    second = await stage.promise(after=SOON + 1, options=keyed())
    scheduler = await Scheduler.starts(stage)
    assert (await scheduler.offers()).ahead == 0
    assert [run.id for run in await scheduler.claimed_at(START + SOON + 1)] == [first.id]
    assert await stage.state(second) is State.HELD


async def test_a_run_of_a_limited_job_asks_at_its_time(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="test")
    for _ in range(2):
        await stage.promise(after=SOON)
    scheduler = await Scheduler.starts(stage)
    assert (await scheduler.offers()).ahead == 0
    assert len(await scheduler.claimed_at(START + SOON)) == 1


async def used(stage: Stage) -> dict[str, int]:
    return {view.gate.name: view.used for view in await stage.store.limits() if view.used}


def ahead(stage: Stage, count: int) -> int:
    """How many of these the store hands off before their time: SQLite does that with no run."""
    return count if isinstance(stage.store, PostgresStore) else 0


async def test_runs_go_before_their_time_while_half_of_their_limit_is_free(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=6), actor="test")
    for _ in range(2):
        await stage.promise(after=SOON, options=keyed(key_limit=4))
    scheduler = await Scheduler.starts(stage)
    assert (await scheduler.offers()).ahead == ahead(stage, 2)
    claimed = await scheduler.claimed_at(START + SOON)
    assert len(claimed) == 2
    assert await used(stage) == {"job:job": 2, "key:account:7": 2}
    await stage.finish(*map(stage.succeeded, claimed))
    assert await used(stage) == {}


@pytest.mark.parametrize("more", [{}, {"options": keyed(key_limit=4)}])
async def test_the_other_half_is_for_runs_that_are_due(stage: Stage, more: dict[str, Any]) -> None:
    if not more:
        await stage.store.set_limit(Gate("job:job", most=4), actor="test")
    for _ in range(3):
        await stage.promise(after=SOON, **more)
    scheduler = await Scheduler.starts(stage)
    assert (await scheduler.offers()).ahead == 0
    assert await used(stage) == {}
    assert len(await scheduler.claimed_at(START + SOON)) == 3


@pytest.mark.parametrize("stop", ["cancel", "move", "replace"])
async def test_a_run_that_does_not_start_then_frees_the_slots_that_it_took_before(stage: Stage, stop: str) -> None:
    await stage.store.set_limit(Gate("job:job", most=4), actor="test")
    scheduler, kept = await offered(stage, key="class:7", options=keyed(key_limit=2))
    assert await used(stage) == ({"job:job": 1, "key:account:7": 1} if ahead(stage, 1) else {})
    if stop == "cancel":
        await stage.store.cancel(kept.id, actor="test", note="")
    elif stop == "move":
        await stage.store.move("class:7", None, START + SECOND)
    else:
        await stage.promise("class:7", after=SECOND, on_conflict=OnConflict.REPLACE)
    assert await used(stage) == {}
    assert await scheduler.claimed_at(START + SOON) == []


async def test_starts_by_a_rate_go_before_their_time_and_count_at_it(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", every=MILLISECOND), actor="test")  # five at once
    for _ in range(3):
        await stage.promise(after=SOON)
    scheduler = await Scheduler.starts(stage)
    assert (await scheduler.offers()).ahead == ahead(stage, 3)
    for _ in range(5):
        await stage.promise(after=0)
    await scheduler.hears()
    assert len(await scheduler.claimed_at(START)) == 5, "these starts are long over at the other ones' time"
    for _ in range(5):
        await stage.promise(after=SOON - 1)
    await scheduler.hears()
    started = await scheduler.claimed_at(START + SOON - 1)
    started += await scheduler.claimed_at(START + SOON)
    assert 3 <= len(started) <= 5


@pytest.mark.parametrize(
    ("every", "moments"), [(5 * MILLISECOND, [SOON]), (MILLISECOND, [SOON, SOON + 1]), (MILLISECOND, [SOON] * 6)]
)
async def test_starts_that_a_rate_would_spread_wait_for_their_time(
    stage: Stage, every: int, moments: list[Instant]
) -> None:
    await stage.store.set_limit(Gate("job:job", every=every), actor="test")
    for moment in moments:
        await stage.promise(after=moment)
    scheduler = await Scheduler.starts(stage)
    assert (await scheduler.offers()).ahead == 0


async def test_no_start_goes_before_one_that_waits_for_its_time_by_the_rate(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", every=MILLISECOND), actor="test")
    for _ in range(6):
        await stage.promise()
    await stage.promise(after=SOON)
    scheduler = await Scheduler.starts(stage)
    assert len(await scheduler.claimed_at(START)) == 5
    assert (await scheduler.offers()).ahead == 0


async def timed(stage: Stage, **more: Any) -> Scheduler:
    """Five runs started, and one waits for its time by the rate, which is 5 ms later at most."""
    await stage.store.set_limit(Gate("job:job", every=MILLISECOND), actor="test")
    for place in range(6):
        await stage.promise(**{name: value(place) for name, value in more.items()})
    scheduler = await Scheduler.starts(stage)
    assert len(await scheduler.claimed_at(START)) == 5
    await scheduler.hears()
    return scheduler


async def test_a_run_that_has_its_time_by_a_rate_is_handed_off_before_it(stage: Stage) -> None:
    scheduler = await timed(stage)
    [(at, _)] = scheduler.waiting
    assert START < at <= START + 5 * MILLISECOND
    assert (await scheduler.offers()).ahead == ahead(stage, 1)
    assert await scheduler.claimed_at(at - 1) == []
    [run] = await scheduler.claimed_at(at)
    assert await used(stage) == {}
    view = await stage.run(run)
    assert (view.state, view.detail) == (State.RUNNING, None)


async def test_a_run_that_also_needs_a_key_takes_it_at_its_time_by_the_rate(stage: Stage) -> None:
    scheduler = await timed(stage, options=lambda place: keyed(f"account:{place}"))
    assert (await scheduler.offers()).ahead == 0
    assert len(await scheduler.claimed_at(START + 5 * MILLISECOND)) == 1
    assert await used(stage) == {f"key:account:{place}": 1 for place in range(6)}


async def test_a_run_that_has_its_time_is_stopped_before_it(stage: Stage) -> None:
    scheduler = await timed(stage)
    await scheduler.offers()
    [waiting] = [run for run in await stage.store.runs() if run.state is not State.RUNNING]
    await stage.store.cancel(waiting.id, actor="test", note="")
    assert await scheduler.claimed_at(START + SOON) == []
    assert await used(stage) == {}


async def test_whoever_takes_over_finds_what_was_handed_off_and_it_runs_once(stage: Stage) -> None:
    before, kept = await offered(stage)
    other = await stage.register("scheduler")
    await stage.store.release([before.lease])
    lease = await stage.store.take(0, other, TTL)
    assert lease is not None
    [lease] = await stage.store.renew([lease], TTL, START + SECOND)
    after = Scheduler(stage, lease, await stage.loaded(lease))
    assert bool(after.waiting) == bool(before.waiting), "what is in a chunk is not loaded"
    assert await after.claimed_at(START + SOON - 1) == []
    claimed = await after.claimed_at(START + SOON)
    assert [run.id for run in claimed] == [kept.id]
    assert await after.claimed_at(START + SECOND) == []


async def test_all_of_it_is_taken_and_in_the_order_of_lanes_and_priorities(stage: Stage) -> None:
    promised = [await stage.promise(after=SOON - place, priority=place) for place in range(3)]
    scheduler = await Scheduler.starts(stage)
    await scheduler.offers()
    claimed = await scheduler.claimed_at(START + SOON)
    assert [run.id for run in claimed] == [kept.id for kept in reversed(promised)]


async def test_a_tenant_that_floods_waits_for_others_also_with_what_is_to_come(stage: Stage) -> None:
    """Each batch goes on where the last one ended: else whoever comes in many of them would never be put off."""
    lease = await stage.lease()
    for _ in range(4):
        flood = [Promise("job", b"{}", stage.now + SOON, tenant="flood") for _ in range(100)]
        kept = await stage.store.promise(flood)
        soon = [(one.fire_at, one.number) for one in kept]
        fired = await stage.store.fire([lease], [], lease.cursor, deciding(fires), soon)
        if not fired.ahead:
            return  # such a store has nothing to come
    light = await stage.promise(after=SOON, tenant="light")
    await stage.store.fire([lease], [], lease.cursor, deciding(fires), [(light.fire_at, light.number)])
    stage.clock.advance(SOON)
    claimed = [run.tenant for run in await stage.claim(1_000)]
    assert len(claimed) == 401
    assert claimed.index("light") <= 2 * LIGHT
