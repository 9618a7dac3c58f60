"""Later live runs are claimed before a backlog and before a burst, however late these are: counted, in virtual time."""

from __future__ import annotations

from foliot import every
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.gates import Gate
from foliot.domain.instant import HOUR, MINUTE, SECOND, Duration
from foliot.domain.lanes import HANDOVER
from foliot.domain.policy import Overlap, Policy
from foliot.domain.run import LATE, Claimed, Lane, Promise
from tests.contract.stage import TTL, Stage, declared

MANY = 90
AT_ONCE = 10
"""Runs that one claim takes, of which the worker leaves a few for the lane live."""
UNRESERVED = 7
HOURLY = every("1h").encode()


class Scheduler:
    """A dispatcher on a store of the contract. More than 40 live runs that are due at once are a burst here."""

    def __init__(self, stage: Stage, owner: int, burst: int = 40) -> None:
        self.stage = stage
        self.dispatcher = Dispatcher(stage.store, stage.clock, owner=owner, lease_ttl=TTL, batch=20, burst=burst)

    @classmethod
    async def started(cls, stage: Stage, burst: int = 40) -> Scheduler:
        scheduler = cls(stage, await stage.register("scheduler"), burst)
        await scheduler.fire()
        return scheduler

    async def fire(self) -> None:
        """Everything that is due is handed off."""
        for _ in range(200):
            if await self.dispatcher.run_once() > self.stage.now:
                return
        raise AssertionError("the dispatcher never comes to rest")

    async def fire_after(self, length: Duration) -> None:
        """The same that much later; the lease is renewed until then."""
        for _ in range(length // SECOND):
            self.stage.clock.advance(SECOND)
            await self.fire()
        self.stage.clock.advance(length % SECOND)
        await self.fire()


async def promise_many(stage: Stage, due_in: Duration, count: int = MANY) -> None:
    await stage.store.promise([Promise("job", b"{}", stage.now + due_in) for _ in range(count)])


async def apply_many(stage: Stage, due_in: Duration, count: int = MANY, missed_after: Duration = MINUTE) -> None:
    policy = Policy(overlap=Overlap.ALLOW, missed_after=missed_after)
    first = stage.now + due_in
    await stage.apply(*(declared(f"tick{n}", first, rule=HOURLY, policy=policy) for n in range(count)))


async def claimed(stage: Stage) -> list[Claimed]:
    """All that is handed off, in the order in which a worker claims it."""
    found: list[Claimed] = []
    while runs := await stage.store.claim(
        await stage.worker(), ["default"], ["job"], AT_ONCE, True, UNRESERVED if not found else None
    ):
        found += runs
    return found


async def before(stage: Stage, live: str) -> int:
    """How many runs are claimed before this one, in a worker that keeps its share of slots for live runs."""
    return [run.id for run in await claimed(stage)].index(live)


async def lanes(stage: Stage) -> dict[Lane, int]:
    runs = [Lane(run.lane) for run in await claimed(stage)]
    return {lane: runs.count(lane) for lane in Lane if lane in runs}


# -------------------------------------------------------------------------------------------------------------- backlog


async def test_a_later_live_run_is_claimed_before_promises_that_were_due_before_the_scheduler_started(
    stage: Stage,
) -> None:
    await promise_many(stage, -17 * SECOND)
    scheduler = await Scheduler.started(stage)
    live = await stage.promise(after=SECOND)
    await scheduler.fire_after(SECOND)
    assert await before(stage, live.id) == 0


async def test_a_later_live_run_is_claimed_before_ticks_that_were_due_before_the_scheduler_started(
    stage: Stage,
) -> None:
    await apply_many(stage, -17 * SECOND)
    scheduler = await Scheduler.started(stage)
    live = await stage.promise(after=SECOND)
    await scheduler.fire_after(SECOND)
    assert await before(stage, live.id) == 0


async def test_a_later_live_tick_is_claimed_before_promises_that_were_due_before_the_scheduler_started(
    stage: Stage,
) -> None:
    await promise_many(stage, -17 * SECOND)
    await stage.apply(declared("live", stage.now + SECOND, rule=HOURLY))
    scheduler = await Scheduler.started(stage)
    await scheduler.fire_after(SECOND)
    runs = await claimed(stage)
    assert [run.schedule for run in runs].index("live") == 0


async def test_a_scheduler_that_takes_over_leaves_live_runs_before_what_was_due_meanwhile(stage: Stage) -> None:
    first = await Scheduler.started(stage)
    await promise_many(stage, SECOND)
    await first.fire_after(0)
    stage.clock.advance(18 * SECOND)  # the first one does nothing any more
    second = await Scheduler.started(stage)
    live = await stage.promise(after=SECOND)
    await second.fire_after(SECOND)
    assert await before(stage, live.id) == 0
    await first.fire()
    assert await claimed(stage) == []


async def test_what_was_due_just_before_a_takeover_stays_live_and_keeps_its_order(stage: Stage) -> None:
    await promise_many(stage, -HANDOVER, count=30)
    await apply_many(stage, -HANDOVER, count=5)
    scheduler = await Scheduler.started(stage)
    live = await stage.promise()
    await scheduler.fire_after(SECOND)
    runs = await claimed(stage)
    assert ({run.lane for run in runs}, runs[-1].id) == ({Lane.LIVE}, live.id)


async def test_a_tick_that_its_policy_does_not_call_missed_is_backlog_like_a_promise_of_that_age(stage: Stage) -> None:
    await apply_many(stage, -17 * MINUTE, count=3, missed_after=HOUR)
    await promise_many(stage, -17 * MINUTE, count=3)
    await Scheduler.started(stage)
    runs = await claimed(stage)
    assert [(run.lane, run.fire_at) for run in runs] == [(Lane.CATCH_UP, stage.now - 17 * MINUTE)] * 6


async def test_promises_and_ticks_that_grow_late_while_the_scheduler_runs_are_backlog_too(stage: Stage) -> None:
    scheduler = await Scheduler.started(stage)
    await promise_many(stage, SECOND, count=3)
    await apply_many(stage, SECOND, count=3)
    await scheduler.fire_after(0)
    stage.clock.advance(LATE + 2 * SECOND)
    await scheduler.fire()
    assert await lanes(stage) == {Lane.CATCH_UP: 6}


# ---------------------------------------------------------------------------------------------------------------- burst


async def test_a_later_live_run_is_claimed_before_a_burst_of_promises(stage: Stage) -> None:
    scheduler = await Scheduler.started(stage)
    await promise_many(stage, SECOND)
    live = await stage.promise(after=SECOND + 1)
    await scheduler.fire_after(SECOND)
    await scheduler.fire_after(1)
    assert await before(stage, live.id) == 0


async def test_a_later_live_run_is_claimed_before_a_burst_of_ticks(stage: Stage) -> None:
    scheduler = await Scheduler.started(stage)
    await apply_many(stage, SECOND)
    live = await stage.promise(after=SECOND + 1)
    await scheduler.fire_after(SECOND)
    await scheduler.fire_after(1)
    assert await before(stage, live.id) == 0


async def test_a_live_run_that_falls_due_just_after_a_burst_is_not_of_it_when_both_are_due(stage: Stage) -> None:
    scheduler = await Scheduler.started(stage)
    await promise_many(stage, SECOND)
    live = await stage.promise(after=SECOND + 1)
    await scheduler.fire_after(0)
    stage.clock.advance(SECOND + 1)
    await scheduler.fire()
    assert await before(stage, live.id) == 0


async def test_a_burst_is_all_in_one_lane_and_as_many_as_are_allowed_are_live(stage: Stage) -> None:
    scheduler = await Scheduler.started(stage)
    await promise_many(stage, SECOND, count=20)
    await apply_many(stage, SECOND, count=20)
    await scheduler.fire_after(SECOND)
    assert await lanes(stage) == {Lane.LIVE: 40}
    await promise_many(stage, SECOND, count=41)
    await scheduler.fire_after(SECOND)
    assert await lanes(stage) == {Lane.CATCH_UP: 41}


async def test_live_ticks_that_fall_due_while_a_burst_is_handed_off_are_live(stage: Stage) -> None:
    scheduler = await Scheduler.started(stage)
    await promise_many(stage, SECOND)
    await apply_many(stage, 2 * SECOND, count=30)
    await scheduler.fire_after(2 * SECOND)
    runs = await claimed(stage)
    assert {run.lane for run in runs[:30]} == {Lane.LIVE}
    assert {run.lane for run in runs[30:]} == {Lane.CATCH_UP}


async def test_a_burst_leaves_the_slots_that_are_reserved_for_live_runs(stage: Stage) -> None:
    scheduler = await Scheduler.started(stage)
    await promise_many(stage, SECOND)
    await scheduler.fire_after(SECOND)
    queues, jobs, worker = ["default"], ["job"], await stage.worker()
    assert len(await stage.store.claim(worker, queues, jobs, AT_ONCE, True, UNRESERVED)) == UNRESERVED
    live = await stage.promise(after=1)
    await scheduler.fire_after(SECOND)
    [run] = await stage.store.claim(worker, queues, jobs, AT_ONCE - UNRESERVED, True, 0)
    assert run.id == live.id


async def test_limits_of_catch_up_hold_a_backlog_and_no_burst(stage: Stage) -> None:
    await stage.store.set_limit(Gate("lane:catch-up", most=2, every=SECOND), actor="ana")
    scheduler = await Scheduler.started(stage)
    await promise_many(stage, SECOND)
    await scheduler.fire_after(SECOND)
    assert await lanes(stage) == {Lane.CATCH_UP: MANY}
    await apply_many(stage, SECOND)
    await scheduler.fire_after(SECOND)
    assert await lanes(stage) == {Lane.CATCH_UP: MANY}
    await scheduler.dispatcher.release()
    await promise_many(stage, -17 * SECOND)
    another = await Scheduler.started(stage)
    await another.fire_after(20 * SECOND)
    assert await lanes(stage) == {Lane.CATCH_UP: 2}
