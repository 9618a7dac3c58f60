"""How metrics are written for Prometheus: the one place that knows. What they mean is in `foliot.domain.metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from wsgiref.simple_server import WSGIServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from foliot.domain.instant import SECOND
from foliot.domain.metrics import Histogram, Kind, Metric

CONTENT_TYPE = CONTENT_TYPE_LATEST

Series = Mapping[tuple[str, ...], float | Histogram]
"""By the values of its labels, in their order."""
Told = tuple[Metric, Series | float | Histogram]
Source = Callable[[], Iterable[Told]]


def rendered(told: Iterable[Told]) -> bytes:
    """All of these as one answer."""
    return generate_latest(_registry([lambda: told]))


def serve(port: int, host: str, *sources: Source) -> tuple[WSGIServer, int]:
    """Answers at `/metrics` in a thread of its own, until it is shut down. Port 0 picks one, and this says which."""
    server, _ = start_http_server(port, host, _registry(sources))
    return server, server.server_port


def _registry(sources: Iterable[Source]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Everything(sources))
    return registry


class _Everything(Collector):
    """Asks its sources when somebody asks."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = list(sources)

    def describe(self) -> list[Family]:
        return []  # whatever it tells, nobody else tells: it need not be asked before anybody wants to know

    def collect(self) -> Iterator[Family]:
        for source in self._sources:
            for metric, series in source():
                yield _family(metric, series)


def _family(metric: Metric, series: Series | float | Histogram) -> Family:
    found: Series = series if isinstance(series, Mapping) else {(): series}
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
    """As many up to each edge, from the shortest on."""
    found: list[tuple[str, float]] = []
    below = 0
    for edge, count in zip((*map(repr, metric.edges), "+Inf"), histogram.counts, strict=True):
        below += count
        found.append((edge, below))
    return found
