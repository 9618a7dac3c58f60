"""`foliot import`: schedules from the tables of other schedulers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from foliot.cli import words
from foliot.cli.options import (
    ActorOption,
    AppOption,
    DryRunOption,
    JsonOption,
    StoreOption,
    WrongUsage,
    acting,
    legible,
    with_store,
)
from foliot.cli.output import heading, print_facts, print_json, say
from foliot.clock import SystemClock
from foliot.domain.identity import checked_name
from foliot.domain.instant import Instant, parse_rfc3339
from foliot.domain.schedule import Applied
from foliot.errors import InvalidInput, InvalidRule
from foliot.operate.crontab import SOURCE, declarations, line_shapes, notes, schedule_ids
from foliot.timing.crontab import Crontab, read_crontab
from foliot.timing.zones import zone

commands = typer.Typer(help="Import schedules from other schedulers: crontab.", no_args_is_help=True)

_COMING = 3
_OUTCOMES = ("created", "changed", "unchanged")
Shape = dict[str, Any]


@commands.command("crontab")
def crontab(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A crontab file; - reads standard input.", callback=legible)
    ],
    system: Annotated[
        bool,
        typer.Option(
            "--system", help="Each line names a user before its command. Default for /etc/crontab and /etc/cron.d/*."
        ),
    ] = False,
    tz: Annotated[
        str | None,
        typer.Option("--tz", help="Time zone of the crontab. Default: the zone of this host.", metavar="ZONE"),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix", help="Prefix of schedule names; use one prefix per crontab.", metavar="TEXT", callback=legible
        ),
    ] = "cron-",
    dry_run: DryRunOption = False,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a paused schedule for each line of a crontab. Lists the differences from cron.
    Exit 1 when a line cannot be imported. Foliot imports the other lines.
    """
    _check_prefix(prefix)
    is_system, why_system = kind_of(file, system)
    zone_name, zone_from = (zone(tz).name, "--tz") if tz is not None else host_zone(os.environ)
    table = read_crontab(_read(file), system=is_system, tz=zone_name)
    ids = schedule_ids(table, prefix)
    applied = None
    if not dry_run:
        made = declarations(table, ids)
        applied = with_store(
            app,
            store,
            lambda foliot: foliot.operate.import_schedules_async(made, source=SOURCE, actor=acting(actor)),
        )
    now = SystemClock().now()
    shape: Shape = {
        "file": file,
        "system": is_system,
        "system_because": why_system,
        "tz": zone_name,
        "tz_from": zone_from,
        "dry_run": dry_run,
        "lines": _with_outcomes(line_shapes(table, ids, now, _COMING), applied),
        "notes": notes(table),
        "gone": [] if applied is None else [name for name in applied.vanished if name.startswith(prefix)],
        "summary": _summary(table, applied),
    }
    if as_json:
        print_json(shape)
    else:
        _show(shape, now)
    if table.problems():
        raise typer.Exit(1)


def host_zone(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[str, str]:
    """The likely time zone of cron on this host, and its source."""
    for given, how in _host_zones(environment, root):
        try:
            return zone(given.rpartition("zoneinfo/")[2]).name, how
        except InvalidRule:  # a zone in POSIX form, such as CET-1CEST: perhaps the next one has a name
            continue
    return "UTC", "because this host configures no zone"


def _host_zones(environment: Mapping[str, str], root: Path) -> Iterator[tuple[str, str]]:
    yield environment.get("TZ", "").removeprefix(":"), "from the variable TZ"
    with suppress(OSError):
        yield (root / "etc/timezone").read_text("utf-8", "replace").strip(), "from /etc/timezone"
    with suppress(OSError):
        yield os.readlink(root / "etc/localtime"), "from /etc/localtime"


def kind_of(file: str, system: bool) -> tuple[bool, str]:
    """Whether it is a system crontab, and why we believe so."""
    path = Path(os.path.abspath(file))  # not resolved: a link in /etc/cron.d is read by cron as well
    if system:
        return True, "--system"
    if file != "-" and (path == Path("/etc/crontab") or path.parent == Path("/etc/cron.d")):
        return True, "because of its path"
    return False, "no --system"


def _check_prefix(prefix: str) -> None:
    try:
        checked_name(f"{prefix}job", "schedule")
    except InvalidInput as error:
        raise WrongUsage(f"--prefix: {error}") from None


def _read(file: str) -> str:
    """Reads a crontab. Bytes that are not text stay visible, so that only their line is a problem."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}; give another path") from None
    return data.decode("utf-8-sig", "surrogateescape")


def _with_outcomes(lines: list[Shape], applied: Applied | None) -> list[Shape]:
    known = {} if applied is None else {name: word for word in _OUTCOMES for name in getattr(applied, word)}
    return [line | {"outcome": known.get(line["id"])} if line["kind"] == "schedule" else line for line in lines]


def _summary(table: Crontab, applied: Applied | None) -> Shape:
    counts = {} if applied is None else {word: len(getattr(applied, word)) for word in _OUTCOMES}
    return {"schedules": len(table.commands()), "problems": len(table.problems()), **counts}


def _show(shape: Shape, now: Instant) -> None:
    kind = "system" if shape["system"] else "user"
    named = "standard input" if shape["file"] == "-" else words.one_line(shape["file"])
    say(f"{named}: a {kind} crontab ({shape['system_because']}), times in {shape['tz']} ({shape['tz_from']})", "bold")
    before = "setting"
    for line in shape["lines"]:
        if line["kind"] == "setting" != before:
            say("")
        before = line["kind"]
        _SHOWN[line["kind"]](line, now)
    heading("all lines")
    for note in shape["notes"]:
        say(note)
    if shape["gone"]:
        heading("imported earlier, not in this file")
        say(", ".join(shape["gone"]))
    say(f"\n{_told(shape['summary'])}", "bold")


def _show_setting(line: Shape, now: Instant) -> None:
    note = f"  ({line['note']})" if line["note"] else ""
    say(words.one_line(f"line {line['line']}: {line['name']}={line['value']}{note}"))


def _show_problem(line: Shape, now: Instant) -> None:
    heading(f"line {line['line']}: cannot be imported")
    for part in line["problem"].split("\n"):
        say("".join(letter if letter.isprintable() else "?" for letter in part), "red")


def _show_schedule(line: Shape, now: Instant) -> None:
    heading(f"line {line['line']}: {line['id']}" + (f" ({line['outcome']})" if line["outcome"] else ""))
    coming = [f"{tick} ({words.relative(parse_rfc3339(tick), now)})" for tick in line["next"][:1]]
    facts = {
        "rule": line["cron"],
        "meaning": line["words"],
        "next": "".join(coming) or "never",
        "command": line["arguments"]["command"],
        "input": line["arguments"]["stdin"].replace("\n", "\\n"),
    }
    print_facts({label: words.one_line(fact, 1_000) for label, fact in facts.items() if fact})
    # Labels as long as the longest above, so that they stand below each other.
    for difference in line["differences"]:
        print_facts({"changes": words.one_line(difference, 1_000)})
    for change in line["clock_changes"]:
        print_facts({"clocks ": f"{change}, as in Vixie cron"})


_SHOWN = {"setting": _show_setting, "problem": _show_problem, "schedule": _show_schedule}


def _told(summary: Shape) -> str:
    problems = f"; {words.counted(summary['problems'], 'line')} cannot be imported" if summary["problems"] else ""
    if "created" in summary:
        return ", ".join(f"{summary[word]:,} {word}" for word in _OUTCOMES) + problems
    return f"{words.counted(summary['schedules'], 'schedule')}, none created (dry run){problems}"
