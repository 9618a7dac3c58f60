"""Files that browsers fetch: what lies in static/, each served by its whole name, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from importlib.resources import files
from mimetypes import guess_type
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

_CACHED = "public, max-age=300"


@cache
def _found() -> dict[str, bytes]:
    folder = files("foliot.web").joinpath("static")
    return {f"/static/{file.name}": file.read_bytes() for file in folder.iterdir() if file.is_file()}


def paths() -> frozenset[str]:
    return frozenset(_found())


def routes() -> APIRouter:
    made = APIRouter(include_in_schema=False)
    for path, body in _found().items():
        made.add_api_route(path, _served(path, body), methods=["GET"])
    return made


def _served(path: str, body: bytes) -> Callable[[], Coroutine[Any, Any, Response]]:
    media = guess_type(path)[0] or "application/octet-stream"

    async def served() -> Response:
        return Response(body, headers={"cache-control": _CACHED}, media_type=media)

    return served
