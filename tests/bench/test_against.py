"""The comparison of two commits: its statistics, its order of rounds, its command line, and one small real pair."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path

import pytest

from bench.against import __main__ as command
from bench.against import rounds, sides
from bench.against.comparison import Comparison, compare
from bench.against.decision import LOOKS, Decision, decide, interval_rank, median_interval
from bench.against.rounds import Answer, Round, RoundFailed, Rounds, Store
from bench.against.sides import CHECKOUT, SIDES, Side, SideError, SideName, copy_side
from bench.against.workloads import MEASURES, WORKLOADS, Workload
from tests.tiers import full_only

BURST = WORKLOADS["burst"]

# ---------------------------------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize(("pairs", "rank"), [(1, 0), (5, 0), (6, 1), (12, 3), (20, 6), (30, 10), (40, 14)])
def test_the_interval_has_the_ranks_of_published_tables(pairs: int, rank: int) -> None:
    assert interval_rank(pairs, 0.95) == rank


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_the_interval_is_the_smallest_with_its_confidence(confidence: float) -> None:
    for pairs in range(8, 61):
        rank = interval_rank(pairs, confidence)
        assert coverage(pairs, rank) >= confidence
        assert coverage(pairs, rank + 1) < confidence


def coverage(pairs: int, rank: int) -> float:
    """The probability that the median is between the ratios of this rank: of all tosses, rank to pairs - rank heads."""
    ways = sum(math.comb(pairs, heads) for heads in range(rank, pairs - rank + 1))
    return ways / float(2**pairs)


def test_the_interval_of_twelve_ratios_is_from_the_third_to_the_tenth() -> None:
    ratios = [1.11, 0.9, 1.12, 0.91, 1.0, 0.92, 1.01, 1.1, 0.99, 1.02, 0.98, 1.03]
    assert median_interval(ratios) == (0.92, 1.1)
    assert median_interval(ratios, confidence=0.99) == (0.91, 1.11)


def test_five_ratios_have_no_interval() -> None:
    assert median_interval([1.0] * 5) is None


@pytest.mark.parametrize(
    ("ratios", "decision"),
    [
        ([0.95] * 12, "passed"),
        ([0.5] * 2 + [0.95] * 10, "passed"),
        ([0.5] * 3 + [1.0] * 9, "continue"),
        ([0.96] * 12, "passed"),
        ([0.9] * 10 + [0.96, 2.0], "failed"),
        ([0.9] * 9 + [0.97] * 3, "continue"),
        ([0.5] * 11, "continue"),
        ([0.5] * 13, "continue"),
        ([0.9, 1.1] * 10, "continue"),
        ([0.9, 1.1] * 20, "undecided"),
        ([1.0] * 40, "passed"),
        ([0.9] * 40, "failed"),
    ],
)
def test_the_interval_decides_after_fixed_numbers_of_pairs(ratios: list[float], decision: Decision) -> None:
    assert decide(ratios) == decision


def test_minimum_and_maximum_are_looks_too() -> None:
    assert decide([1.0] * 7, 7, 9) == "passed"
    assert decide([1.0] * 8, 7, 9) == "continue"
    assert decide([1.0] * 2, 1, 2) == "undecided"
    assert decide([1.0] * 12, 13, 13) == "continue"


def test_a_larger_ratio_is_better_for_rates_and_for_times() -> None:
    assert MEASURES["rate"].ratio(this=200, other=100) == 2
    assert MEASURES["p50_ms"].ratio(this=5, other=10) == 2
    assert MEASURES["cpu_us"].ratio(this=5, other=10) == 2


# ----------------------------------------------------------------------------------------------------- order of rounds


def compared(rates: dict[SideName, float], minimum: int = LOOKS[0], maximum: int = LOOKS[-1]) -> tuple[Comparison, str]:
    """A comparison of two sides with constant rates, and the order of its rounds: T for this, O for other."""
    order: list[str] = []

    def run_pair(sides: Sequence[SideName]) -> dict[SideName, Answer]:
        order.extend(side[0].upper() for side in sides)
        return {side: Answer({"rate": rates[side], "cpu_us": 1.0}, 0) for side in sides}

    comparison = Comparison(BURST, "sqlite")
    compare(comparison, run_pair, minimum, maximum, lambda _: None)
    return comparison, "".join(order)


def test_sides_change_places_from_pair_to_pair() -> None:
    comparison, order = compared({"this": 100, "other": 100}, 3, 3)
    assert order == "TOOTTO"
    assert [pair.first for pair in comparison.pairs] == ["this", "other", "this"]


def test_a_comparison_ends_with_its_decision() -> None:
    comparison, _ = compared({"this": 100, "other": 100})
    assert (comparison.verdict, len(comparison.pairs)) == ("passed", 12)
    comparison, _ = compared({"this": 90, "other": 100})
    assert (comparison.verdict, len(comparison.pairs)) == ("failed", 12)


def test_a_failed_round_is_not_tried_again() -> None:
    pairs = count(1)

    def run_pair(sides: Sequence[SideName]) -> dict[SideName, Answer]:
        if next(pairs) == 2:
            raise RoundFailed("the worker ended")
        return dict.fromkeys(sides, Answer({"rate": 1.0, "cpu_us": 1.0}, 0))

    comparison = Comparison(BURST, "sqlite")
    compare(comparison, run_pair, 12, 40, lambda _: None)
    assert (comparison.verdict, comparison.error, len(comparison.pairs)) == ("error", "the worker ended", 1)
    assert next(pairs) == 3


def write_program(folder: Path, text: str) -> Path:
    """A program in the place of the real round program. It writes its answer at the end."""
    program = folder / "program.py"
    head = "import json, os, sys\nfrom pathlib import Path\noptions = json.loads(sys.argv[1])\nearly = 0\n"
    program.write_text(
        head + text + "Path(options['answer']).write_text(json.dumps({'measures': {}, 'early': early}))\n"
    )
    return program


def test_an_early_start_is_an_error(tmp_path: Path) -> None:
    program = write_program(tmp_path, "early = 2\n")
    started = Round(Side("other", "1234567", tmp_path), BURST, Store("sqlite:///none", None), program, tmp_path)
    try:
        with pytest.raises(RoundFailed, match=r"other \(1234567\): 2 runs started before their due time"):
            started.finish()
    finally:
        started.end()


TAKE_TURNS = """
os.write(1, b".")
for _ in range(options["turns"]):
    assert os.read(0, 1)
    with open("../order", "a") as order:
        order.write(os.environ["AGAINST_SOURCE"])
    os.write(1, b".")
