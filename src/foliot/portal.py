"""The sync facade: lets plain code call async code, and refuses to block a running event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

from foliot.errors import StoreClosed

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that calls under way are given to end before the portal rests."""


class Portal:
    """One event loop in one thread, started when it is first needed.

    idle ── call ──▶ running ── rest ──▶ resting ── resume ──▶ idle

    Who calls while it rests waits until it is resumed. A child process that inherits one must `forget` it first.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew. After a fork: the threads are the parent's, and its locks may be held by one of them."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._under_way: set[Future[Any]] = set()

    def call(self, begin: Callable[[], Coroutine[Any, Any, T]], twin: str) -> T:
        """Runs what `begin` makes, and waits for it; `twin` names the verb that a running loop should await."""
        refuse_to_block(twin)
        with self._lock:
            future = asyncio.run_coroutine_threadsafe(begin(), self._running())
            self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        try:
            return future.result()
        except CancelledError:
            raise StoreClosed("the app was closed before the answer came; check whether the request was done") from None

    def is_here(self) -> bool:
        """Whether this very code was begun by `call`."""
        return threading.current_thread() is self._thread

    def rest(self, *, cut_off: bool) -> bool:
        """Lets no call begin until `resume`; those under way end, and their loop with them.

        What has not ended after PATIENCE is cut off; or else, when it must not be, all runs on and the answer is False.
        """
        self._lock.acquire()
        if self._loop is None or self._thread is None:
            return True
        late = wait(tuple(self._under_way), PATIENCE).not_done
        if late and not cut_off:
            return False
        for future in late:
            future.cancel()
        before = _threads()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        _wait_for_end(before - _threads())
        self._loop = self._thread = None
        return True

    def resume(self) -> None:
        self._lock.release()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="foliot-portal", daemon=True)
            self._thread.start()
        return self._loop


def refuse_to_block(twin: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"this call would block the running event loop; await {twin}(...) instead")


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    left = asyncio.all_tasks(loop)  # of calls that were cut off
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def _threads() -> set[int | None]:
    """The ids by which the system knows the threads of Python."""
    return {thread.native_id for thread in threading.enumerate()}


def _wait_for_end(threads: Collection[int | None]) -> None:
    """Waits until the system has ended threads that Python has joined: their destructors run after that. OpenSSL takes
    locks there. A child that is forked at such a moment finds them locked for ever."""
    end = time.monotonic() + PATIENCE
    while any(os.path.exists(f"/proc/self/task/{thread}") for thread in threads) and time.monotonic() < end:
        time.sleep(0.001)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that never suspends, without any event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    work.close()
    raise RuntimeError("the async call needs a running event loop, and there is none; await it in async code")
