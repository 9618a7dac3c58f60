"""What one process tells Prometheus of itself. Everything is read when somebody asks: whoever counts knows nothing of
this, and does not wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from foliot.clock import Clock, DisciplinedClock
from foliot.domain import metrics
from foliot.domain.instant import SECOND, Instant
from foliot.domain.metrics import Histogram
from foliot.exposition import Source, Told
from foliot.watch.journal import Journal


class DispatchCounts(Protocol):
    """What is read of a dispatcher's counters; see `foliot.dispatch`."""

    fired: int
    early_refused: int
    stale: int
    skipped_for: Counter[str]
    held_for: Counter[str]
    created: int
    faults: int
    arrivals: int
    takeovers: int
    lost: int
    failures: int
    lateness: Histogram
    batches: Histogram


class Dispatching(Protocol):
    @property
    def counters(self) -> DispatchCounts: ...
    @property
    def shards(self) -> frozenset[int]: ...
    @property
    def waiting(self) -> int: ...


class Working(Protocol):
    """What is read of a worker; see `foliot.work`."""

    slots: int
    losses: int

    @property
    def taken(self) -> int: ...
    @property
    def undelivered(self) -> int: ...
    @property
    def fenced(self) -> int: ...
    @property
    def heard_at(self) -> Instant | None: ...


def of_process(role: str, version: str, clock: Clock, journal: Journal | None) -> Source:
    def told() -> Iterator[Told]:
        yield metrics.PROCESS_INFO, {(role, version): 1}
        if isinstance(clock, DisciplinedClock):
            offset = clock.offset
            if offset is not None:
                yield metrics.CLOCK_OFFSET, sum(offset) / 2 / SECOND
            yield metrics.CLOCK_FENCED, int(clock.fenced)
        if journal is not None:
            yield metrics.LOG_DROPPED, journal.dropped

    return told


def of_scheduler(dispatcher: Callable[[], Dispatching | None], lost: Callable[[], int]) -> Source:
    """`dispatcher`: the one of the moment; a scheduler that was declared dead begins with another one."""

    def told() -> Iterator[Told]:
        now = dispatcher()
        if now is None:
            return
        counters = now.counters
        yield metrics.FIRED, counters.fired
        yield metrics.EARLY_REFUSED, counters.early_refused
        yield metrics.STALE, counters.stale
        yield metrics.HELD, _by_one(counters.held_for)
        yield metrics.SKIPPED, _by_one(counters.skipped_for)
        yield metrics.CREATED, counters.created
        yield metrics.FAULTS, counters.faults
        yield metrics.ARRIVALS, counters.arrivals
        yield metrics.FAILURES, counters.failures
        yield metrics.TAKEOVERS, counters.takeovers
        yield metrics.SHARDS_LOST, counters.lost
        yield metrics.SHARDS, len(now.shards)
        yield metrics.WHEEL, now.waiting
        yield metrics.LATENESS, counters.lateness
        yield metrics.BATCH, counters.batches
        yield metrics.LOSSES, lost()

    return told


def of_worker(worker: Working, journal: Journal, clock: Clock) -> Source:
    def told() -> Iterator[Told]:
        journal.take()
        tally = journal.tally
        yield metrics.CLAIMED, _by_one(tally.claimed)
        yield metrics.ATTEMPTS, _by_several(tally.attempts)
        yield metrics.USEFUL, _by_one(tally.useful)
        yield metrics.RETRIES, _by_one(tally.retries)
        yield metrics.START_DELAY, {(lane,): one for lane, one in list(tally.delays.items())}
        yield metrics.RUN_TIME, {(job,): one for job, one in list(tally.times.items())}
        yield metrics.SLOTS, worker.slots
        yield metrics.SLOTS_USED, worker.taken
        yield metrics.FENCED, worker.fenced
        yield metrics.LEASES_LOST, worker.losses
        heard_at = worker.heard_at
        if heard_at is not None:
            yield metrics.HEARTBEAT_AGE, max(clock.now() - heard_at, 0) / SECOND
        yield metrics.OUTBOX, worker.undelivered

    return told


def _by_one(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): count for name, count in list(counts.items())}


def _by_several(counts: Mapping[tuple[str, str, str], int]) -> dict[tuple[str, ...], float]:
    return dict(list(counts.items()))  # at once: the journal's thread may add to them meanwhile
