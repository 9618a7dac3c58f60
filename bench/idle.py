"""`python -m bench idle`: what processes cost that have nothing to do.

For each engine it starts one scheduler and one worker, and counts the CPU time and the wake-ups of each process for
some seconds. A wake-up is a voluntary context switch of any of its threads. Then it promises runs for now from another
process, one at a time, and takes the time from the call to the start of the run. It does so with an empty store, and
with a million pending runs and 1,000 schedules, all far in the future.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from bench.fairness import place_for
from bench.idle_app import SCHEDULES, noop
from foliot import bootstrap
from foliot.domain.instant import DAY, MILLISECOND, Instant, to_datetime
from foliot.domain.store import Store

APP = Path(__file__).with_name("idle_app.py")
FAR: Instant = 60 * DAY
"""So far in the future lie the pending runs: no scheduler loads them."""
AT_ONCE = 5_000
PATIENCE = 120.0
"""Seconds for processes to appear, for runs to end, and for processes to leave."""
ENGINES = ("sqlite", "postgres")


@dataclass(frozen=True, slots=True)
class Sizes:
    pending: int = 1_000_000
    schedules: int = 1_000
    seconds: float = 20.0
    settle: float = 15.0
    """Seconds after the start before anything is counted: the first looks of the watch are over then."""
    promises: int = 200
    gap: float = 0.1
    """Average seconds between two promises. Each gap is random: no promise keeps step with a poll."""


class Usage(NamedTuple):
    """What a process has used since its start."""

    at: float
    cpu: float
    switches: int
    threads: dict[str, int]


@dataclass(frozen=True, slots=True)
class Idle:
    """One process with nothing to do."""

    role: str
    cpu: float
    """Percent of a core."""
    wakeups: float
    """Per second."""
    threads: dict[str, float]
    """Wake-ups per second by the name of the thread."""


@dataclass(frozen=True, slots=True)
class Result:
    engine: str
    pending: int
    schedules: int
    processes: list[Idle]
    p50_ms: float
    p99_ms: float
    load: float
    """The machine's load in the last minute."""


def main(arguments: list[str]) -> None:
    given = _arguments(arguments)
    sizes = Sizes(given.pending, given.schedules, given.seconds, promises=given.promises)
    results: list[Result] = []
    for engine in given.engine or ENGINES:
        for pending, schedules in ((0, 0), (sizes.pending, sizes.schedules)):
            with ExitStack() as stack:
                url = stack.enter_context(place_for(engine))
                results.append(asyncio.run(_measured(url, engine, pending, schedules, sizes)))
            _print(results[-1])
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "idle.json").write_text(json.dumps([asdict(result) for result in results], indent=1), "utf-8")


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench idle", description=__doc__)
    parser.add_argument("--pending", type=int, default=Sizes().pending, help="pending runs of the full store")
    parser.add_argument("--schedules", type=int, default=Sizes().schedules, help="schedules of the full store")
    parser.add_argument("--seconds", type=float, default=Sizes().seconds, help="for which idle processes are measured")
    parser.add_argument("--promises", type=int, default=Sizes().promises, help="runs that are promised for now")
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="where results are written")
    given = parser.parse_args(arguments)
    if sys.platform != "linux":
        parser.error("it reads the context switches of other processes, which needs Linux")
    return given


def _print(result: Result) -> None:
    print(
        f"{result.engine:9} {result.pending:>9,} pending, {result.schedules:,} schedules; promise for now to start, "
        f"ms: p50 {result.p50_ms:.1f}, p99 {result.p99_ms:.1f}; load {result.load:.1f}"
    )
    for process in result.processes:
        busiest = sorted(process.threads.items(), key=lambda item: -item[1])[:3]
        named = ", ".join(f"{name} {wakeups:.1f}" for name, wakeups in busiest)
        print(
            f"          {process.role:9} {process.cpu:5.2f} % of a core, {process.wakeups:6.1f} wake-ups/s ({named})",
            flush=True,
        )


