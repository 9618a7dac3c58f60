"""Whether this process answers, and whether ticks happen: for whoever watches from outside."""

from __future__ import annotations

import logging

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from foliot import __version__
from foliot.domain.instant import SECOND, Duration
from foliot.domain.store import Ticking
from foliot.errors import FoliotError
from foliot.operate.words import counted as told
from foliot.operate.words import length, to_the_second
from foliot.web import models
from foliot.web.api.parts import problems
from foliot.web.routing import Answered, GuardedRoute

SILENT: Duration = 15 * SECOND
"""A scheduler says that it lives every five seconds."""

routes = APIRouter(tags=["health"])
counted = APIRouter(tags=["health"], route_class=GuardedRoute)
_log = logging.getLogger("foliot.web")


@routes.get("/healthz", response_model=models.Health)
async def healthz() -> Response:
    """This process answers; nothing more."""
    return Answered({"status": "ok", "version": __version__})


@counted.get("/metrics", response_class=PlainTextResponse, responses=problems())
async def metrics(request: Request) -> Response:
    """The whole fleet, for Prometheus: one process tells it for all of them."""
    from foliot.operate.metrics import CONTENT_TYPE  # whoever asks for none need not wait for its library

    return Response(await request.app.state.foliot.operate.metrics_async(), headers={"content-type": CONTENT_TYPE})


@routes.get("/readyz", response_model=models.Ready, responses={503: {"model": models.Ready}})
async def readyz(request: Request) -> Response:
    """Ticks happen: a scheduler lives, every shard has an owner, and nothing is due that nobody has fired."""
    try:
        reasons = why_not(await request.app.state.foliot.operate.ticking_async())
    except FoliotError as error:
        _log.warning("readiness check failed: %s", error)
        reasons = ["the store is unavailable"]
    return Answered({"status": "not ready" if reasons else "ready", "reasons": reasons}, 503 if reasons else 200)


def why_not(seen: Ticking) -> list[str]:
    """Why ticks may not happen, a sentence each; pure."""
    reasons = []
    if seen.beat_at is None:
        reasons.append("no live scheduler")
    elif seen.at - seen.beat_at > SILENT:
        reasons.append(f"no heartbeat of a scheduler for {length(seen.at - seen.beat_at)}")
    if seen.held < seen.shards:
        reasons.append(f"{told(seen.shards - seen.held, 'shard')} of {seen.shards} without an owner")
    if seen.overdue_since is not None:
        reasons.append(f"a run due at {to_the_second(seen.overdue_since)} is not handed off yet")
    return reasons
