"""Log in with a token, log out."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from foliot.domain.access import SESSION
from foliot.domain.instant import SECOND
from foliot.web.entrance import COOKIE, Entrance
from foliot.web.pages.drawing import drawn
from foliot.web.pages.forms import PageRoute, form_of, principal_of
from foliot.web.problems import Problem

routes = APIRouter(route_class=PageRoute, include_in_schema=False)


@routes.get("/login")
async def ask(request: Request) -> Response:
    return drawn(request, "login.html", heading="Log in", refused=None)


@routes.post("/login")
async def log_in(request: Request) -> Response:
    """The token itself goes no further: the browser gets a session, which ends by itself."""
    entrance: Entrance = request.app.state.entrance
    given = (await form_of(request)).get("token", "")
    client = request.client
    try:
        session = await entrance.log_in(given, client.host if client else "somewhere")
    except Problem as problem:
        return drawn(request, "login.html", problem.status, heading="Log in", refused=problem.detail)
    response = RedirectResponse("/", 303)
    response.set_cookie(
        COOKIE,
        session.text,
        max_age=SESSION // SECOND,
        httponly=True,
        samesite="lax",
        secure=request.app.state.settings.is_secure,
    )
    return response


@routes.post("/logout")
async def log_out(request: Request) -> Response:
    entrance: Entrance = request.app.state.entrance
    await entrance.log_out(principal_of(request))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="lax", secure=request.app.state.settings.is_secure)
    return response
