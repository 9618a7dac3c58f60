"""Server-sent events: that something has changed, and nothing of what. The page then asks for itself again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from foliot.errors import FoliotError
from foliot.web.caller import Asking, Caller
from foliot.web.pages.forms import PageRoute

routes = APIRouter(route_class=PageRoute, include_in_schema=False)

LOOK_EVERY = 0.5
QUIET_FOR = 5.0
"""Also without a change something is said now and then: times pass, and whoever is gone is noticed."""
MOST_OPEN = 200
ASKED_EVERY = 15.0
"""A token that was revoked, or has expired, hears nothing for longer than that."""
_LASTS = 3_600.0
"""A stream ends by itself; a browser opens another one."""


async def _stands(request: Request, caller: Caller) -> bool:
    try:
        return bool(await request.app.state.entrance.stands(caller.principal, request.headers))
    except FoliotError:
        return False  # nobody knows; whoever is good comes again, and is asked then


@routes.get("/live")
async def live(request: Request, caller: Asking) -> Response:
    state = request.app.state
    state.streams = getattr(state, "streams", 0)
    if state.streams >= MOST_OPEN:
        return Response(status_code=503, headers={"retry-after": "10"})

    async def told() -> AsyncIterator[bytes]:
        state.streams += 1
        loop = asyncio.get_running_loop()
        ends, quiet_at, asked_at = loop.time() + _LASTS, loop.time(), loop.time()
        version = caller.app.store.version()
        try:
            yield b"retry: 3000\nevent: hello\ndata: \n\n"
            while loop.time() < ends and not await request.is_disconnected():
                if getattr(state, "is_ending", False):
                    return
                if loop.time() - asked_at >= ASKED_EVERY:
                    asked_at = loop.time()
                    if not await _stands(request, caller):
                        return
                found = caller.app.store.version()
                if found != version or loop.time() - quiet_at > QUIET_FOR:
                    version, quiet_at = found, loop.time()
                    yield b"event: changed\ndata: \n\n"
                await asyncio.sleep(LOOK_EVERY)
        finally:
            state.streams -= 1

    return StreamingResponse(told(), media_type="text/event-stream", headers={"cache-control": "no-store"})
