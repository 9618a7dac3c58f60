"""Every cell of the table of policies, in virtual time, on both engines, with one scheduler and with five.

All of it is acted out on SQLite with one scheduler and with five, and on PostgreSQL with one or with five. There, a
second of five schedulers costs ten times as much, so they act out one cell of each event: the last in which ticks queue
up, or all are caught up, because then their order matters. In the long form one scheduler acts those out, too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

from foliot.clock import ManualClock
from foliot.domain.policy import Overlap
from foliot.domain.run import Origin
from foliot.domain.state import PARKED, TERMINAL, State
from foliot.domain.store import Store
from foliot.store.sqlite import SqliteStore
from tests.policies.stage import Stage, tick_of
from tests.policies.table import CELLS, Cell
from tests.servers.emptied import emptied
from tests.servers.warm import Warm


class House(NamedTuple):
    engine: str
    schedulers: int


TORTURE = bool(os.environ.get("FOLIOT_TORTURE"))
ORDERLY = {cell.event.title: cell for cell in CELLS if {"queue", "all"} & set(map(str, cell.settings.values()))}
PLAYED = {
    House("sqlite", 1): CELLS,
    House("sqlite", 5): [cell for cell in CELLS if not cell.is_long],
    House("postgres", 1): [cell for cell in CELLS if not cell.is_long and (TORTURE or cell not in ORDERLY.values())],
    House("postgres", 5): list(ORDERLY.values()),
}


def _parameters() -> Iterator[object]:
    for house, cells in PLAYED.items():
        for cell in cells:
            name = f"{house.engine}-{house.schedulers}: {cell.event.title}: {cell.policy}"
            yield pytest.param(house, cell, id=name, marks=pytest.mark.needs(house.engine))


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
