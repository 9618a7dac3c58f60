"""Making promises: many at once, one after another, and by many callers at the same time.

Foliot and the raw ceiling take turns in short slices, on files of the same size. On a shared machine the same insert
can be ten times slower a minute later, so only what was measured within a second or two is compared.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

from bench.jobs import NOTE, app, class_id, noop
from bench.loads import made
from bench.raw import Raw, far_times, insert, insert_singly
from bench.results import Compared
from foliot import bootstrap
from foliot.domain.instant import Instant, to_datetime

CALLERS = 32
BULK = "promises in thousands: made and written"
WRITTEN = "promises in thousands: written"
SINGLE = "single promises, one async caller"
PLAIN = "single promises, one plain caller"
CONCURRENT = f"single promises, {CALLERS} async callers"


def compare_promises(folder: Path, bulk: int, seconds: float, slices: int) -> dict[str, Compared]:
    """`bulk` promises and `seconds` of each kind of single ones, cut into slices."""
    found = {name: Compared() for name in (BULK, WRITTEN, SINGLE, PLAIN)}
    # Its callers share commits, which the ceiling does not: it should be above.
    found[CONCURRENT] = Compared(may_exceed=True)
    app.store = bootstrap.make_store(f"sqlite:///{folder / 'promises.db'}")
    app.promise_many(made(far_times(1)))  # opens the store
    try:
        with Raw(folder / "raw-promises.db") as raw:
            # Bulk first: it grows both logs to their usual size, and an fsync of a log that grows costs more.
            for seed in range(slices):
                _bulk_slice(raw, found, far_times(bulk // slices, seed))
            for _ in range(slices):
                _single_slice(raw, found, seconds / slices)
    finally:
        app.close()
    return found


def _bulk_slice(raw: Raw, found: dict[str, Compared], times: list[Instant]) -> None:
    ceiling = len(times) / insert(raw, times)
    making = writing = 0.0
    for start in range(0, len(times), 1_000):
        began = time.perf_counter()
        listed = made(times[start : start + 1_000], start)
        between = time.perf_counter()
        app.promise_many(listed)
        making, writing = making + between - began, writing + time.perf_counter() - between
    found[BULK].add(len(times) / (making + writing), ceiling)
    found[WRITTEN].add(len(times) / writing, ceiling)


def _single_slice(raw: Raw, found: dict[str, Compared], seconds: float) -> None:
    """The ceiling on both sides of what is compared to it."""
    before = insert_singly(raw, seconds / 2)
    rates = {
        SINGLE: asyncio.run(_call(1, seconds)),
        PLAIN: _call_plainly(seconds),
        CONCURRENT: asyncio.run(_call(CALLERS, seconds)),
    }
    ceiling = (before + insert_singly(raw, seconds / 2)) / 2
    for name, rate in rates.items():
        found[name].add(rate, ceiling)


def _call_plainly(seconds: float) -> float:
    moments = [to_datetime(fire_at) for fire_at in far_times(1_000)]
    began, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        noop.at(moments[count % len(moments)], class_id=class_id(count), note=NOTE)
        count += 1
    return count / spent


async def _call(callers: int, seconds: float) -> float:
    moments = [to_datetime(fire_at) for fire_at in far_times(1_000)]
    places = itertools.count()

    async def call() -> int:
        done = 0
        while time.perf_counter() < until:
            place = next(places)
            await noop.at_async(moments[place % len(moments)], class_id=class_id(place), note=NOTE)
            done += 1
        return done

    began = time.perf_counter()
    until = began + seconds
    done = sum(await asyncio.gather(*(call() for _ in range(callers))))
    return done / (time.perf_counter() - began)
