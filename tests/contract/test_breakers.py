"""Circuit breakers: what attempts found out about their destination holds back others, wherever they are by then."""

from __future__ import annotations

from foliot.domain.breaker import Contact
from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.ledger import Effect, Settles
from foliot.domain.policy import choices, choices_to_json
from foliot.domain.run import Claimed, Ending
from foliot.domain.state import Reason, State
from foliot.timing import every
from tests.contract.stage import Stage, declared

BANK = choices_to_json(choices({"destination": "bank"}))


def told(ending: Ending, *, answered: bool, after: int = 2) -> Ending:
    return ending._replace(contact=Contact("bank", answered, after, 30 * SECOND, 2 * MINUTE))


async def fail(stage: Stage, *runs: Claimed) -> None:
    await stage.finish(*[told(stage.failed(run, HOUR), answered=False) for run in runs])


async def opened(stage: Stage) -> None:
    """Two attempts fail: the breaker is open."""
    for _ in range(2):
        await stage.promise(options=BANK)
    await stage.fire()
    await fail(stage, *await stage.claim())


async def test_it_opens_and_closes_with_an_event_each(stage: Stage) -> None:
    await opened(stage)
    [view] = await stage.store.limits()
    assert (view.gate.name, view.gate.source) == ("breaker:bank", "breaker")
    await stage.promise(options=BANK)
    stage.clock.advance(31 * SECOND)
    await stage.fire()
    [probe] = await stage.claim()
    await stage.finish(told(stage.succeeded(probe), answered=True))
    assert [event.kind for event in await stage.store.events_since(0, 10)] == ["breaker_opened", "breaker_closed"]
    assert await stage.store.limits() == []


async def test_what_fires_while_it_is_open_is_held_but_for_one_probe_at_a_time(stage: Stage) -> None:
    await opened(stage)
    kept = [await stage.promise(options=BANK) for _ in range(3)]
    fired = await stage.fire()
    assert (fired.handed_off, fired.held) == (0, 3)
    assert {(await stage.store.run(one.id)).reason for one in kept} == {Reason.DESTINATION_DOWN}
    begun = []
    for second in range(100):
        await stage.fire()
        for run in await stage.claim():
            begun.append(second)
            await fail(stage, run)
        stage.clock.advance(SECOND)
    assert begun == [30, 90]


async def test_what_was_handed_off_before_it_opened_is_not_begun_after_it(stage: Stage) -> None:
    ready = await stage.promise(options=BANK)
    await stage.promise(options=BANK)
    await stage.promise(options=BANK)
    await stage.fire()
    others = [run for run in await stage.claim(3) if run.id != ready.id]
    late = await stage.promise(options=BANK, after=0)
    await stage.fire()
    await fail(stage, *others)
    assert late.id not in [run.id for run in await stage.claim()]
    await stage.fire()
    waiting = await stage.store.run(late.id)
    assert (waiting.state, waiting.reason, waiting.attempt) == (State.HELD, Reason.DESTINATION_DOWN, 0)


async def test_runs_for_other_destinations_and_for_none_go_on(stage: Stage) -> None:
    await opened(stage)
    await stage.promise()
    await stage.promise(options=choices_to_json(choices({"destination": "post"})))
    await stage.fire()
    assert len(await stage.claim()) == 2


async def test_a_run_that_an_operator_lets_go_is_tried_all_the_same(stage: Stage) -> None:
    await opened(stage)
    await stage.promise(options=BANK)
    held = await stage.promise(options=BANK)
    await stage.fire()
    await stage.store.release_run(held.id, actor="ana", note="try it")
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [held.id]


async def test_what_waited_comes_back_spread_when_it_answers(stage: Stage) -> None:
    await opened(stage)
    for _ in range(50):
        await stage.promise(options=BANK)
    stage.clock.advance(31 * SECOND)
    await stage.fire()
    [probe] = await stage.claim()
    await stage.finish(told(stage.succeeded(probe), answered=True))
    begun = []
    for _ in range(12):
        await stage.fire()
        begun.append(len(await stage.claim(100)))
        stage.clock.advance(SECOND)
    assert sum(begun) == 49
    assert len([count for count in begun if count]) > 5


async def test_a_run_that_is_too_old_gives_up_while_it_is_held(stage: Stage) -> None:
    await opened(stage)
    patient = choices_to_json(choices({"destination": "bank", "give_up_after": "5m"}))
    await stage.promise(options=patient)
    kept = await stage.promise(options=patient)
    await stage.fire()
    stage.clock.advance(4 * MINUTE)
    assert await stage.store.give_up() == 0
    stage.clock.advance(2 * MINUTE)
    assert await stage.store.give_up() >= 1
    dead = await stage.store.run(kept.id)
    assert (dead.state, dead.reason) == (State.DEAD, Reason.DESTINATION_DOWN)
    assert "bank did not answer" in (dead.detail or "")


async def test_a_tick_that_comes_back_from_the_hand_off_is_not_decided_twice(stage: Stage) -> None:
    for _ in range(2):
        await stage.promise(options=BANK)
    await stage.fire()
    others = await stage.claim()
    await stage.apply(declared("hourly", stage.now, rule=every("1h").encode(), options=BANK))
    await stage.fire_by_policy()
    await fail(stage, *others)
    assert await stage.claim() == []
    await stage.fire_by_policy()
    held = [run for run in await stage.store.runs(schedule="hourly") if run.state is State.HELD]
    assert len(held) == 1
    assert [event.kind for event in await stage.store.events_since(0, 10)] == ["breaker_opened"]


async def test_a_run_with_an_open_effect_that_is_given_up_is_ambiguous(stage: Stage) -> None:
    """Its next attempt could have settled the effect, and there will be none."""
    patient = choices_to_json(choices({"destination": "bank", "give_up_after": "5m"}))
    kept = await stage.promise(options=patient)
    await stage.promise(options=BANK)
    await stage.fire()
    runs = {run.id: run for run in await stage.claim()}
    run = runs.pop(kept.id)
    await stage.store.begin_effect(run.number, run.token, Effect("payout", "7", settles=Settles.IDEMPOTENT))
    await fail(stage, *runs.values())
    await stage.finish(told(stage.failed(run, 40 * SECOND), answered=False))
    await stage.promise(options=BANK)
    stage.clock.advance(31 * SECOND)
    await stage.fire()
    assert len(await stage.claim()) == 1
    stage.clock.advance(10 * SECOND)
    await stage.fire()
    assert (await stage.store.run(kept.id)).state is State.HELD
    stage.clock.advance(6 * MINUTE)
    assert await stage.store.give_up() == 1
    doubted = await stage.store.run(kept.id)
    assert (doubted.state, doubted.reason) == (State.AMBIGUOUS, Reason.EFFECT)
