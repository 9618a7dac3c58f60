"""Metrics: how lengths are counted, and how many series a label may make."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import HOUR, SECOND
from foliot.domain.metrics import ALL, LATENESS, OTHER, Histogram, Kind, Names

NOW = 1_800_000_000 * SECOND


@given(some.lists(some.integers(0, 2 * HOUR)))
def test_a_batch_is_counted_as_its_runs_would_be_one_by_one(lags: list[int]) -> None:
    together, apart = Histogram(LATENESS), Histogram(LATENESS)
    due = sorted((NOW - lag, number) for number, lag in enumerate(lags))
    together.add_due(due, NOW)
    for lag in lags:
        apart.add(lag)
    assert (together.counts, together.total) == (apart.counts, apart.total)
    assert (sum(apart.counts), apart.total) == (len(lags), sum(lags))


def test_a_length_at_an_edge_is_counted_below_it() -> None:
    found = Histogram(LATENESS)
    found.add(found.edges[0])
    found.add(found.edges[0] + 1)
    found.add(found.edges[-1] + 1)
    assert (found.counts[0], found.counts[1], found.counts[-1]) == (1, 1, 1)


def test_a_label_has_so_many_values_and_one_for_the_rest() -> None:
    names = Names(2)
    assert [names.of(name) for name in ("a", "b", "c", "a", "d", "b")] == ["a", "b", OTHER, "a", OTHER, "b"]


def test_names_keep_to_the_customs_of_prometheus() -> None:
    assert len({metric.name for metric in ALL}) == len(ALL)
    for metric in ALL:
        assert re.fullmatch(r"foliot_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert bool(metric.edges) == (metric.kind is Kind.HISTOGRAM)
        assert not {"run", "id", "attempt", "member", "key"} & set(metric.labels), "a label never names a run"
