"""`python -m bench`: measures, prints, and writes results.json and bench.png. `python -m bench outage`,
`python -m bench fairness`, `reading`, `start`, `idle`, `limits`: see there."""

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
from typing import Any

import apsw
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import foliot
from bench import fairness, idle, limits, outage, reading, start
from bench.company import Company
from bench.measure import Measurement
from bench.plan import PARTS, Plan, workshop
from bench.plot import plot
from bench.report import print_report, write_json


def main() -> None:
    if sys.argv[1:2] == ["outage"]:
        outage.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["fairness"]:
        fairness.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["reading"]:
        reading.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["start"]:
        start.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["idle"]:
        idle.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["limits"]:
        limits.main(sys.argv[2:])
        return
    given = _arguments()
    signal.signal(signal.SIGTERM, _end_in_order)
    plan = _plan(given)
    given.out.mkdir(parents=True, exist_ok=True)
    with workshop(given.out, keep=given.keep) as folder:
        measurement = Measurement(plan, folder)
        results = measurement.results
        results.machine = _machine(plan, given.quick)
        began, company = time.monotonic(), Company()
        if given.keep:
            print(f"the stores stay in {folder}", file=sys.stderr)
        _take_steps(measurement)
        results.seconds = time.monotonic() - began
        results.machine["others"] = company.share()
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    if given.quick:
        console.print("QUICK: a smoke test. Its figures say little.")
    print_report(results, console)
    write_json(results, given.out / "results.json")
    drawn = plot(results, given.out / "bench.png")
    console.print(f"\nmeasured in {results.seconds:.0f} s; written to {given.out}/results.json", end="")
    console.print(" and bench.png" if drawn else "; no plot: pip install 'foliot[bench]'")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ten times smaller: a smoke test")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this alone; may be given repeatedly")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="where results are written")
    parser.add_argument("--seconds", type=float, help="length of each steady load")
    parser.add_argument("--slots", type=int, help="of the worker")
    parser.add_argument("--keep", action="store_true", help="keep the stores, to look at them")
    return parser.parse_args()


def _plan(given: argparse.Namespace) -> Plan:
    plan = Plan(parts=frozenset(given.only or PARTS))
    plan = plan.quick() if given.quick else plan
    return replace(plan, seconds=given.seconds or plan.seconds, slots=given.slots or plan.slots)


def _take_steps(measurement: Measurement) -> None:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<36}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        steps = measurement.steps()
        task = progress.add_task("", total=len(steps))
        for label, step in steps:
            progress.update(task, description=label)
            began = time.monotonic()
            step()
            measurement.results.steps.append((label, round(time.monotonic() - began, 2)))
            progress.advance(task)


def _machine(plan: Plan, quick: bool) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "quick": quick,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "foliot": foliot.__version__,
        "slots": plan.slots,
        "pending": plan.pending,
    }


def _end_in_order(number: int, frame: FrameType | None) -> None:
    """So that processes and files are cleared away on SIGTERM too."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
