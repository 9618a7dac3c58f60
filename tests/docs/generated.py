"""What the documentation shows and nobody types: written from the code, by running it where it must run.

`FOLIOT_UPDATE_DOCS=1 python -m pytest tests/docs` rewrites these parts; without it, the tests say what is out of date.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, NamedTuple, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from foliot import Context, Foliot, cron, every
from foliot.cli import foliot as command
from foliot.cli.words import length
from foliot.domain import metrics
from foliot.domain.alerts import KINDS
from foliot.domain.instant import HOUR, MINUTE, SECOND, instant, rfc3339, spell, to_datetime
from foliot.domain.policy import PRESETS
from foliot.domain.run import RunView
from foliot.domain.state import PARKED, TERMINAL, TRANSITIONS, State
from foliot.testing import virtual_time
from foliot.timing import upcoming
from foliot.timing.zones import zone
from foliot.web.access import API
from foliot.web.application import inner_application
from foliot.web.openapi import description
from tests.faults.crash_table import CRASHES
from tests.policies.table import CELLS

# --------------------------------------------------------------------------------------------------------- command line


class Parameter(NamedTuple):
    """An argument or an option of a command, as a person sees it."""

    forms: tuple[str, ...]
    value: str
    help: str
    is_argument: bool

    @property
    def shown(self) -> str:
        return ", ".join(self.forms) + (f" {self.value}" if self.value and not self.is_argument else "")


class Command(NamedTuple):
    words: tuple[str, ...]
    """`("foliot", "runs", "list")`"""
    help: str
    parameters: tuple[Parameter, ...]


def commands(group: typer.Typer = command, words: tuple[str, ...] = ("foliot",)) -> Iterator[Command]:
    """Every command, in the order of their declaration. Read from typer's own models: how its help looks changes."""
    for registered in group.registered_commands:
        callback = registered.callback
        assert callback is not None
        assert registered.name is not None
        yield Command(
            (*words, registered.name), " ".join((inspect.getdoc(callback) or "").split()), tuple(_parameters(callback))
        )
    for nested in group.registered_groups:
        assert nested.typer_instance is not None
        yield from commands(nested.typer_instance, (*words, str(nested.name)))


def _parameters(callback: Callable[..., Any]) -> Iterator[Parameter]:
    hints = get_type_hints(callback, include_extras=True)
    for name, parameter in inspect.signature(callback).parameters.items():
        [info] = hints[name].__metadata__
        if info.hidden:
            continue
        if isinstance(info, ArgumentInfo):
            yield Parameter((str(info.metavar),), "", str(info.help), is_argument=True)
            continue
        assert isinstance(info, OptionInfo)
        value, told = _value(info, parameter.default), _option_help(info, parameter.default)
        yield Parameter(_forms(info), value, told, is_argument=False)


def _forms(info: OptionInfo) -> tuple[str, ...]:
    # Inside of Annotated the first form stands where a default would: the function's own default is the default.
    declared = (str(info.default), *(info.param_decls or ()))
    return tuple(form for one in declared for form in one.split("/"))


def _value(info: OptionInfo, default: object) -> str:
    if isinstance(default, bool):
        return ""
    return str(info.metavar) if info.metavar else "N" if isinstance(default, int) else "TEXT"


def _option_help(info: OptionInfo, default: object) -> str:
    told = str(info.help)
    if isinstance(default, int) and not isinstance(default, bool):
        told += f" {info.min:,} to {info.max:,}; by default {default}."
    elif isinstance(default, str):
        told += f" By default `{default}`."
    elif default is True:
        told += f" By default `{_forms(info)[0]}`."
    return told


def cli_reference() -> str:
    pieces = []
    for one in commands():
        arguments = "".join(f" {p.shown}" for p in one.parameters if p.is_argument)
        pieces.append(
            f"### {' '.join(one.words)}\n\n{one.help}\n\n```\n{' '.join(one.words)}{arguments} [OPTIONS]\n```\n"
        )
        cells = [f"| `{p.shown}` | {_cell(p.help)} |" for p in one.parameters]
        pieces.append("\n".join(["| argument or option | meaning |", "|---|---|", *cells]) + "\n")
    return "\n".join(pieces) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --------------------------------------------------------------------------------------------------------------- states


def state_diagram() -> str:
    lines = ["stateDiagram-v2", "    [*] --> scheduled"]
    lines += [f"    {state} --> {following}: {event}" for (state, event), following in TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in State if state in TERMINAL]
    lines += [
        "    classDef person font-weight:bold",
        f"    class {','.join(str(s) for s in State if s in PARKED)} person",
    ]
    return "```mermaid\n" + "\n".join(lines) + "\n```\n"


