"""Runs, effects and jobs as values, for decisions that need no store."""

from __future__ import annotations

from typing import Any

from foliot.domain.instant import MINUTE, SECOND, Instant, parse_rfc3339
from foliot.domain.ledger import EffectState, EffectView, Settles, Traits, traits_to_json
from foliot.domain.policy import Policy, choices, policy_to_json
from foliot.domain.run import AttemptView, Lane, Origin, RunView
from foliot.domain.state import Outcome, State
from foliot.domain.store import JobCard

NOW = parse_rfc3339("2026-04-03T06:20:00Z")
DUE = parse_rfc3339("2026-04-03T06:00:00Z")
SETTLEMENT = "settlement@2026-04-03T06:00:00Z"


def view(state: State = State.SUCCEEDED, **given: Any) -> RunView:
    columns: dict[str, Any] = {
        "number": 7,
        "name": SETTLEMENT,
        "state": state,
        "origin": Origin.SCHEDULED,
        "job": "settle",
        "schedule": "settlement",
        "revision": 3,
        "tenant": None,
        "queue": "default",
        "lane": Lane.LIVE,
        "priority": 0,
        "nominal": DUE,
        "since": None,
        "fire_at": DUE,
        "attempt": 1,
        "spent": 0,
        "reason": None,
        "detail": None,
        "payload": b"{}",
        "worker": 12,
        "fired_at": DUE + 3_000,
        "claimed_at": DUE + 4_000,
        "started_at": DUE + 5_000,
        "finished_at": DUE + 14 * MINUTE + 3 * SECOND if state < State.UNVERIFIED else None,
        "progress": None,
        "result": None,
    }
    return RunView(**{**columns, **given})


def effect(key: str = "7", state: EffectState = EffectState.STARTED, name: str = "payout", **given: Any) -> EffectView:
    columns: dict[str, Any] = {
        "name": name,
        "key": key,
        "state": state,
        "settles": None,
        "run": 7,
        "attempt": 1,
        "token": 1,
        "started_at": DUE + 2 * SECOND,
        "ended_at": None if state is EffectState.STARTED else DUE + 3 * SECOND,
        "result": None,
        "note": None,
        "undo": None,
    }
    return EffectView(**{**columns, **given})


def done(key: str, **given: Any) -> EffectView:
    return effect(key, EffectState.DONE, **given)


def attempt(
    number: int = 1, outcome: Outcome | None = Outcome.FAILED, error: str | None = "shop.CardError: no", **given: Any
) -> AttemptView:
    began: Instant | None = given.pop("started_at", DUE + number * MINUTE)
    ended = None if outcome is None else (began or DUE) + SECOND
    return AttemptView(number, outcome, 12, began, given.pop("finished_at", ended), error, **given)


def card(policy: dict[str, Any] | None = None, **traits: Any) -> JobCard:
    settings = Policy().merged(choices(policy or {}))
    return JobCard("settle", policy_to_json(settings), "default", traits=traits_to_json(Traits(**traits)))


IDEMPOTENT = Settles.IDEMPOTENT
