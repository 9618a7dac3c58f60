"""All of it put together, as an ASGI application."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from foliot.app import Foliot
from foliot.clock import Clock
from foliot.web import api, health, pages
from foliot.web.access import OPEN, TABLE
from foliot.web.entrance import Entrance
from foliot.web.gate import Gate
from foliot.web.openapi import description
from foliot.web.pages import live, static
from foliot.web.pages.forms import told_as_page
from foliot.web.problems import unanswered
from foliot.web.routing import Answered, GuardedRoute
from foliot.web.settings import WebSettings
from foliot.web.slots import Slots


def make_application(foliot: Foliot, settings: WebSettings | None = None, clock: Clock | None = None) -> Gate:
    """What a server serves. Nothing is reached but through the gate."""
    settings = settings or WebSettings()
    entrance = Entrance(foliot.operate, settings, clock or foliot.clock)
    inner = inner_application()
    inner.state.foliot, inner.state.settings, inner.state.entrance = foliot, settings, entrance
    inner.state.streams = Slots(live.MOST_OPEN, live.MOST_OF_ONE, of="live streams", owner="this token")
    return Gate(inner, settings, entrance, static.paths())


def inner_application() -> FastAPI:
    """The routes alone."""
    app = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=dict.fromkeys((HTTPException, RequestValidationError, Exception), _told),
    )
    # Each route as it is: the table of access knows it by its whole path.
    app.router.routes += [
        *health.routes.routes,
        *health.counted.routes,
        *api.routes,
        *_described(app).routes,
        *pages.routes,
        *static.routes().routes,
    ]
    _check_table(app)
    return app


async def _told(request: Request, error: Exception) -> Response:
    """To whoever reads pages as a page; but the API speaks to programs alone."""
    problem = unanswered(request, error)
    if request.scope["path"].startswith("/api/"):
        return problem.response(request.scope["path"])
    return await told_as_page(request, problem)


def _described(app: FastAPI) -> APIRouter:
    routes = APIRouter(route_class=GuardedRoute)
    described = cache(lambda: description(app))

    @routes.get("/api/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Answered(described())

    return routes


def _check_table(app: FastAPI) -> None:
    """A route that nobody has put into the table, or the other way round, is a mistake of ours, told at once."""
    found = {
        (method, route.path_format)
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    wanted: set[Any] = set(TABLE) | OPEN | {("GET", path) for path in static.paths()}
    if found != wanted:
        raise RuntimeError(f"the table of access and the routes differ: {sorted(found ^ wanted)}")
