"""Every metric by name: what it counts, which labels it has, and who tells it. Pure.

Labels never name a run. Those that name a job, a schedule, a queue, a limit or a destination have so many values at the
most (`MOST_SERIES`); what comes on top is told together, as `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from foliot.domain.instant import SECOND, Duration, Instant

MOST_SERIES = 200
OTHER = "other"

PUNCTUAL = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 600.0, 3600.0)
"""Seconds, for how late something is: finest where it is good."""
WORKING = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds, for how long something takes."""


class Kind(StrEnum):
    COUNTER = "counter"
    """Since its process began: it only grows."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    """Of a histogram, in seconds."""


def _counter(name: str, told: str, *labels: str) -> Metric:
    return Metric(f"foliot_{name}_total", Kind.COUNTER, told, labels)


def _gauge(name: str, told: str, *labels: str) -> Metric:
    return Metric(f"foliot_{name}", Kind.GAUGE, told, labels)


def _histogram(name: str, told: str, edges: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"foliot_{name}_seconds", Kind.HISTOGRAM, told, labels, edges)


PROCESS_INFO = _gauge("process_info", "1, with what this process is.", "role", "version")
CLOCK_OFFSET = _gauge("clock_offset_seconds", "The store's clock minus the host's, where the two differ.")
CLOCK_FENCED = _gauge("clock_fenced", "1 while the host's clock is known to be wrong: nothing new is taken.")

FIRED = _counter("scheduler_fired", "Runs that were handed off to workers.")
EARLY_REFUSED = _counter(
    "scheduler_early_refused", "Runs that the store refused to hand off, because its clock had not reached them."
)
STALE = _counter("scheduler_stale", "Runs that were moved, cancelled or taken before they could be handed off.")
HELD = _counter("scheduler_held", "Runs that were due, and have to wait for something.", "reason")
SKIPPED = _counter("scheduler_skipped", "Runs that were due, and did not run.", "reason")
CREATED = _counter("scheduler_created", "Next runs of schedules that were made.")
FAULTS = _counter("scheduler_faults", "Schedules that were set aside, because they cannot be read.")
ARRIVALS = _counter("scheduler_arrivals", "Runs that became due soon after their time was loaded.")
FAILURES = _counter("scheduler_failures", "Times that the store could not do what the scheduler asked.")
TAKEOVERS = _counter("scheduler_takeovers", "Shards that were taken.")
SHARDS_LOST = _counter("scheduler_shards_lost", "Shards that somebody else took.")
SHARDS = _gauge("scheduler_shards", "Shards that this scheduler holds.")
WHEEL = _gauge("scheduler_wheel_runs", "Runs that are in its memory, waiting for their time.")
LATENESS = _histogram(
    "scheduler_lateness",
    "From the time that a run is due to its hand-off; nothing for those handed off before.",
    PUNCTUAL,
)
BATCH = _histogram("scheduler_batch", "How long it took to hand off one batch of runs.", PUNCTUAL)
LOSSES = _counter("scheduler_attempts_lost", "Attempts that were taken away from workers that are not heard of.")

CLAIMED = _counter("worker_claimed", "Runs that this worker took.", "lane")
ATTEMPTS = _counter("worker_attempts", "Attempts that ended.", "job", "queue", "outcome")
USEFUL = _counter("worker_useful", "Attempts that ended a run well: it succeeded, or was verified.", "job")
RETRIES = _counter("worker_retries", "Attempts after which the run is tried again.", "job")
START_DELAY = _histogram("worker_start_delay", "From the time that a run is due to its start.", PUNCTUAL, "lane")
RUN_TIME = _histogram("worker_run", "How long attempts took.", WORKING, "job")
SLOTS = _gauge("worker_slots", "How many runs this worker can have at a time.")
SLOTS_USED = _gauge("worker_slots_used", "How many it has.")
FENCED = _counter("worker_fenced", "Endings that were refused, because the run was somebody else's by then.")
LEASES_LOST = _counter("worker_leases_lost", "Times that the store had given this worker up, with all it had.")
HEARTBEAT_AGE = _gauge("worker_heartbeat_age_seconds", "Since the last heartbeat that the store has heard.")
OUTBOX = _gauge("worker_outbox", "Endings that the store has not been told of yet.")
LOG_DROPPED = _counter("log_dropped", "Lines of the log that were not written, because whoever reads it is too slow.")

RUNS = _gauge("runs", "Runs that have not ended, by state.", "state")
RUNS_EARLY = _gauge("runs_early", "Attempts that began before their time. Must be 0.")
OVERDUE = _gauge("runs_overdue", "Runs that are due, and that no scheduler has handed off.")
ENDED = _counter("runs_ended", "Runs that ended since the process that tells this began.", "job", "state")
SPENT = _counter("runs_attempts", "Attempts that those runs took.", "job")
PERSON = _gauge(
    "runs_for_a_person", "Runs that wait for a person: dead, unverified, ambiguous, settled.", "job", "state"
)
ALERTS_OPEN = _gauge("alerts_open", "Alerts that are open, snoozed ones too.", "kind", "severity")
ALERT_RUNS = _gauge("alerts_open_runs", "How many runs these count, of the kinds about runs.", "kind", "severity")
QUEUE_WAITING = _gauge("queue_waiting_runs", "Runs that were handed off, and that no worker has taken.", "queue")
QUEUE_OLDEST = _gauge("queue_oldest_seconds", "How long the first of them has waited.", "queue")
LANE_WAITING = _gauge("lane_waiting_runs", "The same runs, by lane.", "lane")
TENANT_WAITING = _gauge("tenant_waiting_runs", "The same, for the tenants who wait most. Told where asked.", "tenant")
INSTANCES = _gauge("instances", "Processes that are there.", "role", "version")
SCHEDULES = _gauge("schedules", "Schedules: active, paused, or set aside because they cannot be read.", "standing")
USEFUL_AGE = _gauge(
    "schedule_useful_age_seconds",
    "Since the last useful run; where there was none, since the schedule was made.",
    "schedule",
)
BREAKER_OPEN = _gauge("breaker_open", "1 for a destination that does not answer: work for it is held.", "destination")
LIMIT_USED = _gauge("limit_used", "How many run that have a slot of a limit.", "limit")
LIMIT_WAITING = _gauge("limit_waiting_runs", "How many are held for it.", "limit")
MEASURED_AGE = _gauge("measured_age_seconds", "How old the numbers are that take the store long to count.")

OF_PROCESSES = (PROCESS_INFO, CLOCK_OFFSET, CLOCK_FENCED, LOG_DROPPED)
OF_SCHEDULERS = (
    *(FIRED, EARLY_REFUSED, STALE, HELD, SKIPPED, CREATED, FAULTS, ARRIVALS, FAILURES, TAKEOVERS, SHARDS_LOST),
    *(SHARDS, WHEEL, LATENESS, BATCH, LOSSES),
)
OF_WORKERS = (
    *(CLAIMED, ATTEMPTS, USEFUL, RETRIES, START_DELAY, RUN_TIME, SLOTS, SLOTS_USED, FENCED, LEASES_LOST),
    *(HEARTBEAT_AGE, OUTBOX),
)
OF_THE_STORE = (
    *(RUNS, RUNS_EARLY, OVERDUE, ENDED, SPENT, PERSON, ALERTS_OPEN, ALERT_RUNS, QUEUE_WAITING, QUEUE_OLDEST),
    LANE_WAITING,
    *(TENANT_WAITING, INSTANCES, SCHEDULES, USEFUL_AGE, BREAKER_OPEN, LIMIT_USED, LIMIT_WAITING, MEASURED_AGE),
)
ALL = (*OF_PROCESSES, *OF_SCHEDULERS, *OF_WORKERS, *OF_THE_STORE)


class Histogram:
    """How often a length fell where. Whoever counts does not wait for whoever reads."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, metric: Metric) -> None:
        self.edges: tuple[Duration, ...] = tuple(round(edge * SECOND) for edge in metric.edges)
        self.counts = [0] * (len(self.edges) + 1)
        """Of those up to each edge, and above the one before it; then of all that are longer."""
        self.total: Duration = 0

    def add(self, length: Duration) -> None:
        self.counts[bisect_left(self.edges, length)] += 1
        self.total += length

    def add_due(self, due: Sequence[tuple[Instant, int]], now: Instant) -> None:
        """How long each of these was due by now. They are in order, so that a batch costs no more than its edges."""
        left = len(due)
        for place, edge in enumerate(self.edges):
            later = bisect_left(due, (now - edge,), 0, left)
            self.counts[place] += left - later
            left = later
            if not left:
                break
        self.counts[-1] += left
        self.total += now * len(due) - sum(at for at, _ in due)


class Names:
    """The values that a label may have: the first so many that come, and `other`."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._known: set[str] = set()
        self._most = most

    def of(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name