async def _measured(url: str, engine: str, pending: int, schedules: int, sizes: Sizes) -> Result:
    store = bootstrap.make_store(url)
    await store.open()
    try:
        await _fill(store, pending)
        with _fleet(url, schedules) as processes:
            while len(await store.instances()) < len(processes):  # noqa: ASYNC110 - they are in other processes
                await asyncio.sleep(0.05)
            await _promised(store, 20, sizes.gap)  # statements are planned, and modules imported, before it counts
            await asyncio.sleep(sizes.settle)
            idle = _idle(processes, sizes.seconds)
            late = await _promised(store, sizes.promises, sizes.gap)
    finally:
        await store.close()
    return Result(
        engine, pending, schedules, idle, _quantile(late, 0.5), _quantile(late, 0.99), round(os.getloadavg()[0], 1)
    )


async def _fill(store: Store, count: int) -> None:
    begin = _now() + FAR
    for first in range(0, count, AT_ONCE):
        places = range(first, min(first + AT_ONCE, count))
        await store.promise([noop.promise_at(to_datetime(begin + place * MILLISECOND), place) for place in places])


async def _promised(store: Store, count: int, gap: float) -> list[float]:
    """Milliseconds from the call to the start of each run, sorted."""
    called: dict[str, Instant] = {}
    for place in range(count):
        await asyncio.sleep(random.uniform(0, 2 * gap))
        at = _now()
        [kept] = await store.promise([noop.promise_at(to_datetime(at), place)])
        called[kept.id] = at
    late: list[float] = []
    until = time.monotonic() + PATIENCE
    for number, at in called.items():
        while (started := (await store.run(number)).started_at) is None:
            if time.monotonic() > until:
                raise RuntimeError(f"run {number} has not started after {PATIENCE:g} s")
            await asyncio.sleep(0.02)
        late.append((started - at) / MILLISECOND)
    return sorted(late)


def _quantile(late: list[float], share: float) -> float:
    return round(late[min(int(share * len(late)), len(late) - 1)], 2)


def _now() -> Instant:
    return time.time_ns() // 1_000


@contextmanager
def _fleet(url: str, schedules: int) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """One scheduler and one worker, as a user starts them."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    environment = {**os.environ, SCHEDULES: str(schedules)}
    try:
        for role in ("scheduler", "worker"):
            command = [sys.executable, "-m", "foliot", role, "--app", str(APP), "--store", url]
            # Supervised: should the bench be killed, its processes end by themselves.
            processes[role] = subprocess.Popen(
                [*command, "--supervised-by", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        yield processes
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _idle(processes: dict[str, subprocess.Popen[bytes]], seconds: float) -> list[Idle]:
    before = {role: usage(process.pid) for role, process in processes.items()}
    time.sleep(seconds)
    return [_between(role, before[role], usage(process.pid)) for role, process in processes.items()]


def _between(role: str, before: Usage, after: Usage) -> Idle:
    length = after.at - before.at
    threads: dict[str, float] = {}
    for key, switches in after.threads.items():
        name = key.partition("/")[2]
        threads[name] = threads.get(name, 0.0) + (switches - before.threads.get(key, 0)) / length
    return Idle(
        role,
        round(100 * (after.cpu - before.cpu) / length, 2),
        round((after.switches - before.switches) / length, 1),
        {name: round(rate, 1) for name, rate in threads.items()},
    )


def usage(pid: int) -> Usage:
    """CPU seconds and voluntary context switches of a process, by its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    threads: dict[str, int] = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (folder / "status").read_text("utf-8").splitlines()
        except OSError:
            continue  # the thread ended meanwhile
        said = dict(line.split(":", 1) for line in lines if ":" in line)
        threads[f"{folder.name}/{said['Name'].strip()}"] = int(said["voluntary_ctxt_switches"])
    return Usage(time.monotonic(), cpu, sum(threads.values()), threads)