"""


def test_rounds_that_only_promise_change_places_from_turn_to_turn(tmp_path: Path) -> None:
    pair = [Side("this", "", Path("T")), Side("other", "", Path("O"))]
    with Rounds(tmp_path) as running:
        running.program = write_program(tmp_path, TAKE_TURNS)
        answers = running.run_pair(pair, replace(WORKLOADS["single"], turns=3), "sqlite")
    assert list(answers) == ["this", "other"]
    assert (tmp_path / "order").read_text() == "TOOTTO"


def test_a_round_that_ends_before_its_last_turn_is_an_error(tmp_path: Path) -> None:
    with Rounds(tmp_path) as running:
        running.program = write_program(tmp_path, "os.write(1, b'.')\nos.read(0, 1)\n")
        with pytest.raises(RoundFailed, match="ended before its last turn"):
            running.run_pair([Side("this", "", tmp_path)], WORKLOADS["single"], "sqlite")


# --------------------------------------------------------------------------------------------------------------- sides


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits: `first` has no package yet, `second` has one."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
        subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "first")
    git("tag", "first")
    write_package(folder, "committed = True\n")
    git("add", ".")
    git("commit", "-m", "second")
    git("tag", "second")
    write_package(folder, "committed = False\n")
    monkeypatch.setattr(sides, "CHECKOUT", folder)
    return folder


def write_package(folder: Path, text: str) -> None:
    package = folder / "src/foliot"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(text)


def test_a_commit_is_copied_without_the_changes_of_the_working_tree(repository: Path, tmp_path: Path) -> None:
    side = copy_side("other", "second", tmp_path / "other")
    assert (side.source / "foliot/__init__.py").read_text() == "committed = True\n"


def test_the_working_tree_is_this_by_default(repository: Path, tmp_path: Path) -> None:
    side = copy_side("this", None, tmp_path / "this")
    assert (side.source / "foliot/__init__.py").read_text() == "committed = False\n"
    assert side.label == str(repository)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no-such-commit", "'no-such-commit' is neither a folder nor a commit of "),
        ("--version", "'--version' is neither a folder nor a commit of "),
        ("first", "commit first has no src/foliot "),
    ],
)
def test_a_commit_that_cannot_be_compared_is_refused(
    repository: Path, tmp_path: Path, given: str, message: str
) -> None:
    with pytest.raises(SideError, match=f"^{message}"):
        copy_side("other", given, tmp_path / "other")


def test_a_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SideError, match=r"has no src/foliot; give the top folder of a checkout, or a commit"):
        copy_side("other", str(tmp_path), tmp_path / "other")


# -------------------------------------------------------------------------------------------------------- command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMIT_OR_FOLDER"),
        ([".", "--workload", "nothing"], "argument --workload: invalid choice: 'nothing'"),
        ([".", "--store", "oracle"], "argument --store: invalid choice: 'oracle'"),
        ([".", "--pairs-min", "9", "--pairs-max", "8"], "--pairs-min 9 --pairs-max 8: give 1 <= minimum <= maximum"),
        ([".", "--json", "/nowhere/results.json"], "--json /nowhere/results.json: there is no folder /nowhere"),
        (["/nowhere", "--store", "sqlite"], "'/nowhere' is neither a folder nor a commit"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        command.main(arguments)
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rates", "verdict", "code"),
    [
        ((100, 100), "passed", 0),
        ((96, 100), "passed", 0),
        ((90, 100), "failed", 1),
        ((100, 90, 90, 100), "undecided", 0),
    ],
)
def test_the_exit_code_follows_from_the_verdict(
    rates: tuple[int, ...],
    verdict: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The rates are those of this and other, pair after pair."""
    upcoming = cycle(rates)

    def run_pair(self: Rounds, order: Sequence[Side], workload: Workload, store: str) -> dict[SideName, Answer]:
        return {side: Answer({"rate": next(upcoming)}, 0) for side in SIDES}

    monkeypatch.setattr(command, "DISK", tmp_path)
    monkeypatch.setattr(Rounds, "run_pair", run_pair)
    write_package(tmp_path, "")
    options = ["--this", str(tmp_path), "--workload", "burst", "--store", "sqlite"]
    assert command.main([str(tmp_path), *options]) == code
    assert verdict in capsys.readouterr().out


