"""How much a worker can begin now, and of what: slots are shared by all, threads and processes are few."""

from __future__ import annotations

import os
from collections.abc import Mapping

from foliot.domain.store import check_of
from foliot.work.attempt import Attempt
from foliot.work.confinement import PROCESS
from foliot.work.handler import Handler

_LEAST_PROCESSES = 4


class Room:
    """Counts what attempts take, and says what is left.

    What waited here for a thread or a process could run at once in another worker. So a claim that may bring runs of a
    kind takes no more than there is room for that kind, and kinds without room are left out.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        slots: int,
        threads: int | None = None,
        processes: int | None = None,
        isolates: bool = False,
    ) -> None:
        self.slots = slots
        self.threads = threads or min(32, slots)
        self.processes = processes or min(max(_LEAST_PROCESSES, 2 * (os.cpu_count() or 1)), slots)
        self._isolates = isolates
        known = {**handlers, **{check_of(n): h.check for n, h in handlers.items() if h.check is not None}}
        self.jobs = tuple(known)
        """What its worker asks for: jobs, and the checks of jobs."""
        self._in_processes = tuple(name for name, handler in known.items() if self.isolates(handler))
        here = {name: handler for name, handler in known.items() if name not in self._in_processes}
        self._in_loop = tuple(name for name, handler in here.items() if handler.is_async)
        self._in_threads = tuple(name for name, handler in here.items() if not handler.is_async)
        self._taken = 0
        self._taken_threads = 0
        self._taken_processes = 0
        self._suspects = 0

    def isolates(self, handler: Handler) -> bool:
        """Whether a handler has a process of its own here."""
        return self._isolates and handler.isolation == PROCESS

    def left(self) -> tuple[tuple[str, ...], int]:
        """Of which jobs how many runs can begin now."""
        room = self.slots - self._taken
        if len(self._in_loop) == len(self.jobs):
            return self.jobs, room
        jobs = self._in_loop
        for kind, free in (
            (self._in_threads, self.threads - self._taken_threads),
            (self._in_processes, self.processes - self._taken_processes),
        ):
            if kind and free > 0:
                jobs += kind
                room = min(room, free)
        return jobs, room if jobs else 0

    @property
    def takes_suspects(self) -> bool:
        """Whether a run may be tried that may kill this worker: one at a time."""
        return self._suspects == 0

    def take(self, attempt: Attempt) -> None:
        self._count(attempt, 1)

    def give_back(self, attempt: Attempt) -> None:
        self._count(attempt, -1)

    def _count(self, attempt: Attempt, change: int) -> None:
        self._taken += change
        if attempt.isolated:
            self._taken_processes += change
        elif not attempt.handler.is_async:
            self._taken_threads += change
        if attempt.claimed.deaths is not None:
            self._suspects += change
