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


PROCESS_INFO = _gauge("process_info", "Always 1; the labels describe this process.", "role", "version")
CLOCK_OFFSET = _gauge("clock_offset_seconds", "Offset of the store's clock from the host's clock, in seconds.")
CLOCK_FENCED = _gauge("clock_fenced", "1 while the host's clock is wrong and this process starts no new work.")

FIRED = _counter("scheduler_fired", "Runs handed off to workers.")
EARLY_REFUSED = _counter(
    "scheduler_early_refused", "Hand-offs that the store refused because they came before the run's time."
)
STALE = _counter("scheduler_stale", "Runs that were moved, cancelled or claimed before their hand-off.")
HELD = _counter("scheduler_held", "Due runs that were held.", "reason")
SKIPPED = _counter("scheduler_skipped", "Due runs that were skipped.", "reason")
CREATED = _counter("scheduler_created", "Pending runs created for the next ticks of schedules.")
FAULTS = _counter("scheduler_faults", "Schedules that were set aside because they are unreadable.")
ARRIVALS = _counter("scheduler_arrivals", "Runs that became due soon after the scheduler loaded them.")
FAILURES = _counter("scheduler_failures", "Failed requests of the scheduler to the store.")
TAKEOVERS = _counter("scheduler_takeovers", "Shard leases acquired.")
SHARDS_LOST = _counter("scheduler_shards_lost", "Shard leases lost to other schedulers.")
SHARDS = _gauge("scheduler_shards", "Shards that this scheduler holds now.")
WHEEL = _gauge("scheduler_wheel_runs", "Runs in the scheduler's memory that wait for their time.")
LATENESS = _histogram(
    "scheduler_lateness",
    "Seconds from the due time of a run to its hand-off; early hand-offs are not counted.",
    PUNCTUAL,
)
BATCH = _histogram("scheduler_batch", "Seconds to hand off one batch of runs.", PUNCTUAL)
LOSSES = _counter("scheduler_attempts_lost", "Attempts whose lease expired without a heartbeat.")

CLAIMED = _counter("worker_claimed", "Runs claimed by this worker.", "lane")
ATTEMPTS = _counter("worker_attempts", "Attempts that ended.", "job", "queue", "outcome")
USEFUL = _counter("worker_useful", "Attempts that completed a run: it succeeded or was verified.", "job")
RETRIES = _counter("worker_retries", "Attempts followed by a retry.", "job")
START_DELAY = _histogram("worker_start_delay", "Seconds from the due time of a run to its start.", PUNCTUAL, "lane")
RUN_TIME = _histogram("worker_run", "Duration of attempts in seconds.", WORKING, "job")
SLOTS = _gauge("worker_slots", "Slots of this worker.")
SLOTS_USED = _gauge("worker_slots_used", "Slots of this worker in use.")
FENCED = _counter("worker_fenced", "Outcomes that were fenced because the attempt no longer owned its run.")
LEASES_LOST = _counter("worker_leases_lost", "Times that this worker was marked dead and registered again.")
HEARTBEAT_AGE = _gauge("worker_heartbeat_age_seconds", "Seconds since the last heartbeat that the store received.")
OUTBOX = _gauge("worker_outbox", "Outcomes not yet written to the store.")
LOG_DROPPED = _counter("log_dropped", "Log lines dropped because the reader of the log is too slow.")

RUNS = _gauge("runs", "Runs that have not ended, by state.", "state")
RUNS_EARLY = _gauge("runs_early", "Attempts that started before their time. Must be 0.")
OVERDUE = _gauge("runs_overdue", "Due runs that no scheduler has handed off.")
ENDED = _counter("runs_ended", "Runs that ended since this process started.", "job", "state")
SPENT = _counter("runs_attempts", "Attempts of the runs that ended since this process started.", "job")
PERSON = _gauge("runs_for_a_person", "Runs that need attention: dead, unverified, ambiguous, settled.", "job", "state")
ALERTS_OPEN = _gauge("alerts_open", "Open alerts, including snoozed ones.", "kind", "severity")
ALERT_RUNS = _gauge("alerts_open_runs", "Number of runs in the open alerts about runs, by kind.", "kind", "severity")
QUEUE_WAITING = _gauge("queue_waiting_runs", "Runs that were handed off and wait for a worker.", "queue")
QUEUE_OLDEST = _gauge(
    "queue_oldest_seconds", "Seconds that the oldest run of the queue has waited for a worker.", "queue"
)
LANE_WAITING = _gauge("lane_waiting_runs", "Runs that were handed off and wait for a worker, by lane.", "lane")
TENANT_WAITING = _gauge(
    "tenant_waiting_runs",
    ("Runs that wait for a worker, for the tenants with the most waiting runs. Only on request."),
    "tenant",
)
INSTANCES = _gauge("instances", "Live processes.", "role", "version")
SCHEDULES = _gauge("schedules", "Schedules: active, paused, or set aside because they are unreadable.", "standing")
USEFUL_AGE = _gauge(
    "schedule_useful_age_seconds",
    "Seconds since the last useful run; without one, since the schedule was created.",
    "schedule",
)
BREAKER_OPEN = _gauge(
    "breaker_open", "1 for a destination that does not answer and whose runs are held.", "destination"
)
LIMIT_USED = _gauge("limit_used", "Running runs that take a slot of a limit.", "limit")
LIMIT_WAITING = _gauge("limit_waiting_runs", "Runs that a limit holds.", "limit")
MEASURED_AGE = _gauge("measured_age_seconds", "Seconds since the store last counted live runs and schedules.")

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
