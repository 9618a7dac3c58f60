"""Makes the attempt of a claimed run: with which handler, under which policy, and in a process of its own or not."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from foliot.clock import Clock
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.policy import Policy, labels_of
from foliot.domain.run import Claimed
from foliot.errors import InvalidInput
from foliot.work.attempt import Attempt
from foliot.work.handler import Handler
from foliot.work.isolate import IsolatedAttempt
from foliot.work.outbox import WorkerStore
from foliot.work.place import place_of
from foliot.work.policies import Policies
from foliot.work.room import Room

_OTHER_SUSPECTS: Duration = 5 * SECOND
"""Between two looks for a suspected run that fits, while the one that was seen last does not."""

_log = logging.getLogger("foliot.work")


class Attempts:
    """Makes attempts for one worker."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        labels: Collection[str],
        policies: Policies,
        room: Room,
        clock: Clock,
        store: WorkerStore | None,
    ) -> None:
        """`store`: what processes of attempts open; None where no attempt has a process of its own."""
        self._handlers = handlers
        self._labels = frozenset(labels)
        self._policies = policies
        self._room = room
        self._clock = clock
        self._store = store
        self._other_suspects_at: Instant = 0
        self._not_isolable: set[str] = set()
        """Jobs of which no other process can execute a run; see `never_isolate`."""

    def takes_suspects(self) -> bool:
        """Whether a claim may bring a suspected run. Where the likely one would not fit, the worker looks now and then
        for one that does: those of few losses must not wait until one of many losses has ended."""
        if self._room.takes_suspects:
            return True
        now = self._clock.monotonic()
        if now < self._other_suspects_at or not self._room.takes_some_suspects:
            return False
        self._other_suspects_at = now + _OTHER_SUSPECTS
        return True

    def make(self, item: Claimed) -> Attempt | None:
        """None where another worker has to execute it."""
        handler = self._handlers.get(item.job)
        if handler is None or (item.options is not None and not self._labels.issuperset(labels_of(item.options))):
            return None
        policy = self._policies.of(handler, item.options)
        if item.phase is not None:
            check = handler.for_check(policy)
            if check is None:  # of another release
                return None
            handler, policy = check
        if item.deaths is not None:
            return self._suspected_attempt(item, handler, policy)
        return (IsolatedAttempt if self._room.isolates(handler) else Attempt)(item, handler, policy)

    def _suspected_attempt(self, item: Claimed, handler: Handler, policy: Policy) -> Attempt | None:
        """None where this worker executes as many suspected runs as it may: the store hands the run off again."""
        isolates = self._room.isolates(handler)
        apart = isolates or (self._room.tries_apart(item) and self._can_isolate(item, handler))
        if not self._room.admits(item, apart=apart):
            return None
        if apart:
            return IsolatedAttempt(item, handler, policy, on_trial=not isolates)
        return Attempt(item, handler, policy)

    def _can_isolate(self, item: Claimed, handler: Handler) -> bool:
        """Whether an attempt whose job does not ask for a process of its own can have one here. A check cannot, nor can
        anything in virtual time, or on a store in this process's memory."""
        if self._store is None or self._store.url is None or item.phase is not None or item.job in self._not_isolable:
            return False
        try:
            place_of(handler)
        except InvalidInput as error:
            self.never_isolate(item.job, error)
            return False
        return True

    def never_isolate(self, job: str, error: Exception) -> None:
        self._not_isolable.add(job)
        _log.warning(
            "suspected run of %s cannot be isolated in a separate process (%s), executing it alone in this worker",
            *(job, error),
        )
