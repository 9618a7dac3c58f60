"""Who may ask for what: every route in one table. What is not in it is not served, and a test walks it.

`own`: a token that is bound to a tenant may ask, and only what is that tenant's exists for it. `all`: it is about the
whole of the installation, and such a token is refused.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from foliot.domain.access import Scope


class Tenants(Enum):
    OWN = "own"
    ALL = "all"


class Access(NamedTuple):
    scope: Scope
    tenants: Tenants


READ, WORK, OPERATE, ADMIN = Scope.READ, Scope.WORK, Scope.OPERATE, Scope.ADMIN
OWN, ALL = Tenants.OWN, Tenants.ALL
API = "/api/v1"

OPEN: frozenset[tuple[str, str]] = frozenset(
    {
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/login"),
        ("POST", "/login"),
    }
)
"""Served to anybody; and the files of static/, each by its whole name."""

_API: dict[str, Access] = {
    "GET /me": Access(READ, OWN),
    # Schedules
    "GET /schedules": Access(READ, OWN),
    "POST /schedules": Access(OPERATE, OWN),
    "GET /schedules/{schedule}": Access(READ, OWN),
    "PATCH /schedules/{schedule}": Access(OPERATE, OWN),
    "DELETE /schedules/{schedule}": Access(OPERATE, OWN),
    "GET /schedules/{schedule}/next": Access(READ, OWN),
    "GET /schedules/{schedule}/members": Access(READ, ALL),
    "POST /schedules/{schedule}/pause": Access(OPERATE, OWN),
    "POST /schedules/{schedule}/resume": Access(OPERATE, OWN),
    "POST /schedules/{schedule}/trigger": Access(OPERATE, OWN),
    # Runs
    "GET /runs": Access(READ, OWN),
    "GET /runs/{run}": Access(READ, OWN),
    "POST /runs/{run}/cancel": Access(OPERATE, OWN),
    "POST /runs/{run}/skip": Access(OPERATE, OWN),
    "POST /runs/{run}/retry": Access(OPERATE, OWN),
    "POST /runs/{run}/resume": Access(OPERATE, OWN),
    "POST /runs/{run}/rerun": Access(OPERATE, OWN),
    "POST /runs/{run}/verify": Access(OPERATE, OWN),
    "POST /runs/{run}/reconcile": Access(OPERATE, OWN),
    "POST /runs/{run}/release": Access(OPERATE, OWN),
    # Many at once
    "POST /bulk/rerun": Access(OPERATE, OWN),
    "POST /bulk/reconcile": Access(OPERATE, ALL),
    "POST /bulk/cancel": Access(OPERATE, OWN),
    "POST /bulk/skip": Access(OPERATE, OWN),
    "POST /bulk/pause": Access(OPERATE, OWN),
    "POST /bulk/resume": Access(OPERATE, OWN),
    "POST /bulk/apply": Access(OPERATE, ALL),
    "POST /bulk/promises": Access(OPERATE, OWN),
    # Promises
    "POST /promises": Access(OPERATE, OWN),
    "POST /promises/{key}/move": Access(OPERATE, OWN),
    "POST /promises/{key}/cancel": Access(OPERATE, OWN),
    # How everything stands
    "GET /overview": Access(READ, ALL),
    "GET /overview/kept": Access(READ, ALL),
    "GET /needs": Access(READ, OWN),
    "GET /alerts": Access(READ, OWN),
    "GET /alerts/{alert}": Access(READ, OWN),
    "POST /alerts/{alert}/snooze": Access(OPERATE, OWN),
    "POST /alerts/{alert}/unsnooze": Access(OPERATE, OWN),
    "GET /retention": Access(READ, ALL),
    "PUT /retention": Access(OPERATE, ALL),
    # Dead letters
    "GET /dead": Access(READ, OWN),
    "POST /dead/replay": Access(OPERATE, OWN),
    # Backfills
    "GET /backfills": Access(READ, OWN),
    "POST /backfills": Access(OPERATE, OWN),
    "GET /backfills/{backfill}": Access(READ, OWN),
    "POST /backfills/{backfill}/pause": Access(OPERATE, OWN),
    "POST /backfills/{backfill}/resume": Access(OPERATE, OWN),
    "POST /backfills/{backfill}/rate": Access(OPERATE, OWN),
    "POST /backfills/{backfill}/cancel": Access(OPERATE, OWN),
    # What there is
    "GET /jobs": Access(READ, ALL),
    "GET /jobs/{job}": Access(READ, ALL),
    "POST /jobs/{job}/pause": Access(OPERATE, ALL),
    "POST /jobs/{job}/resume": Access(OPERATE, ALL),
    "GET /queues": Access(READ, ALL),
    "POST /queues/{queue}/pause": Access(OPERATE, ALL),
    "POST /queues/{queue}/resume": Access(OPERATE, ALL),
    "GET /workers": Access(READ, ALL),
    "POST /workers/{worker}/drain": Access(OPERATE, ALL),
    "POST /workers/{worker}/quarantine": Access(OPERATE, ALL),
    "POST /workers/{worker}/resume": Access(OPERATE, ALL),
    "GET /tenants": Access(READ, ALL),
    "POST /tenants/{tenant}/pause": Access(OPERATE, ALL),
    "POST /tenants/{tenant}/resume": Access(OPERATE, ALL),
    "GET /pauses": Access(READ, ALL),
    "GET /limits": Access(READ, ALL),
    "PUT /limits/{limit}": Access(OPERATE, ALL),
    "DELETE /limits/{limit}": Access(OPERATE, ALL),
    "GET /members": Access(READ, ALL),
    "GET /members/{members}": Access(READ, ALL),
    "PUT /members/{members}": Access(OPERATE, ALL),
    "POST /members/{members}/add": Access(OPERATE, ALL),
    "POST /members/{members}/remove": Access(OPERATE, ALL),
    # What happened, and what will
    "GET /events": Access(READ, ALL),
    "GET /audit": Access(READ, ALL),
    "GET /audit/verify": Access(READ, ALL),
    "GET /audit/anchor": Access(READ, ALL),
    "GET /report/{subject}": Access(READ, OWN),
    "GET /load": Access(READ, ALL),
    "GET /rules/next": Access(READ, OWN),
    "GET /rules/explain": Access(READ, OWN),
    "GET /rules/preview": Access(READ, OWN),
    # Who may ask
    "GET /tokens": Access(ADMIN, ALL),
    "POST /tokens": Access(ADMIN, ALL),
    "DELETE /tokens/{token}": Access(ADMIN, ALL),
    # Work that is done elsewhere
    "POST /external/workers": Access(WORK, OWN),
    "DELETE /external/workers/{worker}": Access(WORK, OWN),
    "POST /external/workers/{worker}/claim": Access(WORK, OWN),
    "POST /external/workers/{worker}/beat": Access(WORK, OWN),
    "POST /external/attempts/{attempt}/complete": Access(WORK, OWN),
    "POST /external/attempts/{attempt}/fail": Access(WORK, OWN),
    "POST /external/attempts/{attempt}/give-back": Access(WORK, OWN),
}

TABLE: dict[tuple[str, str], Access] = {
    # Pages
    ("GET", "/"): Access(READ, OWN),
    ("GET", "/schedules"): Access(READ, OWN),
    ("GET", "/schedules/{schedule}"): Access(READ, OWN),
    ("GET", "/runs"): Access(READ, OWN),
    ("GET", "/runs/{run_id}"): Access(READ, OWN),
    ("GET", "/dead"): Access(READ, OWN),
    ("GET", "/backfills"): Access(READ, OWN),
    ("GET", "/load"): Access(READ, ALL),
    ("GET", "/fleet"): Access(READ, ALL),
    ("GET", "/alerts"): Access(READ, ALL),
    ("GET", "/audit"): Access(READ, ALL),
    ("GET", "/live"): Access(READ, OWN),
    ("GET", "/act/{kind}/{subject}/{verb}"): Access(OPERATE, OWN),
    ("POST", "/act/{kind}/{subject}/{verb}"): Access(OPERATE, OWN),
    ("POST", "/logout"): Access(READ, OWN),
    ("GET", "/api/openapi.json"): Access(READ, OWN),
    ("GET", "/metrics"): Access(READ, ALL),
    **{(method, API + path): access for route, access in _API.items() for method, _, path in (route.partition(" "),)},
}
