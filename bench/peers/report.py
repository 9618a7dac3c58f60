"""One table for each load, with Foliot's figure over each peer's, and JSON for everything else."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.peers.measure import HELD_FOR, HELD_RATE, STOLEN, Found, Results
from bench.peers.peers import FOLIOT, Peer
from bench.peers.workloads import CALLERS, Burst, Lateness
from bench.report import NOISY

Take = Callable[[Any], float | None]


class Measure(NamedTuple):
    """One column: what is taken from each round. The median over the rounds is compared."""

    heading: str
    take: Take
    is_better_high: bool = True
    form: str = "{:,.0f}"
    is_compared: bool = True


_LATENESS = (
    Measure("p50 ms", lambda one: one.quantile(0.5), False, "{:,.1f}"),
    Measure("p99 ms", lambda one: one.quantile(0.99), False, "{:,.1f}"),
    Measure("max ms", lambda one: one.quantile(1.0), False, "{:,.0f}", False),
    Measure("not in time", lambda one: one.missing, False, "{:,.0f}", False),
    Measure("early", lambda one: one.early, False, "{:,.0f}", False),
)


def _share_missed(one: Lateness) -> float:
    return 100 * one.missing / one.count


def measures(load: str) -> tuple[Measure, ...]:
    if load == "promises":
        return (
            Measure("in batches /s", lambda one: one.bulk),
            Measure("one by one /s", lambda one: one.single),
            Measure(f"{CALLERS} callers /s", lambda one: one.together),
        )
    if load == "burst":
        return (
            Measure("to last start /s", lambda one: one.start_rate),
            Measure("to last finish /s", lambda one: one.finish_rate),
            Measure("not started", lambda one: one.count - one.started, False, "{:,.0f}", False),
            Measure("early", lambda one: one.early, False, "{:,.0f}", False),
        )
    if load == "recurring":
        return (Measure("missed %", _share_missed, False, "{:,.1f}", False), *_LATENESS[:3], _LATENESS[4])
    return _LATENESS


def median(rounds: list[Any], take: Take) -> float | None:
    values = [value for value in map(take, rounds) if value is not None and not math.isnan(value)]
    return statistics.median(values) if values else None


def print_report(results: Results, console: Console) -> None:
    _print_machine(results, console)
    for peer in results.peers:
        if peer.id in results.versions:
            console.print(f"{peer.name} {results.versions[peer.id]}: {peer.settings}")
        else:
            console.print(Text(f"{peer.name} COULD NOT BE HAD: {_last(results.absent[peer.id])}", "bold red"))
    for load in results.found:
        console.print()
        console.print(_table(results, load))
        if load in results.disturbed:
            aside = max(map(len, results.disturbed[load].values()))
            console.print(
                f"  in {aside} rounds the host took more than {STOLEN:.0%} away: they count where there are no others"
            )
        for peer in results.peers:
            if (reason := results.failed.get(load, {}).get(peer.id)) is not None:
                console.print(Text(f"  {peer.name}: {_last(reason)}"))


def _last(reason: str) -> str:
    """Of a traceback, what it says in the end; the JSON has all of it."""
    return reason.strip().splitlines()[-1]


def _print_machine(results: Results, console: Console) -> None:
    machine = results.machine
    if machine["quick"]:
        console.print("QUICK: a smoke test. Its figures say little.")
    server = ", ".join(f"{name} {value}" for name, value in machine["postgresql"].items() if name != "data_directory")
    console.print(f"{machine['cores']} cores, {machine['system']}; PostgreSQL: {server}")
    others = machine["others"]
    if others is not None:
        console.print(f"meanwhile, other processes used {others:.0%} of the machine")
    if others is None or others > NOISY:
        console.print("NOISY: rates are too low, lateness is too high, and ratios may be off either way")
    console.print()


def _table(results: Results, load: str) -> Table:
    listed = measures(load)
    table = Table(box=None, pad_edge=False, header_style="bold")
    rounds = max(map(len, results.found[load].values()), default=0)
    table.add_column(f"{_title(results, load)} (medians of {rounds}; ratio: Foliot's figure over theirs)")
    for one in listed:
        table.add_column(one.heading, justify="right")
        if one.is_compared:
            table.add_column("ratio", justify="right")
    for peer in results.peers:
        table.add_row(_label(results, load, peer), *_cells(results, load, peer, listed))
    return table


def _title(results: Results, load: str) -> str:
    sizes = results.sizes
    titles = {
        "promises": "promises",
        "burst": f"burst of {sizes.burst:,}",
        "pending": f"steady 500/s for {sizes.seconds:g} s, jobs pending",
        "held": f"steady {HELD_RATE:,}/s for {HELD_FOR * sizes.seconds:g} s, a snapshot held",
        "recurring": f"{sizes.schedules:,} schedules, every second for {sizes.ticking:g} s",
    }
    return titles.get(load) or f"{load}/s for {sizes.seconds:g} s"


def _label(results: Results, load: str, peer: Peer) -> str:
    rounds = results.of(load, peer)
    if rounds and load == "pending":
        return f"{peer.name}, {rounds[0].pending:,} pending"
    if rounds and load == "burst" and rounds[0].count != results.sizes.burst:
        return f"{peer.name}, {rounds[0].count:,}"
    return peer.name


def _cells(results: Results, load: str, peer: Peer, listed: tuple[Measure, ...]) -> Iterator[str | Text]:
    for one in listed:
        rounds = results.of(load, peer)
        value = median(rounds, one.take)
        # What had not started when it ended would have been later still.
        is_at_least = one in _LATENESS[:3] and load != "recurring" and any(found.missing for found in rounds)
        yield "-" if value is None else ">" * is_at_least + one.form.format(value)
        if one.is_compared:
            yield _ratio(median(results.of(load, FOLIOT), one.take), value, one) if peer is not FOLIOT else ""


def _ratio(ours: float | None, theirs: float | None, one: Measure) -> str | Text:
    if ours is None or not theirs:
        return ""
    ratio = ours / theirs
    is_lost = ratio < 1 if one.is_better_high else ratio > 1
    return Text(f"{ratio:.2f} lost", "bold red") if is_lost else f"{ratio:.2f}"


def write_json(results: Results, file: Path) -> None:
    file.write_text(json.dumps(as_json(results), indent=1) + "\n", "utf-8")


def as_json(results: Results) -> dict[str, Any]:
    return {
        "machine": results.machine,
        "sizes": asdict(results.sizes),
        "versions": results.versions,
        "settings": {peer.id: peer.settings for peer in results.peers},
        "absent": results.absent,
        "failed": {load: reasons for load, reasons in results.failed.items() if reasons},
        "found": _all(results.found),
        "disturbed": _all(results.disturbed),
    }


def _all(found: dict[str, dict[str, list[Found]]]) -> dict[str, Any]:
    return {load: {id: [_one(one) for one in rounds] for id, rounds in peers.items()} for load, peers in found.items()}


def _one(found: Found) -> dict[str, Any]:
    if isinstance(found, Lateness):
        shares = (0.1, 0.5, 0.9, 0.99, 0.999, 1.0)
        quantiles = {f"p{100 * share:g}_ms": round(found.quantile(share), 3) for share in shares if found.late}
        return {name: getattr(found, name) for name in ("count", "missing", "early", "pending")} | quantiles
    if isinstance(found, Burst):
        return {**asdict(found), "start_rate": found.start_rate, "finish_rate": found.finish_rate}
    return asdict(found)
