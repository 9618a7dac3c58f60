"""What becomes of a run whose worker is killed, at every boundary of its attempt. The tests hold both engines to it,
with real processes and in virtual time; the documentation shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from foliot.domain.ledger import EffectState
from foliot.domain.recovery import Action, Recovery
from foliot.domain.run import RunView
from foliot.domain.state import State
from tests.faults.till import ACCOUNTS, Bank, Point


class Crash(NamedTuple):
    """One row: where the worker dies, what is known then, and how it ends."""

    point: Point
    job: str
    state: State
    """Once the watch has noticed, before any other worker is there."""
    recovery: Recovery | None
    """None: nothing needs to be done, and nothing is advised."""
    action: Action | None
    final: State
    """With a fresh worker."""
    paid: int
    """How often money has moved in the end. The bank pays once for each idempotency key that it is given."""
    attempts: int
    """On record in the end: of the handler, and of the check."""

    @property
    def id(self) -> str:
        return f"{self.job}, {self.point}"

    def holds(self, ended: RunView, bank: Bank) -> None:
        """Asserts how it ended. A payment that is a row is told by its line in the ledger: they are one transaction."""
        in_rows = self.job == "settle_in_rows"
        paid = sum(one.state is EffectState.DONE for one in ended.effects) if in_rows else bank.paid()
        assert (ended.state, paid, ended.attempt) == (self.final, self.paid, self.attempts)


def unhurried(run: RunView) -> RunView:
    """A run that is due again at once is handed off again at once: as it was in the moment between."""
    return replace(run, state=State.RETRYING) if run.state is State.READY and run.attempt else run


_S, _R, _A = State, Recovery, Action

CRASHES = [
    # A job whose effect nothing can settle but a person.
    Crash(Point.CLAIM, "settle", _S.READY, None, None, _S.SUCCEEDED, 1, 1),
    Crash(Point.CLAIMED, "settle", _S.RETRYING, _R.CLEAN, _A.WAIT, _S.SUCCEEDED, 1, 2),
    Crash(Point.BEFORE, "settle", _S.RETRYING, _R.CLEAN, _A.WAIT, _S.SUCCEEDED, 1, 2),
    Crash(Point.INSIDE, "settle", _S.AMBIGUOUS, _R.MAYBE, _A.RECONCILE, _S.AMBIGUOUS, 0, 1),
    Crash(Point.PAID, "settle", _S.AMBIGUOUS, _R.MAYBE, _A.RECONCILE, _S.AMBIGUOUS, 1, 1),
    Crash(Point.AFTER, "settle", _S.RETRYING, _R.RESUMABLE, _A.WAIT, _S.SUCCEEDED, 1, 2),
    Crash(Point.FINISH, "settle", _S.RETRYING, _R.RESUMABLE, _A.WAIT, _S.SUCCEEDED, 1, 2),
    Crash(Point.FINISHED, "settle", _S.SUCCEEDED, None, None, _S.SUCCEEDED, 1, 1),
    # The same, where doing it again with the same key does it once.
    Crash(Point.INSIDE, "settle_idempotent", _S.RETRYING, _R.MAYBE, _A.WAIT, _S.SUCCEEDED, 1, 2),
    Crash(Point.PAID, "settle_idempotent", _S.RETRYING, _R.MAYBE, _A.WAIT, _S.SUCCEEDED, 1, 2),
    # The same, with a probe: it says no in the first case, and yes in the second.
    Crash(Point.INSIDE, "settle_probed", _S.RETRYING, _R.MAYBE, _A.WAIT, _S.SUCCEEDED, 1, 2),
    Crash(Point.PAID, "settle_probed", _S.RETRYING, _R.MAYBE, _A.WAIT, _S.SUCCEEDED, 1, 2),
    # Items are as durable as the loop asks for.
    Crash(Point.ITEMS, "settle_many", _S.RETRYING, _R.RESUMABLE, _A.WAIT, _S.SUCCEEDED, ACCOUNTS, 2),
    # A job with a check, which is asked where nobody knows.
    Crash(Point.BEFORE, "settle_checked", _S.RETRYING, _R.CLEAN, _A.WAIT, _S.VERIFIED, 1, 3),
    Crash(Point.INSIDE, "settle_checked", _S.VERIFYING, None, None, _S.AMBIGUOUS, 0, 2),
    Crash(Point.PAID, "settle_checked", _S.VERIFYING, None, None, _S.VERIFIED, 1, 2),
    Crash(Point.FINISH, "settle_checked", _S.RETRYING, _R.RESUMABLE, _A.WAIT, _S.VERIFIED, 1, 3),
    Crash(Point.FINISHED, "settle_checked", _S.VERIFYING, None, None, _S.VERIFIED, 1, 2),
    Crash(Point.CHECK, "settle_checked", _S.VERIFYING, None, None, _S.VERIFIED, 1, 3),
    # A job whose payment is a row in the store's own database, and ends with the run.
    Crash(Point.ROWS, "settle_in_rows", _S.RETRYING, _R.CLEAN, _A.WAIT, _S.SUCCEEDED, 1, 2),
    Crash(Point.COMMITTED, "settle_in_rows", _S.SUCCEEDED, None, None, _S.SUCCEEDED, 1, 1),
    # A job that declares nothing: at least once, or a person.
    Crash(Point.BEFORE, "untracked", _S.RETRYING, _R.UNTRACKED, _A.WAIT, _S.SUCCEEDED, 1, 2),
    Crash(Point.MADE, "untracked", _S.RETRYING, _R.UNTRACKED, _A.WAIT, _S.SUCCEEDED, 2, 2),
    Crash(Point.BEFORE, "untracked_ask", _S.AMBIGUOUS, _R.MAYBE, _A.RECONCILE, _S.AMBIGUOUS, 0, 1),
    Crash(Point.MADE, "untracked_ask", _S.AMBIGUOUS, _R.MAYBE, _A.RECONCILE, _S.AMBIGUOUS, 1, 1),
    # A job that may simply be done again.
    Crash(Point.MADE, "rewrite", _S.RETRYING, _R.REWRITABLE, _A.WAIT, _S.SUCCEEDED, 1, 2),
]
