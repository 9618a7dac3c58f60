"""The sync facade: lets plain code call async code, and refuses to block a running event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """One event loop in one thread, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def call(self, begin: Callable[[], Coroutine[Any, Any, T]], twin: str) -> T:
        """Runs what `begin` makes, and waits for it; `twin` names the verb that a running loop should await."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(begin(), self._running()).result()
        raise RuntimeError(f"this would block the running event loop; await {twin}(...) instead")

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="foliot-portal", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        with self._lock:
            if self._loop is not None and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
                self._loop = self._thread = None
