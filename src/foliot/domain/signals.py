"""Ports to those who tell people what a process does: logs, metrics, traces. Nobody needs them to work; None stands for
nobody. Whoever is told here must not keep the teller waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from foliot.domain.instant import Duration, Instant
from foliot.domain.run import Claimed, Ending, Loss, Promise, SilentAttempt
from foliot.domain.store import Fired

_KEY = b'"traceparent":"'
_LENGTH = 55
"""Letters of a W3C traceparent, version 00."""


class Begun(Protocol):
    """An attempt that a worker has in its hands."""

    @property
    def claimed(self) -> Claimed: ...

    @property
    def started_at(self) -> Instant | None:
        """None until its handler has begun: it may have to wait for a thread."""


class Recorder(Protocol):
    """Is told what becomes of attempts, from the event loop that carries all of them: it notes that, and makes of it
    what it likes elsewhere."""

    def claimed(self, worker: int, attempts: Sequence[Begun]) -> None:
        """These are about to begin."""

    def ended(self, attempt: Begun, ending: Ending | None) -> None:
        """None: it never began."""

    def lost(self, losses: Sequence[tuple[SilentAttempt, Loss]]) -> None:
        """These were taken away from workers that are not heard of."""


class Span(Protocol):
    """One attempt, as a trace shows it."""

    def ended(self, ending: Ending | None) -> None: ...


class Tracer(Protocol):
    """Follows a promise to its attempts, across processes."""

    def promising(self, promises: Sequence[Promise]) -> AbstractContextManager[str | None]:
        """While promises are made; gives what they carry along, so that their attempts can point back to it."""

    def attempting(self, claimed: Claimed) -> AbstractContextManager[Span]:
        """Around a handler or a check: what these trace themselves belongs to it."""

    def fired(self, began: Instant, ended: Instant, fired: Fired) -> None: ...

    def close(self, patience: Duration = ...) -> None:
        """What was traced goes where it should, before the process ends; for so long at the most."""


def wants_traces(environment: Mapping[str, str]) -> bool:
    """Whether the standard variables of OpenTelemetry name a place that traces go to."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    named = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if named:
        return named != "none"
    return any(environment.get(f"OTEL_EXPORTER_OTLP_{middle}ENDPOINT") for middle in ("", "TRACES_"))


def with_trace(options: bytes | None, traceparent: str) -> bytes:
    """A run's options, with where it came from as their last entry."""
    entry = _KEY + traceparent.encode() + b'"}'
    rest = without_trace(options)
    return b"{" + entry if rest is None else rest[:-1] + b"," + entry


def trace_in(options: bytes | None) -> str | None:
    """Where a run came from; None when nobody traced that."""
    if not options or not options.endswith(b'"}') or options[-_LENGTH - 2 - len(_KEY) : -_LENGTH - 2] != _KEY:
        return None
    found = options[-_LENGTH - 2 : -2]
    return found.decode() if found.isascii() else None


def without_trace(options: bytes | None) -> bytes | None:
    """What many runs have in common: each has a trace of its own, and nothing is decided by it."""
    if options is None or trace_in(options) is None:
        return options
    rest = options[: -_LENGTH - 2 - len(_KEY)].removesuffix(b",")
    return None if rest == b"{" else rest + b"}"
