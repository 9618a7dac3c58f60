"""The whole life of a run in one table: `(state, event) -> state`. Anything not in it is an error.

Events are decisions already taken (`RETRY_GRANTED`, `EXHAUSTED`, `MAYBE_FOUND`), so the table has no conditions.
The numbers are stored; they never change their meaning.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from foliot.errors import IllegalTransition


class State(IntEnum):
    """Where a run stands. Each state answers one question of an operator."""

    SCHEDULED = 0
    """It exists durably; not due yet."""
    RETRYING = 1
    """The last attempt failed; the next is due at a known time."""
    HELD = 2
    """Due, but waiting, and `reason` says for what."""
    READY = 3
    """Handed off; waiting for a worker. Derived: a pending run that a hand-off chunk names."""
    RUNNING = 4
    """An attempt owns it."""
    VERIFYING = 5
    """The handler's success is committed; the business check is under way. Of a tick over many members: their runs are
    made, and it waits for them."""
    SUCCEEDED = 10
    """The platform saw it finish; there is no check."""
    VERIFIED = 11
    """The check says that the result is right."""
    RECONCILED = 12
    """A person looked, decided, and left evidence."""
    CANCELLED = 13
    """Ended on request; `reason` says whose."""
    SKIPPED = 14
    """It did not run; `reason` says why."""
    UNVERIFIED = 20
    """It finished, and the check says no."""
    DEAD = 21
    """Out of attempts, out of time, or a permanent error: the dead letters."""
    AMBIGUOUS = 22
    """A side effect may have happened and nothing proves it: never retried blindly."""
    SETTLED = 23
    """A person settled its effects; the work that is not done waits to be resumed or declared not needed. Derived: see
    `read_state`."""

    def __str__(self) -> str:
        return self.name.lower()


PENDING = frozenset({State.SCHEDULED, State.RETRYING})
"""What the wheel fires. Stored states 0 and 1, so that one partial index holds exactly these."""

OCCUPYING = frozenset({State.READY, State.RUNNING, State.RETRYING, State.VERIFYING})
"""What makes a schedule busy for its overlap policy."""

PARKED = frozenset({State.UNVERIFIED, State.DEAD, State.AMBIGUOUS, State.SETTLED})
"""Waits for a person: stays in the live store, outside the firing index."""

TERMINAL = frozenset({State.SUCCEEDED, State.VERIFIED, State.RECONCILED, State.CANCELLED, State.SKIPPED})
"""Goes to history."""


class Event(StrEnum):
    """A decision already taken about a run."""

    FIRED = "fired"
    WITHHELD = "withheld"
    RELEASED = "released"
    RETRY_RELEASED = "retry_released"
    MOVED = "moved"
    SPREAD = "spread"
    GATHERED = "gathered"
    CLAIMED = "claimed"
    GIVEN_BACK = "given_back"
    COMPLETED = "completed"
    CHECK_DUE = "check_due"
    CHECK_PASSED = "check_passed"
    CHECK_REFUSED = "check_refused"
    RETRY_GRANTED = "retry_granted"
    EXHAUSTED = "exhausted"
    GAVE_UP = "gave_up"
    MAYBE_FOUND = "maybe_found"
    DOUBTED = "doubted"
    CANCEL = "cancel"
    SKIP = "skip"
    SET_ASIDE = "set_aside"
    RETRY_ORDERED = "retry_ordered"
    RECHECK_ORDERED = "recheck_ordered"
    SETTLED = "settled"
    RECONCILED = "reconciled"


_S, _E = State, Event

TRANSITIONS: dict[tuple[State, Event], State] = {
    # Waiting for its time.
    (_S.SCHEDULED, _E.FIRED): _S.READY,
    (_S.SCHEDULED, _E.WITHHELD): _S.HELD,
    (_S.SCHEDULED, _E.SPREAD): _S.VERIFYING,
    (_S.SCHEDULED, _E.MOVED): _S.SCHEDULED,
    (_S.SCHEDULED, _E.CANCEL): _S.CANCELLED,
    (_S.SCHEDULED, _E.SKIP): _S.SKIPPED,
    (_S.SCHEDULED, _E.SET_ASIDE): _S.DEAD,
    (_S.SCHEDULED, _E.MAYBE_FOUND): _S.AMBIGUOUS,
    # Due, and waiting for something else.
    (_S.HELD, _E.RELEASED): _S.SCHEDULED,
    (_S.HELD, _E.RETRY_RELEASED): _S.RETRYING,
    (_S.HELD, _E.MOVED): _S.SCHEDULED,
    (_S.HELD, _E.CANCEL): _S.CANCELLED,
    (_S.HELD, _E.SKIP): _S.SKIPPED,
    (_S.HELD, _E.SET_ASIDE): _S.DEAD,
    (_S.HELD, _E.MAYBE_FOUND): _S.AMBIGUOUS,
    # Handed off, waiting for a worker.
    (_S.READY, _E.CLAIMED): _S.RUNNING,
    (_S.READY, _E.WITHHELD): _S.HELD,
    (_S.READY, _E.MOVED): _S.SCHEDULED,
    (_S.READY, _E.CANCEL): _S.CANCELLED,
    (_S.READY, _E.SKIP): _S.SKIPPED,
    (_S.READY, _E.SET_ASIDE): _S.DEAD,
    (_S.READY, _E.MAYBE_FOUND): _S.AMBIGUOUS,
    # Owned by an attempt.
    (_S.RUNNING, _E.COMPLETED): _S.SUCCEEDED,
    (_S.RUNNING, _E.CHECK_DUE): _S.VERIFYING,
    (_S.RUNNING, _E.RETRY_GRANTED): _S.RETRYING,
    (_S.RUNNING, _E.EXHAUSTED): _S.DEAD,
    (_S.RUNNING, _E.GAVE_UP): _S.DEAD,
    (_S.RUNNING, _E.MAYBE_FOUND): _S.AMBIGUOUS,
    (_S.RUNNING, _E.DOUBTED): _S.VERIFYING,
    (_S.RUNNING, _E.GIVEN_BACK): _S.SCHEDULED,
    (_S.RUNNING, _E.CANCEL): _S.CANCELLED,
    # Failed before, and waiting to try again.
    (_S.RETRYING, _E.FIRED): _S.READY,
    (_S.RETRYING, _E.WITHHELD): _S.HELD,
    (_S.RETRYING, _E.CANCEL): _S.CANCELLED,
    (_S.RETRYING, _E.SKIP): _S.SKIPPED,
    (_S.RETRYING, _E.SET_ASIDE): _S.DEAD,
    (_S.RETRYING, _E.MAYBE_FOUND): _S.AMBIGUOUS,
    # Finished (or perhaps finished), and being checked; a check that breaks is made again.
    (_S.VERIFYING, _E.FIRED): _S.VERIFYING,
    (_S.VERIFYING, _E.CLAIMED): _S.VERIFYING,
    (_S.VERIFYING, _E.RETRY_GRANTED): _S.VERIFYING,
    (_S.VERIFYING, _E.GIVEN_BACK): _S.VERIFYING,
    (_S.VERIFYING, _E.CHECK_PASSED): _S.VERIFIED,
    (_S.VERIFYING, _E.CHECK_REFUSED): _S.UNVERIFIED,
    # A tick over many members: all of them have come to an end, or somebody wants no more of it.
    (_S.VERIFYING, _E.GATHERED): _S.SUCCEEDED,
    (_S.VERIFYING, _E.CANCEL): _S.CANCELLED,
    (_S.VERIFYING, _E.MAYBE_FOUND): _S.AMBIGUOUS,
    (_S.VERIFYING, _E.SETTLED): _S.SETTLED,
    (_S.VERIFYING, _E.RECONCILED): _S.RECONCILED,
    # Waiting for a person.
    (_S.DEAD, _E.RETRY_ORDERED): _S.SCHEDULED,
    (_S.DEAD, _E.SETTLED): _S.SETTLED,
    (_S.DEAD, _E.RECONCILED): _S.RECONCILED,
    (_S.UNVERIFIED, _E.RETRY_ORDERED): _S.SCHEDULED,
    (_S.UNVERIFIED, _E.RECHECK_ORDERED): _S.VERIFYING,
    (_S.UNVERIFIED, _E.SETTLED): _S.SETTLED,
    (_S.UNVERIFIED, _E.RECONCILED): _S.RECONCILED,
    (_S.AMBIGUOUS, _E.RETRY_ORDERED): _S.SCHEDULED,
    (_S.AMBIGUOUS, _E.RECHECK_ORDERED): _S.VERIFYING,
    (_S.AMBIGUOUS, _E.SETTLED): _S.SETTLED,
    (_S.AMBIGUOUS, _E.RECONCILED): _S.RECONCILED,
    # Its effects are settled, and work is left.
    (_S.SETTLED, _E.RETRY_ORDERED): _S.RETRYING,
    (_S.SETTLED, _E.RECONCILED): _S.RECONCILED,
}


def after(state: State, event: Event) -> State:
    """The state that `event` leads to from `state`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"a run that is {state} cannot be {event.replace('_', ' ')}") from None


