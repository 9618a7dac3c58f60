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
    """Opens the store, and waits while its server is down or restarting. Raises at once for errors that waiting cannot
    cure, such as a wrong password; StoreAway when `stop` is set first."""
    began, pause = time.monotonic(), FIRST_PAUSE
    while True:
        try:
            store = await app.opened()
        except StoreAway as error:
            if pause == FIRST_PAUSE:
                _log.warning("%s; waiting for the store", error)
            if stop.is_set() or await _is_set_within(stop, pause):
                raise
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            if pause > FIRST_PAUSE:
                _log.warning("store reachable after %.1f s", time.monotonic() - began)
            return store


async def _is_set_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await stop.wait()
    except TimeoutError:
        return False
