"""What the fleet shows: schedulers, workers, queues, clocks, and how much comes and goes. Decisions; `now` is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from foliot.clock import offset_in_words
from foliot.domain.alerts import FLEET, Finding, Kind, Seen
from foliot.domain.instant import HOUR, MINUTE, SECOND, Duration, Instant
from foliot.domain.run import Lane, RunView
from foliot.domain.state import State
from foliot.domain.store import ALIVE, EventRow, Instance
from foliot.domain.survey import Fleet
from foliot.watch.memory import Remembered, Series

DUE_FOR = MINUTE
"""A run that is due for so long, and is the first in line all the time, is not being fired."""
LEAST_COMPLETIONS = 20
LEAST_RETRYING = 20
MORE_DEAD = 10
AGED = MINUTE


def schedulers(fleet: Fleet, due: Sequence[RunView], memory: Remembered, now: Instant, pace: Duration = 0) -> Seen:
    """Whether anybody fires. Who asks this is a scheduler itself, as a rule: what one that lives does not do shows in
    shards that nobody holds, and in the first run that is due and stays the first. `pace`: one of a backlog is handed
    off in so long; whoever has one of many shards waits for its share of that."""
    head = next(
        (view for view in due if view.state in (State.SCHEDULED, State.RETRYING) and view.lane is Lane.LIVE), None
    )
    if head is None or now - head.fire_at <= DUE_FOR:
        memory.head = None
    elif memory.head is None or memory.head[0] != head.number:
        memory.head = head.number, now
    cause, since = None, None
    if fleet.unowned:
        cause = f"no live scheduler holds {fleet.unowned} of {fleet.shards} shards: their runs do not fire"
    elif memory.head is not None and head is not None and now - memory.head[1] >= DUE_FOR + pace * fleet.shards:
        cause, since = (
            f"{head.id} has been due for {(now - head.fire_at) // SECOND} s, and no scheduler hands it off",
            head.fire_at,
        )
    findings = [] if cause is None else [Finding(Kind.SCHEDULER_SILENT, FLEET, cause, since=since)]
    return Seen(findings, judged=(Kind.SCHEDULER_SILENT, Kind.WATCH_SILENT))


def workers(fleet: Fleet, wanted: Iterable[str], paused: frozenset[str], now: Instant) -> Seen:
    """Jobs and queues that nobody takes. `wanted`: the jobs of schedules that are not paused."""
    living = live_workers(fleet.instances, now)
    wanted = set(wanted)
    if not living:  # one alert says all of it
        idle = not wanted and not fleet.queues
        findings = [] if idle else [Finding(Kind.NO_WORKER, FLEET, "no live worker: due runs do not start")]
        return Seen(findings, judged=(Kind.NO_WORKER,))
    served = {queue for worker in living for queue in worker.queues}
    findings = []
    for queue in fleet.queues:
        if queue.queue not in served:
            cause = f"{queue.waiting:,} runs wait in queue {queue.queue}, which no live worker serves"
            findings.append(
                Finding(Kind.NO_WORKER, f"queue:{queue.queue}", cause, since=queue.oldest, count=queue.waiting)
            )
    # `resize@gpu`: runs that need labels are handed off under these, too; `settle?`: checks.
    waiting = {job.partition("@")[0].removesuffix("?") for job in fleet.waiting_jobs}
    for job in sorted({*wanted, *waiting} - fleet.known_jobs - paused):
        cause = f"no live worker has registered job {job}" + (", and its runs wait" if job in waiting else "")
        findings.append(Finding(Kind.NO_WORKER, f"job:{job}", cause, job=job))
    return Seen(findings, judged=(Kind.NO_WORKER,))


def live_workers(instances: Iterable[Instance], now: Instant) -> list[Instance]:
    return [one for one in instances if one.role == "worker" and now - one.beat_at <= ALIVE]


def queues(fleet: Fleet, now: Instant) -> Seen:
    """Age, and saturation."""
    living = live_workers(fleet.instances, now)
    findings = []
    for queue in fleet.queues:
        if not queue.waiting:
            continue
        age = now - queue.oldest
        if age > AGED:
            cause = f"queue {queue.queue}: {queue.waiting:,} runs wait for a worker, the oldest for {age // MINUTE} min"
            since = queue.oldest + AGED
            findings.append(Finding(Kind.QUEUE_AGE, f"queue:{queue.queue}", cause, since=since, count=queue.waiting))
        serving = [worker for worker in living if queue.queue in worker.queues]
        slots, busy = sum(one.slots for one in serving), sum(fleet.busy.get(one.number, 0) for one in serving)
        if serving and busy >= slots:
            cause = f"queue {queue.queue}: all {slots:,} slots of its workers are busy, and {queue.waiting:,} runs wait"
            findings.append(Finding(Kind.SATURATED, f"queue:{queue.queue}", cause, count=queue.waiting))
    return Seen(findings, judged=(Kind.QUEUE_AGE, Kind.SATURATED))


def clocks(instances: Iterable[Instance], now: Instant) -> Seen:
    """By name; what else tells hosts apart (their boots) is not for people. One that is not heard of measures nothing,
    and does nothing."""
    hosts = {one.host.partition(" ")[0]: one for one in instances if one.fenced and now - one.beat_at <= ALIVE}
    findings = []
    for host, one in sorted(hosts.items()):
        known = one.offset_low is not None and one.offset_high is not None
        off = offset_in_words(one.offset_low or 0, one.offset_high or 0) if known else "wrong"
        findings.append(
            Finding(Kind.CLOCK, f"host:{host}", (f"the clock of {host} is {off}; its processes start no new work"))
        )
    return Seen(findings, judged=(Kind.CLOCK,))


def early(fleet: Fleet) -> Seen:
    cause = f"{fleet.early} attempts of the last day started before their fire time"
    findings = [Finding(Kind.EARLY, FLEET, cause, count=fleet.early)] if fleet.early else []
    return Seen(findings, judged=(Kind.EARLY,))


def losses(events: Sequence[EventRow]) -> Seen:
    lost = [event for event in events if event.kind == "lost"]
    if not lost:
        return Seen(judged=(Kind.LOST,))
    cause = f"{len(lost)} attempts were lost: {lost[-1].detail}" if len(lost) > 1 else f"lost: {lost[-1].detail}"
    return Seen([Finding(Kind.LOST, FLEET, cause, count=len(lost))], judged=(Kind.LOST,))


def flow(fleet: Fleet, completed: int, retrying: int, memory: Remembered, now: Instant) -> Seen:
    """How much comes and goes, compared with a while ago; noted in `memory`."""
    memory.completions.add(now, completed)
    memory.retrying.put(now, retrying)
    memory.dead.lower(now, fleet.dead)
    findings = []
    waiting = sum(queue.waiting for queue in fleet.queues)
    lately = memory.completions.sum(now, 0, 10)
    before, since = memory.fallen_from or (memory.completions.sum(now, 10, 20), now)
    has_fallen = waiting > 0 and before >= LEAST_COMPLETIONS and 2 * lately < before
    # What is less for an hour has become usual: a peak need not come back. Nothing at all has not.
    memory.fallen_from = (before, since) if has_fallen and (now - since < HOUR or not lately) else None
    if memory.fallen_from is not None:
        cause = f"{lately:,} runs succeeded in the last ten minutes, {before:,} before the drop, and {waiting:,} wait"
        findings.append(Finding(Kind.COMPLETIONS, FLEET, cause))
    was = memory.retrying.ago(now, 10)
    if was is not None and retrying >= LEAST_RETRYING and retrying >= 2 * was:
        cause = f"{retrying:,} runs wait for a retry, {was:,} waited ten minutes ago"
        findings.append(Finding(Kind.RETRIES, FLEET, cause, count=retrying))
    dead_before = _least(memory.dead, now)
    if fleet.dead - dead_before >= MORE_DEAD:
        cause = f"{fleet.dead:,} dead letters (+{fleet.dead - dead_before:,} in the past hour)"
        findings.append(Finding(Kind.DEAD_LETTERS, FLEET, cause, count=fleet.dead))
    return Seen(findings, judged=(Kind.COMPLETIONS, Kind.RETRIES, Kind.DEAD_LETTERS))


def _least(series: Series, now: Instant) -> int:
    """Of the last hour, as far as it is known."""
    minute = now // MINUTE
    return min((count for at, count in series.by_minute.items() if minute - 60 <= at <= minute), default=0)


def of_no_schedule(subjects: Iterable[str], ids: frozenset[str]) -> Mapping[str, None]:
    """Subjects that are schedules which do not exist."""
    return {one: None for one in subjects if one.startswith("schedule:") and one.removeprefix("schedule:") not in ids}
