"""`python -m bench start`: the first minutes of a fleet that starts, or takes over, with many schedules.

For each store: 1. Make the schedules, one tick of each in every minute, spread evenly over it. 2. Apply the unchanged
declarations. 3. Stop everything, start a scheduler and workers, and leave them alone. 4. Read from the history how late
each tick started. 5. The same with 10,000 schedules that are due at one instant.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.company import Company
from bench.start_app import MINUTE_US, SCHEDULES, SPREAD, name_of, offset_of
from tests.servers.postgres import PostgresServer, missing_postgres

APP = Path(__file__).with_name("start_app.py")
DISK = Path("/var/tmp")
"""On a real disk. /tmp may be in memory."""
SERVER_SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
BIN: int = 10_000_000
"""Microseconds of one row of the report."""
AT_ONCE = 10_000
LATE: int = 60_000_000
GRACE: int = 5_000_000
"""A tick that was due later than this before the end may still be on its way."""
STOP_TIMEOUT = 60.0
APPLY_TIMEOUT = 900.0


@dataclass(slots=True)
class Bin:
    second: int
    """After the start of the processes."""
    ticks: int
    p50_ms: float
    p99_ms: float


@dataclass(slots=True)
class Story:
    store: str
    spread: str
    schedules: int
    created_s: float
    applied_s: float
    """Of the unchanged declarations."""
    first_start_s: float | None
    """After the start of the processes."""
    steady_after_s: float | None
    """From when on the p99 of every row is below 1 s; None: never."""
    p99_after_first_ms: float | None
    """Of all ticks that were due after the first start."""
    overdue: int
    """Ticks that were due before the processes were started, and their schedules' ticks until the first start."""
    late: int
    """Ticks that started more than a minute late."""
    coalesced: int
    missed: int
    """Ticks that were due after the start of the processes, and have no row: neither their own, nor that of a span."""
    undecided: int
    """The same, but an earlier tick of the schedule is still pending, so that the catch-up policy has not decided."""
    early: int
    alerts: int
    bins: list[Bin] = field(default_factory=list)
    others: float | None = None
    """The share of the machine that other processes used."""
    load: float = 0.0


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench start", description=__doc__)
    parser.add_argument("--store", action="append", choices=("sqlite", "postgres"))
    parser.add_argument("--spread", action="append", choices=("minute", "instant"))
    parser.add_argument("--schedules", type=int, default=100_000, help="spread over each minute")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="due at one instant")
    parser.add_argument("--seconds", type=int, default=240, help="how long the processes run")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--down", type=float, default=0, help="seconds between the stop and the start")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    stories = []
    for store in given.store or ("sqlite", "postgres"):
        if store == "postgres" and (reason := missing_postgres()):
            print(f"postgres: {reason}", file=sys.stderr)
            continue
        for spread in given.spread or ("minute", "instant"):
            count = given.schedules if spread == "minute" else given.at_once
            with tempfile.TemporaryDirectory(prefix="foliot-start-", dir=DISK) as folder, _fresh(store, folder) as url:
                seconds = given.seconds if spread == "minute" else min(given.seconds, 150)
                story = _story(store, url, spread, count, seconds, given.workers, given.down, Path(folder))
            stories.append(story)
            print(_text(story), flush=True)
    (given.out / "start.json").write_text(json.dumps([asdict(story) for story in stories]) + "\n", "utf-8")


@contextmanager
def _fresh(store: str, folder: str) -> Iterator[str]:
    if store == "sqlite":
        yield f"sqlite:///{folder}/foliot.db"
        return
    with PostgresServer(directory=DISK, settings=SERVER_SETTINGS) as server:
        yield server.dsn()


def _story(
    store: str, url: str, spread: str, count: int, seconds: int, workers: int, down: float, folder: Path
) -> Story:
    environment = {**os.environ, "FOLIOT_STORE": url, SCHEDULES: str(count), SPREAD: spread}
    created = _applied(environment)
    unchanged = _applied(environment)
    if unchanged["unchanged"] != count:
        raise RuntimeError(f"{count} schedules were applied twice, and {unchanged['unchanged']} were unchanged")
    time.sleep(down)
    company = Company()
    began = _now()
    with _fleet(environment, workers, folder / "log"):
        time.sleep(seconds)
    ended = _now()
    others, load = company.share(), os.getloadavg()[0]
    rows, alerts = _read(store, url)
    story = _judged(rows, began, ended, count, spread)
    story.store, story.created_s, story.applied_s = store, created["applied_s"], unchanged["applied_s"]
    story.alerts, story.others, story.load = alerts, others, load
    return story


