"""Deadlines of running attempts, and standstills: one look at all of them when the nearest may have come, not a timer
for each.

    asked       at its deadline, or when it has not moved for `stall_after`, an attempt is asked to stop
    overrun     a second later, people are told that it did not heed that; one in a process of its own is killed
    forced      one in this process cannot be ended alone: some seconds later, the whole process is given up for it

When an operator forces the cancellation of an attempt, it has a second to end, and then the process is given up.

All this is done by the worker's event loop; blockade.py is for handlers that do not let it turn.

Every moment here is one of the monotonic clock: setting the host's clock must neither cancel work nor prolong it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from foliot.domain.instant import SECOND, Duration, Instant, spell
from foliot.domain.policy import OnStall
from foliot.work.attempt import Attempt, Stop

NEVER: Instant = 1 << 62
HEED: Duration = SECOND
"""How long a handler may take to end after it was asked to."""
LOOK: Duration = SECOND
"""How often somebody looks whether an attempt that stood still moves again."""


class Deadlines:
    """Stops what is past its deadline or stands still, reports what does not heed that, and then has it ended.

    An attempt that does not heed keeps its slot, and its outcome is recorded when it has really ended: until then
    people should know, and no successor may start.
    """

    __slots__ = ("_force", "_recycle_after", "_report", "_running", "_stop", "nearest")

    def __init__(
        self,
        running: Iterable[Attempt],
        stop: Callable[[Attempt, Stop], None],
        report: Callable[[tuple[str, str, str]], None],
        force: Callable[[Attempt], None] = lambda attempt: None,
        recycle_after: Duration | None = None,
    ) -> None:
        """`force` ends an attempt against its will. For one that shares this process that is a matter of the whole
        process, and is done `recycle_after` the overrun; None: never."""
        self._running = running
        self._stop = stop
        self._report = report
        self._force = force
        self._recycle_after = recycle_after
        self.nearest: Instant = NEVER
        """No deadline is nearer than this. Whoever begins an attempt at `now` calls `expect`."""

    def expect(self, attempt: Attempt, now: Instant) -> None:
        """An attempt begins: perhaps later than now, if it waits for a thread, but not earlier."""
        policy = attempt.policy
        length = policy.timeout if policy.stall_after is None else min(policy.timeout, policy.stall_after)
        if now + length < self.nearest:
            self.nearest = now + length

    def watch(self, now: Instant) -> bool:
        """Acts on everything that is due; answers whether there was anything."""
        if now < self.nearest:
            return False
        acted = False
        self.nearest = NEVER
        for attempt in list(self._running):
            due = self._due(attempt)
            if due is not None and due <= now:
                acted = True
                self._act(attempt, now)
                due = self._due(attempt)
            elif due is None and not attempt.overrun:  # not begun when it was looked at; a thread may have since
                self.expect(attempt, now)
            if attempt.stuck is not None and not attempt.asked():
                due = now + LOOK if due is None else min(due, now + LOOK)
            self.nearest = self.nearest if due is None else min(self.nearest, due)
        return acted

    def next(self) -> Instant | None:
        """The nearest moment at which something is due of what has begun, exactly."""
        return min((due for attempt in list(self._running) if (due := self._due(attempt)) is not None), default=None)

    def _due(self, attempt: Attempt) -> Instant | None:
        """When an attempt must be acted upon next; None before it has begun, and when no more can be done."""
        deadline = attempt.deadline()
        if deadline is None or attempt.forced:
            return None
        due = self._due_by_policy(attempt, deadline)
        if attempt.force_at is None:
            return due
        if attempt.overrun and self._recycle_after is None:
            return None
        return attempt.force_at + HEED if due is None else min(due, attempt.force_at + HEED)

    def _due_by_policy(self, attempt: Attempt, deadline: Instant) -> Instant | None:
        if attempt.asked_at is None:
            standstill = _standstill(attempt)
            return deadline if standstill is None else min(deadline, standstill)
        if not attempt.overrun:
            return attempt.asked_at + HEED
        return None if self._recycle_after is None else attempt.asked_at + HEED + self._recycle_after

    def _act(self, attempt: Attempt, now: Instant) -> None:
        deadline = attempt.deadline()
        if attempt.asked_at is not None or (attempt.force_at is not None and attempt.force_at + HEED <= now):
            self._insist(attempt)
        elif deadline is not None and deadline <= now:
            attempt.asked_at = now
            self._stop(attempt, Stop.TIMEOUT)
        elif attempt.stuck is None:
            self._found_stuck(attempt, now)
        else:
            attempt.stuck = None
            self._report(("moving", attempt.claimed.id, f"attempt {attempt.claimed.attempt} makes progress again"))

    def _insist(self, attempt: Attempt) -> None:
        """It was asked, and goes on."""
        is_reported, attempt.overrun = attempt.overrun, True
        if not (is_reported or attempt.isolated):
            self._report(("overrun", attempt.claimed.id, _overrun(attempt)))
        if is_reported or attempt.isolated or (attempt.force_at is not None and self._recycle_after is not None):
            attempt.forced = True
            self._force(attempt)

    def _found_stuck(self, attempt: Attempt, now: Instant) -> None:
        policy = attempt.policy
        attempt.stuck = attempt.moved_at()
        length = spell(policy.stall_after or 0)
        then = {
            OnStall.ALERT: "it continues",
            OnStall.CANCEL: "cancelling it",
            OnStall.KILL: ("cancelling it, and ending its process if it does not stop"),
        }
        detail = f"attempt {attempt.claimed.attempt}: no progress for {length}; {then[policy.on_stall]}"
        self._report(("stuck", attempt.claimed.id, detail))
        if policy.on_stall is OnStall.KILL:
            attempt.asked_at = now
        if policy.on_stall is not OnStall.ALERT:
            self._stop(attempt, Stop.STALL)


def _overrun(attempt: Attempt) -> str:
    if attempt.force_at is not None:
        why = "after its forced cancellation"
    elif attempt.stop is Stop.STALL:
        why = "after it stalled"
    else:
        why = f"after its timeout of {spell(attempt.policy.timeout)}"
    return f"attempt {attempt.claimed.attempt} of {attempt.handler.name} continues {why}"


def ends_at(attempt: Attempt) -> Instant | None:
    """When an attempt has to end, or had to; None before it has begun."""
    if attempt.force_at is not None:
        return attempt.force_at
    deadline = attempt.deadline()
    if attempt.asked_at is not None or deadline is None:
        return attempt.asked_at
    standstill = _standstill(attempt) if attempt.policy.on_stall is OnStall.KILL else None
    return deadline if standstill is None else min(deadline, standstill)


def _standstill(attempt: Attempt) -> Instant | None:
    """When an attempt will have stood still for too long; or, if people know that it has, when it moved again."""
    if attempt.policy.stall_after is None or attempt.asked():
        return None
    moved = attempt.moved_at()
    if moved is None or moved == attempt.stuck:
        return None
    return moved + (attempt.policy.stall_after if attempt.stuck is None else 0)
