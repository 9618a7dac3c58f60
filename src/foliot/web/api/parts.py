"""What the files of routes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter

from foliot.web.access import API
from foliot.web.models import ProblemShape
from foliot.web.problems import MEDIA, TITLES
from foliot.web.routing import Answered, GuardedRoute

ALWAYS = (400, 401, 403, 408, 414, 421, 422, 429, 431, 503)
"""What any route may answer."""

WITH_BODY = (409, 413, 415)
"""Further statuses of a route that takes a body; 409 also where the same request is under way."""


def router(tag: str) -> APIRouter:
    return APIRouter(prefix=API, tags=[tag], route_class=GuardedRoute)


def problems(*statuses: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """The description of what may go wrong."""
    wanted = sorted({*ALWAYS, *statuses, *(WITH_BODY if body else ())})
    return {status: {"description": _title(status), "content": {MEDIA: {"schema": _REFERENCE}}} for status in wanted}


def _title(status: int) -> str:
    return "; ".join(title for code, title in TITLES.values() if code == status)


_REFERENCE = {"$ref": f"#/components/schemas/{ProblemShape.model_config['title']}"}


def page(items: Sequence[Any], cursor: str | None, **more: Any) -> Answered:
    return Answered({"items": list(items), "cursor": cursor, **more})


def next_cursor(items: Sequence[Any], limit: int, key: str) -> str | None:
    """Of a list whose rows say where they stand: a page that is full may have another behind it."""
    return str(items[-1][key]) if len(items) == limit else None
