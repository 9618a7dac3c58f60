"""How a worker ends in order: nothing that finished is forgotten, and nothing that did not is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.run import Progress
from foliot.domain.state import Outcome
from foliot.work.attempt import Attempt, Stop

if TYPE_CHECKING:
    from foliot.work.worker import Worker

LAST_MOMENT: Duration = SECOND
"""After the grace: how long interrupted handlers have to tidy up."""
LAST_DELIVERY: Duration = 5 * SECOND
"""How long a store that cannot be reached is asked again before the worker leaves; leases end what it did not tell."""
LONGEST_END: Duration = 2 * (LAST_MOMENT + LAST_DELIVERY)
"""The longest that a drain takes after its grace: handlers end, a heartbeat under way ends, processes end, and the
outcomes are recorded. On a slow machine each step may need all of its time."""


async def drain(worker: Worker, grace: Duration) -> list[str]:
    """Ends the worker; answers the runs that could not be ended.

    1. Claim no more, and give back what was claimed and has not begun.
    2. Let running work finish until the grace ends. There is none when an operator forced a cancellation.
    3. Interrupt the rest. That costs a run none of its attempts, and its last checkpoint is kept.
    4. Record in the store what still runs. Processes that do not stop are killed, and their ends are recorded.
    5. Leave the fleet.

    A thread cannot be ended, nor can a task that swallows its cancellation. The record says that the process is
    shutting down, and contains every item and checkpoint that was reported. From then on the context of the attempt
    raises. The run stays owned until the process has ended: two attempts never overlap. So the instance does not
    retire, its heartbeat goes on, and the caller must end the process with `os._exit`. Then the store counts the
    attempt as interrupted, or as timed out or stalled if it should have ended before.
    """
    worker.draining = True
    worker.alarm.ring()
    for attempt in worker.appointments.cancel():
        worker.give_back(attempt)
    worker.return_standbys(worker.standbys.take_all())
    for attempt in list(worker.running):
        attempt.draining = True
        if attempt.future is not None:
            worker.withdraw(attempt)
        elif attempt.started_at is None:
            worker.stop(attempt, Stop.DRAIN)
    try:
        if worker.number is not None:
            await _work_until(worker, worker.clock.monotonic() + grace, within_grace=True)
            for attempt in list(worker.running):
                worker.stop(attempt, Stop.DRAIN)
            await _work_until(worker, worker.clock.monotonic() + LAST_MOMENT)
            await _record_interrupted(worker)
            await _processes_ended(worker)
            await _deliver_until(worker, worker.clock.monotonic() + LAST_DELIVERY)
            if worker.idle:
                await worker.store.retire(worker.number)
    finally:
        if not worker.running:
            await worker.heartbeat.stop()
        worker.pool.shutdown(wait=False, cancel_futures=True)
    return [attempt.claimed.id for attempt in worker.running]


async def _record_interrupted(worker: Worker) -> None:
    """Has recorded what still runs. Contexts end first: an item that is reported later raises in the handler, and is
    not taken for finished. Before any process is waited for: the time to shut down may end meanwhile."""
    for attempt in worker.running:
        attempt.interrupt()
    if worker.running:
        await worker.heartbeat.settled(LAST_MOMENT)
    reports = [parting_word(attempt) or attempt.report() for attempt in worker.running]
    worker.outbox.parting.extend(report for report in reports if report is not None)
    worker.outbox.leaving = bool(worker.running)


async def _processes_ended(worker: Worker) -> None:
    """Those that do not heed are killed when their last moment is over (see deadlines.py): that has to be seen."""
    end = worker.clock.monotonic() + LAST_DELIVERY
    while any(attempt.isolated for attempt in worker.running) and worker.clock.monotonic() < end:
        await worker.run_once()
        await _sleep(worker, end)


def parting_word(attempt: Attempt) -> Progress | None:
    """The outcome of an attempt that is past its time and goes on, to be recorded once this process is gone; None for
    others.

    Not before that: until then it may still do something, and its slot and key stay taken."""
    outcome = {Stop.TIMEOUT: Outcome.TIMED_OUT, Stop.STALL: Outcome.STALLED}.get(attempt.stop or Stop.DRAIN)
    if outcome is None or attempt.started_at is None:
        return None
    claimed = attempt.claimed
    said = attempt.news() or Progress(claimed.number, claimed.token, attempt.started_at, None, None)
    return said._replace(ending=outcome)


async def _work_until(worker: Worker, end: Instant, *, within_grace: bool = False) -> None:
    """Goes on without claiming until nothing runs that may end, or until `end`, by the monotonic clock. An operator
    who forces a cancellation ends the grace."""
    while any(not attempt.forced or attempt.isolated for attempt in worker.running) and worker.clock.monotonic() < end:
        if within_grace and worker.recycling_now:
            return
        await worker.run_once()
        await _sleep(worker, end)


async def _deliver_until(worker: Worker, end: Instant) -> None:
    while True:
        await worker.run_once()
        if worker.idle or (not worker.outbox and worker.running) or worker.clock.monotonic() >= end:
            return
        await _sleep(worker, end)


async def _sleep(worker: Worker, end: Instant) -> None:
    """Until something happened, a deadline or `end`, by the worker's clock."""
    length = end - worker.clock.monotonic()
    deadline = worker.next_deadline()
    if deadline is not None:
        length = min(length, deadline - worker.clock.now())
    sleeper = asyncio.ensure_future(worker.clock.sleep(max(length, 0)))
    # Cancelled, it must not wake the next sleep: a drain would go round and round for as long as it lasts.
    sleeper.add_done_callback(lambda slept: None if slept.cancelled() else worker.alarm.ring())
    try:
        await worker.alarm.sleep(lambda: 3600.0)
    finally:
        sleeper.cancel()
