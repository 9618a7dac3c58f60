"""`python -m bench limits`: bursts of due runs under limits, by turns with plain bursts.

Each engine has one store, one scheduler and two workers of 1,000 slots. A round measures every setting once, and a
plain burst before and after it. The ratio of a setting is its rate relative to the mean of these two. The rate counts
starts, from the moment at which all runs are due to the last start. `most` is the largest number of handlers that ran
at one moment, by the workers' clocks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from bench.fairness import place_for
from foliot import bootstrap
from foliot.domain.gates import Gate, Rate
from foliot.domain.instant import SECOND, Instant
from foliot.domain.policy import choices, choices_to_json
from foliot.domain.run import Promise
from foliot.domain.store import Store

APP = Path(__file__).with_name("limited.py")
WORKERS, SLOTS = 2, 1_000
BATCH = 1_000
PATIENCE = 120.0
SETTLE = 1.0
"""Seconds that the processes get before the runs are due."""
PROMISES = 20_000
"""The least number made in a second."""
_NO_OPTIONS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Setting:
    """What limits a burst."""

    name: str
    gates: Sequence[Gate] = ()
    job: str = "noop"
    share: float = 1.0
    """Of the runs of a plain burst, where the setting takes long."""
    options: Callable[[int], Mapping[str, Any]] = field(default=lambda place: _NO_OPTIONS)
    tenant: Callable[[int], str | None] = field(default=lambda place: None)
    queue: Callable[[int], str | None] = field(default=lambda place: None)
    priority: Callable[[int], int] = field(default=lambda place: 0)


PLAIN = Setting("plain")
SETTINGS = (
    Setting("concurrency=10000", [Gate("job:noop", most=10_000)]),
    Setting("rate=1000000/s", [Gate("job:noop", every=Rate.parse("1000000/s").every)]),
    Setting("1000 keys x 10", options=lambda place: {"concurrency_key": f"key-{place % 1_000}", "key_limit": 10}),
    Setting("destination", options=lambda place: {"destination": "bank"}),
    Setting("100 tenants", tenant=lambda place: f"tenant-{place % 100}"),
    Setting("queues", queue=lambda place: f"queue-{place % 4}", priority=lambda place: place % 3),
    Setting("concurrency=50", [Gate("job:noop", most=50)]),
    Setting("concurrency=50, 20 ms", [Gate("job:nap", most=50)], job="nap"),
    Setting("rate=1000/s", [Gate("job:noop", every=Rate.parse("1000/s").every)]),
)


@dataclass(frozen=True, slots=True)
class Round:
    engine: str
    setting: str
    runs: int
    rate: float
    cpu: float
    """CPU seconds of all processes for 1,000 runs."""
    most: int
    by_second: list[int]
    """Starts in each second after the due time."""


def main(arguments: list[str]) -> None:
    given = _arguments(arguments)
    settings = [one for one in SETTINGS if one.name in (given.setting or [one.name])]
    rounds: list[Round] = []
    for engine in given.engine or ("sqlite", "postgres"):
        with place_for(engine) as url:
            asyncio.run(_measure(url, engine, settings, given.runs, given.rounds, rounds))
        _compare(engine, settings, rounds)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "limits.json").write_text(json.dumps([asdict(one) for one in rounds]), "utf-8")


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench limits", description=__doc__)
    parser.add_argument("--runs", type=int, default=5_000, help="of each burst, by default %(default)s")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--engine", action="append", choices=("sqlite", "postgres"))
    parser.add_argument("--setting", action="append", choices=[one.name for one in SETTINGS])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="where results are written")
    return parser.parse_args(arguments)


async def _measure(
    url: str, engine: str, settings: Sequence[Setting], runs: int, rounds: int, measured: list[Round]
) -> None:
    store = bootstrap.make_store(url)
    await store.open()
    try:
        with _fleet(url) as pids:
            while len(await store.instances()) < 1 + WORKERS:  # noqa: ASYNC110 - they are in other processes
                await asyncio.sleep(0.05)
            await _burst(store, engine, PLAIN, min(runs, 2_000), pids)  # warms the processes
            for place in range(rounds):
                for setting in reversed(settings) if place % 2 else settings:
                    for each in (PLAIN, setting):
                        measured.append(await _burst(store, engine, each, round(runs * each.share), pids))
                        _tell(measured[-1])
                measured.append(await _burst(store, engine, PLAIN, runs, pids))
                _tell(measured[-1])
    finally:
        await store.close()


async def _burst(store: Store, engine: str, setting: Setting, runs: int, pids: Sequence[int]) -> Round:
    for gate in setting.gates:
        await store.set_limit(gate, actor="bench")
    was = (await store.counts())["history"]
    due = _now() + round((SETTLE + runs / PROMISES) * SECOND)
    numbers: set[int] = set()
    for first in range(0, runs, BATCH):
        batch = [_promise(setting, place, due) for place in range(first, min(first + BATCH, runs))]
        numbers.update(kept.number for kept in await store.promise(batch))
    ready = _now()
    if ready > due - SECOND // 4:
        print(f"the promises took longer than planned; {setting.name} began before all were made", file=sys.stderr)
    await asyncio.sleep(max(0.0, (due - _now()) / SECOND))
    before = _cpu_seconds(pids)
    until = time.monotonic() + PATIENCE
    while (ended := (await store.counts())["history"]) < was + runs:
        if time.monotonic() > until:
            raise RuntimeError(f"{was + runs - ended} runs of {setting.name} have not ended after {PATIENCE:.0f} s")
        await asyncio.sleep(0.1)
    spent = _cpu_seconds(pids) - before
    times = await _times(store, numbers)
    for gate in setting.gates:
        await store.drop_limit(gate.name, actor="bench", note="")
    took = max(started for started, _ in times) - due
    seconds = [0] * (took // SECOND + 1)
    for started, _ in times:
        seconds[(started - due) // SECOND] += 1
    return Round(engine, setting.name, runs, runs * SECOND / took, spent * 1_000 / runs, _most_at_once(times), seconds)


async def _times(store: Store, numbers: set[int]) -> list[tuple[Instant, Instant]]:
    """Start and end of each run."""
    times: list[tuple[Instant, Instant]] = []
    before, left = max(numbers) + 1, set(numbers)
    while left:
        page = await store.runs(limit=BATCH, before=before)
        if not page:
            raise RuntimeError(f"{len(left)} runs were promised and are not found")
        times += [(one.started_at or 0, one.finished_at or 0) for one in page if one.number in left]
        left.difference_update(one.number for one in page)
        before = page[-1].number
    return times


def _promise(setting: Setting, place: int, due: Instant) -> Promise:
    wishes = setting.options(place)
    return Promise(
        setting.job,
        b"{}",
        due,
        tenant=setting.tenant(place),
        queue=setting.queue(place),
        priority=setting.priority(place),
        options=choices_to_json(choices(dict(wishes))) if wishes else None,
    )


def _most_at_once(times: Sequence[tuple[Instant, Instant]]) -> int:
    moves = sorted([(started, 1) for started, _ in times] + [(finished, -1) for _, finished in times])
    return max(accumulate(move for _, move in moves))


def _now() -> Instant:
    return time.time_ns() // 1_000


# Processes


@contextmanager
def _fleet(url: str) -> Iterator[list[int]]:
    """One scheduler and the workers, supervised: they end with this process. Their ids, and that of the server."""
    processes: list[subprocess.Popen[bytes]] = []
    options = ["--slots", str(SLOTS), "--queues", ",".join(["default", *(f"queue-{n}" for n in range(4))])]
    try:
        for role, more in [("scheduler", []), *[("worker", options)] * WORKERS]:
            command = [sys.executable, "-m", "foliot", role, "--app", str(APP), "--store", url]
            command += ["--log-level", "warning", "--supervised-by", str(os.getpid()), *more]
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr))
        yield [process.pid for process in processes] + _servers()
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _servers() -> list[int]:
    """PostgreSQL servers that this process has started, also through another process."""
    servers, below = [], _children(os.getpid())
    while below:
        pid = below.pop()
        if Path(f"/proc/{pid}/comm").read_text().strip() == "postgres":
            servers.append(pid)
        else:
            below += _children(pid)
    return servers


def _children(pid: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def _cpu_seconds(pids: Sequence[int]) -> float:
    """Of processes and their children, also those that have ended."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            children = _children(pid)
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
        for child in children:
            try:
                of_child = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks += sum(map(int, of_child[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


# Results


def _tell(one: Round) -> None:
    print(
        f"{one.engine:9} {one.setting:22} {one.rate:9,.0f}/s  CPU {one.cpu:6.3f} s per 1,000  most at once {one.most:,}"
        + (f"  by second {one.by_second[:12]}" if len(one.by_second) > 2 else ""),
        flush=True,
    )


def _compare(engine: str, settings: Sequence[Setting], rounds: Sequence[Round]) -> None:
    mine = [one for one in rounds if one.engine == engine]
    plain = [one.rate for one in mine if one.setting == PLAIN.name]
    print(f"\n{engine}: median of {len(plain)} plain bursts {median(plain):,.0f}/s")
    for setting in settings:
        ratios, rates = [], []
        for place, one in enumerate(mine):
            if one.setting == setting.name:
                beside = [near.rate for near in (mine[place - 1], mine[place + 1]) if near.setting == PLAIN.name]
                ratios.append(one.rate * len(beside) / sum(beside))
                rates.append(one.rate)
        if ratios:
            cpu = median(one.cpu for one in mine if one.setting == setting.name)
            most = max(one.most for one in mine if one.setting == setting.name)
            print(
                f"{engine:9} {setting.name:22} {median(rates):9,.0f}/s  ratio {median(ratios):.3f} "
                f"({min(ratios):.3f} - {max(ratios):.3f})  CPU {cpu:.3f} s per 1,000  most at once {most:,}",
                flush=True,
            )
