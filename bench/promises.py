"""Making promises: many at once, one after another, and by many callers at the same time."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

from bench.jobs import NOTE, app, class_id, noop
from bench.loads import made
from bench.raw import far_times
from foliot import bootstrap
from foliot.domain.instant import to_datetime

CALLERS = 32


@dataclass(frozen=True, slots=True)
class PromiseRates:
    """Per second."""

    bulk: float
    """Making them and writing them."""
    bulk_writing: float
    """Writing alone."""
    single: float
    """One caller that awaits each."""
    single_plain: float
    """One caller without an event loop."""
    concurrent: float
    """32 callers, each awaiting its own."""


def promise_rates(folder: Path, bulk: int, seconds: float) -> PromiseRates:
    app.store = bootstrap.make_store(f"sqlite:///{folder / 'promises.db'}")
    try:
        making, writing = _bulk(bulk)
        plain = _plain(seconds)
    finally:
        app.close()
    return PromiseRates(
        bulk=bulk / (making + writing),
        bulk_writing=bulk / writing,
        single=asyncio.run(_callers(1, seconds)),
        single_plain=plain,
        concurrent=asyncio.run(_callers(CALLERS, seconds)),
    )


def _bulk(count: int) -> tuple[float, float]:
    """Seconds for making, and for writing in thousands."""
    times = far_times(count)
    app.promise_many(made(times[:1]))  # opens the store
    making = writing = 0.0
    for start in range(0, count, 1_000):
        began = time.perf_counter()
        listed = made(times[start : start + 1_000], start)
        between = time.perf_counter()
        app.promise_many(listed)
        making, writing = making + between - began, writing + time.perf_counter() - between
    return making, writing


def _plain(seconds: float) -> float:
    moments = [to_datetime(fire_at) for fire_at in far_times(1_000)]
    began, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        noop.at(moments[count % len(moments)], class_id=class_id(count), note=NOTE)
        count += 1
    return count / spent


async def _callers(callers: int, seconds: float) -> float:
    moments = [to_datetime(fire_at) for fire_at in far_times(1_000)]
    places = itertools.count()

    async def call() -> int:
        done = 0
        while time.perf_counter() < until:
            place = next(places)
            await noop.at_async(moments[place % len(moments)], class_id=class_id(place), note=NOTE)
            done += 1
        return done

    await app.opened()
    try:
        began = time.perf_counter()
        until = began + seconds
        done = sum(await asyncio.gather(*(call() for _ in range(callers))))
        return done / (time.perf_counter() - began)
    finally:
        await app.close_async()
