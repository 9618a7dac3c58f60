"""The routes under /api/v1. Each reads what was sent, calls one verb of `operate`, and answers with its shape."""

from __future__ import annotations

from starlette.routing import BaseRoute

from foliot.web.api import account, backfills, dead, fleet, members, rules, runs, schedules, tokens, work

routes: list[BaseRoute] = [
    route
    for part in (schedules, runs, dead, backfills, fleet, members, account, rules, tokens, work)
    for route in part.routes.routes
]