@pytest.mark.parametrize("workload", ["burst", "single"])
def test_a_round_that_fails_shows_the_output_of_its_processes(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "DISK", tmp_path)
    broken = tmp_path / "broken"
    write_package(broken, "raise RuntimeError('this commit is broken')\n")
    assert command.main([str(broken), "--this", str(broken), "--workload", workload, "--store", "sqlite"]) == 2
    shown = capsys.readouterr()
    assert f"{workload} sqlite: this (" in shown.err
    assert "RuntimeError: this commit is broken" in shown.err
    assert "error" in shown.out
    assert list(tmp_path.iterdir()) == [broken]


def test_a_round_refuses_the_code_of_another_tree(tmp_path: Path) -> None:
    program = Path(rounds.__file__).with_name("round_program.py")
    environment = {**os.environ, "AGAINST_SOURCE": str(tmp_path), "PYTHONPATH": str(CHECKOUT / "src")}
    done = subprocess.run([sys.executable, "-P", program, "{}"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"which is not below {tmp_path}" in done.stderr


@full_only
@pytest.mark.needs("sqlite")
@pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU clocks of other processes")
def test_one_small_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "DISK", tmp_path)
    file = tmp_path / "results.json"
    options = ["--workload", "burst", "--store", "sqlite", "--pairs-min", "1", "--pairs-max", "1", "--runs", "50"]
    assert command.main([str(CHECKOUT), *options, "--json", str(file)]) == 0
    shown = capsys.readouterr()
    assert "burst sqlite, pair 1 of at most 1" in shown.err
    assert "undecided" in shown.out
    (comparison,) = json.loads(file.read_text())["comparisons"]
    assert (comparison["verdict"], comparison["runs"], comparison["deciding"]) == ("undecided", 50, "rate")
    (pair,) = comparison["pairs"]
    assert all(pair[side][measure] > 0 for side in SIDES for measure in ("rate", "cpu_us"))
    assert list(tmp_path.iterdir()) == [file]
