"""What a form sends. Its mark proves that a page of ours was looked at by whoever is logged in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from foliot.web.access import OPEN, TABLE
from foliot.web.caller import Caller
from foliot.web.entrance import Principal, is_csrf_right
from foliot.web.gate import PRINCIPAL, SAFE
from foliot.web.pages.drawing import drawn, framed
from foliot.web.problems import Problem, problem_of
from foliot.web.routing import check_allowed, check_text

CSRF_FIELD = "csrf"
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 1_000


class PageRoute(APIRoute):
    """Asks the table of access; a form of somebody who is logged in must carry its mark."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                if (request.method, self.path_format) not in OPEN:
                    principal = check_allowed(request, TABLE.get((request.method, self.path_format)))
                    if request.method not in SAFE:
                        await _check_mark(request, principal)
                response: Response = await handle(request)
            except Exception as error:
                return await told_as_page(request, problem_of(error))
            return response

        return guarded


async def told_as_page(request: Request, problem: Problem) -> Response:
    """As a page to whoever reads pages, in the frame where that can be drawn; else as programs read it."""
    if "text/html" not in request.headers.get("accept", ""):
        return problem.response(request.scope["path"])
    values = {"heading": problem.title, "text": problem.detail, "hint": _HINTS.get(problem.kind)}
    principal: Principal | None = request.scope.get(PRINCIPAL)
    response = None
    if principal is not None and problem.status < 500:
        try:
            caller = Caller(request.app.state.foliot, principal)
            response = await framed(request, caller, "problem.html", values | {"frame": "base.html"}, problem.status)
        except Exception as error:  # what is told must not depend on what has just failed
            problem_of(error)
    response = response or drawn(request, "problem.html", problem.status, frame="bare.html", **values)
    response.headers.update(problem.headers)
    return response


_HINTS = {
    "unknown": "The object may be deleted, past its retention, or owned by another tenant.",
    "not-allowed": "Create a token with a wider scope on the host: foliot tokens create NAME --scope operate",
    "from-elsewhere": "Nothing was changed. Go back, reload the page, and send the form again.",
    "failed": "An action may have been done despite this error: check before you send it again.",
    "store": "Reload the page in a moment. Check whether an action was done before you repeat it.",
}
"""What to do next, by kind of problem."""


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; the last one where a name comes twice."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Problem("not-json", f"send a form: {_FORM}")
    try:
        text = (await request.body()).decode("ascii")
        found = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
        return {check_text(name): check_text(value) for name, value in found}
    except ValueError:
        raise Problem("unreadable", "the body is not a valid form; reload the page") from None


async def _check_mark(request: Request, principal: Principal) -> None:
    if not is_csrf_right(principal, (await form_of(request)).get(CSRF_FIELD)):
        raise Problem("from-elsewhere", "CSRF token missing or expired; reload the page")


def principal_of(request: Request) -> Principal:
    principal: Principal = request.scope[PRINCIPAL]
    return principal
