"""What real processes tell of themselves: metrics over HTTP, one JSON line for each start and end, traces."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import urlopen  # noqa: TID251

import pytest
from prometheus_client.parser import text_string_to_metric_families

from foliot.cli import logs
from foliot.cli.options import WrongUsage
from foliot.cli.settings import Settings
from foliot.domain.metrics import OF_PROCESSES, OF_SCHEDULERS, OF_WORKERS, Kind
from tests.cli.support import Process, environment, process, refused, run, until
from tests.waiting import HANG

pytestmark = pytest.mark.faults

JOBS = """
from foliot import Foliot, every

app = Foliot(backoff="0s", attempts=2)

@app.job
async def tick() -> None: ...

@app.job(isolation="process")
def alone() -> None:
    from opentelemetry import trace
    with trace.get_tracer("shop").start_as_current_span("own work"):
        pass

@app.job
def fail(password: str) -> None:
    raise ValueError("no answer")

app.schedule("tick", tick, every("200ms"))
app.schedule("fail", fail, every("1s"), args={"password": "hunter2"})

if __name__ == "__main__":
    alone.using(key="alone").now()
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.py"
    file.write_text(JOBS, "utf-8")
    return file


def lines(one: Process) -> list[dict[str, Any]]:
    """Its log: every line of it is JSON."""
    return [json.loads(line) for line in one.err.read_text("utf-8").splitlines(keepends=True) if line[-1:] == "\n"]


def scraped(one: Process) -> dict[str, list[Any]]:
    """By name, the samples that it answers with; it says in its log where to ask."""

    def address() -> str | None:
        told = [line["message"] for line in lines(one) if "metrics at" in line.get("message", "")]
        return re.sub("serving metrics at ", "", told[0]) if told else None

    until(lambda: address() is not None, "it said where its metrics are")
    with urlopen(address() or "", timeout=HANG) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {family.name: family.samples for family in families}


def spans(one: Process) -> list[dict[str, Any]]:
    """What the exporter printed: JSON objects, one after another."""
    found: list[dict[str, Any]] = []
    text, decoder = one.out.read_text("utf-8"), json.JSONDecoder()
    while text.lstrip():
        try:
            span, end = decoder.raw_decode(text.lstrip())
        except ValueError:
            return found  # it is being written
        found.append(span)
        text = text.lstrip()[end:]
    return found


def test_a_scheduler_and_a_worker_tell_metrics_lines_and_traces(
    tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    url = f"sqlite:///{tmp_path}/foliot.db"
    for name in ("scheduler", "worker"):
        (tmp_path / name).mkdir()
    given = ("--app", jobs, "--store", url, "--metrics-port", "0")
    with (
        process(tmp_path / "scheduler", "scheduler", *given) as scheduler,
        process(tmp_path / "worker", "worker", *given, "--grace", "1s") as worker,
    ):
        told = lambda: Counter((one.get("job"), one.get("outcome")) for one in lines(worker))  # noqa: E731
        until(lambda: told()["tick", "succeeded"] >= 3 and told()["fail", "failed"] >= 2, "it worked")
        promised = _promise_from_another_process(jobs, url)
        until(lambda: told()["alone", "succeeded"] == 1, "the one in a process of its own has ended")
        of_scheduler, of_worker = scraped(scheduler), scraped(worker)
        assert (scheduler.end(), worker.end()) == (0, 0)
    _metrics_are_those_that_are_documented(of_scheduler, of_worker)
    _every_attempt_has_a_start_and_an_end(lines(worker))
    assert "hunter2" not in worker.err.read_text("utf-8")
    assert {one["event"] for one in lines(scheduler)} == {"message"}
    _attempts_point_back_to_promises(promised, spans(worker))
    assert Counter(span["name"] for span in spans(scheduler))["fire"] >= 3


def _promise_from_another_process(jobs: Path, url: str) -> dict[str, Any]:
    """The span that came of it."""
    given = {**environment(), "FOLIOT_STORE": url}
    done = subprocess.run([sys.executable, str(jobs)], env=given, check=True, capture_output=True, timeout=HANG)
    span: dict[str, Any] = json.loads(done.stdout)
    assert span["name"] == "promise alone"
    return span


def _attempts_point_back_to_promises(promise: dict[str, Any], found: list[dict[str, Any]]) -> None:
    names = Counter(span["name"] for span in found)
    assert names["run tick"] >= 3
    assert names["run fail"] >= 2
    [attempt] = [span for span in found if span["name"] == "run alone"]
    [own] = [span for span in found if span["name"] == "own work"]
    assert [link["context"]["span_id"] for link in attempt["links"]] == [promise["context"]["span_id"]]
    assert own["parent_id"] == attempt["context"]["span_id"], "what the handler traces belongs to its attempt"


def _metrics_are_those_that_are_documented(scheduler: dict[str, Any], worker: dict[str, Any]) -> None:
    for found, known in ((scheduler, OF_SCHEDULERS), (worker, OF_WORKERS)):
        documented = {metric.name.removesuffix("_total") for metric in (*OF_PROCESSES, *known)}
        assert set(found) <= documented
        missing = documented - set(found)
        assert missing <= {"foliot_clock_offset_seconds", "foliot_clock_fenced"}, "on SQLite there is one clock"
    assert scheduler["foliot_scheduler_fired"][0].value >= 3
    assert scheduler["foliot_scheduler_lateness_seconds"][-2].value >= 3, "its count"
    outcomes = {(one.labels["job"], one.labels["outcome"]): one.value for one in worker["foliot_worker_attempts"]}
    assert outcomes["tick", "succeeded"] >= 3
    assert outcomes["fail", "failed"] >= 2
    assert all(metric.kind in Kind for metric in OF_WORKERS)


def _every_attempt_has_a_start_and_an_end(told: list[dict[str, Any]]) -> None:
    about = [one for one in told if "run" in one]
    seen = Counter((one["event"], one["run"], one["attempt"]) for one in about)
    assert set(seen.values()) == {1}, "nothing is told twice"
    ends = [one for one in about if one["event"] == "ended"]
    for one in ends:
        assert ("started", one["run"], one["attempt"]) in seen
        assert {"job", "queue", "worker", "lane", "outcome", "duration", "at", "level"} <= one.keys()
    assert {one["schedule"] for one in ends if one["job"] != "alone"} == {"tick", "fail"}
    retried = [one for one in ends if one["job"] == "fail"]
    assert {one["attempt"] for one in retried} == {1, 2}
    assert {one["error"] for one in retried} == {"ValueError: no answer"}


# --------------------------------------------------------------------------------------------------- what can be chosen


@pytest.mark.parametrize(
    ("option", "setting", "supervised", "format"),
    [
        (None, None, False, "json"),
        (None, None, True, "off"),
        (None, "text", False, "text"),
        (None, "json", True, "json"),
        ("off", "json", False, "off"),
    ],
)
def test_the_log_is_json_elsewhere_than_in_a_terminal_unless_somebody_says(
    option: str | None, setting: str | None, supervised: bool, format: str
) -> None:
    assert logs.chosen(option, None, Settings(log_format=setting), supervised=supervised).format == format


def test_a_format_or_level_that_does_not_exist_is_refused(jobs: Path) -> None:
    told = refused(run("worker", "--app", jobs, "--log-format", "xml"), 2)
    assert "give one of json, text, off" in told
    with pytest.raises(WrongUsage, match="give one of info, warning"):
        logs.chosen(None, "loud", Settings(), supervised=False)
