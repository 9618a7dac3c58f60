"""Every cell of the table of policies, in virtual time: on SQLite with one scheduler, and some of them elsewhere.

The short form leaves out the cell in which a thousand runs execute.

Elsewhere is a setup with five schedulers, with PostgreSQL, or with both. With one of the two, the short form plays one
cell of each event. With both, it plays the cells of `TOGETHER`. The full form plays every cell in every setup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest

from foliot.clock import ManualClock
from foliot.domain.policy import Overlap
from foliot.domain.run import Origin
from foliot.domain.state import PARKED, TERMINAL, State
from foliot.domain.store import Store
from foliot.store.sqlite import SqliteStore
from tests.policies.events import NO_SCHEDULERS, OUTAGE_3
from tests.policies.stage import Stage, tick_of
from tests.policies.table import CELLS, Cell
from tests.servers.emptied import emptied
from tests.servers.warm import Warm
from tests.tiers import full_only


class House(NamedTuple):
    engine: str
    schedulers: int


def _one_of_each_event(cells: Sequence[Cell], shift: int) -> list[Cell]:
    """Of the first event the first cell, of the second one the second, and so on: they differ in their settings."""
    events = {cell.event.title: [other for other in cells if other.event is cell.event] for cell in cells}
    return [of_event[(place + shift) % len(of_event)] for place, of_event in enumerate(events.values())]


QUICK = [cell for cell in CELLS if not cell.is_long]
TOGETHER = [cell for cell in QUICK if cell.event in (OUTAGE_3, NO_SCHEDULERS) and cell.settings == {"catch_up": "all"}]
"""Cells whose result depends on the order in which several schedulers fire many ticks."""
SHORT = {
    House("sqlite", 1): QUICK,
    House("sqlite", 5): _one_of_each_event(QUICK, 0),
    House("postgres", 1): _one_of_each_event(QUICK, 2),
    House("postgres", 5): TOGETHER,
}
WHOLE = {house: CELLS if house == House("sqlite", 1) else QUICK for house in SHORT}


def _parameters() -> Iterator[object]:
    for house, cells in WHOLE.items():
        for cell in cells:
            name = f"{house.engine}-{house.schedulers}: {cell.event.title}: {cell.policy}"
            marks = [pytest.mark.needs(house.engine), *([] if cell in SHORT[house] else [full_only])]
            yield pytest.param(house, cell, id=name, marks=marks)


@pytest.mark.parametrize(("house", "cell"), list(_parameters()))
def test_every_tick_ends_as_the_table_says(
    house: House, cell: Cell, lasting_runner: asyncio.Runner, request: pytest.FixtureRequest
) -> None:
    def make(clock: ManualClock) -> Store:
        if house.engine == "sqlite":
            return SqliteStore(":memory:", clock)
        warm: Warm = request.getfixturevalue("warm")
        return warm.store(emptied(request.getfixturevalue("postgres"), shards=1, by_socket=True), clock)

    with Stage(make, cell.settings, house.schedulers, lasting_runner).open() as stage:
        cell.event.act(stage)
        assert stage.told() == cell.rows.split("; ")
        _is_at_rest(stage)
        _has_accounted_for_every_tick_once(stage)
        _began_nothing_early(stage)
        if cell.settings.get("overlap") != Overlap.ALLOW:
            _ran_one_at_a_time(stage)


def _is_at_rest(stage: Stage) -> None:
    """Nothing waits, or is about to run, but the schedule's one next tick."""
    waiting = [run for run in stage.world.runs() if run.state not in TERMINAL | PARKED]
    assert [(run.state, run.origin) for run in waiting] == [(State.SCHEDULED, Origin.SCHEDULED)]


def _has_accounted_for_every_tick_once(stage: Stage) -> None:
    """By a row of its own, or in the span of a row."""
    told: list[int] = []
    for run in stage.world.runs():
        if run.origin is Origin.SCHEDULED:
            first, last = tick_of(run.nominal), tick_of(run.span_until or run.nominal)
            assert run.span_count == last - first + 1
            told += range(first, last + 1)
    assert sorted(told) == list(range(1, max(told) + 1))


def _began_nothing_early(stage: Stage) -> None:
    assert [span for span in stage.spans if span.begun < span.nominal] == []


def _ran_one_at_a_time(stage: Stage) -> None:
    spans = sorted(stage.spans, key=lambda span: span.begun)
    assert [pair for pair in pairwise(spans) if pair[0].holds(pair[1])] == []
