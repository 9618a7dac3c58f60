"""Schedules and facts for tests: what is not said is as plain as can be."""

from __future__ import annotations

from typing import Any

from foliot.domain.identity import tick_name
from foliot.domain.instant import Instant
from foliot.domain.policy import Policy
from foliot.domain.rule import Rule
from foliot.domain.run import Origin
from foliot.domain.schedule import Schedule, TickFacts


def a_schedule(rule: Rule | str, policy: Policy | None = None, **settings: Any) -> Schedule:
    given: dict[str, Any] = {
        "id": "report",
        "job": "make_report",
        "rule": rule if isinstance(rule, str) else rule.encode(),
        "payload": b"{}",
        "policy": policy or Policy(),
        "options": None,
        "delay": None if isinstance(rule, str) else rule.delay,
        "queue": None,
        "priority": 0,
        "tenant": None,
        "owner": None,
        "runbook": None,
        "changes": None,
        "revision": 1,
        "fingerprint": "",
        "made_at": 0,
    }
    return Schedule(**{**given, **settings})


def a_tick(schedule: Schedule | None, nominal: Instant, **facts: Any) -> TickFacts:
    useful = None if schedule is None else schedule.policy.useful_until
    given: dict[str, Any] = {
        "number": 7,
        "id": tick_name("report" if schedule is None else schedule.id, nominal),
        "origin": Origin.SCHEDULED,
        "nominal": nominal,
        "since": None,
        "fire_at": nominal,
        "useful_until": None if useful is None else nominal + useful,
        "attempt": 0,
        "schedule": schedule,
        "occupied_by": None,
    }
    return TickFacts(**{**given, **facts})
