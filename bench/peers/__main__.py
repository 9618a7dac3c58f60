"""`python -m bench.peers`: measures, prints, and writes peers.json and peers.png."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from rich.console import Console

from bench.company import Company
from bench.peers.measure import Measurement, Results
from bench.peers.peers import EVERYBODY, WORKLOADS
from bench.peers.plot import plot
from bench.peers.report import print_report, write_json
from bench.peers.workloads import Sizes
from bench.peers.yard import SETTINGS, Yard
from bench.plan import workshop
from tests.servers.postgres import PostgresServer, missing_postgres


def main() -> None:
    given = _arguments()
    if why := missing_postgres():
        sys.exit(f"bench.peers needs a PostgreSQL server: {why}")
    signal.signal(signal.SIGTERM, _end_in_order)
    chosen = [peer for peer in EVERYBODY if not given.peer or peer.id in given.peer]
    results = Results(_sizes(given), chosen)
    errors = Console(stderr=True, highlight=False)
    given.out.mkdir(parents=True, exist_ok=True)
    with (
        workshop(given.out, keep=False) as folder,
        PostgresServer(directory=folder.parent, settings=SETTINGS) as server,
    ):
        yard = Yard(server)
        results.machine = _machine(given.quick, yard)
        began, company, used = time.monotonic(), Company(), yard.seconds()
        environments = (given.environments or folder / "environments").resolve()
        measurement = Measurement(
            yard, results, folder, environments, lambda text: errors.print(text, markup=False, soft_wrap=True)
        )
        measurement.prepare()
        measurement.run(set(given.only or WORKLOADS))
        spent = time.monotonic() - began
        share = company.share()
        if share is not None:  # the server is nobody's child, but it works for us
            share = max(0.0, share - (yard.seconds() - used) / spent / (os.cpu_count() or 1))
        results.machine |= {"others": share, "seconds": round(spent, 1)}
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    print_report(results, console)
    write_json(results, given.out / "peers.json")
    drawn = plot(results, given.out / "peers.png")
    console.print(f"\nmeasured in {spent:.0f} s; written to {given.out}/peers.json", end="")
    console.print(" and peers.png" if drawn else "; no plot: pip install 'foliot[bench]'")


def _arguments() -> argparse.Namespace:
    default = Path(__file__).parent.parent / "results"
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small: a smoke test")
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="this alone; may be given repeatedly")
    parser.add_argument("--peer", action="append", choices=[peer.id for peer in EVERYBODY], help="likewise")
    parser.add_argument("--rounds", type=int, help="how often each load goes round; medians are compared")
    parser.add_argument("--burst", type=int, help="jobs due at one moment")
    parser.add_argument("--pending", type=int, help="far-future jobs")
    parser.add_argument("--filling", type=float, help="seconds that making them may take; else there are fewer")
    parser.add_argument("--rate", type=int, action="append", help="jobs per second of a steady load; likewise")
    parser.add_argument("--seconds", type=float, help="how long a steady load lasts")
    parser.add_argument("--out", type=Path, default=default, help="where results are written")
    parser.add_argument("--environments", type=Path, help="a folder that keeps the peers' environments for next time")
    return parser.parse_args()


def _sizes(given: argparse.Namespace) -> Sizes:
    sizes = Sizes().quick() if given.quick else Sizes()
    named = {name: getattr(given, name) for name in ("rounds", "burst", "pending", "filling", "seconds")}
    named["rates"] = tuple(given.rate or ())
    return replace(sizes, **{name: value for name, value in named.items() if value})


def _machine(quick: bool, yard: Yard) -> dict[str, object]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "quick": quick,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "postgresql": yard.settings(),
    }


def _end_in_order(number: int, frame: FrameType | None) -> None:
    """So that processes and files are cleared away on SIGTERM too."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
