"""One claimed attempt in this process: what it is, what was asked of it, and what it said that nobody was told yet."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from enum import Enum
from typing import Any

from foliot.domain.instant import Instant
from foliot.domain.ledger import Item
from foliot.domain.policy import Policy
from foliot.domain.run import Claimed, Ending, Progress
from foliot.work.context import Context
from foliot.work.handler import Handler


class Stop(Enum):
    """Why an attempt was asked to stop. The first reason counts."""

    CANCEL = "cancel"
    """Somebody asked for it."""
    TIMEOUT = "timeout"
    STALL = "stall"
    """It lives, and does not move."""
    DRAIN = "drain"
    """The worker is shutting down."""
    LOST = "lost"
    """The store declared the worker dead: whatever this attempt still does, somebody else may do too."""


class Attempt:
    """Made for every run, so it is small and holds no behaviour that the happy path does not need."""

    isolated = False
    """Whether it has a process of its own."""
    on_trial = False
    """Whether it has that process because its run may be poison, and not because its job asks for it."""

    __slots__ = (
        "asked_at",
        "begun_at",
        "claimed",
        "context",
        "draining",
        "force_at",
        "forced",
        "future",
        "handler",
        "overrun",
        "policy",
        "started_at",
        "stop",
        "stuck",
        "task",
        "told",
    )

    def __init__(self, claimed: Claimed, handler: Handler, policy: Policy) -> None:
        self.claimed = claimed
        self.handler = handler
        self.policy = policy
        self.started_at: Instant | None = None
        """When the handler really began: a thread may have to wait for its turn."""
        self.begun_at: Instant | None = None
        """The same by the monotonic clock, which deadlines go by: the host's may be set meanwhile."""
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.future: Future[Any] | None = None
        self.stop: Stop | None = None
        self.draining = False
        """The worker is shutting down. It still lets this go on, but somebody else may cancel the task for that."""
        self.told: tuple[bytes | None, bytes | None] | None = None
        """The note and checkpoint that the store knows; None until it knows that the handler began."""
        self.asked_at: Instant | None = None
        """When it was told to stop or be ended; None while nothing of the kind threatens. Monotonic."""
        self.force_at: Instant | None = None
        """When the worker heard that an operator forces its cancellation. Monotonic."""
        self.overrun = False
        """It did not heed that, and people know."""
        self.forced = False
        """Everything was done to end it that can be done here."""
        self.stuck: Instant | None = None
        """When it moved last, if people were told that it has not moved since. Monotonic."""

    def deadline(self) -> Instant | None:
        """By the monotonic clock; None until the handler has begun."""
        return None if self.begun_at is None else self.begun_at + self.policy.timeout

    def moved_at(self) -> Instant | None:
        """When it last showed that it gets on, by the monotonic clock; None until the handler has begun."""
        moved = None if self.context is None else self.context._moved_at
        return self.begun_at if moved is None else moved

    def asked(self) -> bool:
        """Whether anybody wants it to stop. A question, because the answer may change between two lines."""
        return self.stop is not None

    def ask_to_stop(self, reason: Stop) -> None:
        """Tells the handler through its context. Also called by the heartbeat's thread: plain assignments only."""
        if self.stop is None:
            self.stop = reason
        if self.context is not None:
            self.context._stopping = True

    def interrupt(self) -> None:
        """The process is about to end, and the attempt with it: from now on its context raises. From any thread."""
        self.ask_to_stop(Stop.DRAIN)
        if self.context is not None:
            self.context._over = True

    def saw_stop(self) -> bool:
        """Whether the handler noticed: an async one is told by an exception, a thread must have asked its context."""
        return self.task is not None or (self.context is not None and self.context._saw_stop)

    def news(self) -> Progress | None:
        """What the store has not been told yet. Call `was_told` with it once it has."""
        if self.started_at is None or (self.told is not None and self.context is None):
            return None
        note, checkpoint, items = self._unsaid()
        if self.told is not None and note is None and checkpoint is None and not items:
            return None
        return Progress(self.claimed.number, self.claimed.token, self.started_at, note, checkpoint, items)

    def report(self) -> Progress | None:
        """Everything that the handler reported and the store may not have; None when there is nothing.

        It may be part of a heartbeat that is under way: kept twice, it changes nothing."""
        # That it began needs no report: the ending says so itself.
        return self.news() if self.context is not None and self._unsaid() != (None, None, ()) else None

    def reported(self, ending: Ending) -> Ending:
        """The ending with the last report of its attempt: once it is recorded, the store keeps no other."""
        if self.context is None and not self.isolated:
            return ending
        report = self.report()
        return ending if report is None else ending._replace(report=report)

    def was_told(self, progress: Progress, *, unheard: bool = False) -> None:
        """`unheard`: the store has kept nothing of it, and it is to be said again."""
        if unheard:
            return
        note, checkpoint = self.told or (None, self.claimed.checkpoint)
        self.told = (progress.note or note, progress.checkpoint or checkpoint)
        if progress.items and self.context is not None and self.context._batches is not None:
            del self.context._batches.unsaid[: len(progress.items)]

    def _unsaid(self) -> tuple[bytes | None, bytes | None, tuple[Item, ...]]:
        context = self.context
        if context is None:
            return None, None, ()
        note, checkpoint = self.told or (None, self.claimed.checkpoint)
        return (
            context._note if context._note is not note else None,
            context._checkpoint if context._checkpoint is not checkpoint else None,
            () if context._batches is None else tuple(context._batches.unsaid),
        )