def read_state(number: int, reason: str | None) -> State:
    """The state that a row stands for.

    `settled` is stored as `ambiguous` with the reason `settled`. Releases that do not know `settled` then read a run
    that waits for a person and is not retried blindly; they could not read a new number.
    """
    state = State(number)
    return State.SETTLED if state is State.AMBIGUOUS and reason == Reason.SETTLED else state


def stored_state(state: State) -> State:
    """The state whose number is stored; the inverse of `read_state`."""
    return State.AMBIGUOUS if state is State.SETTLED else state


class Outcome(StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PERMANENT = "permanent"
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    LOST = "lost"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    FENCED = "fenced"


PUT_TO_CHECK = frozenset({Event.CHECK_DUE, Event.DOUBTED, Event.RECHECK_ORDERED})
"""What sends a run to its check."""

UNCHARGED = frozenset({Outcome.INTERRUPTED, Outcome.FENCED})
"""Outcomes that cost the run none of its attempts."""


class Reason(StrEnum):
    """Why a run was held, skipped, cancelled, parked, or is tried again; `committed`: its handler's own transaction
    completed it. Shown to people, matched by programs."""

    OVERLAP = "overlap"
    KEY = "key"
    LIMIT = "limit"
    RATE = "rate"
    UPSTREAM = "upstream"
    MISFIRE = "misfire"
    TOO_LATE = "too_late"
    PAUSED = "paused"
    COALESCED = "coalesced"
    REPLACED = "replaced"
    OPERATOR = "operator"
    CALENDAR = "calendar"
    REQUESTED = "requested"
    ATTEMPTS = "attempts"
    PERMANENT = "permanent"
    TOO_OLD = "too_old"
    LOST = "lost"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    ASKED_TO_WAIT = "asked_to_wait"
    BUDGET = "budget"
    EFFECT = "effect"
    POISON = "poison"
    DESTINATION_DOWN = "destination_down"
    CHECK = "check"
    CHECK_FAILED = "check_failed"
    COMMITTED = "committed"
    BAD_PAYLOAD = "bad_payload"
    BAD_ROW = "bad_row"
    LOCKED = "locked"
    REVISED = "revised"
    NO_MEMBERS = "no_members"
    INCOMPLETE = "incomplete"
    PARTIAL = "partial"
    SETTLED = "settled"
    NOT_NEEDED = "not_needed"
