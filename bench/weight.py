"""What a pending run weighs: on disk, and in a scheduler's memory once it is near."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

from bench.raw import FAR_TO, Raw, far_times, insert, now
from foliot import bootstrap
from foliot.dispatch.wheel import Wheel
from foliot.domain.instant import MINUTE
from foliot.domain.store import Store

_PIECE = 5_000
"""As many as a dispatcher loads in one go."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes per pending run."""

    disk: float
    """Table and indexes."""
    disk_table: float
    memory: float
    load_rate: float
    """Runs per second, from the store into the wheel."""


def fill(path: Path, count: int) -> tuple[float, float]:
    """Makes far-future pending runs; returns the bytes on disk that each takes, in all and in the table alone."""
    with Raw(path) as raw:
        before = raw.bytes()
        insert(raw, far_times(count))
        raw.checkpoint()
        grown = raw.bytes() - before
        table = raw.connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'run'").get
    return grown / count, table / count


def weigh(path: Path, count: int, disk: tuple[float, float]) -> Weight:
    """`path` is a store that was filled with `count` pending runs."""
    return asyncio.run(_weigh(path, count, disk))


async def _weigh(path: Path, count: int, disk: tuple[float, float]) -> Weight:
    store = bootstrap.make_store(f"sqlite:///{path}")
    await store.open()
    try:
        began = time.perf_counter()
        loaded = await _load(store, Wheel())
        spent = time.perf_counter() - began
        assert loaded == count, f"{loaded} of {count} pending runs were loaded"
        tracemalloc.start()
        wheel = Wheel()
        await _load(store, wheel)
        memory, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    finally:
        await store.close()
    return Weight(disk[0], disk[1], memory / count, count / spent)


async def _load(store: Store, wheel: Wheel) -> int:
    """As a dispatcher does, but with a window that holds everything."""
    instance = await store.register("scheduler", version="", queues=(), slots=0, jobs=())
    lease = await store.take(0, instance.number, MINUTE)
    assert lease is not None, "nobody else has this store"
    [lease] = await store.renew([lease], MINUTE, now() + 2 * FAR_TO)
    start, exhausted = (0, 0), False
    while not exhausted:
        cells = await store.load(lease, start, _PIECE)
        wheel.add_cells(cells)
        start, exhausted = cells.last, cells.exhausted
    await store.release([lease])
    await store.retire(instance.number)
    return wheel.loaded
