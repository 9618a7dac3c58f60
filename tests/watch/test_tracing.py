"""Traces: attempts point back to the promise that they come from, and what a handler traces belongs to its attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foliot import Foliot, every
from foliot.bootstrap import make_tracer
from foliot.domain.signals import trace_in
from foliot.errors import InvalidInput
from foliot.testing import virtual_time


class Traced:
    """An app, and the spans that came of it."""

    def __init__(self, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.own = self.provider.get_tracer("shop")
        self.app = Foliot("sqlite:///:memory:", tracer_provider=self.provider, **settings)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


def ids(spans: Sequence[Any]) -> list[int]:
    return [one.context.span_id for one in spans]


@pytest.mark.parametrize("is_async", [True, False])
def test_an_attempt_links_to_its_promise_and_holds_what_its_handler_traces(is_async: bool) -> None:
    traced = Traced()

    async def remind_async(class_id: int) -> None:
        with traced.own.start_as_current_span("send mail"):
            pass

    def remind(class_id: int) -> None:
        with traced.own.start_as_current_span("send mail"):
            pass

    job: Any = traced.app.job(name="remind")(remind_async if is_async else remind)
    with traced.own.start_as_current_span("whatever else a worker does"), virtual_time(traced.app) as world:
        with traced.own.start_as_current_span("book class"):
            job.using(tenant="acme").delay("1h", class_id=7)
        world.run_for("2h")
    [booking], [promise] = traced.spans("book class"), traced.spans("promise remind")
    [attempt], [mail] = traced.spans("run remind"), traced.spans("send mail")
    assert promise.parent is not None
    assert promise.parent.span_id == booking.context.span_id, "the caller's thread and ours are one trace"
    assert attempt.parent is None, "it may come days later"
    assert ids(attempt.links) == ids([promise])
    assert mail.parent is not None
    assert mail.parent.span_id == attempt.context.span_id
    assert attempt.attributes is not None
    assert {name: attempt.attributes[f"foliot.{name}"] for name in ("job", "attempt", "tenant", "outcome", "then")} == {
        "job": "remind",
        "attempt": 1,
        "tenant": "acme",
        "outcome": "succeeded",
        "then": "completed",
    }
    assert sum(one.attributes["foliot.fired"] for one in traced.spans("fire") if one.attributes) == 1  # type: ignore[misc]


def test_every_attempt_and_every_check_has_a_span_of_its_own() -> None:
    traced = Traced(backoff="0s")
    tries: list[int] = []

    @traced.app.job
    async def settle() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("the account of Ada is empty")

    @settle.verify
    def settled() -> bool:
        return True

    with virtual_time(traced.app) as world:
        settle.now()
        world.run_for("1m")
    [promise], attempts, [check] = (
        traced.spans("promise settle"),
        traced.spans("run settle"),
        traced.spans("verify settle"),
    )
    assert [ids(one.links) for one in (*attempts, check)] == [ids([promise])] * 3
    assert [one.status.status_code.name for one in attempts] == ["ERROR", "UNSET"]
    assert attempts[0].status.description == "ValueError", "what it says is nobody's business"


def test_runs_of_a_schedule_are_traced_without_a_promise() -> None:
    traced = Traced()

    @traced.app.job
    async def report() -> None: ...

    traced.app.schedule("nightly", report, every("1h"))
    with virtual_time(traced.app) as world:
        world.run_for("1h")
    [attempt] = traced.spans("run report")
    assert (attempt.parent, list(attempt.links)) == (None, [])
    assert attempt.attributes is not None
    assert attempt.attributes["foliot.schedule"] == "nightly"


def test_many_promises_are_one_span_and_each_carries_it() -> None:
    traced = Traced()

    @traced.app.job(labels={"gpu"})
    async def resize(number: int) -> None: ...

    with virtual_time(traced.app, labels=["gpu"]) as world:
        traced.app.promise_many([resize.promise_delay("1h", number=one) for one in range(3)])
        [made] = traced.spans("promise resize")
        [carried] = {trace_in(run.options) for run in world.runs()}
        assert (carried or "").startswith(f"00-{made.context.trace_id:032x}-{made.context.span_id:016x}-")
        world.run_for("2h")
        assert [str(state) for state in world.states()] == ["succeeded"] * 3, "labels hold as they did"


def test_nothing_is_traced_and_nothing_carried_unless_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def remind() -> None: ...

    with virtual_time(app) as world, TracerProvider().get_tracer("shop").start_as_current_span("book class"):
        remind.delay("1h")
        assert [run.options for run in world.runs()] == [None]
    assert app.tracer is None


def test_what_is_no_provider_is_refused() -> None:
    with pytest.raises(InvalidInput, match="get_tracer_provider"):
        Foliot("sqlite:///:memory:", tracer_provider="jaeger")


def test_an_exporter_that_is_not_there_is_told_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "smoke-signals")
    assert make_tracer() is None
    assert "exporter 'smoke-signals' is not installed; installed: console, otlp" in caplog.text


def test_a_provider_of_the_api_alone_traces_nothing() -> None:
    tracer = make_tracer(trace.NoOpTracerProvider())
    assert tracer is not None
    with tracer.promising([]) as made:
        assert made is None
    tracer.close()
