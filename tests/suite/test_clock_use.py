"""No test sleeps, sets a short time limit or reads a stopwatch, unless a reviewed list gives the reason."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.suite import clock_use
from tests.suite.clock_use import Use, all_uses, uses_in

HEAD = """import asyncio, time
from time import sleep as nap
PATIENCE: float = 30
class Test:
    LONG = 5
"""
REVIEWED = Path(__file__).parent / "clock_use.toml"


def reviewed() -> dict[str, str]:
    reasons: dict[str, str] = tomllib.loads(REVIEWED.read_text("utf-8"))
    return reasons


def test_no_test_depends_on_the_speed_of_the_machine() -> None:
    reasons = reviewed()
    unknown = [f"{use.place}:{use.line}: {use.kind}: {use.code}" for use in all_uses() if use.place not in reasons]
    assert not unknown, (
        "wait for an event with tests/waiting.py, use virtual time, or give a reason in tests/suite/clock_use.toml:\n"
        + "\n".join(unknown)
    )


def test_every_reviewed_place_still_exists_and_has_a_reason() -> None:
    places = {use.place for use in all_uses()}
    assert [place for place in reviewed() if place not in places] == []
    assert [place for place, reason in reviewed().items() if len(reason.split()) < 4] == []


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("time.sleep(0.1)", "sleep"),
        ("await asyncio.sleep(pause)", "sleep"),
        ("nap(1)", "sleep"),
        ("await asyncio.sleep(0)", None),
        ("await asyncio.sleep(3600)", None),
        ("await clock.sleep(5)", None),
        ("await asyncio.wait_for(event.wait(), 5)", "limit"),
        ("await asyncio.wait_for(event.wait(), PATIENCE)", "limit"),
        ("await asyncio.wait_for(event.wait(), 120)", None),
        ("event.wait(20)", "limit"),
        ("thread.join(timeout=2.5)", "limit"),
        ("queue.get(timeout=1)", "limit"),
        ("connect(connect_timeout=0.5)", "limit"),
        ("poll(timeout=0)", None),
        ("job(timeout='5s')", None),
        ("began = time.monotonic()", "stopwatch"),
        ("event.wait(2 * 5)", "limit"),
        ("event.wait(HANG / 100)", "limit"),
        ("event.wait(0.5 if slow else 100)", "limit"),
        ("event.wait(self.LONG)", "limit"),
        ("event.wait(HANG)", None),
        ("store.connections.patience = 0.1", "limit"),
        ("monkeypatch.setattr(module, 'PATIENCE', 0.01)", "limit"),
        ("loop.call_later(0.05, act)", "limit"),
        ("socket.settimeout(1)", "limit"),
    ],
)
def test_sleeps_short_limits_and_stopwatches_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, kind: str | None
) -> None:
    monkeypatch.setattr(clock_use, "ROOT", tmp_path)
    file = tmp_path / "test_it.py"
    file.write_text(f"{HEAD}async def test():\n    {line}\n")
    assert [use.kind for use in uses_in(file)] == ([kind] if kind else [])


def test_a_place_names_the_class_and_the_outermost_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_use, "ROOT", tmp_path)
    file = tmp_path / "test_it.py"
    file.write_text("import time\nclass Fleet:\n    def stop(self):\n        def wait():\n            time.sleep(1)\n")
    assert list(uses_in(file)) == [Use("test_it.py::Fleet.stop", 5, "sleep", "time.sleep(1)")]
