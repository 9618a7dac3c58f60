"""Waits for other threads, processes and servers. The only bound is one that a hang alone exceeds.

A test that waits for an event names it. The bound exists so that a hang ends with a message. It never judges how fast
the machine is.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

HANG = 300.0
"""Seconds. No passing test waits this long, on any machine."""
_PAUSE = 0.01


def until(condition: Callable[[], T], what: str) -> T:
    """Ask again until the answer is true, and return it. `what` names the event in the error of a hang."""
    end = time.monotonic() + HANG
    while not (answer := condition()):
        assert time.monotonic() < end, f"after {HANG:g} s still waiting until {what}"
        time.sleep(_PAUSE)
    return answer


@overload
async def until_async(condition: Callable[[], Awaitable[T]], what: str) -> T: ...
@overload
async def until_async(condition: Callable[[], T], what: str) -> T: ...
async def until_async(condition: Callable[[], Any], what: str) -> Any:
    """As `until`, for a condition that may be a coroutine function."""
    end = time.monotonic() + HANG
    while True:
        asked = condition()
        answer = await asked if inspect.isawaitable(asked) else asked
        if answer:
            return answer
        assert time.monotonic() < end, f"after {HANG:g} s still waiting until {what}"
        await asyncio.sleep(_PAUSE)


async def soon(awaitable: Awaitable[T]) -> T:
    """The result of something that must end. Only a hang exceeds the bound."""
    return await asyncio.wait_for(awaitable, HANG)
