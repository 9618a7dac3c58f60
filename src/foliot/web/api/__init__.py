"""The routes under /api/v1. Each reads what was sent, calls one verb of `operate`, and answers with its shape."""

from __future__ import annotations

from starlette.routing import BaseRoute

from foliot.web.api import (
    account,
    backfills,
    bulk,
    dead,
    fleet,
    members,
    pauses,
    promises,
    rules,
    runs,
    schedules,
    standing,
    tokens,
    work,
)

routes: list[BaseRoute] = [
    route
    for part in (
        *(schedules, runs, bulk, promises, dead, backfills, standing, fleet, pauses, members, account, rules, tokens),
        work,
    )
    for route in part.routes.routes
]
