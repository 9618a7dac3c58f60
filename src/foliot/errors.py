"""Every error that Foliot raises on purpose, in one tree.

    FoliotError
    +-- Refused                 the request was understood and declined; nothing was changed
    |   +-- InvalidInput        what was given cannot be used (also a ValueError)
    |   |   +-- InvalidRule     a rule of time that cannot be read, or that never fires
    |   +-- UnknownName         no such job, schedule, run or key
    |   +-- NotAllowed          it lies outside the bound of the caller's token
    |   +-- Conflict            it exists already, has started already, or changed meanwhile
    |   |   +-- TickTaken       a schedule's tick was made already; what follows it is to be counted anew
    |   |   +-- ScheduleChanged a schedule that was found unchanged is another one now; compare again
    |   +-- IllegalTransition   the state table has no such step
    +-- StoreError              the store cannot do what was asked
    |   +-- StoreTooOld         the engine's version is one that may corrupt or lose data
    |   +-- SchemaMismatch      the tables are too new, or lack steps that may not be made here
    |   +-- StoreClosed         the store was closed while a request was waiting
    |   +-- NotWritten          nothing of this request was written; the request can be repeated
    |   |   +-- StoreAway       the server cannot be reached, or closed the connection too early
    |   |   +-- StoreFull       the store's disk has no free space
    |   +-- OutcomeUnknown      the connection or the file system failed during the commit: it was written, or not
    |   +-- Locked              what is stored is locked, and its key is not here, or does not open it
    +-- LostOwnership           somebody else owns it now: drop what you hold and ask again

What a handler raises to say how its attempt ended:

    Permanent                   trying again cannot help
    RetryAfter                  try again, but not before a stated time
    Cancelled                   the handler saw that it was asked to stop, and stopped

What a handler's context raises, so that its attempt ends:

    Maybe                       an effect began before and has no recorded end: it may have happened
    ItemsFailed                 some items of a batch failed; the next attempt does only those
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Self


class FoliotError(Exception):
    """Anything that Foliot raises on purpose."""


class Refused(FoliotError):
    """The request was understood and declined; nothing was changed."""


class InvalidInput(Refused, ValueError):
    """What was given cannot be used."""

    field: str | None = None
    """Which argument it is, where the error is about one alone: a form marks it."""

    def about(self, field: str) -> Self:
        """The same error, about this argument."""
        self.field = field
        return self


class InvalidRule(InvalidInput):
    """A rule of time that cannot be read, or that never fires."""


class UnknownName(Refused):
    """No such job, schedule, run or key."""


class NotAllowed(Refused):
    """It lies outside the bound of the caller's token."""


class Conflict(Refused):
    """It exists already, has started already, or changed meanwhile."""


class TickTaken(Conflict):
    """A schedule's tick was made already; what follows it is to be counted anew."""

    def __init__(self, schedule: str, nominal: int) -> None:
        super().__init__(f"schedule {schedule!r} has a run for its tick already")
        self.schedule = schedule
        self.nominal = nominal


class ScheduleChanged(Conflict):
    """A schedule that the caller found unchanged is another one now; compare again."""

    def __init__(self, schedule: str) -> None:
        super().__init__(f"schedule {schedule!r} changed while it was being applied")
        self.schedule = schedule


class IllegalTransition(Refused):
    """The state table has no such step."""


class StoreError(FoliotError):
    """The store cannot do what was asked."""


class StoreTooOld(StoreError):
    """The engine's version is one that may corrupt or lose data."""


class SchemaMismatch(StoreError):
    """The tables were made by a newer release, or lack steps that may not be made here."""


class StoreClosed(StoreError):
    """The store was closed while a request was waiting."""


class NotWritten(StoreError):
    """The store could not write the request, and nothing of it was written: it can be repeated without harm."""


class StoreAway(NotWritten):
    """The server cannot be reached now, or the connection ended before the commit. Trying again later may help."""


class StoreFull(NotWritten):
    """The store's disk has no free space. Schedulers and workers go on within a second once it has."""


class OutcomeUnknown(StoreError):
    """The connection was lost during the commit, and the server did not say in time whether it was written; or the file
    system failed while SQLite committed.

    A promise with a key can be made again without harm; without one, look before you try again."""


class Locked(StoreError):
    """What is stored is locked, and its key is not here, or does not open it."""


class LostOwnership(FoliotError):
    """Somebody else owns it now: drop what you hold and ask again."""

    def __init__(self, message: str, shards: Collection[int] = ()) -> None:
        super().__init__(message)
        self.shards = frozenset(shards)
        """Which shards were lost; empty when it is not about shards."""


class Permanent(Exception):
    """Raised by a handler: trying again cannot help."""


class RetryAfter(Exception):
    """Raised by a handler: try again, but not before `delay` has passed (or `delay`, an aware datetime, has come)."""

    def __init__(self, delay: str | float | timedelta | datetime, reason: str = "") -> None:
        super().__init__(reason or f"retry after {delay}")
        self.delay = delay


class Cancelled(Exception):
    """Raised by `ctx.check()` in a handler that was asked to stop."""


class Maybe(Exception):
    """Raised by `ctx.effect`: it began before and has no recorded end, and nothing here can tell more."""


class ItemsFailed(Exception):
    """Raised at the end of a loop over `ctx.each`: some items failed, and the next attempt does only those."""
