"""Standbys of a worker: which begins when a run ends, what the store is asked for, and which return to the waiters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foliot.domain.instant import HOUR, MILLISECOND, SECOND
from foliot.domain.policy import OnLost, Policy, choices, choices_to_json
from foliot.domain.run import Claimed
from foliot.domain.store import Beat, PassedSlot, Wish
from foliot.errors import StoreError
from foliot.work import standby
from foliot.work.context import Context
from tests.work.fakes import Bench, claimed, run, until

SLOT = "job:job"


class Scene:
    """A worker whose runs end when the test says so: each by its number."""

    def __init__(self, *, policy: Policy | None = None, **worker: Any) -> None:
        self.ends: dict[int, asyncio.Event] = {}
        self.begun: list[int] = []
        self.fails: set[int] = set()
        self.tells: set[int] = set()

        async def job(n: int) -> None:
            self.begun.append(n)
            await self.ends.setdefault(n, asyncio.Event()).wait()
            if n in self.fails:
                raise ValueError("no")

        async def telling(n: int, ctx: Context) -> None:
            self.begun.append(n)
            await self.ends.setdefault(n, asyncio.Event()).wait()
            if n in self.tells:
                _ = ctx.token

        telling.__name__ = "telling"
        given = {"slots": 10} | worker
        self.bench = Bench(job, telling, policy=policy or Policy(timeout=HOUR), **given)
        self.worker, self.store, self.clock = self.bench.worker, self.bench.store, self.bench.clock

    def run(self, n: int, **more: Any) -> Claimed:
        made = claimed(n, payload=b'{"n":%d}' % n, token=100 + n, slot=SLOT, **more)
        self.store.owned[n] = made
        return made

    async def has(self, *running: int, standbys: tuple[int, ...] = (), job: str = "job") -> None:
        await self.worker.start()
        self.worker.begin([self.run(n, job=job) for n in running])
        self.worker.begin([self.run(n, standby=True, job=job) for n in standbys])
        await until(lambda: len(self.begun) >= len(running))

    async def end(self, n: int, after: int = MILLISECOND) -> None:
        """This run ends. What it ends with is not recorded yet."""
        self.clock.advance(after)
        ended = self.worker.ended
        self.ends.setdefault(n, asyncio.Event()).set()
        await until(lambda: self.worker.ended > ended)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    @property
    def returned(self) -> list[int]:
        return [one.number for one in self.store.given_back]


def passed(holder: int, heir: int) -> PassedSlot:
    return PassedSlot(holder, 100 + holder, heir, 100 + heir)


def test_the_first_standby_begins_before_the_store_hears_of_the_ending():
    async def scene():
        on = Scene()
        await on.has(1, standbys=(2, 3))
        assert on.begun == [1]
        await on.end(1)
        assert (on.begun, on.store.finishes) == ([1, 2], [])
        await on.bench.work()
        assert on.store.offers[-1].passed == [passed(1, 2)]
        assert len(on.worker.running) == 1

    run(scene())


def test_a_slot_that_passed_on_again_before_the_store_heard_of_it_passes_to_the_last_run():
    async def scene():
        on = Scene()
        await on.has(1, standbys=(2, 3))
        await on.end(1)
        await on.end(2)
        await on.bench.work()
        assert (on.begun, on.store.offers[-1].passed, on.store.finishes) == ([1, 2, 3], [passed(1, 3)], [2])
        await on.end(3)
        await on.bench.work()
        assert on.store.offers[-1].passed == []

    run(scene())


def test_of_a_slot_whose_passing_may_not_be_recorded_the_store_hears_both_runs():
    async def scene():
        on = Scene()
        await on.has(1, standbys=(2, 3))
        on.store.failing["finish"] = StoreError("the connection was lost")
        await on.end(1)
        await on.bench.work()
        await on.end(2)
        on.store.failing.clear()
        for _ in range(3):  # the first batches after a failure are smaller
            await on.bench.advance(100 * MILLISECOND)
        assert on.store.offers[-2].passed == [passed(1, 3), passed(2, 3)]
        assert on.store.offers[-1].passed == []

    run(scene())


@pytest.mark.parametrize("why", ["it fails", "it has the token", "it is a retry with a context"])
def test_only_a_run_that_ends_by_its_recorded_success_passes_its_slot_on(why: str):
    async def scene():
        on = Scene()
        job = "job" if why == "it fails" else "telling"
        on.fails, on.tells = {1}, {1} if why == "it has the token" else set()
        await on.worker.start()
        on.worker.begin([on.run(1, job=job, attempt=2 if why == "it is a retry with a context" else 1)])
        on.worker.begin([on.run(2, standby=True, job=job)])
        await until(lambda: on.begun)
        await on.end(1)
        assert on.begun == [1]
        await on.bench.work()
        assert on.store.offers[-1].limit == 1  # the store decides which run gets the slot

    run(scene())


def test_a_handler_with_a_context_passes_its_slot_on_if_it_cannot_have_ended_its_run():
    async def scene():
        on = Scene()
        await on.has(1, standbys=(2,), job="telling")
        await on.end(1)
        assert on.begun == [1, 2]

    run(scene())


def test_the_store_passes_a_slot_to_a_run_that_fails_before_it_hears_of_it():
    async def scene():
        on = Scene()
        on.fails = {2}
        await on.has(1, standbys=(2,))
        await on.end(1)
        await on.end(2)  # its retry keeps its key
        await on.bench.work()
        assert on.store.offers[-1].passed == [passed(1, 2)]
        await on.bench.work()
        assert on.worker.standbys.passed() == []

    run(scene())


@pytest.mark.parametrize("options", [None, {"on_lost": "retry"}])
def test_a_job_whose_lost_runs_wait_for_a_person_has_no_standbys(options: dict[str, str] | None):
    async def scene():
        on = Scene(policy=Policy(timeout=HOUR, on_lost=OnLost.ASK))
        await on.worker.start()
        on.worker.begin([on.run(1, options=None if options is None else choices_to_json(choices(options)))])
        await until(lambda: on.begun)
        await on.end(1)
        await on.bench.work()
        assert on.store.offers == []

    run(scene())


def test_a_worker_asks_for_as_many_standbys_as_it_needs_in_a_short_time():
    async def scene(took: int, expected: int):
        on = Scene()
        await on.has(1, 2)
        await on.end(1, after=took)
        await on.bench.work()
        assert sum(one.most for one in on.store.offers[-1].standbys) == expected

    run(scene(standby.AHEAD // 10, 20))
    run(scene(1, standby.MOST))
    run(scene(standby.STAYS_FOR, 0))


def test_runs_that_the_store_claimed_with_the_endings_begin():
    async def scene():
        on = Scene()
        await on.has(1)
        on.store.passed_on = [on.run(2), on.run(3, standby=True)]
        await on.end(1)
        await on.bench.work()
        assert on.begun == [1, 2]
        await on.end(2)
        assert on.begun == [1, 2, 3]

    run(scene())


def test_a_slot_that_the_recording_may_fill_again_is_not_claimed_for_meanwhile():
    async def scene():
        on = Scene(slots=2)
        on.store.slow["finish"] = asyncio.Event()
        await on.has(1, 2)
        await on.end(1)
        await on.worker.run_once()
        await on.worker.run_once()
        assert on.store.claims == []
        on.store.passed_on = [on.run(3)]
        on.store.slow.pop("finish").set()
        await on.bench.work()
        assert len(on.worker.running) == 2
        await on.end(2)
        await on.bench.work()
        assert on.store.claims == [1]

    run(scene())


def test_standbys_that_do_not_begin_soon_return():
    async def scene():
        on = Scene()
        await on.has(1, standbys=(2, 3))
        assert on.worker.next_deadline() == on.clock.now() + standby.KEPT
        await on.bench.advance(standby.KEPT - 1)
        assert on.returned == []
        await on.bench.advance(1)
        assert on.returned == [2, 3]
        await on.end(1)
        assert on.begun == [1]

    run(scene())


@pytest.mark.parametrize("why", ["drain", "quarantine", "cancel"])
def test_standbys_return_when_they_cannot_begin_here(why: str):
    async def scene():
        on = Scene()
        await on.has(1, standbys=(2,))
        if why == "drain":
            on.ends[1].set()
            before = on.clock.now()
            assert await on.worker.drain(SECOND) == []
            assert on.clock.now() == before
        else:
            wish = Wish.QUARANTINE if why == "quarantine" else None
            on.worker.heard(on.worker.number, Beat(True, [2] if why == "cancel" else [], wish=wish))
            await on.bench.work()
        assert (on.returned, on.begun) == ([2], [1])

    run(scene())


def test_a_drain_returns_claims_whose_answer_was_lost():
    async def scene():
        on = Scene()
        await on.has(1)
        on.store.failing["finish"] = StoreError("the connection was lost")
        await on.end(1)
        await on.bench.work()
        on.store.failing.clear()
        on.store.passed_on = [on.run(2), on.run(3, standby=True)]  # the next answer has them
        on.clock.advance(SECOND)  # it tries again
        assert await on.worker.drain(SECOND) == []
        assert (on.begun, on.returned) == ([1], [2, 3])

    run(scene())


def test_standbys_of_a_worker_that_was_declared_dead_do_not_begin():
    async def scene():
        on = Scene()
        await on.has(1, standbys=(2,))
        on.worker.heard(on.worker.number, Beat(False, []))
        await on.bench.work()
        assert (on.returned, 2 in on.begun, bool(on.worker.standbys)) == ([], False, False)

    run(scene())


def test_slots_leave_a_worker_one_after_another_when_it_has_had_them_for_long():
    async def scene():
        on = Scene()
        await on.has(1, 2)
        on.clock.advance(standby.STAYS_FOR)
        on.worker.begin([on.run(n, standby=True) for n in (3, 4)])
        await on.end(1)
        assert on.begun == [1, 2], "all workers may claim for this slot"
        await on.end(2)
        assert on.begun == [1, 2, 3], "the next slot leaves later"
        await on.bench.work()
        assert on.store.offers[-1].limit == 0

    run(scene())


def test_a_thread_that_an_ending_freed_is_offered_again():
    def threaded(n: int) -> None:
        pass

    async def scene():
        bench = Bench(threaded, slots=10, threads=1)
        await bench.worker.start()
        bench.store.owned[1] = made = claimed(1, "threaded", b'{"n":1}', slot=SLOT)
        bench.worker.begin([made])
        await until(lambda: bench.worker.ended)
        await bench.work()
        assert (bench.store.offers[-1].jobs, bench.store.offers[-1].limit) == (("threaded",), 1)

    run(scene())


@pytest.mark.parametrize("threads", [2, 1])
def test_no_more_runs_are_claimed_for_freed_slots_than_have_a_thread(threads: int):
    ends = asyncio.Event()

    async def job() -> None:
        await ends.wait()

    def threaded() -> None:
        pass

    async def scene():
        bench = Bench(job, threaded, slots=10, threads=threads)
        await bench.worker.start()
        for n in (1, 2):
            bench.store.owned[n] = made = claimed(n, "job", slot=SLOT)
            bench.worker.begin([made])
        ends.set()
        await until(lambda: bench.worker.ended == 2)
        await bench.work()
        [offer] = bench.store.offers
        assert (offer.limit, "threaded" in offer.jobs) == (2, threads == 2)

    run(scene())


def test_the_slot_of_a_run_that_is_given_back_can_be_claimed_for():
    async def scene():
        on = Scene(slots=1)
        await on.worker.start()
        on.worker.begin([on.run(1, early=SECOND)])
        [attempt] = on.worker.running
        on.worker.give_back(attempt)
        await on.bench.work()
        on.store.hand_off("job", b'{"n":5}')
        await on.bench.work()
        assert on.begun == [5]

    run(scene())


def test_no_standby_of_a_process_that_stood_still_begins():
    async def scene():
        on = Scene()
        await on.has(1, 2, 3, standbys=(4, 5, 6))
        await on.end(1, after=HOUR)  # its lease has ended: other workers may have the runs
        await on.end(2)
        await on.end(3)
        assert on.begun == [1, 2, 3]
        await on.bench.work()
        assert on.returned == [4, 5, 6]

    run(scene())


@pytest.mark.parametrize("verb", ["claim", "finish"])
def test_claims_whose_answer_took_as_long_as_a_lease_are_returned(verb: str):
    async def scene():
        on = Scene()
        on.store.slow[verb] = asyncio.Event()
        await on.has(1)
        if verb == "claim":
            on.store.hand_off("job", b'{"n":2}')
        else:
            on.store.passed_on = [on.run(2), on.run(3, standby=True)]
            await on.end(1)
        looking = asyncio.create_task(on.worker.run_once())
        for _ in range(20):  # the store is asked
            await asyncio.sleep(0)
        on.clock.advance(HOUR)  # the process was stopped after the store had claimed
        on.store.slow.pop(verb).set()
        await looking
        await on.bench.work()
        assert (on.begun, len(on.store.given_back)) == ([1], 1 if verb == "claim" else 2)

    run(scene())


def test_slots_that_no_run_has_any_more_are_forgotten():
    async def scene():
        on = Scene()
        await on.worker.start()
        for n in range(1, 6):
            on.worker.begin([on.run(n)._replace(slot=f"key:{n}")])
            await asyncio.sleep(0)
            await on.end(n)
            await on.bench.work()
        assert on.worker.standbys._lines == {}

    run(scene())


def test_slots_that_the_store_fills_again_leave_a_worker_too():
    async def scene():
        on = Scene(slots=1)
        on.store.hand_off("telling", b'{"n":99}')
        await on.has(1)
        for n in range(2, 6):
            if 99 not in on.begun:
                on.store.passed_on = [on.run(n)]
                await on.end(n - 1, after=standby.STAYS_FOR * 9 // 10)
                await on.bench.work()
        assert 99 in on.begun

    run(scene())
