"""open, close, now, version: the store's own life, and that callers do not harm one another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import DAY, HOUR
from foliot.domain.run import Promise
from foliot.domain.state import State
from foliot.domain.store import Store
from foliot.errors import Conflict, StoreClosed
from tests.contract.engines import Engine, all_sent, listening
from tests.contract.stage import START, Stage
from tests.waiting import until_async

VERBS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "promise": lambda store: store.promise([]),
    "apply": lambda store: store.apply([], prune=False, actor="test"),
    "take": lambda store: store.take(0, 1, 1),
    "claim": lambda store: store.claim(1, [], [], 1),
    "beat": lambda store: store.beat(1, []),
    "silent": lambda store: store.silent(0),
    "runs": lambda store: store.runs(),
    "run": lambda store: store.run("a#1"),
    "schedules": lambda store: store.schedules(),
    "counts": lambda store: store.counts(),
    "health": lambda store: store.health(),
}


async def test_now_is_the_stores_clock(stage: Stage) -> None:
    assert await stage.store.now() == START
    stage.clock.advance(DAY)
    assert await stage.store.now() == START + DAY


@pytest.mark.parametrize("verb", VERBS)
async def test_a_closed_store_says_so(stage: Stage, verb: str) -> None:
    await stage.store.close()
    with pytest.raises(StoreClosed):
        await VERBS[verb](stage.store)


async def test_a_closed_store_has_no_version(stage: Stage) -> None:
    await stage.store.close()
    with pytest.raises(StoreClosed):
        stage.store.version()


@pytest.mark.parametrize("verb", VERBS)
async def test_a_store_that_was_never_opened_says_so_too(
    engine: Engine, folder: Path, clock: ManualClock, request: pytest.FixtureRequest, verb: str
) -> None:
    with pytest.raises(StoreClosed):
        await VERBS[verb](engine.make(request, folder, clock))


async def test_closing_twice_is_closing_once(stage: Stage) -> None:
    await stage.store.close()
    await stage.store.close()


async def test_closing_finishes_what_was_begun(stage: Stage) -> None:
    waiting = [asyncio.create_task(stage.promise(f"k{place}")) for place in range(50)]
    await asyncio.sleep(0)
    await stage.store.close()
    assert [kept.outcome for kept in await asyncio.gather(*waiting)] == ["made"] * 50


async def test_the_version_soon_differs_after_something_became_due_and_after_it_was_handed_off(stage: Stage) -> None:
    """A hint may travel; what it tells of is there already."""

    async def differs_after(change: Awaitable[object]) -> None:
        seen = stage.store.version()
        await change
        await until_async(lambda: stage.store.version() != seen, "the version differs")
        await all_sent(stage.store)

    await stage.promise("class:7", after=HOUR)
    await all_sent(stage.store)
    await stage.scheduler()
    await listening(stage.store)
    await differs_after(stage.promise())
    await differs_after(stage.store.move("class:7", None, START))
    await differs_after(stage.promise("class:8"))
    await stage.worker()
    await listening(stage.store)
    await differs_after(stage.fire())


async def test_many_callers_at_once_get_each_their_own_answer(stage: Stage) -> None:
    kept = await asyncio.gather(*(stage.promise(f"k{place}", payload=b"%d" % place) for place in range(300)))
    assert [one.id for one in kept] == [f"k{place}#1" for place in range(300)]
    assert (await stage.store.counts())["scheduled"] == 300


async def test_a_caller_that_is_refused_does_not_harm_those_beside_it(stage: Stage) -> None:
    await stage.promise("taken")
    wanted = [f"k{place}" if place % 5 else "taken" for place in range(50)]
    answers = await asyncio.gather(
        *(
            stage.store.promise([Promise("job", b"", START), Promise("job", b"", START, key=key, on_conflict="error")])  # type: ignore[arg-type]
            for key in wanted
        ),
        return_exceptions=True,
    )
    assert [isinstance(answer, Conflict) for answer in answers] == [key == "taken" for key in wanted]
    assert len(await stage.store.runs(limit=1_000)) == 1 + 2 * 40


async def test_a_caller_that_gives_up_waiting_does_not_harm_those_beside_it(stage: Stage) -> None:
    tasks = [asyncio.create_task(stage.promise(f"k{place}")) for place in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(answer, BaseException) for answer in answers) <= 1
    assert {run.name for run in await stage.store.runs()} >= {f"k{place}#1" for place in range(10) if place != 3}


async def test_workers_that_claim_at_once_share_the_work(stage: Stage) -> None:
    await stage.store.promise([Promise("job", b"", START) for _ in range(100)])
    await stage.fire()
    workers = [await stage.register() for _ in range(5)]
    claims = await asyncio.gather(*(stage.claim(20, worker=worker) for worker in workers * 2))
    numbers = [run.number for claim in claims for run in claim]
    assert len(numbers) == len(set(numbers)) == 100
    assert len(await stage.store.runs(states=[State.RUNNING], limit=200)) == 100


async def test_schedulers_that_ask_at_once_get_one_owner(stage: Stage) -> None:
    owners = [await stage.register("scheduler") for _ in range(5)]
    leases = await asyncio.gather(*(stage.store.take(0, owner, DAY) for owner in owners))
    assert sum(lease is not None for lease in leases) == 1
