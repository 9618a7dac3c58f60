"""The figures as a table for people, and as JSON for everything else."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.gates import gates
from bench.loads import Burst, Steady, together
from bench.results import Compared, Load, Results, spread
from bench.rules import RuleSpeed

LOADS: tuple[Load, ...] = ("lean", "heavy")
NOISY = 0.1
"""From this share of the machine on that went to others, figures are to be taken with care, and the report says so."""

_SHARES = [place / 1_000 for place in range(1_000)] + [0.9995, 0.9999, 1.0]


def print_report(results: Results, console: Console) -> None:
    _print_machine(results, console)
    for table in (_rules(results), _rates(results), _lateness(results)):
        if table.row_count:
            console.print(table)
            console.print()
    _print_weight(results, console)
    _print_gates(results, console)


def _print_machine(results: Results, console: Console) -> None:
    machine = results.machine
    console.print(
        f"{machine['cores']} cores, {machine['system']}, Python {machine['python']}, SQLite {machine['sqlite']}"
    )
    others = machine["others"]
    if others is not None:
        console.print(f"meanwhile, other processes used {others:.0%} of the machine")
    if others is None or others > NOISY:
        console.print("NOISY: rates are too low, lateness is too high, and ratios may be off either way")
    if results.repeated():
        console.print(f"set up again, because the machine was not ready in time: {results.repeated()}")
    console.print()


def _table(first: str, *headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def compared(results: Results) -> Iterator[tuple[str, Compared]]:
    """Everything that has a ceiling, with its name."""
    yield from results.promises.items()
    for load in LOADS:
        for what in ("start", "finish"):
            found = results.burst(load, what)
            if found is not None:
                label = f"burst of {results.bursts[load][0].count:,}"
                label += f", {results.machine['pending']:,} pending" if load == "heavy" else ""
                yield f"{label}: to last {what}", found


def _rules(results: Results) -> Table:
    table = _table("next occurrence, 30 rules", "Foliot", "cronsim", "times", "least", "croniter", "times", "least")
    for speed in results.rules:
        cells = []
        for engine in ("cronsim", "croniter"):
            mean = statistics.fmean(speed.others[engine])
            cells += [f"{mean:.1f} µs", f"{speed.throughput(engine):.1f} x", f"{speed.worst(engine)[0]:.1f} x"]
        table.add_row(speed.label, f"{statistics.fmean(speed.ours):.1f} µs", *cells)
    return table


def _rates(results: Results) -> Table:
    table = _table("per second (medians)", "Foliot", "ceiling", "ratio", "lowest - highest", "")
    for name, found in compared(results):
        remark = "above its ceiling: not believable" if found.is_impossible else ""
        between = f"{min(found.ratios):.2f} - {max(found.ratios):.2f}"
        table.add_row(name, f"{found.rate:,.0f}", f"{found.ceiling:,.0f}", f"{found.ratio:.2f}", between, remark)
    for batch, rates in results.drains.items():
        each = f"each: {' '.join(f'{rate:,.0f}' for rate in rates)}"
        table.add_row(f"ceiling of bursts, batches of {batch:,}", "", f"{max(rates):,.0f}", "", _range(rates), each)
    return table


def _range(values: Sequence[float]) -> str:
    return f"±{spread(values) / 2:.0%}"


def _lateness(results: Results) -> Table:
    table = _table("ms from due to start", "runs", "p50", "p99", "max", "early", "p99 of each part")
    for name, parts in results.steady.items():
        load, rate = name.split()
        everything = together(parts)
        label = f"steady {int(rate):,}/s" + (f", {results.machine['pending']:,} pending" if load == "heavy" else "")
        figures = [f"{everything.quantile(share):.1f}" for share in (0.5, 0.99, 1.0)]
        each = " ".join(f"{part.quantile(0.99):.1f}" for part in parts)
        table.add_row(label, f"{len(everything.lateness):,}", *figures, str(everything.early), each)
    return table


def _print_weight(results: Results, console: Console) -> None:
    weight = results.weight
    if weight is not None:
        console.print(
            f"a pending run: {weight.disk:.0f} bytes on disk ({weight.disk_table:.0f} of them table, 60 payload), "
            f"{weight.memory:.1f} bytes in memory once loaded, loaded at {weight.load_rate:,.0f}/s\n"
        )


def _print_gates(results: Results, console: Console) -> None:
    table = _table("gate", "wanted", "found", "")
    for gate in gates(results):
        verdict = Text("met", "green") if gate.met else Text("MISSED", "bold red")
        table.add_row(gate.name, gate.wanted, gate.found, verdict)
    if table.row_count:
        console.print(table)


def write_json(results: Results, file: Path) -> None:
    file.write_text(json.dumps(as_json(results), indent=1) + "\n", "utf-8")


def as_json(results: Results) -> dict[str, Any]:
    return {
        "machine": results.machine,
        "seconds": round(results.seconds, 1),
        "rules": [_rule_json(speed) for speed in results.rules],
        "slowest_answer_ms": results.slowest_answer,
        "steps": results.steps,
        "compared": {name: {**asdict(found), "ratio": found.ratio} for name, found in compared(results)},
        "burst_ceilings": results.drains,
        "bursts": {load: [_burst_json(one) for one in found] for load, found in results.bursts.items()},
        "heavy_to_lean": results.heavy_to_lean(),
        "heavy_to_lean_p99": results.heavy_to_lean_p99("1000"),
        "steady": {name: _steady_json(parts) for name, parts in results.steady.items()},
        "weight": asdict(results.weight) if results.weight else None,
        "gates": [asdict(gate) for gate in gates(results)],
    }


def _rule_json(speed: RuleSpeed) -> dict[str, Any]:
    found = {name: {"times": speed.throughput(name), "least": speed.worst(name)} for name in speed.others}
    return {**asdict(speed), "compared": found}


def _burst_json(one: Burst) -> dict[str, Any]:
    return {**asdict(one), "start_rate": one.start_rate, "finish_rate": one.finish_rate}


def _steady_json(parts: list[Steady]) -> dict[str, Any]:
    everything = together(parts)
    return {
        "runs": len(everything.lateness),
        "early": everything.early,
        "p50_ms": everything.quantile(0.5),
        "p99_ms": everything.quantile(0.99),
        "max_ms": everything.quantile(1.0),
        "p99_ms_of_parts": [part.quantile(0.99) for part in parts],
        "quantiles_ms": [[share, everything.quantile(share)] for share in _SHARES],
    }
