"""`python -m bench fairness`: one tenant floods, nine trickle; how long do the nine wait?

Each round is a fresh store with a scheduler and a worker. The nine promise runs for now, evenly over some seconds. In a
quiet round that is all. In a flood another tenant has a hundred thousand runs due at the moment when the nine begin: as
long as theirs, or ten times as long. The last kind of round has the same flood, and no tenants at all, so that runs are
taken in the order in which they were due: what fairness is compared with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from foliot import bootstrap
from foliot.domain.instant import SECOND, Instant
from foliot.domain.run import Promise
from foliot.domain.state import State
from foliot.domain.store import Store

APP = Path(__file__).with_name("tenancy.py")
DISK = Path("/var/tmp")
"""Not in memory, where /tmp may be."""
NINE = [f"tenant-{place}" for place in range(1, 10)]
FLOOD = "flood"
LEAD = 4.0
"""Seconds from the last promise of the flood until it is due: it is loaded by then."""
PROMISES = 8_000
"""The least number made in a second."""
_PROCESSES = 2
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Kind:
    """What one round is about."""

    name: str
    floods: bool = True
    longer: int = 1
    """How many times as long the flood's runs take."""
    tenants: bool = True


QUIET = Kind("quiet", floods=False)
KINDS = (QUIET, Kind("flood"), Kind("flood of long runs", longer=10), Kind("flood, no tenants", tenants=False))


@dataclass(frozen=True, slots=True)
class Sizes:
    flood: int = 100_000
    seconds: float = 20.0
    """For which the nine go on."""
    rate: int = 90
    """Runs of the nine, together, in a second."""
    nap: float = 0.05
    slots: int = 100
    rounds: int = 2


@dataclass(frozen=True, slots=True)
class Round:
    engine: str
    kind: str
    delays: list[tuple[float, float]]
    """Of the nine: when each run was due, in seconds after the first, and how long it waited, in milliseconds."""
    flooded: int
    """Runs of the flood that had ended when the last of the nine was due."""

    def quantile(self, share: float) -> float:
        waited = sorted(delay for _, delay in self.delays)
        return waited[min(int(share * len(waited)), len(waited) - 1)]


def main(arguments: list[str]) -> None:
    given = _arguments(arguments)
    sizes = Sizes(given.flood, given.seconds, rounds=given.rounds)
    rounds: list[Round] = []
    for engine in given.engine or ("sqlite", "postgres"):
        for place in range(sizes.rounds):
            # In turns, and in either order: what grows slower or warmer does so for all.
            for kind in reversed(KINDS) if place % 2 else KINDS:
                rounds.append(_measured(engine, kind, sizes))
                _tell(rounds[-1])
        _compare(engine, rounds)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "fairness.json").write_text(json.dumps([asdict(one) for one in rounds]), "utf-8")
    if plot(rounds, given.out / "fairness.png"):
        print(f"drawn to {given.out}/fairness.png")


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench fairness", description=__doc__)
    parser.add_argument("--flood", type=int, default=Sizes().flood, help="runs of the tenant that floods")
    parser.add_argument("--seconds", type=float, default=Sizes().seconds, help="for which the nine go on")
    parser.add_argument("--rounds", type=int, default=Sizes().rounds)
    parser.add_argument("--engine", action="append", choices=("sqlite", "postgres"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="where results are written")
    return parser.parse_args(arguments)


def _tell(one: Round) -> None:
    waits = ", ".join(
        f"{name} {one.quantile(share):,.1f}" for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    )
    print(
        f"{one.engine:9} {one.kind:20} the nine waited, ms: {waits} ({len(one.delays):,} runs); flood: {one.flooded:,}",
        flush=True,
    )


def _compare(engine: str, rounds: list[Round]) -> None:
    found = {kind.name: [one for one in rounds if (one.engine, one.kind) == (engine, kind.name)] for kind in KINDS}
    quiet = median(one.quantile(0.99) for one in found[QUIET.name])
    for kind in KINDS[1:]:
        ratio = median(one.quantile(0.99) for one in found[kind.name]) / quiet
        print(f"{engine:9} p99 of the nine, {kind.name} / quiet: {ratio:.2f}", flush=True)


# One round


def _measured(engine: str, kind: Kind, sizes: Sizes) -> Round:
    with ExitStack() as stack:
        url = stack.enter_context(place_for(engine))
        return asyncio.run(_round(url, engine, kind, sizes))


@contextmanager
def place_for(engine: str) -> Iterator[str]:
    if engine == "postgres":
        from tests.servers.postgres import PostgresServer

        with PostgresServer(directory=DISK, settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}) as server:
            yield server.dsn()
    else:
        with tempfile.TemporaryDirectory(dir=DISK) as folder:
            yield f"sqlite:///{folder}/foliot.db"


