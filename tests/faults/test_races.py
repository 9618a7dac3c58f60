"""A reaper that races completion: whoever comes first decides, the other changes nothing, and never both are true."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import DAY
from foliot.domain.run import Claimed, Ending, Loss, Promise, RunView
from foliot.domain.state import Event, State
from foliot.domain.store import Store
from tests.contract.engines import ENGINES
from tests.contract.stage import FAR, START, Stage
from tests.tiers import by_tier

pytestmark = pytest.mark.faults

RACES = by_tier(500, 5_000, 100_000)
AT_ONCE = 100
_AFTER_LOSS = {Event.RETRY_GRANTED: State.RETRYING, Event.MAYBE_FOUND: State.AMBIGUOUS, Event.GAVE_UP: State.DEAD}


class Race(NamedTuple):
    """One run, and the two words about it that are on their way to the store at the same time."""

    ending: Ending
    loss: Loss

    @property
    def number(self) -> int:
        return self.ending.number


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.needs(name)) for name in ("sqlite", "postgres")])
def stage(request: pytest.FixtureRequest, tmp_path: Path, runner: asyncio.Runner) -> Iterator[Stage]:
    clock = ManualClock(START)
    store = ENGINES[request.param].make(request, tmp_path, clock)
    runner.run(store.open())
    yield Stage(store, clock)
    runner.run(store.close())


@pytest.mark.timeout(by_tier(600, 600, 3_600))
async def test_a_reaper_that_races_completion_never_alters_a_finished_run(stage: Stage, runner: asyncio.Runner) -> None:
    chance = random.Random(17)
    watch = stage.store.again()
    assert watch is not None
    await watch.open()
    accepted = lost = 0
    try:
        for _ in range(RACES // AT_ONCE):
            races = [drawn(stage, run, chance) for run in await claimed(stage)]
            refused, count = await asyncio.gather(finishing(stage, races, chance), losing(watch, races, chance))
            judge(races, refused, count, await rows(stage, races))
            accepted += len(races) - len(refused)
            lost += count
        assert accepted + lost == RACES
        assert min(accepted, lost) > RACES // 100, f"no race: {accepted} finished, {lost} were lost"
        await judge_events(stage, lost)
    finally:
        await watch.close()


async def claimed(stage: Stage) -> list[Claimed]:
    await stage.store.promise([Promise("job", b"{}", stage.now) for _ in range(AT_ONCE)])
    await stage.fire()
    found: list[Claimed] = []
    while len(found) < AT_ONCE:
        found += await stage.claim(AT_ONCE)
    return found


def drawn(stage: Stage, run: Claimed, chance: random.Random) -> Race:
    ending = stage.succeeded(run, result=b"%d" % run.number) if chance.random() < 0.8 else stage.died(run)
    event = chance.choice(list(_AFTER_LOSS))
    retry_at = FAR + DAY if event is Event.RETRY_GRANTED else None
    return Race(ending, stage.lost(run, event, retry_at))


async def finishing(stage: Stage, races: list[Race], chance: random.Random) -> list[Ending]:
    """In an order and in batches of its own, as a worker tells them."""
    refused: list[Ending] = []
    for some in batches(races, chance):
        refused += await stage.finish(*(race.ending for race in some))
        await pause(chance)
    return refused


async def losing(watch: Store, races: list[Race], chance: random.Random) -> int:
    count = 0
    for some in batches(races, chance):
        count += await watch.lose([race.loss for race in some])
        await pause(chance)
    return count


async def pause(chance: random.Random) -> None:
    """A few turns of the loop, in which the other side may come first."""
    for _ in range(chance.choice((1, 1, 5))):
        await asyncio.sleep(0)


def batches(races: list[Race], chance: random.Random) -> Iterator[list[Race]]:
    left = chance.sample(races, len(races))
    while left:
        size = chance.randint(1, 20)
        yield left[:size]
        left = left[size:]


async def rows(stage: Stage, races: list[Race]) -> dict[int, list[RunView]]:
    """What the store shows of these runs, live and ended, by number."""
    found: dict[int, list[RunView]] = {}
    for view in await stage.store.runs(limit=AT_ONCE, before=max(race.number for race in races) + 1):
        found.setdefault(view.number, []).append(view)
    return found


def judge(races: list[Race], refused: list[Ending], lost: int, seen: dict[int, list[RunView]]) -> None:
    numbers = {ending.number for ending in refused}
    assert lost == len(numbers), "every ending that was refused came too late, and no other"
    for race in races:
        [view] = seen[race.number]
        if race.number in numbers:
            assert (view.state, view.result) == (_AFTER_LOSS[race.loss.event], None)
        elif race.ending.event is Event.COMPLETED:
            assert (view.state, view.result) == (State.SUCCEEDED, b"%d" % race.number)
        else:
            assert (view.state, view.reason) == (State.DEAD, race.ending.reason)


async def judge_events(stage: Stage, lost: int) -> None:
    """Each run that was lost is told to be so once, and so is each ending that was refused."""
    told: Counter[tuple[str, str]] = Counter()
    position = 0
    while page := await stage.store.events_since(position, 10_000):
        position = page[-1].position
        told.update((row.kind, row.subject) for row in page)
    assert set(told.values()) == {1}
    kinds = Counter(kind for kind, _ in told)
    assert kinds == {"lost": lost, "fenced": lost}
