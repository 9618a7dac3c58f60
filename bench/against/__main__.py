"""The command line of the comparison."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import bench.against
from bench.against import report
from bench.against.comparison import Comparison, compare
from bench.against.decision import LOOKS
from bench.against.rounds import Answer, Rounds
from bench.against.sides import SideError, SideName, copy_side
from bench.against.workloads import STORES, WORKLOADS
from bench.company import Company
from tests.servers.postgres import missing_postgres

DISK = Path("/var/tmp")
"""On a real disk. /tmp may be in memory."""
FAILED, INCOMPLETE = 1, 2
"""Exit codes. argparse uses 2 as well."""
_EXIT_CODES = f"""exit code:
  0   no workload failed; some may be undecided
  {FAILED}   a workload failed
  {INCOMPLETE}   wrong usage, or a round could not be measured, or a run started early"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    if not 1 <= given.pairs_min <= given.pairs_max:
        parser.error(f"--pairs-min {given.pairs_min} --pairs-max {given.pairs_max}: give 1 <= minimum <= maximum")
    if given.json and not given.json.parent.is_dir():
        parser.error(f"--json {given.json}: there is no folder {given.json.parent}")
    if sys.platform != "linux":
        parser.error("it reads the CPU clocks of other processes, which needs Linux")
    stores = _stores(given.store, parser)
    workloads = [WORKLOADS[name] for name in dict.fromkeys(given.workload or WORKLOADS)]
    comparisons = [
        Comparison(replace(workload, runs=given.runs or workload.runs), store)
        for store in stores
        for workload in workloads
    ]
    with tempfile.TemporaryDirectory(prefix="foliot-against-", dir=DISK) as name:
        folder = Path(name)
        try:
            this = copy_side("this", given.this, folder / "this")
            other = copy_side("other", given.other, folder / "other")
        except SideError as error:
            parser.error(str(error))
        sides = {"this": this, "other": other}
        company = Company()
        with Rounds(folder) as rounds, _progress(given.pairs_max) as show:
            for comparison in comparisons:

                def run_pair(order: Sequence[SideName], comparison: Comparison = comparison) -> dict[SideName, Answer]:
                    return rounds.run_pair([sides[name] for name in order], comparison.workload, comparison.store)

                compare(comparison, run_pair, given.pairs_min, given.pairs_max, show)
                if comparison.error:
                    print(f"{comparison.workload.name} {comparison.store}: {comparison.error}", file=sys.stderr)
                if given.json:
                    given.json.write_text(json.dumps(report.to_json(comparisons, [this, other]), indent=1))
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    console.print(report.table(comparisons, [this, other]))
    console.print(f"other machines of the host took {company.stolen():.1%} of the CPU time")
    verdicts = {comparison.verdict for comparison in comparisons}
    return INCOMPLETE if "error" in verdicts else FAILED if "failed" in verdicts else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.against",
        description=bench.against.__doc__,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    metavar = "COMMIT_OR_FOLDER"
    parser.add_argument("other", metavar=metavar, help="the side to compare with")
    parser.add_argument("--this", metavar=metavar, help="by default the working tree of this checkout")
    parser.add_argument(
        "--workload", action="append", choices=WORKLOADS, help="only this workload; repeatable; by default all"
    )
    parser.add_argument("--store", action="append", choices=STORES, help="only this store; repeatable; by default both")
    parser.add_argument("--pairs-min", type=int, default=LOOKS[0], metavar="N", help="by default %(default)s")
    parser.add_argument("--pairs-max", type=int, default=LOOKS[-1], metavar="N", help="by default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measures of all rounds to this file")
    parser.add_argument("--runs", type=int, help=argparse.SUPPRESS)  # for tests: the runs of each workload
    return parser


def _stores(given: list[str] | None, parser: argparse.ArgumentParser) -> list[str]:
    stores = list(dict.fromkeys(given or STORES))
    reason = missing_postgres() if "postgres" in stores else None
    if reason is not None:
        if given:
            parser.error(f"--store postgres: {reason}")
        print(f"without PostgreSQL: {reason}", file=sys.stderr)
        stores.remove("postgres")
    return stores


@contextmanager
def _progress(maximum: int) -> Iterator[Callable[[Comparison], None]]:
    """A function to call after each pair: it moves a bar on a terminal, and prints a line elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda comparison: print(report.pair_line(comparison, maximum), file=sys.stderr, flush=True)
        return
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("first pair", total=maximum)

        def advance(comparison: Comparison) -> None:
            ratio = median(comparison.ratios(comparison.workload.deciding))
            title = f"{comparison.workload.name} {comparison.store}, ratio {ratio:.3f}"
            progress.update(task, description=title, completed=len(comparison.pairs))

        yield advance


def _exit_in_order(number: int, frame: FrameType | None) -> None:
    """Raises SystemExit, so that processes, the server and the folder are removed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _exit_in_order)
    signal.signal(signal.SIGINT, _exit_in_order)
    sys.exit(main())
