"""An app in virtual time with a watch, on either engine, and what is asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from foliot import Foliot, every
from foliot.clock import ManualClock
from foliot.domain.alerts import Alert, Kind
from foliot.domain.instant import instant
from foliot.store.postgres import PostgresStore
from foliot.testing import World, virtual_time
from tests.servers.warm import Warm

START = datetime(2026, 1, 1, tzinfo=UTC)


class Place(NamedTuple):
    """An empty server, and the loop in which its connections last from test to test."""

    dsn: str
    warm: Warm
    runner: asyncio.Runner


@contextmanager
def watched(app: Foliot, look_every: str = "10s", *, place: Place | None = None, slots: int = 100) -> Iterator[World]:
    """`place`: on a server; else in memory."""
    with virtual_time(app, start=START, slots=slots) if place is None else _on_a_server(app, place, slots) as world:
        world.watch(look_every)
        yield world


@contextmanager
def _on_a_server(app: Foliot, place: Place, slots: int) -> Iterator[World]:
    clock = ManualClock(instant(START))
    store = place.warm.store(place.dsn, clock)
    place.runner.run(store.open())
    with app.standing_on(store, clock):
        world = World(app, store, clock, slots=slots)
        world._runner = place.runner
        world.start()
        try:
            yield world
        finally:
            world.close()


def an_app(**settings: Any) -> Foliot:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def work() -> None: ...

    app.schedule("hourly", work, every("1h"), **settings)
    return app


def told(world: World, *, everything: bool = True) -> list[tuple[str, str]]:
    return [alert.key for alert in world.alerts(everything=everything)]


def one(world: World, kind: Kind) -> Alert:
    [found] = [alert for alert in world.alerts(everything=True) if alert.kind is kind]
    return found


def kinds(world: World) -> set[Kind]:
    """Of those that are open."""
    return {alert.kind for alert in world.alerts()}


def sql(world: World, statement: str) -> None:
    """By hand, as nobody should."""

    async def write(tx: Any) -> None:
        if isinstance(world.store, PostgresStore):
            await tx._connection.execute(f"SET LOCAL search_path TO foliot; {statement}")
        else:
            tx._connection.execute(statement)

    world.call(world.store.write(write))  # type: ignore[attr-defined]
