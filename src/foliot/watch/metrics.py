"""What one process tells Prometheus of itself. Everything is read when somebody asks: whoever counts knows nothing of
this, and does not wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from foliot.clock import Clock, DisciplinedClock
from foliot.domain import metrics
from foliot.domain.instant import SECOND, Instant
from foliot.domain.metrics import Histogram, Kind, Metric
from foliot.watch.journal import Journal

Series = Mapping[tuple[str, ...], float | Histogram]
"""By the values of its labels, in their order."""
Source = Callable[[], Iterable[tuple[Metric, Series | float | Histogram]]]


def family(metric: Metric, series: Series | float | Histogram) -> Family:
    """A metric with its series, as Prometheus wants it."""
    found: Mapping[tuple[str, ...], float | Histogram]
    found = series if isinstance(series, Mapping) else {(): series}
    labels = list(metric.labels)
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=labels)
        for values, one in found.items():
            assert isinstance(one, Histogram)
            histogram.add_metric(list(values), _buckets(metric, one), one.total / SECOND)
        return histogram
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    plain = kind(metric.name, metric.help, labels=labels)
    for values, one in found.items():
        assert not isinstance(one, Histogram)
        plain.add_metric(list(values), one)
    return plain


def _buckets(metric: Metric, histogram: Histogram) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    below = 0
    for edge, count in zip((*metric.edges, float("inf")), histogram.counts, strict=True):
        below += count
        found.append(("+Inf" if edge == float("inf") else repr(edge), below))
    return found


class Told(Collector):
    """All that one process tells."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = list(sources)

    def collect(self) -> Iterator[Family]:
        for source in self._sources:
            for metric, series in source():
                yield family(metric, series)


def serve(port: int, host: str, *sources: Source) -> tuple[WSGIServer, int]:
    """Answers at `/metrics` in a thread of its own, until it is shut down. Port 0 picks one, and this says which."""
    registry = CollectorRegistry()
    registry.register(Told(sources))
    server, _ = start_http_server(port, host, registry)
    return server, server.server_port


# ----------------------------------------------------------------------------------------------------------- what it is


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
    def told() -> Iterator[tuple[Metric, Series | float]]:
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

    def told() -> Iterator[tuple[Metric, Series | float | Histogram]]:
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
    def told() -> Iterator[tuple[Metric, Series | float]]:
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


def _by_several(counts: Mapping[tuple[str, ...], int]) -> dict[tuple[str, ...], float]:
    return dict(list(counts.items()))  # at once: the journal's thread may add to them meanwhile
