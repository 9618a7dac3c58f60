"""What the page about metrics promises: the dashboard and the alerts speak of metrics that exist, with labels that they
have, and every field of the log is explained."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foliot.cli import settings
from foliot.domain.metrics import ALL, Kind
from tests.docs import pages
from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "metrics.md"
DASHBOARD, RULES = DOCS / "grafana" / "foliot.json", DOCS / "grafana" / "foliot.rules.yml"
KNOWN = {metric.name: metric for metric in ALL}


def expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    yield from re.findall(r"expr: (?:>-)?(.*?)\n +(?:for|labels):", RULES.read_text("utf-8"), re.DOTALL)
    yield from (cells[0] for cells in pages.rows(pages.section(PAGE, "Metrics")).values() if "foliot_" in cells[0])


def test_dashboard_and_alerts_speak_of_metrics_that_exist() -> None:
    found = [(one, name) for one in expressions() for name in re.findall(r"foliot_\w+", one)]
    assert len(found) > 60, "the search misses what it should find"
    for expression, name in found:
        histogram = re.sub("_(bucket|count|sum)$", "", name)
        metric = KNOWN.get(name) or KNOWN.get(histogram)
        assert metric is not None, f"{name} in {expression}"
        assert (metric.kind is Kind.HISTOGRAM) == (metric.name != name), f"{name} in {expression}"


def test_dashboard_and_alerts_group_by_labels_that_are_there() -> None:
    for expression in expressions():
        for labels, metrics in re.findall(r"by \(([^)]*)\) \((.*?)\)", expression):
            for label in {one.strip() for one in labels.split(",")} - {"le", "instance"}:
                for name in re.findall(r"foliot_\w+", metrics):
                    metric = KNOWN.get(name) or KNOWN[re.sub("_bucket$", "", name)]
                    assert label in metric.labels, f"{label} in {expression}"


def test_every_metric_of_schedulers_and_workers_is_somewhere_on_the_dashboard() -> None:
    shown = DASHBOARD.read_text("utf-8")
    absent = {name for name in KNOWN if name not in shown}
    assert absent == {
        # What something is, or what a page of its own would tell.
        *("foliot_process_info", "foliot_measured_age_seconds", "foliot_schedules", "foliot_tenant_waiting_runs"),
        # What is ordinary.
        *("foliot_scheduler_stale_total", "foliot_scheduler_early_refused_total", "foliot_scheduler_created_total"),
        *("foliot_scheduler_arrivals_total", "foliot_scheduler_takeovers_total", "foliot_runs_attempts_total"),
    }


def test_panels_do_not_lie_on_one_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        place: dict[str, Any] = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_every_field_of_the_log_is_explained() -> None:
    explained = {word for names in pages.rows(pages.section(PAGE, "Logs")) for word in re.findall(r"\w+", names)}
    source = ROOT / "src" / "foliot"
    written = _keys(source / "watch" / "journal.py", "Journal") | _keys(source / "cli" / "logs.py", "JsonFormatter")
    assert {"run", "attempt", "schedule", "outcome", "duration", "logger"} <= written, "the search misses something"
    assert written - explained == set()


def _keys(file: Path, name: str) -> set[str]:
    """Keys of the dictionaries that a class makes, of what it adds to them, and in what it writes as it stands."""
    text = file.read_text("utf-8")
    [found] = [one for one in ast.walk(ast.parse(text)) if getattr(one, "name", "") == name]
    made = [key for one in ast.walk(found) if isinstance(one, ast.Dict) for key in one.keys]
    keys = {key.value for key in made if isinstance(key, ast.Constant)}
    added = {
        one.slice.value
        for one in ast.walk(found)
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store) and isinstance(one.slice, ast.Constant)
    }
    written = set(re.findall(r'"(\w+)":', ast.get_source_segment(text, found) or ""))
    return {key for key in keys | added | written if isinstance(key, str)}


def test_every_setting_of_the_file_has_its_variable_and_is_mentioned() -> None:
    told = (DOCS / "cli.md").read_text("utf-8")
    for key in settings._KEYS:
        assert f"`FOLIOT_{key.upper()}`" in told, key
        assert re.search(rf"\b{key}\b", told), key
