"""What a job sees of its run, and how it says how far it is. Given by annotation: `def settle(ctx: Context, ...)`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from foliot.clock import Clock
from foliot.domain.instant import Instant, to_datetime
from foliot.domain.run import Claimed
from foliot.errors import Cancelled, InvalidInput

MOST_CHECKPOINT = 1 << 20
MOST_NOTE = 1_000
"""Characters of a progress note."""

_encode = msgspec.json.Encoder().encode


class Context:
    """One attempt, seen from inside the handler.

    A handler in a thread writes here while the event loop and the heartbeat's thread read. Every write is one
    assignment of a finished value, so a reader sees the old one or the new one, never half of one. What begins with
    an underscore is between the context and its attempt.
    """

    __slots__ = ("_checkpoint", "_claimed", "_clock", "_deadline", "_ends_at", "_note", "_saw_stop", "_stopping")

    def __init__(self, claimed: Claimed, clock: Clock, deadline: Instant, ends_at: Instant) -> None:
        """`ends_at` is the deadline by the monotonic clock."""
        self._claimed = claimed
        self._clock = clock
        self._deadline = deadline
        self._ends_at = ends_at
        self._note: bytes | None = None
        self._checkpoint = claimed.checkpoint
        self._stopping = False
        self._saw_stop = False

    @property
    def run_id(self) -> str:
        """The name of the run: the same in every attempt, so the right idempotency key for outside systems."""
        return self._claimed.id

    @property
    def number(self) -> int:
        """The number of the run: what `foliot.complete` asks for, with the token."""
        return self._claimed.number

    @property
    def attempt(self) -> int:
        """Which attempt at the run this is, counted from 1."""
        return self._claimed.attempt

    @property
    def nominal(self) -> datetime:
        """The time that the run stands for, in UTC; for a delayed job the time it was promised for."""
        claimed = self._claimed
        return to_datetime(claimed.fire_at if claimed.nominal is None else claimed.nominal)

    @property
    def interval(self) -> tuple[datetime, datetime] | None:
        """`[previous nominal, nominal)`: the time that a scheduled run answers for; None for delayed work."""
        claimed = self._claimed
        if claimed.since is None or claimed.nominal is None:
            return None
        return to_datetime(claimed.since), to_datetime(claimed.nominal)

    @property
    def schedule(self) -> str | None:
        """The schedule that made the run; None for delayed work."""
        return self._claimed.schedule

    @property
    def tenant(self) -> str | None:
        return self._claimed.tenant

    @property
    def token(self) -> int:
        """The fencing token: pass it on to outside systems that can refuse an older one."""
        return self._claimed.token

    @property
    def deadline(self) -> datetime:
        """When this attempt times out, in UTC, by the host's clock as it was when the attempt began."""
        return to_datetime(self._deadline)

    @property
    def time_left(self) -> timedelta:
        """Until the deadline; never negative. Right also when the host's clock was set meanwhile."""
        return timedelta(microseconds=max(self._ends_at - self._clock.monotonic(), 0))

    @property
    def cancelled(self) -> bool:
        """Whether this attempt should stop: cancelled by somebody, out of time, or its worker is shutting down.

        A handler that sees this may return or raise; either way the attempt counts as stopped, not as done.
        """
        if self._stopping:
            self._saw_stop = True
        return self._stopping

    def check(self) -> None:
        """Raises Cancelled when this attempt should stop. Call it where stopping is safe."""
        if self.cancelled:
            raise Cancelled(f"{self.run_id} was asked to stop")

    def progress(self, done: float, of: float | None = None, note: str | None = None) -> None:
        """Says how far the attempt is. Cheap: told to the store with the next heartbeat, the latest word only."""
        if note is not None and len(note) > MOST_NOTE:
            note = note[: MOST_NOTE - 1] + "…"
        self._note = _as_json({"done": done, "of": of, "note": note}, "progress")

    def checkpoint(self, value: Any) -> None:
        """Remembers a JSON value for the next attempt. Durable with the next heartbeat or the attempt's end."""
        encoded = _as_json(value, "a checkpoint")
        if len(encoded) > MOST_CHECKPOINT:
            raise InvalidInput(
                f"a checkpoint of {len(encoded):,} bytes is too large; at most {MOST_CHECKPOINT:,} are kept: "
                f"store the data elsewhere and remember what finds it"
            )
        self._checkpoint = encoded

    @property
    def last_checkpoint(self) -> Any:
        """The latest value given to `checkpoint`, by this attempt or one before it; None when there is none."""
        return None if self._checkpoint is None else msgspec.json.decode(self._checkpoint)


def _as_json(value: Any, what: str) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{what} must be a JSON value; {value!r:.80} is not: {error}") from None
