"""What a sleeping worker is woken by: somebody rings, or a look around finds something new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Rung while nobody sleeps, it keeps the next sleeper awake: no wake-up is lost between looking and lying down."""

    __slots__ = ("_sleepers", "ringing")

    def __init__(self) -> None:
        self.ringing = False
        self._sleepers: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        self.ringing = True
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    async def sleep(self, look: Callable[[], float]) -> None:
        """Until it rings. `look` is called now and then: it may ring, and says after how many seconds to look again."""
        if not self.ringing:
            loop = asyncio.get_running_loop()
            sleeper: asyncio.Future[None] = loop.create_future()
            self._sleepers.append(sleeper)
            timer: asyncio.TimerHandle | None = None

            def glance() -> None:
                nonlocal timer
                timer = loop.call_later(look(), glance)

            try:
                glance()
                if sleeper.done():
                    await asyncio.sleep(0)  # to await what is done lets nobody else run
                await sleeper
            finally:
                if timer is not None:
                    timer.cancel()
                self._sleepers.remove(sleeper)
        self.ringing = False
