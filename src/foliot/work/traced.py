"""An attempt inside its span: what its handler traces belongs to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from foliot.domain.run import Ending
from foliot.domain.signals import Tracer
from foliot.work.attempt import Attempt


async def traced(tracer: Tracer, attempt: Attempt, work: Awaitable[Ending | None]) -> Ending | None:
    with tracer.attempting(attempt.claimed) as span:
        ending = await work
        span.ended(ending)
    return ending


def traced_in_thread(tracer: Tracer, attempt: Attempt, work: Callable[[], Ending | None]) -> Ending | None:
    with tracer.attempting(attempt.claimed) as span:
        ending = work()
        span.ended(ending)
    return ending
