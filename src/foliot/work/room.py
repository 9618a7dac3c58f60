"""How much a worker can begin now, and of what: slots are shared by all, threads and processes are few."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil

from foliot.domain.run import Claimed, Lane
from foliot.domain.store import DEFAULT_QUEUE, check_of
from foliot.domain.suspicion import SUSPECTED_FROM, is_tried_apart, may_begin
from foliot.errors import InvalidInput
from foliot.work.attempt import Attempt
from foliot.work.confinement import PROCESS
from foliot.work.handler import Handler

RESERVE = 0.25
"""The share of a worker that catching up and backfill leave free for live work."""

HEADROOM = 0.1
"""The share of a worker that tenants who have had their share leave free for those who have not. Smaller than the other
one: where only one tenant has work at all, this is what is not used."""

_LEAST_PROCESSES = 4


class Room:
    """Counts what attempts take, and says what is left.

    What waited here for a thread or a process could run at once in another worker. So a claim that may bring runs of a
    kind takes no more than there is room for that kind, and kinds without room are left out.

    Of each kind a part is reserved for live work, so that it finds room however much is being caught up. Where that is
    all that is left of any kind, nothing else is taken of the others either: a claim cannot tell them apart.

    And of each kind a part is left free by tenants that have had their share, for those who have not: a run that has
    its turn would else wait for one of theirs to end, however long that takes.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        slots: int,
        threads: int | None = None,
        processes: int | None = None,
        isolates: bool = False,
        reserve: float = 0.0,
        headroom: float = 0.0,
        reserved: Mapping[str, int] | None = None,
    ) -> None:
        if not 0 <= reserve < 1:
            raise InvalidInput(f"reserve={reserve:g}: give the share of slots for live runs, from 0 to below 1")
        if not 0 <= headroom < 1:
            raise InvalidInput(
                f"headroom={headroom:g}: give the share of slots for tenants below their share, from 0 to below 1"
            )
        self.slots = slots
        self._reserve = reserve
        self._headroom = headroom
        self.reserved = dict(reserved or {})
        """Slots that only runs of a queue take."""
        self._of_queues = dict.fromkeys(self.reserved, 0)
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
        self.offered = 0
        """Slots of endings that are not recorded yet, and whose recording may claim other runs for them."""
        self._taken_threads = 0
        self._taken_processes = 0
        self._late = self._late_threads = self._late_processes = 0
        """What is taken by others than live runs."""
        self._suspects: dict[int, int] = {}
        """Losses of runs that may kill this worker, by number, from their claim until the store has their outcome."""
        self._seen: tuple[int, bool] = (SUSPECTED_FROM, False)
        """Losses of the suspected run that was claimed last, and whether it got a process: the next is likely alike."""

    def isolates(self, handler: Handler) -> bool:
        """Whether a handler has a process of its own here."""
        return self._isolates and handler.isolation == PROCESS

    def turns(self, queues: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Which queues are claimed from, one after another: each one that has slots of its own by itself, so that these
        are used first, and then all of them together."""
        return [*((queue,) for queue in self.reserved), queues]

    def left_in(self, queues: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """The same as `left`, for one of these turns."""
        jobs, room = self.left()
        if not self.reserved:
            return jobs, room
        own = {queue: max(most - self._of_queues[queue], 0) for queue, most in self.reserved.items()}
        if len(queues) == 1 and queues[0] in own:
            return jobs, min(room, own[queues[0]])
        return jobs, max(min(room, self.slots - self._taken - sum(own.values())), 0)

    def left(self) -> tuple[tuple[str, ...], int]:
        """Of which jobs how many runs can begin now."""
        room = self.slots - self._taken - self.offered
        if len(self._in_loop) == len(self.jobs):
            return self.jobs, room
        jobs = self._in_loop
        for kind, free in (
            (self._in_threads, self.threads - self._taken_threads - self.offered),
            (self._in_processes, self.processes - self._taken_processes - self.offered),
        ):
            if kind and free > 0:
                jobs += kind
                room = min(room, free)
        return jobs, room if jobs else 0

    def jobs_of_freed(self, count: int) -> tuple[str, ...]:
        """The jobs of which so many runs can begin in the slots of endings that are not recorded yet."""
        jobs = self._in_loop
        jobs += self._in_threads if self._taken_threads + count <= self.threads else ()
        return jobs + (self._in_processes if self._taken_processes + count <= self.processes else ())

    def left_for_backlog(self) -> int | None:
        """How many of those may be other than live ones; None when nothing is reserved."""
        if not self._reserve:
            return None
        room = self._unreserved(self.slots) - self._late
        if self._in_threads and self._taken_threads < self.threads:
            room = min(room, self._unreserved(self.threads) - self._late_threads)
        if self._in_processes and self._taken_processes < self.processes:
            room = min(room, self._unreserved(self.processes) - self._late_processes)
        return max(room, 0)

    def left_for_put_off(self) -> int:
        """How many may be taken in all before the rest is for tenants that have had less than their share."""
        room = self._before_headroom(self.slots) - self._taken
        if self._in_threads and self._taken_threads < self.threads:
            room = min(room, self._before_headroom(self.threads) - self._taken_threads)
        if self._in_processes and self._taken_processes < self.processes:
            room = min(room, self._before_headroom(self.processes) - self._taken_processes)
        return max(room, 0)

    def _before_headroom(self, all_of_them: int) -> int:
        """All of a few: to who has four slots, one of them would be a quarter. And at least one, as above."""
        return max(all_of_them - round(all_of_them * self._headroom), 1)

    def _unreserved(self, all_of_them: int) -> int:
        """At least one: what has to be caught up is caught up, also by a worker that has no second slot."""
        return max(all_of_them - ceil(all_of_them * self._reserve), 1)

    @property
    def takes_suspects(self) -> bool:
        """Whether a claim may bring a run that may kill this worker. One that then does not fit is given back."""
        return self._has_room_for(*self._seen)

    @property
    def takes_some_suspects(self) -> bool:
        """The same, if the run may be another one than is likely."""
        return self._has_room_for(SUSPECTED_FROM, apart=False)

    def tries_apart(self, run: Claimed) -> bool:
        """Whether a suspected run is due to have a process of its own; its worker decides whether it can have one."""
        return is_tried_apart(self.slots, run.losses)

    def admits(self, run: Claimed, *, apart: bool) -> bool:
        """Whether a suspected run may begin now. `apart`: it gets a process of its own, so that it cannot kill this
        worker; else it is counted until `settle_suspects`."""
        # A release before this one suspected a run after its first loss.
        self._seen = max(run.losses, SUSPECTED_FROM), apart
        if not self._has_room_for(*self._seen):
            return False
        if not apart:
            self._suspects[run.number] = self._seen[0]
        return True

    def _has_room_for(self, losses: int, apart: bool) -> bool:
        if apart:
            return self._taken_processes < self.processes
        return may_begin(self.slots, self._suspects.values(), losses)

    def settle_suspects(self, unheard: Callable[[], Collection[int]]) -> bool:
        """Only what the store has the outcome of is over (`unheard` are the others): if the next one began before, and
        killed this worker, that loss would be counted for both. Answers whether there is room for another one."""
        if not self._suspects:
            return False
        over = self._suspects.keys() - unheard()
        for number in over:
            del self._suspects[number]
        return bool(over) and self.takes_suspects

    def take(self, attempt: Attempt) -> None:
        self._count(attempt, 1)

    def give_back(self, attempt: Attempt) -> None:
        self._count(attempt, -1)

    def _count(self, attempt: Attempt, change: int) -> None:
        late = 0 if attempt.claimed.lane == Lane.LIVE else change
        self._taken += change
        if self.reserved and (queue := attempt.claimed.queue or DEFAULT_QUEUE) in self._of_queues:
            self._of_queues[queue] += change
        self._late += late
        if attempt.isolated:
            self._taken_processes += change
            self._late_processes += late
        elif not attempt.handler.is_async:
            self._taken_threads += change
            self._late_threads += late


def checked_reserved(reserved: Mapping[str, int], queues: Sequence[str], slots: int) -> dict[str, int]:
    """How many slots are kept for runs of a queue; InvalidInput where that cannot be, with why."""
    for queue, most in reserved.items():
        if queue not in queues:
            raise InvalidInput(
                f"slots are reserved for the queue {queue!r}, which this worker does not serve; it serves "
                f"{', '.join(queues)}"
            )
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise InvalidInput(f"{queue}={most!r:.40}: reserve a whole number of slots, from 1")
    if reserved and len(queues) == 1:
        raise InvalidInput(f"this worker serves only {queues[0]}, which may use all its slots: do not reserve slots")
    kept = sum(reserved.values())
    if kept > slots:
        raise InvalidInput(f"{kept} slots are reserved, but this worker has only {slots}: reserve fewer")
    if kept == slots and set(queues) - set(reserved):
        others = ", ".join(queue for queue in queues if queue not in reserved)
        raise InvalidInput(
            f"all {slots} slots are reserved, which leaves none for {others}; add slots, or reserve fewer"
        )
    return dict(reserved)
