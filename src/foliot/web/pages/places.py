"""The pages that one can go to. Each asks for what it shows, and is drawn in the same frame."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from foliot.operate.jobs import card_shape
from foliot.operate.story import lineage_shape
from foliot.web.caller import Asking
from foliot.web.fields import RunId, ScheduleId
from foliot.web.pages import ahead, alerts, fleet, lists, now, run, schedules
from foliot.web.pages.asked import Asked
from foliot.web.pages.drawing import framed, framed_first
from foliot.web.pages.forms import PageRoute

routes = APIRouter(route_class=PageRoute, include_in_schema=False)


def asked_of(request: Request) -> Asked:
    ours = [(key, value) for key, value in request.query_params.multi_items() if key not in ("told", "mark")]
    return Asked(request.scope["path"], ours)


@routes.get("/")
async def now_(request: Request, caller: Asking) -> Response:
    if caller.tenant is not None:  # the first page is about the whole installation
        return RedirectResponse("/schedules", 303)
    return await framed(request, caller, "now.html", await now.now_page(caller))


@routes.get("/schedules")
async def schedules_(request: Request, caller: Asking) -> Response:
    return await framed(request, caller, "schedules.html", await schedules.schedules_page(caller, asked_of(request)))


@routes.get("/schedules/{schedule}")
async def schedule_(request: Request, caller: Asking, schedule: ScheduleId) -> Response:
    return await framed(request, caller, "schedule.html", await schedules.schedule_page(caller, schedule))


@routes.get("/runs")
async def runs_(request: Request, caller: Asking) -> Response:
    return await framed(request, caller, "runs.html", await lists.runs_page(caller, asked_of(request)))


@routes.get("/runs/{run_id}")
async def run_(request: Request, caller: Asking, run_id: RunId) -> Response:
    await caller.run(run_id)
    lineage = await caller.operate.lineage_async(run_id)
    card = None if lineage.card is None else card_shape(lineage.card)
    drawn = run.run_page(lineage_shape(lineage), card, lineage.now, is_bound=caller.tenant is not None)
    return await framed(request, caller, "run.html", drawn)


@routes.get("/dead")
async def dead_(request: Request, caller: Asking) -> Response:
    return await framed(request, caller, "dead.html", await lists.dead_page(caller, asked_of(request)))


@routes.get("/backfills")
async def backfills_(request: Request, caller: Asking) -> Response:
    return await framed(request, caller, "backfills.html", await lists.backfills_page(caller))


@routes.get("/load")
async def load_(request: Request, caller: Asking) -> Response:
    values = partial(ahead.load_page, caller, asked_of(request), ahead.counting_of(request))
    return await framed_first(request, caller, "load.html", values)


@routes.get("/fleet")
async def fleet_(request: Request, caller: Asking) -> Response:
    return await framed(request, caller, "fleet.html", await fleet.fleet_page(caller))


@routes.get("/alerts")
async def alerts_(request: Request, caller: Asking) -> Response:
    return await framed(request, caller, "alerts.html", await alerts.alerts_page(caller, asked_of(request)))


@routes.get("/audit")
async def audit_(request: Request, caller: Asking) -> Response:
    return await framed(request, caller, "audit.html", await lists.audit_page(caller, asked_of(request)))
