"""Deadlines of running attempts: one look at all of them when the nearest may have come, not a timer for each.

Every moment here is one of the monotonic clock: setting the host's clock must neither cancel work nor prolong it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from foliot.domain.instant import SECOND, Duration, Instant, spell
from foliot.work.attempt import Attempt, Stop

NEVER: Instant = 1 << 62
HEED: Duration = SECOND
"""How long an async handler may take to end after it was cancelled at its deadline, before that is worth an event."""


class Deadlines:
    """Stops what is past its deadline, and reports once what does not heed that.

    A thread cannot be ended, and a task that swallows its cancellation goes on. Either keeps its slot, and its outcome
    is recorded when it has really ended: until then people should know, and no successor may start.
    """

    __slots__ = ("_report", "_running", "_stop", "nearest")

    def __init__(
        self,
        running: Iterable[Attempt],
        stop: Callable[[Attempt, Stop], None],
        report: Callable[[tuple[str, str, str]], None],
    ) -> None:
        self._running = running
        self._stop = stop
        self._report = report
        self.nearest: Instant = NEVER
        """No deadline is nearer than this. Whoever begins an attempt at `now` lowers it to `now + timeout` at most: a
        thread may begin later, but not earlier."""

    def watch(self, now: Instant) -> bool:
        """Acts on every deadline that has passed; answers whether there was one."""
        if now < self.nearest:
            return False
        acted = False
        nearest = NEVER
        for attempt in list(self._running):
            due = _due(attempt)
            if due is not None and due <= now:
                acted = True
                self._act(attempt, now)
                due = _due(attempt)
            elif due is None and not attempt.overrun:  # not begun when it was looked at; a thread may have since
                due = now + attempt.policy.timeout
            nearest = nearest if due is None else min(nearest, due)
        self.nearest = nearest
        return acted

    def next(self) -> Instant | None:
        """The nearest deadline of what has begun, exactly."""
        return min((due for attempt in list(self._running) if (due := _due(attempt)) is not None), default=None)

    def _act(self, attempt: Attempt, now: Instant) -> None:
        if attempt.watch_at is None:
            attempt.watch_at = now + HEED
            self._stop(attempt, Stop.TIMEOUT)
            if attempt.task is not None:
                return
        attempt.overrun = True
        allowed = spell(attempt.policy.timeout)
        detail = f"attempt {attempt.claimed.attempt} of {attempt.handler.name} goes on after its {allowed}"
        self._report(("overrun", attempt.claimed.id, detail))


def _due(attempt: Attempt) -> Instant | None:
    """When an attempt must be looked at: at its deadline, then once more to see whether it heeded that."""
    if attempt.overrun:
        return None
    return attempt.deadline() if attempt.watch_at is None else attempt.watch_at
