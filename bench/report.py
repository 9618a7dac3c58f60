"""The figures as a table for people, and as JSON for everything else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.gates import DRAIN, gates
from bench.loads import Steady, together
from bench.results import Load, Results, spread

LOADS: tuple[Load, ...] = ("lean", "heavy")
_SHARES = [place / 1_000 for place in range(1_000)] + [0.9995, 0.9999, 1.0]

Row = tuple[str, str, str, str, str]


def print_report(results: Results, console: Console) -> None:
    machine = results.machine
    console.print(
        f"{machine['cores']} cores, {machine['system']}, Python {machine['python']}, SQLite {machine['sqlite']}"
    )
    if machine["others"] is not None:
        console.print(f"meanwhile, other processes used {machine['others']:.0%} of the machine\n")
    table = _table("measured", "figure", "ceiling", "ratio", "noise", numbers=4)
    for row in [*_promise_rows(results), *_burst_rows(results)]:
        table.add_row(*row)
    if table.row_count:
        console.print(table)
        console.print()
    late = _table("due to start, ms", "runs", "p50", "p99", "max", "early", "p99 of each part", numbers=6)
    for name, parts in results.steady.items():
        late.add_row(*_lateness_row(name, parts, machine["pending"]))
    if late.row_count:
        console.print(late)
        console.print()
    _print_weight(results, console)
    _print_gates(results, console)


def _table(first: str, *headings: str, numbers: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for heading in headings[:numbers]:
        table.add_column(heading, justify="right")
    return table


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}/s"


def _compared(name: str, rate: float, ceiling: float | None, values: Sequence[float] = ()) -> Row:
    ratio = "" if ceiling is None else f"{rate / ceiling:.2f}"
    return name, _rate(rate), _rate(ceiling), ratio, _noise(values)


def _promise_rows(results: Results) -> list[Row]:
    rates, bulk, single = results.promises, results.ceiling("bulk"), results.ceiling("single")
    if rates is None:
        return []
    return [
        _compared("promises in thousands: made and written", rates.bulk, bulk),
        _compared("promises in thousands: written", rates.bulk_writing, bulk),
        _compared("single promises, one async caller", rates.single, single),
        _compared("single promises, one plain caller", rates.single_plain, single),
        _compared("single promises, 32 async callers", rates.concurrent, single),
        ("ceiling: insert in thousands", _rate(bulk), "", "", _noise(results.ceilings["bulk"])),
        ("ceiling: durable insert, one by one", _rate(single), "", "", _noise(results.ceilings["single"])),
    ]


def _noise(values: Sequence[float]) -> str:
    return f"±{spread(values) / 2:.0%}" if len(values) > 1 else ""


def _burst_rows(results: Results) -> list[Row]:
    rows: list[Row] = []
    ceiling = results.ceiling(DRAIN)
    for load in LOADS:
        found = results.bursts.get(load)
        if not found:
            continue
        label = f"burst of {found[0].count:,}" + (
            f", {results.machine['pending']:,} pending" if load == "heavy" else ""
        )
        started, finished = results.burst_rate(load, "start"), results.burst_rate(load, "finish")
        assert started is not None
        assert finished is not None
        rows.append(_compared(f"{label}: to last start", started, ceiling, [b.start_rate for b in found]))
        rows.append(_compared(f"{label}: to last finish", finished, ceiling, [b.finish_rate for b in found]))
    for name in sorted(results.ceilings, key=len):
        if name.startswith("drain"):
            label = f"ceiling: fire, claim, finish in batches of {name.split()[1]}"
            rows.append((label, _rate(results.ceiling(name)), "", "", _noise(results.ceilings[name])))
    return rows


def _lateness_row(name: str, parts: list[Steady], pending: int) -> list[str]:
    load, rate = name.split()
    all_parts = together(parts)
    label = f"steady {int(rate):,}/s" + (f", {pending:,} pending" if load == "heavy" else "")
    each = " ".join(f"{part.quantile(0.99):.1f}" for part in parts)
    figures = [f"{all_parts.quantile(share):.1f}" for share in (0.5, 0.99, 1.0)]
    return [label, f"{len(all_parts.lateness):,}", *figures, str(all_parts.early), each]


def _print_weight(results: Results, console: Console) -> None:
    weight = results.weight
    if weight is not None:
        console.print(
            f"a pending run: {weight.disk:.0f} bytes on disk ({weight.disk_table:.0f} of them table, 60 payload), "
            f"{weight.memory:.1f} bytes in memory once loaded, loaded at {weight.load_rate:,.0f}/s\n"
        )


def _print_gates(results: Results, console: Console) -> None:
    table = _table("gate", "wanted", "found", "", numbers=2)
    table.add_column("")
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
        "steps": results.steps,
        "ceilings": {
            name: {"mean": results.ceiling(name), "each": each, "spread": spread(each)}
            for name, each in results.ceilings.items()
        },
        "promises": asdict(results.promises) if results.promises else None,
        "bursts": {
            load: [{**asdict(one), "start_rate": one.start_rate, "finish_rate": one.finish_rate} for one in found]
            for load, found in results.bursts.items()
        },
        "steady": {name: _steady_json(parts) for name, parts in results.steady.items()},
        "weight": asdict(results.weight) if results.weight else None,
        "gates": [asdict(gate) for gate in gates(results)],
    }


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
