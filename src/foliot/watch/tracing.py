"""Traces, by OpenTelemetry: a promise, the batch that hands it off, its attempts and its checks.

A promise carries the traceparent of its making along. An attempt may come days later, and several may come of one
promise: so each begins a trace of its own, and links to the promise. While its handler runs, its span is the current
one, and whatever the handler traces itself belongs to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from foliot.domain.identity import schedule_of_series
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.domain.run import Claimed, Ending, Lane, Promise
from foliot.domain.signals import trace_in
from foliot.domain.state import Outcome
from foliot.domain.store import DEFAULT_QUEUE, Fired
from foliot.errors import InvalidInput

_W3C = TraceContextTextMapPropagator()
_WELL = frozenset({Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.INTERRUPTED})
_GROUP = "opentelemetry_traces_exporter"


class OtelTracer:
    """See `foliot.domain.signals.Tracer`."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("foliot")

    @contextmanager
    def promising(self, promises: Sequence[Promise]) -> Iterator[str | None]:
        jobs = sorted({promise.job for promise in promises})
        about: dict[str, Any] = {"foliot.promises": len(promises), "foliot.jobs": jobs[:20]}
        name = f"promise {jobs[0]}" if len(jobs) == 1 else "promise"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=about):
            carrier: dict[str, str] = {}
            _W3C.inject(carrier)
            yield carrier.get("traceparent")

    @contextmanager
    def attempting(self, claimed: Claimed) -> Iterator[_Span]:
        made = _link(trace_in(claimed.options))
        name = f"{'run' if claimed.phase is None else 'verify'} {claimed.job}"
        with self._tracer.start_as_current_span(
            name,
            context=Context(),  # no parent: whatever this worker did before has nothing to do with it
            kind=SpanKind.CONSUMER,
            attributes=_attributes(claimed),
            links=[] if made is None else [made],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield _Span(span)

    def fired(self, began: Instant, ended: Instant, fired: Fired) -> None:
        about = {
            "foliot.fired": fired.handed_off,
            "foliot.skipped": fired.skipped,
            "foliot.held": fired.held,
            "foliot.stale": fired.stale,
        }
        span = self._tracer.start_span(
            "fire", context=Context(), kind=SpanKind.INTERNAL, attributes=about, start_time=began * 1_000
        )
        span.end(ended * 1_000)

    def close(self, patience: Duration = 5 * SECOND) -> None:
        # An SDK's provider can be flushed; the API's own cannot, and has nothing to flush.
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            flush(patience // MILLISECOND)


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def ended(self, ending: Ending | None) -> None:
        if ending is None:
            self._span.set_attribute("foliot.outcome", "given_back")
            return
        self._span.set_attribute("foliot.outcome", str(ending.outcome))
        self._span.set_attribute("foliot.then", str(ending.event))
        if ending.outcome not in _WELL:
            kind = (ending.error or "").partition("\n")[0].partition(":")[0]
            # The type alone: a message may hold what is nobody's business, and the store keeps it.
            self._span.set_status(Status(StatusCode.ERROR, kind[:200] or str(ending.outcome)))


def _attributes(claimed: Claimed) -> dict[str, Any]:
    found: dict[str, Any] = {
        "foliot.run": claimed.id,
        "foliot.attempt": claimed.attempt,
        "foliot.job": claimed.job,
        "foliot.queue": claimed.queue or DEFAULT_QUEUE,
        "foliot.lane": str(Lane(claimed.lane)),
    }
    if claimed.schedule is not None:
        found["foliot.schedule"] = schedule_of_series(claimed.schedule)
    if claimed.tenant is not None:
        found["foliot.tenant"] = claimed.tenant
    return found


def _link(traceparent: str | None) -> Link | None:
    if traceparent is None:
        return None
    made = trace.get_current_span(_W3C.extract({"traceparent": traceparent}, Context())).get_span_context()
    return Link(made) if made.is_valid else None


def tracer_of(provider: Any) -> OtelTracer:
    """With a provider that the app made."""
    if not isinstance(provider, trace.TracerProvider):
        raise InvalidInput(
            f"tracer_provider={provider!r:.80} is not a tracer provider; give "
            "opentelemetry.trace.get_tracer_provider(), or a TracerProvider of its SDK"
        )
    return OtelTracer(provider)


def tracer_from_environment(environment: Mapping[str, str] = os.environ) -> OtelTracer:
    """By the standard variables. Where the app has set up OpenTelemetry by itself, that is used; else what is made here
    is the app's, too, so that its own spans go the same way."""
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    known = trace.get_tracer_provider()
    if isinstance(known, TracerProvider):
        return OtelTracer(known)
    given = OTELResourceDetector().detect().attributes
    provider = TracerProvider(resource=Resource.create({} if SERVICE_NAME in given else {SERVICE_NAME: "foliot"}))
    for name in (environment.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip(), environment)))
    trace.set_tracer_provider(provider)
    return OtelTracer(provider)


def _exporter(name: str, environment: Mapping[str, str]) -> Any:
    """By the name under which its package entered it."""
    if name == "otlp":
        protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
        )
        name = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}.get(protocol, protocol)
    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        known = ", ".join(sorted({one.name for one in entry_points(group=_GROUP)} - {"otlp_proto_http"} | {"otlp"}))
        raise InvalidInput(f"OTEL_TRACES_EXPORTER: exporter {name!r} is not installed; installed: {known}")
    return found[0].load()()
