"""Server-sent events: that something has changed, and nothing of what. The page then asks for itself again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from foliot.errors import FoliotError
from foliot.web.caller import Asking, Caller
from foliot.web.gate import leave_counts
from foliot.web.pages.forms import PageRoute
from foliot.web.problems import Problem
from foliot.web.slots import Slots

routes = APIRouter(route_class=PageRoute, include_in_schema=False)

LOOK_EVERY = 0.5
QUIET_FOR = 5.0
"""Also without a change something is said now and then: times pass, and whoever is gone is noticed."""
MOST_OPEN = 200
MOST_OF_ONE = 25
"""Streams of one credential: a token, together with all sessions that were opened with it."""
ASKED_EVERY = 15.0
"""A token that was revoked, or has expired, hears nothing for longer than that."""
_LASTS = 3_600.0
"""A stream ends by itself; a browser opens another one."""


class Feed:
    """Decides when a page is asked to load again: after a change, and after `QUIET_FOR` without one.

    The store's version counts the changes of all tenants. A caller who is bound to a tenant has none: events at fixed
    times show nothing of what other tenants do.
    """

    def __init__(self, version: Callable[[], int] | None, now: float) -> None:
        self.sees_changes = version is not None
        self._version = version or (lambda: 0)
        self._seen = self._version()
        self._quiet_since = now

    def is_due(self, now: float) -> bool:
        version = self._version()
        if version == self._seen and now - self._quiet_since <= QUIET_FOR:
            return False
        self._seen, self._quiet_since = version, now
        return True


class _Stream(StreamingResponse):
    """Takes a slot of its credential before it answers, and frees it however it ends."""

    def __init__(self, events: AsyncIterator[bytes], slots: Slots, credential: int) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._slots = slots
        self._credential = credential

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as taken:
            try:
                taken.enter_context(self._slots.slot(self._credential))
            except Problem as full:
                await full.response(scope["path"])(scope, receive, send)
            else:
                leave_counts(scope)
                await super().__call__(scope, receive, send)


async def _stands(request: Request, caller: Caller) -> bool:
    try:
        return bool(await request.app.state.entrance.stands(caller.principal, request.headers))
    except FoliotError:
        return False  # nobody knows; whoever is good comes again, and is asked then


async def _events(request: Request, caller: Caller) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    ends, asked_at = loop.time() + _LASTS, loop.time()
    feed = Feed(caller.app.store.version if caller.tenant is None else None, loop.time())
    yield b"retry: 3000\nevent: hello\ndata: \n\n"
    while loop.time() < ends and not await request.is_disconnected():
        if loop.time() - asked_at >= ASKED_EVERY:
            asked_at = loop.time()
            if not await _stands(request, caller):
                return
        if feed.is_due(loop.time()):
            yield b"event: changed\ndata: \n\n"
        await asyncio.sleep(LOOK_EVERY)


@routes.get("/live")
async def live(request: Request, caller: Asking) -> Response:
    return _Stream(_events(request, caller), request.app.state.streams, caller.principal.credential)
