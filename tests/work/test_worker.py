from __future__ import annotations

import asyncio
from functools import partial

import pytest

from foliot.domain.instant import HOUR, MILLISECOND, SECOND
from foliot.domain.policy import Policy, choices_to_json
from foliot.domain.state import Event, Outcome, Reason
from foliot.domain.store import Beat
from foliot.errors import InvalidInput, LostOwnership, StoreClosed, StoreError, StoreFull
from foliot.work.context import Context
from tests.waiting import soon
from tests.work.fakes import START, Bench, Liar, run, until


async def noop() -> None: ...


def recorded(bench: Bench, count: int) -> bool:
    return len(bench.store.finished) == count


async def forever(ctx: Context) -> None:
    await asyncio.Event().wait()


async def stubborn() -> None:
    """Swallows one cancellation, and ends at the second."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.Event().wait()


def test_a_worker_registers_its_jobs_when_it_starts():
    async def scene():
        bench = Bench(noop, forever, slots=7, queues=("mail", "default"))
        await bench.worker.start()
        ((role, queues, slots, cards),) = bench.store.registered
        assert (role, queues, slots) == ("worker", ("mail", "default"), 7)
        assert [card.name for card in cards] == ["noop", "forever"]

    run(scene())


def test_what_was_handed_off_runs_and_is_recorded():
    async def scene():
        bench = Bench(noop)
        for _ in range(250):
            bench.store.hand_off("noop")
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED] * 250
        assert bench.worker.idle
        assert bench.worker.begun == bench.worker.ended == bench.worker.outbox.finished == 250

    run(scene())


def test_a_worker_claims_no_more_than_its_free_slots():
    async def scene():
        bench = Bench(forever, slots=5)
        for _ in range(20):
            bench.store.hand_off("forever")
        await bench.work()
        assert len(bench.worker.running) == 5
        assert len(bench.store.ready) == 15
        assert sum(bench.store.claims) == 5

    run(scene())


def test_a_worker_that_has_nothing_to_do_leaves_some_of_a_herd_for_others_at_first():
    async def scene():
        bench = Bench(forever, slots=1_000)
        await bench.worker.start()
        await bench.worker.run_once()
        for _ in range(900):
            bench.store.hand_off("forever")
        await bench.worker.run_once()
        assert len(bench.worker.running) == 500
        assert bench.worker.alarm.ringing  # and looks again at once
        await bench.worker.run_once()
        assert len(bench.worker.running) == 900
        await bench.worker.drain(0)

    run(scene())


def test_a_worker_whose_clock_is_wrong_begins_nothing_new_and_ends_what_it_has():
    async def scene():
        gate = asyncio.Event()

        async def waits() -> None:
            await gate.wait()

        bench = Bench(waits, slots=5)
        bench.store.hand_off("waits")
        await bench.work()
        bench.clock.fenced = True
        bench.store.hand_off("waits")
        await bench.advance(SECOND)
        assert len(bench.worker.running) == 1
        assert len(bench.store.ready) == 1
        gate.set()
        await bench.advance(SECOND)
        assert bench.store.outcomes == [Outcome.SUCCEEDED]
        assert not bench.worker._may_have_work(bench.clock.now())
        bench.clock.fenced = False
        await bench.advance(SECOND)
        assert bench.store.outcomes == [Outcome.SUCCEEDED] * 2

    run(scene())


def test_a_worker_needs_a_slot():
    with pytest.raises(InvalidInput, match="at least one"):
        Bench(noop, slots=0)


def test_a_slow_recording_keeps_no_work_from_starting_and_what_ends_meanwhile_shares_the_next():
    async def scene():
        bench = Bench(noop, slots=10)
        bench.store.slow["finish"] = asyncio.Event()
        for _ in range(40):
            bench.store.hand_off("noop")
        for _ in range(12):
            await bench.worker.run_once()
            await asyncio.sleep(0)
        assert bench.worker.ended == 40
        assert bench.store.finishes == []
        bench.store.slow.pop("finish").set()
        await bench.work()
        assert len(bench.store.finishes) == 2
        assert bench.store.outcomes == [Outcome.SUCCEEDED] * 40

    run(scene())


def test_a_handler_that_only_yields_has_thirty_turns_before_virtual_time_goes_on():
    turns = 0

    async def spin():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scene():
        bench = Bench(spin)
        bench.store.hand_off("spin")
        await bench.worker.run_once()
        assert not await bench.worker.settle(patience=0)
        before = turns
        assert not await bench.worker.settle(patience=0)
        assert turns - before == 30

    run(scene())


def test_an_ending_that_waits_to_be_told_is_due_now():
    async def scene():
        bench = Bench(noop)
        bench.store.hand_off("noop")
        await bench.worker.run_once()
        await bench.worker.settle()
        assert bench.worker.next_deadline() == START
        await bench.work()
        assert bench.worker.next_deadline() is None

    run(scene())


def test_endings_survive_a_store_that_cannot_take_them():
    async def scene():
        bench = Bench(noop)
        bench.store.hand_off("noop")
        await bench.worker.run_once()
        bench.store.failing["finish"] = StoreError("disk full")
        await bench.work()
        assert bench.store.finished == []
        bench.store.hand_off("noop")
        await bench.work()
        assert len(bench.store.ready) == 1, "what cannot be recorded is not begun"
        assert bench.worker.next_deadline() == START + 50 * MILLISECOND
        await bench.advance(50 * MILLISECOND)
        assert bench.worker.next_deadline() == START + 150 * MILLISECOND, "pauses grow"
        del bench.store.failing["finish"]
        await bench.advance(100 * MILLISECOND)
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED] * 2
        assert bench.worker.next_deadline() is None

    run(scene())


def test_one_ending_that_the_store_refuses_does_not_hold_up_the_others():
    async def scene():
        bench = Bench(noop)
        for _ in range(8):
            bench.store.hand_off("noop")
        taken = bench.store.finish

        async def finish(worker, endings):
            if any(ending.number == 3 for ending in endings):
                raise ValueError("cannot take number 3")
            return await taken(worker, endings)

        bench.store.finish = finish  # type: ignore[method-assign]
        await bench.work()
        for _ in range(12):
            await bench.advance(5 * SECOND)
        assert sorted(ending.number for ending in bench.store.finished) == [1, 2, 4, 5, 6, 7, 8]
        assert [ending.number for ending in bench.worker.outbox.endings] == [3]

    run(scene())


def test_a_claim_that_fails_is_tried_again():
    async def scene():
        bench = Bench(noop)
        bench.store.hand_off("noop")
        bench.store.failing["claim"] = StoreError("busy")
        await bench.work()
        del bench.store.failing["claim"]
        await bench.work()
        assert bench.store.finished == []
        await bench.advance(50 * MILLISECOND)
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


@pytest.mark.parametrize("verb", ["claim", "finish"])
@pytest.mark.parametrize(("error", "longest"), [(StoreFull("full"), SECOND // 2), (StoreError("gone"), 5 * SECOND)])
def test_a_worker_asks_a_full_store_again_sooner_than_one_that_is_away(verb, error, longest, caplog):
    async def scene():
        bench = Bench(noop)
        bench.store.hand_off("noop")
        bench.store.failing[verb] = error
        await bench.work()
        pauses = []
        for _ in range(20):
            pauses.append(bench.worker.next_deadline() - bench.clock.now())
            await bench.advance(pauses[-1])
        assert pauses[:3] == [50 * MILLISECOND, 100 * MILLISECOND, 200 * MILLISECOND]
        assert max(pauses) == longest
        assert len(caplog.records) == 1, "the same error is logged once"
        del bench.store.failing[verb]
        await bench.advance(longest)
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


def test_a_pause_ends_also_when_the_clock_is_set_back():
    async def scene():
        bench = Bench(noop)
        bench.store.hand_off("noop")
        bench.store.failing["claim"] = StoreError("busy")
        await bench.work()
        del bench.store.failing["claim"]
        await bench.advance(-HOUR)
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


def test_a_closed_store_is_told_to_the_caller():
    async def scene():
        bench = Bench(noop)
        await bench.worker.start()
        bench.store.failing["claim"] = StoreClosed("closed")
        for _ in range(2):
            with pytest.raises(StoreClosed):
                await bench.worker.run_once()

    run(scene())


def test_a_caller_that_gives_up_waiting_loses_no_claim():
    async def scene():
        bench = Bench(noop)
        await bench.worker.start()
        bench.store.hand_off("noop")
        bench.store.slow["claim"] = asyncio.Event()
        waiting = asyncio.create_task(bench.worker.run_once())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        bench.store.slow.pop("claim").set()
        await bench.worker.settle()
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


def test_a_job_that_this_worker_does_not_know_is_given_back():
    async def scene():
        bench = Bench(noop)
        bench.store.hand_off("elsewhere")
        await bench.work()
        assert [run.job for run in bench.store.given_back] == ["elsewhere"]
        assert bench.store.finished == []

    run(scene())


def test_an_attempt_past_its_deadline_is_cancelled_and_has_timed_out():
    async def scene():
        bench = Bench(forever)
        bench.store.hand_off("forever")
        await bench.work()
        assert bench.worker.next_deadline() == START + 10 * SECOND
        await bench.advance(10 * SECOND - 1)
        assert bench.store.finished == []
        await bench.advance(1)
        (ending,) = bench.store.finished
        assert (ending.event, ending.outcome) == (Event.RETRY_GRANTED, Outcome.TIMED_OUT)
        assert (ending.started_at, ending.finished_at) == (START, START + 10 * SECOND)
        assert ending.error == "timed out after 10 s"
        assert bench.store.notes == []

    run(scene())


def test_an_attempt_times_out_while_a_claim_waits_for_the_store():
    """It may hold the lock that the claim waits for."""

    async def scene():
        bench = Bench(forever)
        bench.store.hand_off("forever")
        await bench.work()
        [attempt] = bench.worker.running
        bench.store.hand_off("forever")
        bench.store.slow["claim"] = asyncio.Event()
        working = asyncio.create_task(bench.worker.run_once())
        await until(lambda: bench.worker.claiming is not None)
        bench.clock.advance(10 * SECOND)
        await until(lambda: attempt not in bench.worker.running)
        assert not working.done()
        bench.store.slow.pop("claim").set()
        await bench.work()
        assert bench.store.outcomes == [Outcome.TIMED_OUT]

    run(scene())


def test_a_task_that_swallows_its_cancellation_keeps_its_slot_and_is_reported_once():
    async def scene():
        bench = Bench(stubborn, slots=1)
        bench.store.hand_off("stubborn")
        await bench.work()
        await bench.advance(10 * SECOND)
        assert len(bench.worker.running) == 1
        for _ in range(3):
            await bench.advance(SECOND)
        assert [(kind, detail) for kind, _, detail in bench.store.notes] == [
            ("overrun", "attempt 1 of stubborn continues after its timeout of 10s")
        ]
        (attempt,) = bench.worker.running
        attempt.task.cancel()
        await bench.work()
        assert bench.store.outcomes == [Outcome.TIMED_OUT]

    run(scene())


def test_deadlines_come_in_any_order():
    async def scene():
        bench = Bench(forever)
        for seconds in (9, 3, 6):
            bench.store.hand_off("forever", options=choices_to_json({"timeout": seconds * SECOND}))
        await bench.work()
        for passed in (3, 6, 9):
            assert bench.worker.next_deadline() == START + passed * SECOND
            await bench.advance(3 * SECOND)
            assert len(bench.store.finished) == passed // 3

    run(scene())


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_setting_the_hosts_clock_neither_times_work_out_nor_prolongs_it(step):
    async def scene():
        bench = Bench(forever)
        bench.store.hand_off("forever")
        await bench.work()
        await bench.advance(4 * SECOND)
        bench.clock.step(step)
        await bench.work()
        assert bench.store.finished == []
        assert bench.worker.next_deadline() == bench.clock.now() + 6 * SECOND, "in terms of the clock as it is now"
        await bench.advance(6 * SECOND)
        (ending,) = bench.store.finished
        assert (ending.outcome, ending.error) == (Outcome.TIMED_OUT, "timed out after 10 s")
        assert (ending.started_at, ending.finished_at) == (START, START + step + 10 * SECOND), "recorded as shown"

    run(scene())


def test_an_ending_that_cannot_be_classified_frees_its_slot():
    def in_a_thread() -> None:
        raise Liar

    async def in_a_task() -> None:
        raise Liar

    async def scene():
        bench = Bench(in_a_thread, in_a_task)
        bench.store.hand_off("in_a_thread")
        bench.store.hand_off("in_a_task")
        await bench.work()
        assert bench.worker.idle
        assert bench.store.outcomes == [Outcome.FAILED] * 2

    run(scene())


def test_options_that_cannot_be_read_are_reported_once_and_the_jobs_own_policy_counts():
    async def scene():
        bench = Bench(noop)
        for _ in range(3):
            bench.store.hand_off("noop", options=b"[")
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED] * 3
        assert [note[:2] for note in bench.store.notes] == [("bad_policy", "noop")]

    run(scene())


def test_a_cancelled_task_ends_as_requested():
    async def scene():
        bench = Bench(forever)
        bench.store.hand_off("forever")
        kept = bench.store.hand_off("forever")
        await bench.work()
        bench.worker.heard(bench.worker.number, Beat(True, [1]))
        await bench.work()
        (ending,) = bench.store.finished
        assert (ending.number, ending.event, ending.outcome) == (1, Event.CANCEL, Outcome.CANCELLED)
        assert ending.reason is Reason.REQUESTED
        assert [attempt.claimed.number for attempt in bench.worker.running] == [kept.number]

    run(scene())


def test_a_request_that_is_repeated_with_every_beat_cancels_a_task_once():
    async def scene():
        bench = Bench(stubborn)
        bench.store.hand_off("stubborn")
        await bench.work()
        for _ in range(3):
            bench.worker.heard(bench.worker.number, Beat(True, [1]))
            await bench.work()
        assert len(bench.worker.running) == 1

    run(scene())


def test_a_task_that_is_cancelled_before_it_began_ends_with_a_word():
    async def scene():
        bench = Bench(noop)
        await bench.worker.start()
        bench.store.hand_off("noop")
        bench.worker.begin(await bench.store.claim(1, (), ("noop",), 1))
        bench.worker.heard(bench.worker.number, Beat(True, [1]))
        await bench.work()
        (ending,) = bench.store.finished
        assert (ending.outcome, ending.started_at) == (Outcome.CANCELLED, None)

    run(scene())


def test_a_worker_that_was_declared_dead_drops_everything_and_begins_anew():
    async def scene():
        bench = Bench(forever, noop)
        bench.store.hand_off("forever")
        await bench.work()
        first = bench.worker.number
        bench.store.take_away()
        bench.worker.heard(first, Beat(False, []))
        bench.store.hand_off("noop")
        await bench.work()
        assert bench.worker.number != first
        assert bench.store.outcomes == [Outcome.SUCCEEDED]
        assert [ending.outcome for ending in bench.store.fenced] == [Outcome.INTERRUPTED]
        assert bench.worker.outbox.fenced == 1
        bench.worker.heard(first, Beat(False, []))  # a late answer to the instance that was
        await bench.work()
        assert len(bench.store.registered) == 2

    run(scene())


def test_a_claim_that_says_ownership_is_lost_makes_the_worker_begin_anew():
    async def scene():
        bench = Bench(noop)
        await bench.worker.start()
        bench.store.hand_off("noop")
        bench.store.failing["claim"] = LostOwnership("declared dead")
        await bench.worker.run_once()
        del bench.store.failing["claim"]
        await bench.work()
        assert bench.worker.number == 2
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


def test_a_fenced_ending_is_counted_and_nothing_else():
    async def scene():
        bench = Bench(noop)
        bench.store.hand_off("noop")
        await bench.worker.run_once()
        bench.store.take_away()
        await bench.work()
        assert bench.worker.outbox.fenced == 1
        assert bench.worker.idle

    run(scene())


def test_an_ending_contains_what_its_attempt_reported():
    async def fails(ctx: Context) -> None:
        ctx.progress(3, of=9)
        ctx.checkpoint({"page": 3})
        raise ValueError("broken")

    async def scene():
        bench = Bench(fails)
        bench.store.hand_off("fails")
        bench.store.failing["beat"] = StoreError("busy")
        await bench.work()
        (report,) = bench.store.reports
        assert report.checkpoint == b'{"page":3}'
        assert report.note is not None
        assert bench.store.outcomes == [Outcome.FAILED]

    run(scene())


@pytest.mark.parametrize("verb", ["finish", "beat"])
def test_an_attempt_that_ends_while_the_store_is_busy_loses_none_of_its_reports(verb):
    gates = {1: asyncio.Event(), 2: asyncio.Event()}

    async def fails(ctx: Context) -> None:
        await gates[ctx.number].wait()
        ctx.checkpoint({"page": ctx.number})
        async for _ in ctx.each(["a"], name=f"run-{ctx.number}"):
            pass
        raise ValueError("broken")

    async def scene():
        bench = Bench(fails)
        for _ in gates:
            bench.store.hand_off("fails")
        await bench.work()
        bench.store.slow[verb] = asyncio.Event()
        beating = asyncio.create_task(bench.worker.heartbeat.run_once()) if verb == "beat" else None
        for gate in gates.values():
            gate.set()
            for _ in range(10):  # the second attempt ends while the ending of the first is on its way
                await asyncio.sleep(0)
                await bench.worker.run_once()
        bench.store.slow.pop(verb).set()
        if beating is not None:
            await beating
        await bench.work()
        assert bench.store.outcomes == [Outcome.FAILED] * 2
        assert [report.checkpoint for report in bench.store.reports] == [b'{"page":1}', b'{"page":2}']
        assert {key for items in bench.store.items.values() for key in items} == {("run-1", "a"), ("run-2", "a")}

    run(scene())


def test_a_report_that_a_beat_takes_while_its_attempt_ends_is_in_the_ending():
    gate = asyncio.Event()

    async def fails(ctx: Context) -> None:
        ctx.checkpoint({"page": 1})
        await gate.wait()
        raise ValueError("broken")

    async def scene():
        bench = Bench(fails)
        bench.store.hand_off("fails")
        await bench.work()
        bench.store.slow["beat"] = asyncio.Event()
        beating = asyncio.create_task(bench.worker.heartbeat.run_once())
        await asyncio.sleep(0)
        gate.set()
        await bench.work()
        (report,) = bench.store.reports
        assert report.checkpoint == b'{"page":1}'
        bench.store.slow.pop("beat").set()
        assert await beating
        assert bench.store.outcomes == [Outcome.FAILED]
        assert bench.worker.idle

    run(scene())


def test_the_loop_wakes_by_itself_when_work_is_handed_off_and_when_it_ends():
    async def scene():
        bench = Bench(noop)
        running = asyncio.create_task(bench.worker.run())
        for count in (1, 2, 3):
            bench.store.hand_off("noop")
            await until(partial(recorded, bench, count))
        await bench.worker.drain(0)
        await running
        assert bench.store.retired == [1]

    run(scene())


def test_the_loop_lets_a_delivery_happen_that_is_tried_again():
    async def scene():
        bench = Bench(noop)
        bench.store.failing["finish"] = StoreError("the server is away")
        running = asyncio.create_task(bench.worker.run())
        bench.store.hand_off("noop")
        await until(lambda: bench.worker.outbox.pause.until is not None)
        del bench.store.failing["finish"]
        bench.clock.advance(50 * MILLISECOND)
        await until(partial(recorded, bench, 1))
        await bench.worker.drain(0)
        await running

    run(scene())


def test_the_loop_rests_while_a_delivery_is_tried_again():
    async def scene():
        bench = Bench(noop)
        bench.store.failing["finish"] = StoreError("the server is away")
        running = asyncio.create_task(bench.worker.run())
        bench.store.hand_off("noop")
        await until(lambda: bench.worker.outbox.pause.until is not None)
        del bench.store.failing["finish"]
        answered = bench.store.slow["finish"] = asyncio.Event()
        rounds = 0
        once = bench.worker.run_once

        async def counted():
            nonlocal rounds
            rounds += 1
            return await once()

        looks = 0
        look = bench.worker._look

        def counted_look():
            nonlocal looks
            looks += 1
            return look()

        bench.worker.run_once, bench.worker._look = counted, counted_look
        bench.clock.advance(50 * MILLISECOND)
        await until(lambda: looks >= 100)  # meanwhile the store does not answer
        assert rounds < 20, "nothing can be done before it does"
        answered.set()
        await until(partial(recorded, bench, 1))
        await bench.worker.drain(0)
        await running

    run(scene())


def test_the_loop_ends_with_what_cannot_be_helped():
    async def scene():
        bench = Bench(noop)
        running = asyncio.create_task(bench.worker.run())
        await asyncio.sleep(0)
        bench.store.failing["claim"] = StoreClosed("closed")
        bench.store.hand_off("noop")
        with pytest.raises(StoreClosed):
            await soon(running)
        await bench.worker.heartbeat.stop()

    run(scene())


def test_the_store_is_asked_before_delivery_and_claim_which_then_leave_together():
    async def scene():
        bench = Bench(noop)
        bench.store.hand_off("noop")
        await bench.work()
        bench.store.hand_off("noop")
        await bench.worker.run_once()
        await asyncio.sleep(0)
        asked = []
        for verb in ("version", "finish", "claim"):
            real = getattr(bench.store, verb)

            def spy(*args, verb=verb, real=real):
                asked.append(verb)
                return real(*args)

            setattr(bench.store, verb, spy)
        await bench.worker.run_once()
        assert asked == ["version", "finish", "claim"]

    run(scene())


def test_the_shortest_lease_counts_the_options_of_runs():
    async def scene():
        bench = Bench(noop, policy=Policy(lease=30 * SECOND))
        bench.store.hand_off("noop", options=choices_to_json({"lease": 3 * SECOND}))
        await bench.work()
        assert bench.worker.heartbeat.every == SECOND

    run(scene())


def test_a_run_that_needs_other_labels_than_the_worker_has_is_given_back():
    async def scene():
        bench = Bench(noop, labels=["gpu", "cpu"])
        for needed in (["gpu"], ["gpu", "region=eu"], []):
            bench.store.hand_off("noop", options=choices_to_json({"labels": needed}))
        await bench.work()
        assert len(bench.store.finished) == 2
        assert [run.number for run in bench.store.given_back] == [2]
        assert bench.store.labels == ("cpu", "gpu")

    run(scene())


def test_a_worker_whose_store_calls_rests_until_its_next_deadline():
    async def scene():
        async def silent() -> None:
            await asyncio.Event().wait()

        bench = Bench(silent, policy=Policy(timeout=300 * MILLISECOND))
        bench.store.when_new = lambda callback: True  # type: ignore[method-assign]
        await bench.worker.start()
        await bench.worker.run_once()
        assert bench.worker._look() == 1
        bench.store.hand_off("silent")
        bench.clock.advance(SECOND)  # without a call, it asks once a second
        await bench.work()
        assert len(bench.worker.running) == 1
        bench.worker.alarm.ringing = False
        assert bench.worker._look() <= 0.3
        assert not bench.worker.alarm.ringing
        bench.clock.advance(300 * MILLISECOND)
        bench.worker._look()
        assert bench.worker.alarm.ringing

    run(scene())
