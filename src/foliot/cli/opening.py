"""Opening the store of a process that is there to stay."""

from __future__ import annotations

import asyncio
import logging
import time

from foliot.app import Foliot
from foliot.domain.store import Store
from foliot.errors import StoreAway

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""Seconds."""

_log = logging.getLogger("foliot")


async def opened(app: Foliot, stop: asyncio.Event) -> Store:
    """Waits while the server is away: whoever is started before it, or while it is started again, outlives that as one
    does that runs already. What waiting cannot cure (a wrong password, a server that is refused) is raised at once.
    StoreAway when it is told to end before the server came."""
    began, pause = time.monotonic(), FIRST_PAUSE
    while True:
        try:
            store = await app.opened()
        except StoreAway as error:
            if pause == FIRST_PAUSE:
                _log.warning("%s; waiting for it", error)
            if stop.is_set() or await _is_told(stop, pause):
                raise
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            if pause > FIRST_PAUSE:
                _log.warning("the store is there, after %.1f s", time.monotonic() - began)
            return store


async def _is_told(stop: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await stop.wait()
    except TimeoutError:
        return False
