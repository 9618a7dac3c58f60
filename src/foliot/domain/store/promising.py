"""Promises, and what people do with single runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from foliot.domain.instant import Duration, Instant
from foliot.domain.ledger import Settled, Then
from foliot.domain.replay import DeadFilter, DeadLetter, Replayed
from foliot.domain.run import Kept, Lane, Promise, Promised


class PromiseStore(Protocol):
    """Making promises, and changing them before they are kept."""

    async def promise(self, promises: Sequence[Promise]) -> list[Kept]:
        """Makes all promises, or none: one answer each, in order.

        A key that exists already is answered by `on_conflict`: KEEP returns what exists (also after it ended, while
        history keeps it and `unique_for` has not passed since it was made); REPLACE changes one that has not been
        claimed and raises Conflict for one that has; ERROR raises Conflict; RENEW makes the next generation when the
        last one has ended, and raises Conflict when it has not. Two promises of one call with one key count as made
        one after the other.
        """

    async def promised(self, numbers: Sequence[int]) -> Mapping[int, Promised]:
        """Of runs, live or ended, the parts that their callers chose. Runs that are gone are left out."""

    def promise_within(self, connection: Any, promises: Sequence[Promise]) -> list[Kept]:
        """As `promise`, inside the transaction that the caller has begun on a connection of its own to the store's
        database: the promises exist if and only if that commits. Runs in the caller's thread, also while the store is
        not open. Conflict leaves the transaction as it was. InvalidInput from an engine that cannot."""

    async def promise_within_async(self, connection: Any, promises: Sequence[Promise]) -> list[Kept]:
        """As `promise_within`, for connections that are awaited."""

    async def promise_as(self, promises: Sequence[Promise], *, actor: str, note: str) -> list[Kept]:
        """As `promise`, by a person: what it makes or changes is in the audit log, in the same transaction."""

    async def move(
        self, key: str, tenant: str | None, fire_at: Instant, *, actor: str | None = None, note: str = ""
    ) -> Kept:
        """Changes when a keyed promise is due. Conflict once an attempt owns it or it ended; UnknownName if none.
        With an `actor` it is an operator's act, and is in the audit log."""

    async def cancel_promise(self, key: str, tenant: str | None, *, actor: str, note: str) -> Kept:
        """Like `cancel`, by key: the latest generation. UnknownName if absent."""

    async def cancel(self, run_id: str, *, actor: str, note: str, force: bool = False) -> Kept:
        """Ends a run that no attempt owns as `cancelled`; asks the worker of a running one to stop (`asked`, and the
        state says running). The next run of a calendar rule carries its schedule on: it is withdrawn, and ends as
        skipped when it is due, at once if it is held. Conflict when it has ended already; UnknownName if there is none.

        No run ends while an effect of it is open: it is parked as ambiguous instead.

        `force`: if the attempt does not stop, its worker ends its whole process (`forced`). Once that process is gone,
        or the lease has ended, the run ends as cancelled. Conflict unless an attempt owns the run, and when its worker
        is one that does not end its process for this; then nothing is written."""

    async def skip(self, run_id: str, *, actor: str, note: str) -> Kept:
        """Ends a run that nobody has begun as `skipped: operator`; the next run of a calendar rule is withdrawn, as by
        `cancel`, and skipped when it is due, or at once. One that was withdrawn already is answered as it is, and
        nothing is written. Conflict when it was tried before, runs, is checked or has ended; UnknownName if there is
        none."""

    async def retry(self, run_id: str, *, actor: str, note: str, override: bool, action: str = "retry") -> Kept:
        """Makes a parked run due again now, with its attempts renewed, its checkpoint, items and ledger as they are.

        One that is `ambiguous`, or whose ledger has an effect without an end, only with `override` and a note: its open
        effects are written down as not done then, on that person's word. `action` names it in the audit log. Conflict
        when it is not parked; UnknownName if there is none."""

    async def rerun(
        self,
        run_id: str,
        *,
        repair: bool,
        repeat: Sequence[str],
        override: bool,
        actor: str,
        note: str,
        lane: Lane = Lane.LIVE,
        due_at: Instant = 0,
    ) -> Kept:
        """Repeats the intent of a run that ended or is parked: a new run of its lineage, due now, or at `due_at`, with
        its arguments.

        It shares the lineage's ledger, so that what is done stays done, but for effects named in `repeat`, which are
        written down as not done. A parked run is replaced by its rerun, and ends as `reconciled`. Conflict while
        any run of the lineage is waiting or busy; while an effect has no end, or with `repeat`, unless `override`.
        UnknownName if there is none."""

    async def dead(self, wanted: DeadFilter, *, after: int = 0, limit: int) -> list[DeadLetter]:
        """Dead letters by number, those after `after`: page by page, each is told once."""

    async def replay(
        self, runs: Sequence[int], *, due_at: Instant, every: Duration, override: bool, actor: str, note: str
    ) -> list[Replayed]:
        """Makes dead runs due again, with their attempts renewed, in the lane backfill: one in `every`, the first at
        `due_at`, or now. One answer each, in order, with an audit row for each that goes.

        Each is judged by itself, as it is now. One that is dead no more, or whose lineage is busy, is passed over; one
        past its `useful_until` is too late, and that is looked at again when it fires. One whose ledger has an effect
        without an end is refused, but for `override`: then it is written down as not done."""

    async def recheck(self, run_id: str, *, actor: str, note: str) -> Kept:
        """Sends an `unverified` or `ambiguous` run to its check again. Conflict when it is neither; UnknownName."""

    async def reconcile(
        self,
        run_id: str,
        *,
        settled: Sequence[Settled],
        actor: str,
        evidence: str,
        note: str = "",
        then: Then | None = None,
    ) -> Kept:
        """Records a person's answers about effects in the ledger, with the evidence, and decides about the run.

        Outcome without `then`: `recorded` while an effect has no answer, and the run stays as it is; `settled` when
        every effect has one and work is left, and the run stays parked; `reconciled` when none is left, the run ends.
        RESUME: `resumed`, the run is due now as `retrying`. CLOSE, which needs a note: `closed`, the run ends as
        `reconciled` with the reason `not_needed`; effects without an answer stay as they are.

        Conflict, and nothing is written, when the run is not parked; when a named effect is not in its ledger; when an
        effect has no answer and RESUME, or no answer at all, is given. UnknownName when there is no such run."""
