"""`python -m bench.against OTHER`: this checkout against another one, in turns, in one run.

Each round drains a burst of runs that do nothing, with full history, once with the code of each checkout: on an SQLite
file, and on a private PostgreSQL where there is one. What is printed are ratios of medians. The processor time that
scheduler and worker spend on a run is told beside the rate, because other work on the machine disturbs it less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

HERE = Path(__file__).parents[1]
DISK = Path("/var/tmp")
"""Not in memory, where /tmp may be."""


class Round(NamedTuple):
    rate: float
    """Runs per second, from the moment at which all were due to the last ending."""
    cost: float
    """Microseconds of processor time of the scheduler and the worker, per run."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--round", dest="engine", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        print(json.dumps(_round(given.engine, given.runs)))
        return
    trees = {"other": given.other.resolve(), "this": HERE}
    for engine in ("sqlite", "postgres"):
        found: dict[str, list[Round]] = {name: [] for name in trees}
        for place in range(given.rounds):
            # In turns, and in either order: what grows slower or warmer does so for both.
            for name in sorted(trees, reverse=bool(place % 2)):
                found[name].append(_measured(trees[name], engine, given.runs))
        _tell(engine, found)


def _measured(tree: Path, engine: str, runs: int) -> Round:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(HERE)])}
    command = [sys.executable, "-m", "bench.against", str(tree), "--round", engine, "--runs", str(runs)]
    answer = subprocess.run(command, env=environment, cwd=HERE, check=True, stdout=subprocess.PIPE)
    return Round(*json.loads(answer.stdout))


def _tell(engine: str, found: dict[str, list[Round]]) -> None:
    for name, rounds in found.items():
        rates = ", ".join(f"{one.rate:,.0f}" for one in rounds)
        costs = ", ".join(f"{one.cost:.0f}" for one in rounds)
        print(f"{engine:9} {name:6} runs/s {rates}; us of processor time per run {costs}")
    this, other = found["this"], found["other"]
    rate = median(one.rate for one in this) / median(one.rate for one in other)
    cost = median(one.cost for one in this) / median(one.cost for one in other)
    print(f"{engine:9} this / other: rate {rate:.2f}, processor time per run {cost:.2f}", flush=True)


# One round, with whichever code PYTHONPATH leads to


def _round(engine: str, runs: int) -> Round:
    if engine == "postgres":
        rate = _on_server(runs)
    else:
        from bench.loads import burst

        with tempfile.TemporaryDirectory(dir=DISK) as folder:
            rate = burst(Path(folder) / "foliot.db", runs, 1_000).finish_rate
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Round(rate, (used.ru_utime + used.ru_stime) / runs * 1_000_000)


def _on_server(runs: int) -> float:
    from tests.servers.postgres import PostgresServer

    with PostgresServer(directory=DISK, settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}) as server:
        return asyncio.run(_drained(server.dsn(), runs))


async def _drained(url: str, runs: int) -> float:
    from bench.fleet import APP
    from foliot import bootstrap
    from foliot.domain.run import Promise

    store: Any = bootstrap.make_store(url)
    await store.open()
    roles = {"scheduler": (), "worker": ("--slots", "1000")}
    processes = [
        subprocess.Popen(  # noqa: ASYNC220 - nothing else runs here
            [sys.executable, "-m", "foliot", role, "--app", str(APP), "--store", url, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for role, options in roles.items()
    ]
    try:
        while len(await store.instances()) < len(processes):  # noqa: ASYNC110 - they are in other processes
            await asyncio.sleep(0.05)
        due = time.time_ns() // 1_000 + 5_000_000
        payload = b'{"class_id":123456,"note":"sixty bytes of payload, no more"}'
        for _ in range(0, runs, 1_000):
            await store.promise([Promise("noop", payload, due)] * 1_000)
        while (await store.counts())["history"] < runs:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.2)
        ended = [run.finished_at for run in await store.ended_since(0, runs)]
        return float(runs / ((max(ended) - due) / 1_000_000))
    finally:
        await store.close()
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


if __name__ == "__main__":
    main()