def state_table() -> str:
    cells = [f"| {state} | {event} | {following} |" for (state, event), following in TRANSITIONS.items()]
    return "\n".join(["| state | event | next state |", "|---|---|---|", *cells]) + "\n"


# --------------------------------------------------------------------------------------------------------------- outage

START = datetime(2026, 4, 1, 0, 30, tzinfo=UTC)


def outage(**settings: Any) -> str:
    """The rows of an hourly report that takes a minute, around an outage from 01:30 to 06:58."""
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def report(ctx: Context) -> None:
        await world.clock.sleep(MINUTE)

    app.schedule("report", report, every("1h"), **settings)
    with virtual_time(app, start=START) as world:
        world.run_for("1h")
        world.outage("5h28m")
        world.run_for("15m")
        told = [_outage_row(run) for run in world.runs()]
    header = ["| run | state | started | late | interval | why |", "|---|---|---|---|---|---|"]
    return "\n".join([*header, *told]) + "\n"


def _outage_row(run: RunView) -> str:
    started, late = "", ""
    if run.started_at is not None:
        started, late = rfc3339(run.started_at)[11:16], length(run.started_at - run.nominal)
    why = ": ".join(filter(None, (run.reason, run.detail)))
    ticks = f" ({run.span_count} ticks)" if run.span_count > 1 else ""
    return f"| `{run.id}` | {run.state} | {started} | {late} | {_interval(run)} | {why}{ticks} |"


def _interval(run: RunView) -> str:
    return "" if run.since is None else f"{rfc3339(run.since)[11:16]} to {rfc3339(run.nominal)[11:16]}"


# -------------------------------------------------------------------------------------------------------------- overlap


def overlap(**settings: Any) -> str:
    """The rows of a minute's probe that takes 20 seconds; only that of 00:31 takes two minutes and a half."""
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def probe(ctx: Context) -> None:
        await world.clock.sleep((150 if ctx.nominal.minute == 31 else 20) * SECOND)

    app.schedule("probe", probe, every("1m"), **settings)
    with virtual_time(app, start=START) as world:
        world.run_for("4m40s")
        told = [_overlap_row(run) for run in world.runs()]
    return "\n".join(["| run | state | ran | interval | why |", "|---|---|---|---|---|", *told]) + "\n"


def _overlap_row(run: RunView) -> str:
    moments = [rfc3339(at)[11:19] for at in (run.started_at, run.finished_at) if at is not None]
    ran = " to ".join(moments) if run.started_at is not None else ""
    why = ": ".join(filter(None, (run.reason, run.detail)))
    return f"| `{run.id}` | {run.state} | {ran} | {_interval(run)} | {why} |"


def presets() -> str:
    names = list(dict.fromkeys(name for chosen in PRESETS.values() for name in chosen))
    rows = [
        [f"`{preset}`", *(f"`{chosen[name]}`" if name in chosen else "" for name in names)]
        for preset, chosen in PRESETS.items()
    ]
    heads = ["preset", *(f"`{name}`" for name in names)]
    return (
        "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {' | '.join(row)} |" for row in rows)])
        + "\n"
    )


# --------------------------------------------------------------------------------------------------------------- clocks

NIGHTS = (
    ("30 2 * * *", datetime(2026, 3, 8, 5, tzinfo=UTC)),
    ("*/30 2 * * *", datetime(2026, 3, 8, 5, tzinfo=UTC)),
    ("30 1 * * *", datetime(2026, 11, 1, 4, tzinfo=UTC)),
    ("*/30 1 * * *", datetime(2026, 11, 1, 4, tzinfo=UTC)),
)
"""Rules, and the midnight in New York before a night on which its clocks are changed."""

CHOICES: tuple[dict[str, str], ...] = (
    {},
    {"gap": "skip"},
    {"gap": "shift_forward"},
    {"gap": "shift_backward"},
    {"fold": "second"},
    {"fold": "both"},
    {"interval_like": "never"},
    {"preset": "rfc5545"},
    {"preset": "systemd"},
    {"preset": "quartz"},
    {"preset": "temporal"},
)


