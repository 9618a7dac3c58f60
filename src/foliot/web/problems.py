"""Errors as programs read them: application/problem+json (RFC 9457). What is refused says what to do instead."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from foliot.errors import FoliotError, InvalidInput, Locked, LostOwnership, NotAllowed, Refused, StoreError, UnknownName

TYPE = "urn:foliot:problem:"
MEDIA = "application/problem+json"

TITLES = {
    "unreadable": (400, "The request cannot be read"),
    "no-credential": (401, "Say who you are"),
    "not-allowed": (403, "You may not do that"),
    "from-elsewhere": (403, "The request comes from another site"),
    "unknown": (404, "There is no such thing"),
    "no-such-method": (405, "Not with this method"),
    "too-slow": (408, "The request came too slowly"),
    "refused": (409, "It is refused as things stand"),
    "fenced": (409, "It is somebody else's now"),
    "under-way": (409, "The same request is under way"),
    "outcome-unknown": (409, "Nobody knows what became of the same request"),
    "changed-meanwhile": (412, "It was changed meanwhile"),
    "too-large": (413, "The request is too large"),
    "url-too-long": (414, "The address is too long"),
    "not-json": (415, "Send JSON"),
    "wrong-host": (421, "This server is not that host"),
    "invalid": (422, "What was given cannot be used"),
    "key-reused": (422, "The Idempotency-Key was used for something else"),
    "no-revision": (428, "Say which revision you saw"),
    "too-many": (429, "There are too many at the same time"),
    "too-many-keys": (429, "There are too many Idempotency-Keys"),
    "headers-too-large": (431, "The headers are too large"),
    "failed": (500, "A mistake of ours"),
    "busy": (503, "The server is busy"),
    "store": (503, "The store cannot do that now"),
    "locked": (503, "It is locked, and this server has no key for it"),
}
"""By kind: status, and title."""

_log = logging.getLogger("foliot.web")


class Problem(Exception):
    """Raised anywhere on the way: the request is answered with it."""

    def __init__(
        self, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, errors: Sequence[Any] = ()
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status, self.title = TITLES[kind]
        self.detail = detail
        self.headers = dict(headers or {})
        self.errors = list(errors)

    def response(self, path: str) -> Response:
        shape: dict[str, Any] = {
            "type": TYPE + self.kind,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": path,
        }
        if self.errors:
            shape["errors"] = self.errors
        return Response(json.dumps(shape).encode(), self.status, self.headers, MEDIA)


def problem_of(error: Exception) -> Problem:
    """What an error is to whoever asked."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _invalid(error)
        case UnknownName():
            return Problem("unknown", str(error))
        case InvalidInput():
            return Problem("invalid", str(error))
        case LostOwnership():
            return Problem("fenced", str(error))
        case NotAllowed():
            return Problem("not-allowed", str(error))
        case Refused():
            return Problem("refused", str(error))
        case Locked():
            return Problem("locked", str(error))
        case StoreError() | FoliotError():
            _log.warning("a request failed: %s", error)
            return Problem("store", "the store cannot do that now; ask again", headers={"retry-after": "1"})
        case ClientDisconnect():
            return Problem("unreadable", "the connection ended before the request did")
        case HTTPException():
            return _of_the_framework(error)
    _log.error("a request failed", exc_info=error)
    return Problem("failed", "a mistake of ours; the log of this server says more")


def _invalid(error: RequestValidationError) -> Problem:
    found = [
        {"where": ".".join(str(part) for part in one["loc"]), "problem": str(one["msg"]).removeprefix("Value error, ")}
        for one in error.errors()
    ]
    kind = "unreadable" if any(one["type"] == "json_invalid" for one in error.errors()) else "invalid"
    told = "; ".join(f"{one['where']}: {one['problem']}" for one in found[:5])
    return Problem(kind, told, errors=found[:50])


def _of_the_framework(error: HTTPException) -> Problem:
    kinds = {404: "unknown", 405: "no-such-method", 413: "too-large"}
    told = {404: "there is nothing at this address", 405: "this address does not know that method"}
    kind = kinds.get(error.status_code, "unreadable")
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    return Problem(kind, told.get(error.status_code, str(error.detail)), headers=headers)


def unanswered(request: Request, error: Exception) -> Problem:
    """For what no route has answered."""
    problem = problem_of(error)
    if problem.kind == "no-such-method":
        problem.headers["allow"] = ", ".join(sorted(_methods(request)))
    return problem


def _methods(request: Request) -> set[str]:
    """All that some route at this address knows."""
    found = [route for route in request.app.routes if route.path_regex.fullmatch(request.scope["path"])]
    return {method for route in found for method in route.methods}