async def _round(url: str, engine: str, kind: Kind, sizes: Sizes) -> Round:
    store = bootstrap.make_store(url)
    await store.open()
    try:
        with _fleet(url, sizes.slots):
            while len(await store.instances()) < _PROCESSES:  # noqa: ASYNC110 - they are in other processes
                await asyncio.sleep(0.05)
            begin = await _flood(store, kind, sizes) if kind.floods else _now() + SECOND
            times = [begin + place * SECOND // sizes.rate for place in range(int(sizes.rate * sizes.seconds))]
            await _trickle(store, sizes.nap, times, kind)
            await _wait_for_the_nine(store)
        ended = await store.runs(states=[State.SUCCEEDED], job="trickle", limit=len(times))
        assert len(ended) == len(times)
        delays = [((run.fire_at - begin) / SECOND, ((run.started_at or 0) - run.fire_at) / 1_000) for run in ended]
        return Round(engine, kind.name, sorted(delays), (await store.counts())["history"] - len(times))
    finally:
        await store.close()


async def _flood(store: Store, kind: Kind, sizes: Sizes) -> Instant:
    """Promises it all for one moment that has not come by then; answers which."""
    begin = _now() + int((LEAD + sizes.flood / PROMISES) * SECOND)
    await _promise(store, "flood", kind.longer * sizes.nap, [begin] * sizes.flood, [FLOOD], kind)
    if _now() > begin - SECOND:
        raise RuntimeError("the machine is too busy: the flood was not promised before it was due")
    return begin


def _now() -> Instant:
    return time.time_ns() // 1_000


async def _trickle(store: Store, nap: float, times: list[Instant], kind: Kind) -> None:
    """Each run is promised when it is due: by tasks, so that a promise that takes long does not put off the next."""
    async with asyncio.TaskGroup() as promising:
        for place, due in enumerate(times):
            await asyncio.sleep(max(0.0, (due - _now()) / SECOND))
            tenant = [NINE[place % len(NINE)]]
            promising.create_task(_promise(store, "trickle", nap, [_now()], tenant, kind))


async def _promise(store: Store, job: str, nap: float, times: list[Instant], tenants: list[str], kind: Kind) -> None:
    payload = json.dumps({"seconds": nap}).encode()
    made = [
        Promise(job, payload, due, tenant=tenants[place % len(tenants)] if kind.tenants else None)
        for place, due in enumerate(times)
    ]
    for start in range(0, len(made), 1_000):
        await store.promise(made[start : start + 1_000])


@contextmanager
def _fleet(url: str, slots: int) -> Iterator[None]:
    """One scheduler and one worker, as a user would start them."""
    command = [sys.executable, "-m", "foliot"]
    common = ["--app", str(APP), "--store", url]
    roles = (["scheduler", *common], ["worker", *common, "--slots", str(slots)])
    nowhere = subprocess.DEVNULL
    processes = [subprocess.Popen([*command, *role], stdin=nowhere, stderr=nowhere) for role in roles]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(PATIENCE)


async def _wait_for_the_nine(store: Store) -> None:
    """They were made last, so that one which has not ended is found at once."""
    until = time.monotonic() + PATIENCE
    live = [State.SCHEDULED, State.READY, State.RUNNING]
    while await store.runs(states=live, job="trickle", limit=1):
        if time.monotonic() > until:
            raise RuntimeError(f"runs of the nine have not ended after {PATIENCE:g} s")
        await asyncio.sleep(0.5)


def plot(rounds: list[Round], file: Path) -> bool:
    """False when matplotlib is not installed (`pip install foliot[bench]`)."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    engines = list(dict.fromkeys(one.engine for one in rounds))
    figure, panels = pyplot.subplots(
        1, len(engines), figsize=(6 * len(engines), 4.4), layout="constrained", squeeze=False
    )
    for axes, engine in zip(panels[0], engines, strict=True):
        for kind in KINDS:
            _draw(axes, kind, [one for one in rounds if (one.engine, one.kind) == (engine, kind.name)])
        axes.set_yscale("log")
        axes.set_xlabel("seconds since the flood")
        axes.set_ylabel("milliseconds from due to start, log scale")
        axes.set_title({"sqlite": "SQLite", "postgres": "PostgreSQL"}[engine], fontsize=10)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=8, markerscale=4)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("How long runs of nine tenants wait while a tenth has 100,000 due", fontsize=11)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return True


def _draw(axes: Any, kind: Kind, rounds: list[Round]) -> None:
    delays = sorted(delay for one in rounds for delay in one.delays)
    if not delays:
        return
    p99 = median(one.quantile(0.99) for one in rounds)
    label = f"{kind.name}: p99 {p99:,.0f} ms" if p99 >= 10 else f"{kind.name}: p99 {p99:.1f} ms"
    seconds, waited = zip(*delays, strict=True)
    axes.plot(seconds, [max(one, 0.1) for one in waited], ".", markersize=2, color=_COLOURS[kind.name], label=label)


_COLOURS = {
    "quiet": "#9a9a9a",
    "flood": "#2f6f9f",
    "flood of long runs": "#66a182",
    "flood, no tenants": "#d1495b",
}
