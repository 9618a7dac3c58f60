"""One connection of the server: uvicorn's, with deadlines and a place in the count of connections.

    waiting    no complete head yet; the head has a deadline from its first byte, or from the connection
    body       the head is complete and the body is not; a deadline that grows with the bytes received
    response   all is received; the application answers in its own time
    unsent     the peer does not take the response; a deadline that grows with the bytes that it takes

uvicorn closes a connection that is idle between two requests.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from enum import Enum
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from foliot.net.guard import Network
from foliot.web.addresses import counted_as, is_trusted
from foliot.web.connections import Connections, Limits
from foliot.web.problems import Problem

CONNECTION = "foliot.connection"
"""The connection of a request, in the state of its scope."""
_WARN_EVERY = 60.0
_NO_LINGERING = struct.pack("ii", 1, 0)

_log = logging.getLogger("foliot.web")


class Phase(Enum):
    IDLE = 0
    HEAD = 1
    BODY = 2
    REST_OF_BODY = 3
    """The response is complete, and the body is not."""
    RESPONSE = 4


WAITING = (Phase.IDLE, Phase.HEAD)


class Guards:
    """Shared by the connections of one server."""

    def __init__(self, limits: Limits, trusted: tuple[Network, ...]) -> None:
        self.limits = limits
        self.trusted = trusted
        self.open = Connections(limits)
        self._warned_at = float("-inf")
        self._evicted = 0

    def warn(self, now: float, address: str) -> None:
        """Reports closed and refused connections, once a minute at most."""
        if now - self._warned_at >= _WARN_EVERY:
            _log.warning(
                "too many connections: %d open, %d idle connections closed, the last for %s; name a proxy with "
                "--trusted-proxies",
                len(self.open),
                self.open.evicted - self._evicted,
                address,
            )
            self._warned_at, self._evicted = now, self.open.evicted


class GuardedProtocol(H11Protocol):
    def __init__(
        self,
        guards: Guards,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state | {CONNECTION: self}, _loop)
        self._guards = guards
        self._limits = guards.limits
        self._phase = Phase.HEAD
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._received = 0
        self._unsent_timer: asyncio.TimerHandle | None = None
        self._unsent_since = 0.0
        self._unsent = 0

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Each byte that the peer does not take is then reported at once, by pause_writing.
        transport.set_write_buffer_limits(high=0)
        peer = self.client[0] if self.client else ""
        address = None if is_trusted(peer, self._guards.trusted) else counted_as(peer)
        evicted = self._guards.open.evicted
        is_admitted = self._guards.open.enter(self, address)
        if not is_admitted or self._guards.open.evicted > evicted:
            self._guards.warn(self.loop.time(), peer)
        if is_admitted:
            self._begin(Phase.HEAD)
        else:
            self._refuse(Problem("busy", "too many connections are open; try again later", headers=_LATER))

    def connection_lost(self, exc: Exception | None) -> None:
        self._guards.open.remove(self)
        self._stop()
        self._stop_unsent()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._guards.open.serve(self)
        self._unsent_since, self._unsent = self.loop.time(), self.transport.get_write_buffer_size()
        self._check_unsent()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unsent()
        if self._phase in WAITING:
            self._guards.open.wait(self)

    # Called by uvicorn

    def handle_events(self) -> None:
        super().handle_events()
        self._follow()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    # Called by others

    def evict(self) -> None:
        self._stop()
        self.transport.close()

    def become_stream(self) -> None:
        """Limits of live streams count this connection from now on."""
        self._guards.open.exempt(self)

    # Phases

    def _follow(self) -> None:
        """Brings the phase to where the request is."""
        if self.transport.is_closing():
            self._stop()
            return
        is_answered = self.cycle is None or self.cycle.response_complete
        if self.conn.their_state is h11.SEND_BODY:
            phase = Phase.REST_OF_BODY if is_answered else Phase.BODY
        elif self.conn.their_state is not h11.IDLE or not is_answered:
            phase = Phase.RESPONSE
        elif self._phase is Phase.HEAD or self.conn.trailing_data[0]:
            phase = Phase.HEAD
        else:
            phase = Phase.IDLE
        if phase is not self._phase:
            self._begin(phase)

    def _begin(self, phase: Phase) -> None:
        self._stop()
        self._phase, self._began, self._received = phase, self.loop.time(), 0
        if phase not in WAITING:
            self._guards.open.serve(self)
        elif not self.flow.write_paused:
            self._guards.open.wait(self)
        if phase is Phase.HEAD:
            self._timer = self.loop.call_later(self._limits.head_seconds, self._end_head)
        elif phase is Phase.BODY:
            self._check_body()
        elif phase is Phase.REST_OF_BODY:
            self._timer = self.loop.call_later(self._limits.transfer_seconds, self.transport.close)

    def _end_head(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(Problem("too-slow", f"the headers took longer than {self._limits.head_seconds:g} s"))
        else:
            self.transport.close()

    def _check_body(self) -> None:
        now = self.loop.time()
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._began = now - self._received / self._limits.least_rate  # the application does not read yet
        left = self._limits.left(now - self._began, self._received)
        if left > 0:
            self._timer = self.loop.call_later(left, self._check_body)
        else:
            self._refuse(
                Problem(
                    "too-slow",
                    f"the body took longer than {self._limits.transfer_seconds:g} s and came slower than "
                    f"{self._limits.least_rate:,} bytes per second",
                )
            )

    def _check_unsent(self) -> None:
        taken = self._unsent - self.transport.get_write_buffer_size()
        left = self._limits.left(self.loop.time() - self._unsent_since, taken)
        if left > 0:
            self._unsent_timer = self.loop.call_later(left, self._check_unsent)
        else:
            # Without this the kernel keeps what the peer does not take, for as long as the peer likes.
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
            self.transport.abort()

    def _refuse(self, problem: Problem) -> None:
        """Answers with a problem if no answer has begun, and closes the connection."""
        self._stop()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = problem.response("")
            headers = [*answer.raw_headers, (b"connection", b"close")]
            events = (
                h11.Response(status_code=answer.status_code, headers=headers),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            )
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_unsent(self) -> None:
        if self._unsent_timer is not None:
            self._unsent_timer.cancel()
            self._unsent_timer = None


_LATER = {"retry-after": "10"}
