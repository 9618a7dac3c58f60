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
    "no-credential": (401, "Authentication required"),
    "not-allowed": (403, "Permission denied"),
    "from-elsewhere": (403, "Cross-site request refused"),
    "unknown": (404, "Not found"),
    "no-such-method": (405, "Method not allowed"),
    "too-slow": (408, "Request timeout"),
    "refused": (409, "Conflict with the current state"),
    "fenced": (409, "Fenced: the lease has another owner"),
    "under-way": (409, "The same request is in progress"),
    "outcome-unknown": (409, "The outcome of the same request is unknown"),
    "changed-meanwhile": (412, "Changed since that revision"),
    "too-large": (413, "The request is too large"),
    "url-too-long": (414, "The address is too long"),
    "not-json": (415, "Unsupported media type: send JSON"),
    "wrong-host": (421, "Unknown host name"),
    "invalid": (422, "Invalid input"),
    "key-reused": (422, "The Idempotency-Key belongs to another request"),
    "no-revision": (428, "Revision required"),
    "too-many": (429, "Too many concurrent requests"),
    "too-many-keys": (429, "Too many Idempotency-Keys"),
    "headers-too-large": (431, "The headers are too large"),
    "failed": (500, "Internal error"),
    "busy": (503, "The server is busy"),
    "store": (503, "Store unavailable"),
    "locked": (503, "Encrypted, and this server lacks the key"),
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
            _log.warning("request failed, store unavailable: %s", error)
            return Problem("store", "the store is unavailable; retry after a second", headers={"retry-after": "1"})
        case ClientDisconnect():
            return Problem("unreadable", "the connection closed before the request was complete")
        case HTTPException():
            return _of_the_framework(error)
    _log.error("request failed, internal error", exc_info=error)
    return Problem("failed", "internal error; see the log of this server")


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
    told = {404: "no resource at this address", 405: "this address does not allow that method"}
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