def _applied(environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.start_app"],
        env=environment,
        stdout=subprocess.PIPE,
        timeout=APPLY_TIMEOUT,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@contextmanager
def _fleet(environment: dict[str, str], workers: int, log: Path) -> Iterator[None]:
    roles = [["scheduler"], *(["worker", "--slots", "1000"] for _ in range(workers))]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as written:
            for role in roles:
                command = [sys.executable, "-m", "foliot", *role, "--app", str(APP), "--log-level", "warning"]
                command += ["--log-format", "text", "--supervised-by", str(os.getpid())]
                processes.append(
                    subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
                )
        yield
        for role, process in zip(roles, processes, strict=True):
            if process.poll() is not None:
                raise RuntimeError(f"the {role[0]} ended with {process.returncode}:\n{log.read_text()[-2_000:]}")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        sys.stderr.write(log.read_text("utf-8", "replace")[-1_000:])


def _now() -> int:
    return time.time_ns() // 1_000


_ROWS = (
    "SELECT schedule, nominal, started_at, state, reason, span_until FROM {prefix}history WHERE schedule IS NOT NULL "
    "UNION ALL SELECT schedule, nominal, NULL, CASE WHEN fired_at IS NULL THEN -1 ELSE state END, reason, NULL "
    "FROM {prefix}run WHERE schedule IS NOT NULL"
)

_PENDING = -1
"""The state, as these queries give it, of a tick that its schedule has not decided about. Later ticks follow it."""

Row = tuple[str, int, int | None, int, str | None, int | None]


def _read(store: str, url: str) -> tuple[list[Row], int]:
    """Every tick that has a row, and the number of alerts that were opened."""
    if store == "sqlite":
        from foliot.store.sqlite.connection import connect

        connection = connect(url.removeprefix("sqlite:///"))
        rows: list[Any] = connection.execute(_ROWS.format(prefix="")).fetchall()
        alerts = connection.execute("SELECT count(*) FROM alert WHERE kind = 'late'").get
        connection.close()
        return rows, int(alerts)
    return asyncio.run(_read_server(url))


async def _read_server(url: str) -> tuple[list[Row], int]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        rows = [tuple(row) for row in await connection.fetch(_ROWS.format(prefix="foliot."))]
        return rows, await connection.fetchval("SELECT count(*) FROM foliot.alert WHERE kind = 'late'")
    finally:
        await connection.close()


def _judged(rows: Sequence[Row], began: int, ended: int, count: int, spread: str) -> Story:
    named: dict[tuple[str, int], int | None] = {}
    spans: dict[str, list[tuple[int, int]]] = {}
    pending: dict[str, int] = {}
    early = late = coalesced = 0
    for schedule, nominal, started, state, reason, span_until in rows:
        named[schedule, nominal] = started
        if state == _PENDING:
            pending[schedule] = nominal
        if reason == "coalesced":
            coalesced += 1
        if span_until is not None:
            spans.setdefault(schedule, []).append((nominal, span_until))
        if started is not None:
            early += started < nominal
            late += started - nominal > LATE
    starts = [started for started in named.values() if started is not None and started >= began]
    first = min(starts, default=None)
    missed = undecided = 0
    for place in range(count):
        schedule, offset = name_of(place), offset_of(place, count, spread)
        tick = -(-(began - offset) // MINUTE_US) * MINUTE_US + offset
        while tick < ended - GRACE:
            inside = any(begin <= tick <= end for begin, end in spans.get(schedule, ()))
            if (schedule, tick) not in named and not inside:
                undecided += tick > pending.get(schedule, tick)
                missed += tick <= pending.get(schedule, tick)
            tick += MINUTE_US
    due = [(nominal, ms) for (_, nominal), ms in named.items() if began <= nominal < ended - GRACE]
    # A tick that has not started counts with its age.
    lateness = [(nominal, ((ended if started is None else started) - nominal) / 1_000) for nominal, started in due]
    bins = []
    for place in range(math.ceil((ended - GRACE - began) / BIN)):
        inside_bin = sorted(ms for nominal, ms in lateness if place * BIN <= nominal - began < (place + 1) * BIN)
        if inside_bin:
            bins.append(Bin(place * BIN // 1_000_000, len(inside_bin), _part(inside_bin, 0.5), _part(inside_bin, 0.99)))
    slow = [each.second for each in bins if each.p99_ms >= 1_000]
    steady = 0.0 if not slow else slow[-1] + BIN / 1_000_000
    after_first = [] if first is None else sorted(ms for nominal, ms in lateness if nominal >= first)
    return Story(
        store="",
        spread=spread,
        schedules=count,
        created_s=0,
        applied_s=0,
        first_start_s=None if first is None else (first - began) / 1_000_000,
        steady_after_s=steady if bins and (not slow or slow[-1] != bins[-1].second) else None,
        p99_after_first_ms=_part(after_first, 0.99) if after_first else None,
        overdue=sum(nominal < began for _, nominal in named),
        late=late,
        coalesced=coalesced,
        missed=missed,
        undecided=undecided,
        early=early,
        alerts=0,
        bins=bins,
    )


def _part(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _text(story: Story) -> str:
    others = "?" if story.others is None else format(story.others, ".0%")
    first = "never" if story.first_start_s is None else f"{story.first_start_s:.1f} s"
    steady = "never" if story.steady_after_s is None else f"{story.steady_after_s:.0f} s"
    p99 = "-" if story.p99_after_first_ms is None else f"{story.p99_after_first_ms:,.0f} ms"
    lines = [
        f"{story.store}, {story.schedules:,} schedules, "
        + ("spread over each minute" if story.spread == "minute" else "due at one instant of each minute"),
        f"  created in {story.created_s:.1f} s; applied unchanged in {story.applied_s:.1f} s",
        f"  first start {first}; every p99 below 1 s from {steady} on; p99 of all due after the first start {p99}",
        f"  late by a minute {story.late:,}; coalesced {story.coalesced:,}; missed {story.missed:,}; "
        f"undecided {story.undecided:,}; "
        f"early {story.early}; overdue at the start {story.overdue:,}; late alerts {story.alerts:,}",
        f"  other processes used {others} of the machine, load {story.load:.1f}",
        f"  {'second':>8} {'ticks':>8} {'p50 ms':>10} {'p99 ms':>10}",
    ]
    lines += [f"  {each.second:>8} {each.ticks:>8,} {each.p50_ms:>10,.1f} {each.p99_ms:>10,.1f}" for each in story.bins]
    return "\n".join(lines)
