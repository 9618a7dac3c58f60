"""The clock of a process, held against that of the store."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from foliot.clock import Clock, DisciplinedClock
from foliot.domain.store import Store
from foliot.watch.clocks import ClockWatch


def disciplined(store: Store, clock: Clock) -> Clock:
    return DisciplinedClock(clock) if store.has_own_clock else clock


@asynccontextmanager
async def measuring(store: Store, clock: Clock, role: str, instance: Callable[[], int | None]) -> AsyncIterator[None]:
    """While it lasts, the clock is measured against the store's; the first time before anything else is done."""
    if not isinstance(clock, DisciplinedClock):
        yield
        return
    watch = ClockWatch(store, clock, role, platform.node(), instance)
    await watch.try_once()
    measuring = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        measuring.cancel()