def clock_changes() -> str:
    """What each policy makes of a night without 02:30, and of one with two 01:30."""
    heads = [f"{begin.day} {begin:%B}: `{expression}`" for expression, begin in NIGHTS]
    rows = []
    for chosen in CHOICES:
        named = ", ".join(f'`{name}="{value}"`' for name, value in chosen.items()) or "the default"
        rows.append([named, *(_night(expression, begin, chosen) for expression, begin in NIGHTS)])
    header = f"| {' | '.join(['policy', *heads])} |\n|{'---|' * (1 + len(heads))}\n"
    return header + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _night(expression: str, begin: datetime, chosen: dict[str, str]) -> str:
    """The times of one night, each with the name of New York's offset."""
    rule = cron(expression, tz="America/New_York", **chosen)  # type: ignore[arg-type]  # all of these are text
    morning = instant(begin) + 12 * HOUR
    times = []
    for tick in takewhile(lambda tick: tick < morning, upcoming(rule, instant(begin), 10)):
        offset = zone(rule.tz).offset(tick // SECOND) // 3600
        times.append(f"{to_datetime(tick + offset * HOUR):%H:%M} {'EDT' if offset == -4 else 'EST'}")
    return ", ".join(times) or "nothing"


# -------------------------------------------------------------------------------------------------------------- crashes


def crash_table() -> str:
    heads = ["killed", "job", "state after the kill", "class", "advice", "final state", "paid", "attempts"]
    rows = [
        [
            str(crash.point),
            f"`{crash.job}`",
            f"`{crash.state}`",
            str(crash.recovery or ""),
            str(crash.action or ""),
            f"`{crash.final}`",
            str(crash.paid),
            str(crash.attempts),
        ]
        for crash in CRASHES
    ]
    told = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(told) + "\n"


# ------------------------------------------------------------------------------------------------------------- policies


def policy_table() -> str:
    """Each event with what the policies make of it; those that make the same of it share a row."""
    events: dict[str, dict[str, list[str]]] = {}
    for cell in CELLS:
        alike = events.setdefault(f"### {cell.event.title}\n\n{cell.event.happens}\n", {})
        alike.setdefault(cell.rows.replace("; ", "<br>"), []).append(
            f"`{cell.policy}`" if cell.policy else "the defaults"
        )
    pieces = []
    for event, alike in events.items():
        rows = [f"| {'<br>'.join(policies)} | {told} |" for told, policies in alike.items()]
        pieces.append("\n".join([event, "| policy | rows |", "|---|---|", *rows]) + "\n")
    return "\n".join(pieces)


# -------------------------------------------------------------------------------------------------------------- metrics


def metrics_table() -> str:
    pieces = []
    for title, told in (
        ("Of every process", metrics.OF_PROCESSES),
        ("Of a scheduler", metrics.OF_SCHEDULERS),
        ("Of a worker", metrics.OF_WORKERS),
        ("Of the whole fleet, from the store", metrics.OF_THE_STORE),
    ):
        rows = [f"| `{one.name}` | {one.kind} | {_labels(one)} | {one.help} |" for one in told]
        pieces.append("\n".join([f"### {title}\n", "| name | kind | labels | is |", "|---|---|---|---|", *rows]) + "\n")
    return "\n".join(pieces)


def _labels(metric: metrics.Metric) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)


def alert_kinds() -> str:
    """Every kind of alert, by its own words."""
    lines = ["| kind | means | opens when | resolves when | what to do |", "|---|---|---|---|---|"]
    for kind, traits in KINDS.items():
        grace = f"; after {spell(traits.grace)}" if traits.grace else ""
        settle = f"; for {spell(traits.settle)}" if traits.settle else ""
        cells = (
            f"`{kind}` ({traits.severity})",
            traits.means,
            traits.opens + grace,
            traits.resolves + settle,
            traits.act,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# ----------------------------------------------------------------------------------------------------------------- http


def routes() -> str:
    """Every route of the API, from its own description."""
    rows = []
    for path, methods in description(inner_application())["paths"].items():
        for method, operation in methods.items():
            if path.startswith(API):
                told = operation["description"].split(". ")[0].rstrip(".").replace("\n", " ")
                scope, tenants = operation["x-foliot-scope"], operation["x-foliot-tenants"]
                rows.append(f"| `{method.upper()} {path.removeprefix(API)}` | {scope} | {tenants} | {_cell(told)} |")
    return "\n".join([f"| below `{API}` | scope | tenants | |", "|---|---|---|---|", *rows]) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "alert-kinds": alert_kinds,
    "metrics": metrics_table,
    "routes": routes,
    "crash-table": crash_table,
    "cli": cli_reference,
    "clock-changes": clock_changes,
    "state-diagram": state_diagram,
    "state-table": state_table,
    "overlap-skip": lambda: overlap(overlap="skip"),
    "overlap-queue": lambda: overlap(overlap="queue"),
    "overlap-coalesce": lambda: overlap(overlap="coalesce"),
    "overlap-replace": lambda: overlap(overlap="replace"),
    "presets": presets,
    "outage-once": lambda: outage(catch_up="once"),
    "outage-all": lambda: outage(catch_up="all"),
    "outage-skip": lambda: outage(catch_up="skip"),
    "outage-window": lambda: outage(catch_up="all", catch_up_window="2h"),
    "policy-table": policy_table,
    "outage-useful": lambda: outage(catch_up="once", useful_until="20m"),
}
