"""One process that serves, until it is told to end."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import cast

import uvicorn

from foliot.app import Foliot
from foliot.domain.instant import SECOND, Duration
from foliot.errors import InvalidInput
from foliot.web.application import make_application
from foliot.web.protocol import GuardedProtocol, Guards
from foliot.web.settings import MOST_HEADERS, MOST_URL, WebSettings

_ACCEPTED_AT_ONCE = 128
"""In one turn of the event loop. Each is an open file before the next turn can close another one."""
_QUEUED = 2_048
"""Connections that the system holds until they are accepted."""
_KEPT_ALIVE = 30
"""Seconds that a connection may do nothing."""


async def serve(
    foliot: Foliot,
    settings: WebSettings,
    stop: asyncio.Event,
    *,
    grace: Duration = 10 * SECOND,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serves until `stop` is set; requests that are under way have the grace to end. `ready` is told the address."""
    await check_address(foliot, settings)
    settings = replace(settings, limits=settings.limits.within(_open_files()))
    guards = Guards(settings.limits, settings.trusted_proxies)
    listening = listen(settings)
    ready(address_of(settings, listening))
    server = _Server(
        uvicorn.Config(
            make_application(foliot, settings),
            http=cast(type[asyncio.Protocol], partial(GuardedProtocol, guards)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MOST_HEADERS + MOST_URL + 4_096,
            backlog=_ACCEPTED_AT_ONCE,
            timeout_keep_alive=_KEPT_ALIVE,
            timeout_graceful_shutdown=max(grace // SECOND, 1),
        )
    )
    serving = asyncio.create_task(server.serve([listening]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are whose process it is: see `foliot.cli.processes`."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        for listening in sockets or ():
            listening.listen(_QUEUED)  # asyncio uses one number for both: this queue, and accepts in one turn


def _open_files() -> int:
    """How many files this process may have open."""
    soft, _ = getrlimit(RLIMIT_NOFILE)
    return sys.maxsize if soft == RLIM_INFINITY else soft


async def check_address(foliot: Foliot, settings: WebSettings) -> None:
    """An open scheduler is an open door: whoever can reach it could have anything run."""
    if settings.is_alone:
        return
    now = await foliot.operate.now_async()
    if not any(token.is_good(now) for token in await foliot.operate.tokens_async()):
        raise InvalidInput(
            f"{settings.public_url or settings.host} accepts requests from other hosts, but no token exists; create "
            f'one first: foliot tokens create admin --scope admin --reason "..."; or serve only this host: '
            f"--host 127.0.0.1, without a public URL and --trusted-proxies"
        )


def listen(settings: WebSettings) -> socket.socket:
    """Where requests come in."""
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(f"{settings.host!r:.80} is not an address of this host: {error.strerror or error}") from None
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        raise InvalidInput(
            f"{settings.host} port {settings.port} is not available: {error.strerror or error}; choose another with "
            f"--port (0 picks one)"
        ) from None
    return made


def address_of(settings: WebSettings, listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return settings.public_url or f"http://{shown}:{port}/"
