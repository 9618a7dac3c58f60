"""Labels: a run goes only to a worker that has all that it needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.run import Claimed, OnConflict
from foliot.domain.state import Event, Outcome, State
from foliot.domain.store import JobCard, check_of
from tests.contract.stage import START, Stage, declared

GPU = json.dumps({"labels": ["gpu"]}).encode()
BOTH = json.dumps({"labels": ["gpu", "region=eu"]}).encode()


async def claim(
    stage: Stage, *labels: str, limit: int = 10, jobs: tuple[str, ...] = ("job",), **more: Any
) -> list[str]:
    return [run.id for run in await claimed(stage, *labels, limit=limit, jobs=jobs, **more)]


async def claimed(stage: Stage, *labels: str, limit: int = 10, jobs: tuple[str, ...] = ("job",)) -> list[Claimed]:
    return await stage.store.claim(await stage.worker(), ["default"], jobs, limit, labels=labels)


async def register(stage: Stage, *labels: str, jobs: tuple[str, ...] = ("job",)) -> int:
    cards = [JobCard(name, b"{}", "default") for name in jobs]
    more: dict[str, Any] = {"version": "test", "queues": ["default"], "slots": 10, "jobs": cards}
    return (await stage.store.register("worker", labels=labels, **more)).number


async def test_a_run_waits_for_a_worker_that_has_its_label(stage: Stage) -> None:
    kept = await stage.promise(options=GPU)
    await stage.fire()
    assert await claim(stage) == []
    assert await claim(stage, "cpu", "region=eu") == []
    assert await claim(stage, "cpu", "gpu") == [kept.id]


async def test_it_needs_all_of_its_labels(stage: Stage) -> None:
    kept = await stage.promise(options=BOTH)
    await stage.fire()
    for some in (("gpu",), ("region=eu",), ("gpu", "region=us")):
        assert await claim(stage, *some) == []
    assert await claim(stage, "region=eu", "gpu") == [kept.id]


async def test_a_worker_with_labels_takes_runs_that_need_none_and_each_in_its_turn(stage: Stage) -> None:
    urgent = await stage.promise(options=GPU, priority=5)
    plain = await stage.promise()
    late = await stage.promise(options=GPU)
    await stage.fire()
    assert await claim(stage, "gpu", limit=1) == [urgent.id]
    found = [*await claim(stage, "gpu"), *await claim(stage, "gpu")]
    assert sorted(found) == sorted([plain.id, late.id])


async def test_what_nobody_can_take_does_not_keep_others_waiting(stage: Stage) -> None:
    for _ in range(200):
        await stage.promise(options=GPU, priority=5)
    plain = await stage.promise()
    await stage.fire()
    assert await claim(stage) == [plain.id]


async def test_labels_are_needed_beside_the_job(stage: Stage) -> None:
    kept = await stage.promise(job="strange", options=GPU)
    await stage.fire()
    assert await claim(stage, "gpu") == []
    assert await claim(stage, "gpu", jobs=("job", "strange")) == [kept.id]


async def test_ticks_need_the_labels_of_their_schedule(stage: Stage) -> None:
    await stage.apply(declared("hourly", START, options=GPU))
    await stage.fire()
    assert await claim(stage) == []
    [run] = await claimed(stage, "gpu")
    assert run.schedule == "hourly"


async def test_what_is_given_back_needs_its_labels_again(stage: Stage) -> None:
    kept = await stage.promise(options=GPU)
    await stage.fire()
    runs = await claimed(stage, "gpu")
    assert await stage.store.give_back(await stage.worker(), runs) == 1
    assert await claim(stage) == []
    assert await claim(stage, "gpu") == [kept.id]


async def test_so_does_what_is_tried_again(stage: Stage) -> None:
    kept = await stage.promise(options=GPU)
    await stage.fire()
    [run] = await claimed(stage, "gpu")
    await stage.finish(stage.failed(run, retry_in=SECOND))
    stage.clock.advance(2 * SECOND)
    await stage.fire()
    assert await claim(stage) == []
    assert await claim(stage, "gpu") == [kept.id]


async def test_so_does_its_check(stage: Stage) -> None:
    kept = await stage.promise(options=GPU)
    await stage.fire()
    [run] = await claimed(stage, "gpu")
    await stage.finish(stage.ending(run, Event.CHECK_DUE, Outcome.SUCCEEDED))
    jobs = ("job", check_of("job"))
    assert await claim(stage, jobs=jobs) == []
    assert await claim(stage, "gpu") == [], "without the check"
    [check] = await claimed(stage, "gpu", jobs=jobs)
    assert (check.id, check.phase) == (kept.id, 1)
    await stage.store.give_back(await stage.worker(), [check])
    assert await claim(stage, jobs=jobs) == []
    assert await claim(stage, "gpu", jobs=jobs) == [kept.id]


async def test_a_run_that_is_too_late_ends_when_one_comes_that_has_the_label(stage: Stage) -> None:
    kept = await stage.promise(options=GPU, useful_until=START + SECOND)
    await stage.fire()
    stage.clock.advance(MINUTE)
    assert await claim(stage, "gpu") == []
    assert (await stage.store.run(kept.id)).state is State.SKIPPED


async def test_a_run_that_was_replaced_after_it_was_handed_off_can_be_given_back_for_its_labels(stage: Stage) -> None:
    await stage.promise("class:7")
    await stage.fire()
    await stage.promise("class:7", options=GPU, on_conflict=OnConflict.REPLACE)
    for _ in range(2):
        await stage.fire()
        runs = await claimed(stage)  # what was handed off before still names it; a worker looks at what it got
        assert {run.options for run in runs} <= {GPU}
        await stage.store.give_back(await stage.worker(), runs)
    assert await claim(stage) == []
    assert await claim(stage, "gpu") == ["class:7#1"]


async def test_options_that_cannot_be_read_need_nothing(stage: Stage) -> None:
    kept = await stage.promise(options=b'{"labels": 7}')
    await stage.fire()
    assert await claim(stage) == [kept.id]


# --------------------------------------------------------------------------------------------------- nothing is silent


async def told(stage: Stage) -> list[tuple[str, str]]:
    return [
        (event.kind, event.subject) for kind in ("missing_labels", "unknown_job") for event in await stage.events(kind)
    ]


async def test_it_is_told_when_no_live_worker_has_the_labels_and_once_an_hour(stage: Stage) -> None:
    await register(stage, "cpu")
    await stage.promise(options=BOTH)
    await stage.fire()
    await stage.store.tidy()
    assert await told(stage) == [], "not before it has waited for a while"
    stage.clock.advance(2 * MINUTE)
    await register(stage, "gpu")
    for _ in range(2):
        await stage.store.tidy()
    assert await told(stage) == [("missing_labels", "job")]
    [event] = await stage.events("missing_labels")
    assert "gpu, region=eu" in event.detail
    stage.clock.advance(HOUR + SECOND)
    await register(stage)
    await stage.store.tidy()
    assert len(await told(stage)) == 2


async def test_nothing_is_told_while_one_worker_has_all_of_them(stage: Stage) -> None:
    await stage.promise(options=BOTH)
    await stage.fire()
    stage.clock.advance(2 * MINUTE)
    await register(stage, "region=eu", "gpu")
    await stage.store.tidy()
    assert await told(stage) == []


async def test_where_nobody_knows_the_job_that_is_what_is_told(stage: Stage) -> None:
    await stage.promise(job="strange", options=GPU)
    await stage.fire()
    stage.clock.advance(2 * MINUTE)
    await register(stage, "gpu")
    await stage.store.tidy()
    assert await told(stage) == [("unknown_job", "strange")]


async def test_a_check_that_no_worker_with_its_labels_has_is_given_up_and_a_person_is_asked(stage: Stage) -> None:
    kept = await stage.promise(options=GPU)
    await stage.fire()
    [run] = await claimed(stage, "gpu")
    await stage.finish(stage.ending(run, Event.CHECK_DUE, Outcome.SUCCEEDED))
    stage.clock.advance(10 * MINUTE)
    await register(stage)
    await stage.store.tidy()
    found = await stage.store.run(kept.id)
    assert found.state is State.UNVERIFIED
    assert "labels gpu" in (found.detail or "")


async def test_instances_tell_their_labels(stage: Stage) -> None:
    number = await register(stage, "gpu", "region=eu")
    [found] = [one for one in await stage.store.instances() if one.number == number]
    assert (found.labels, found.reserved) == (("gpu", "region=eu"), {})


@pytest.mark.parametrize("labels", [(), ("gpu",)])
async def test_an_older_claim_takes_no_runs_that_need_labels(stage: Stage, labels: tuple[str, ...]) -> None:
    """A release that knows nothing of labels names only jobs."""
    await stage.promise(options=GPU)
    await stage.fire()
    assert len(await claim(stage, *labels)) == len(labels)
