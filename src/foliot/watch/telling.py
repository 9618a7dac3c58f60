"""How one process tells people what it does: its journal, its metrics, its traces, each if anybody asked for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from foliot.clock import Clock
from foliot.domain.signals import Tracer
from foliot.errors import InvalidInput
from foliot.watch.journal import Journal
from foliot.watch.reaper import Reaper

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from foliot.exposition import Source
    from foliot.watch.metrics import Dispatching, Working

_log = logging.getLogger("foliot.watch")


class Telling:
    """Made before its process begins, and closed when that has ended."""

    def __init__(
        self,
        role: str,
        version: str = "",
        *,
        journal: Journal | None = None,
        tracer: Tracer | None = None,
        port: int | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """`port`: where metrics are served; 0 picks one, None serves none."""
        self.journal = journal if journal is not None or port is None else Journal()
        self.tracer = tracer
        self._role = role
        self._version = version
        self._port = port
        self._host = host
        self._server: WSGIServer | None = None
        self._dispatcher: Dispatching
        self._reaper: Reaper
        if self.journal is not None:
            self.journal.start()

    def scheduler(self, clock: Clock, dispatcher: Dispatching, reaper: Reaper) -> None:
        """From now on metrics tell of these: a scheduler that was declared dead begins anew, with others."""
        self._dispatcher, self._reaper = dispatcher, reaper
        if self._port is not None and self._server is None:
            from foliot.watch import metrics  # costs a tenth of a second, which who serves none need not wait for

            told = metrics.of_scheduler(lambda: self._dispatcher, lambda: self._reaper.lost)
            self._serve(metrics.of_process(self._role, self._version, clock, self.journal), told)

    def worker(self, clock: Clock, worker: Working) -> None:
        if self._port is not None and self._server is None and self.journal is not None:
            from foliot.watch import metrics

            told = metrics.of_worker(worker, self.journal, clock)
            self._serve(metrics.of_process(self._role, self._version, clock, self.journal), told)

    def _serve(self, *sources: Source) -> None:
        from foliot.exposition import serve

        assert self._port is not None
        try:
            self._server, port = serve(self._port, self._host, *sources)
        except OSError as error:
            told = error.strerror or error
            raise InvalidInput(
                f"metrics cannot be served at {self._host}:{self._port}: {told}; give another --metrics-port, or 0"
            ) from None
        _log.info(
            "serving metrics at http://%s:%d/metrics", f"[{self._host}]" if ":" in self._host else self._host, port
        )

    def close(self) -> None:
        """Whatever was told goes out."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        if self.journal is not None:
            self.journal.close()
        if self.tracer is not None:
            self.tracer.close()
