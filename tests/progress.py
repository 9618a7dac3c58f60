"""Prints one line per test file and each failure at once, also when several processes run the tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest


class Progress:
    """Counts the tests of each file down. Active unless pytest is asked for more or less output (`-v`, `-q`)."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._waiting: dict[str, set[str]] = {}
        self._outcomes: dict[str, Counter[str]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._files = 0

    # Collection: in this process, or by the first worker process that has finished it

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._reporter.showfspath = False  # pytest's own line for each file has no counts
        self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if not self._waiting:
            self._expect(ids)

    def _expect(self, ids: list[str]) -> None:
        for name in ids:
            self._waiting.setdefault(name.partition("::")[0], set()).add(name)
        self._files = len(self._waiting)

    # Results

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Count as pytest does, and print no letter."""
        if report.when == "call" or report.failed or report.skipped:
            category = "error" if report.failed and report.when != "call" else report.outcome
            if not hasattr(report, "wasxfail"):
                return category, "", "" if report.passed else category.upper()
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        outcomes = self._outcomes.setdefault(file, Counter())
        self._seconds[file] += report.duration
        if report.failed:
            outcomes["failed"] += 1
            self._show(report)
        elif report.skipped:
            outcomes["skipped"] += 1
        elif report.when == "call":
            outcomes["passed"] += 1
        if report.when == "teardown":
            self._count_down(file, report.nodeid)

    def _count_down(self, file: str, name: str) -> None:
        waiting = self._waiting.get(file, set())
        waiting.discard(name)
        if waiting or file not in self._waiting:
            return
        del self._waiting[file]
        done = self._files - len(self._waiting)
        outcomes = self._outcomes[file]
        counts = ", ".join(f"{outcomes[name]} {name}" for name in ("passed", "failed", "skipped") if outcomes[name])
        share = f"[{done:3}/{self._files} {done * 100 // self._files:3}%]"
        self._write(f"{share} {file:<50} {counts} in {self._seconds[file]:.1f} s", red=bool(outcomes["failed"]))

    def _show(self, report: pytest.TestReport) -> None:
        self._write(f"FAILED {report.nodeid} ({report.when})", red=True, bold=True)
        self._write(report.longreprtext)

    def _write(self, line: str, **markup: bool) -> None:
        self._reporter.ensure_newline()
        self._reporter.write_line(line, **markup)
        self._reporter.flush()

    @property
    def _reporter(self) -> Any:
        return self._config.pluginmanager.get_plugin("terminalreporter")
