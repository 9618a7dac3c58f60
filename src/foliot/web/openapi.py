"""The description of the API, made of its routes: what each takes, whatever it may answer, and who may ask."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from foliot import __version__
from foliot.domain.access import KEY_PATTERN, MOST_KEY
from foliot.web.access import TABLE
from foliot.web.models import ProblemShape
from foliot.web.routing import KEY, NEVER_KEPT, REPLAYED

DESCRIPTION = """Operator actions over HTTP, the same as on the command line.

Ids are percent-encoded in paths. Times are RFC 3339. Lists are paged: send the `cursor` of a page to get the next one.
Each change needs a reason; the audit log records both with the token's name. Errors are `application/problem+json`."""

_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": MOST_KEY, "pattern": f"^{KEY_PATTERN}$"},
    "description": "The server executes a request with the same key once, and repeats its answer for a day.",
}


def description(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(title="Foliot", version=__version__, description=DESCRIPTION, routes=app.routes)
    parts = found.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = ProblemShape.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {}) | {"Problem": problem}
    parts["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "foliot tokens create"},
        "session": {"type": "apiKey", "in": "cookie", "name": "foliot_session", "description": "POST /login"},
    }
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            _describe(operation, method.upper(), path)
    return found


def _describe(operation: dict[str, Any], method: str, path: str) -> None:
    access = TABLE.get((method, path))
    if access is None:  # open to anybody
        operation["security"] = []
        return
    operation["security"] = [{"token": []}, {"session": []}]
    operation["x-foliot-scope"] = str(access.scope)
    operation["x-foliot-tenants"] = access.tenants.value
    if method == "POST" and path.startswith("/api/") and not path.endswith(NEVER_KEPT):
        operation.setdefault("parameters", []).append(_IDEMPOTENCY)
        for status, answer in operation["responses"].items():
            if status.startswith("2"):
                answer["headers"] = {
                    REPLAYED: {"description": f"A repeated answer to the same {KEY}.", "schema": _TRUE}
                }
    if (method, path) == ("GET", "/api/v1/schedules/{schedule}"):
        operation["responses"]["200"]["headers"] = {
            "etag": {"description": "Revision of the schedule.", "schema": {"type": "string"}, "required": True}
        }


_TRUE = {"type": "string", "enum": ["true"]}
