"""From handed-off work to a recorded outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from foliot.domain.ledger import Begun, Effect, EffectState, EffectView
from foliot.domain.run import Claimed, Ending, Progress
from foliot.domain.store.values import (
    Beat,
    Offer,
)


class WorkStore(Protocol):
    """From handed-off work to a recorded outcome."""

    async def claim(
        self,
        worker: int,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        suspects: bool = True,
        backlog: int | None = None,
        put_off: int | None = None,
        labels: Sequence[str] = (),
        ahead: int = 0,
        called: bool = False,
    ) -> list[Claimed]:
        """Takes up to `limit` runs that were handed off, by lane, priority, fair share and order; each with a fencing
        token. No more than `backlog` of them from other lanes than live, where it is given. Once it has taken `put_off`
        in all, none of what fair share has put off: the rest of `limit` is for tenants that have had less than theirs.

        Of runs that may have killed a worker it takes one at most, under a token of its own, and none unless
        `suspects`: a worker tries one of them at a time.

        Re-checks state, fire time and `useful_until`. `jobs` names what the worker knows, with `check_of` each job
        whose check it has. Runs of jobs that are not in `jobs` are left for a worker that knows them, and are reported
        once as an event `unknown_job` when no live worker does. Runs that need other labels than `labels` are left for
        a worker that has them, and are reported as `missing_labels`.

        Up to `ahead` of what this worker was called for before its time may be among them, where the store's `lead` is
        not zero: each says how much too `early` it is, and is not to be begun before. `called`: that the store called
        is the only reason to ask, and what it called for is enough.
        """

    async def finish(self, worker: int, endings: Sequence[Ending]) -> list[Ending]:
        """Records how attempts ended, and everything that follows: history, retry, next run of a fixed delay, release
        of what was held. Returns those that were refused because the token is no longer the run's: each is recorded
        as a `fenced` attempt and changes nothing else.

        One transaction records an ending and keeps its report. A report that a heartbeat brought too changes nothing,
        and so does a heartbeat that comes after the ending.

        A run that is put to its check is handed off for that at once. One whose check passes has its open effects
        written down as done. Retries beyond the job's `retries_per_hour` are put off to the next hour (`budget`)."""

    async def finish_and_claim(
        self, worker: int, endings: Sequence[Ending], offer: Offer
    ) -> tuple[list[Ending], list[Claimed]]:
        """Records endings as `finish` does, and claims in the transaction that frees their slots.

        Runs that get these slots are claimed up to `offer.limit`, and workers hear only of the others. Standbys are
        claimed without a slot: the first waiters of the slot, in their order, and none behind one that cannot be a
        standby. Each slot of `offer.passed` belongs to the heir from now on, if both runs are the worker's.

        A store may claim less, or nothing. A worker that was declared dead claims nothing. If the answer is lost, the
        next `claim` returns the runs that were claimed."""

    async def give_back(self, worker: int, claimed: Sequence[Claimed]) -> int:
        """Returns claims that never began: handed off again, no trace, no attempt. Fenced ones are passed over. A
        standby returns to its place among the waiters of its slot."""

    async def beat(
        self, worker: int, progress: Sequence[Progress], *, patient: bool = False, leaving: bool = False
    ) -> Beat:
        """The instance lives; keeps what its attempts said of themselves, items too; tells what is to be stopped.

        A heartbeat does not wait: a report of a run that another transaction has locked is left out, unless `patient`.
        `leaving`: the process is shutting down. Attempts that end with it are `interrupted`, not lost."""


class LedgerStore(Protocol):
    """What attempts did outside, written down before and after. Every write names the attempt's token: LostOwnership,
    and nothing is written, when the run is no longer the attempt's."""

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        """Writes `started`, durably, before the effect begins, unless it is done already, or is a maybe of an earlier
        attempt: then nothing is written, and the answer says which. One that is known not to have happened begins
        anew. So does a maybe that is declared idempotent, then and now: doing it twice does it once."""

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None:
        """Writes how an effect ended, or was found to have ended. `started`: it begins anew, because a probe found that
        it had not happened."""

    async def done_items(self, number: int, batch: str) -> set[str]:
        """The keys of a batch's items that the lineage has done already."""

    async def ledger_of(self, number: int) -> list[EffectView]:
        """All effects of a run's lineage, in the order in which they were begun."""

    async def maybes(self, job: str | None, effect: str | None, limit: int) -> list[tuple[str, EffectView]]:
        """Effects without an end of runs that wait for a person, with the runs' ids; of one job, and of one name."""


class OpenTransaction(Protocol):
    """A transaction in a handler's hands: what is done on its connection, lines of the ledger, promises, and the end of
    the run itself are one."""

    @property
    def connection(self) -> Any:
        """The driver's own, for statements about the handler's tables."""

    def connection_in_thread(self, loop: Any) -> Any:
        """The same for a thread beside the event loop that the transaction lives in."""

    @property
    def is_blocking(self) -> bool:
        """Whether its verbs never suspend, and so have to be run where nobody is kept waiting."""

    @property
    def is_callers(self) -> bool:
        """Whether somebody else began it, and commits it: then `begin`, `commit` and `roll_back` do nothing."""

    async def begin(self) -> None: ...

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        """As in `LedgerStore`, if this commits."""

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None: ...

    async def ledger_of(self, number: int) -> list[EffectView]: ...

    async def finish(self, worker: int, ending: Ending) -> bool:
        """Ends the run, if this commits; it is the last thing to do. False when the run is no longer the attempt's:
        then roll back."""

    async def commit(self) -> None:
        """An answer that was lost is asked for: when this returns it was committed, when it raises it was not."""

    async def roll_back(self) -> None: ...


class HandlerStore(Protocol):
    """Transactions for handlers."""

    def transaction(self, connection: Any = None) -> OpenTransaction:
        """One on a connection of the store's, or inside the one that was begun on a connection of the caller's own to
        the store's database. InvalidInput when that is none that can be used."""
