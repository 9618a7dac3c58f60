"""`foliot audit`: lists, verifies and anchors the log of operators' actions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from foliot import bootstrap
from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.dead import when
from foliot.cli.options import AppOption, JsonOption, StoreOption, legible, read_cursor, settings_of, with_store
from foliot.cli.output import Column, console, print_facts, print_json, print_table, say
from foliot.domain.audit import Anchor, SealedRow, read_anchors
from foliot.domain.instant import Instant, rfc3339
from foliot.errors import InvalidInput
from foliot.operate.auditing import AuditReport, Progress, anchor_shape, audit_report_shape, sealed_shape

commands = typer.Typer(help="The log of what people did: list, verify, anchor.", no_args_is_help=True)

_COLUMNS = (
    Column("row", rank=4, right=True),
    Column("when", right=True),
    Column("who"),
    Column("did"),
    Column("to"),
    Column("why", rank=1, shrinks=True),
    Column("seal", rank=3, right=True),
)


@commands.command("list")
def list_(
    actor: Annotated[str | None, typer.Option("--actor", help="Only what this one did.", callback=legible)] = None,
    action: Annotated[
        str | None, typer.Option("--action", help="Only this: pause, retry, limit, …", callback=legible)
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", help="Only what was done to this run, schedule, limit, …", callback=legible),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only from then on: 2026-04-03T02:00:00Z.", metavar="WHEN")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only before: 2026-04-03T06:00:00Z.", metavar="WHEN")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", help="Only with this somewhere in actor, subject or reason.", callback=legible),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 20,
    before: Annotated[
        str | None, typer.Option("--before", help="Go on after the page that ended with this cursor.", metavar="CURSOR")
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What people did, and why: the newest first. SEAL is a row's place in the chain that `audit verify` follows."""
    position = read_cursor(before)
    start, end = (None if one is None else when(one, name) for one, name in ((since, "--since"), (until, "--until")))

    async def look(foliot: Foliot) -> tuple[list[SealedRow], Instant]:
        found = await foliot.operate.audit_async(
            actor=actor,
            action=action,
            subject=subject,
            since=start,
            until=end,
            text=text,
            limit=limit,
            before=position,
        )
        return found, await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([sealed_shape(one) for one in found])
    else:
        print_table(_COLUMNS, [_row(one, now) for one in found], nothing="nothing of that kind is in the log")


def _row(one: SealedRow, now: Instant) -> tuple[str, ...]:
    row = one.row
    assert row is not None  # it was found by what it says
    seal = "-" if one.seal is None else str(one.seal.position)
    return str(one.number), words.relative(row.at, now), row.actor, row.action, row.subject, row.note, seal


@commands.command("verify")
def verify(
    anchor: Annotated[
        list[str] | None,
        typer.Option(
            "--anchor", help="A file of anchors; history before them was not rewritten. Several.", metavar="FILE"
        ),
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Checks the whole log for rows that were changed or removed, and with FOLIOT_AUDIT_KEYS for rows that were
    inserted without a key. Exits with 1 at the first such row. Only an anchor shows that the log was rewritten or cut
    off."""
    anchors = [one for file in _files(anchor, app, store) for one in _read(file)]
    with _bar(is_shown=not as_json) as progress:
        report = with_store(
            app, store, lambda foliot: foliot.operate.verify_audit_async(anchors=anchors, progress=progress)
        )
    if as_json:
        print_json(audit_report_shape(report))
    else:
        print_facts(_facts(report))
    if report.problem is not None:
        raise typer.Exit(1)


def _files(given: list[str] | None, app: str | None, store: str | None) -> list[str]:
    """What was asked for; else the file that the schedulers write to, if it is there."""
    if given:
        return [legible(one) or "" for one in given]
    usual = settings_of(app, store).audit_anchor
    return [usual] if usual is not None and Path(usual).exists() else []


def _read(file: str) -> list[Anchor]:
    try:
        return read_anchors(Path(file).read_text("utf-8"))
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _signed(report: AuditReport) -> str:
    if report.signed is None:
        return "not checked: this process has no key"
    unsigned = f", {report.unsigned:,} lack the signature that they must have" if report.unsigned else ""
    if report.signed_from is None:
        return f"no row{unsigned}"
    return f"{words.counted(report.signed, 'row')}, from seal {report.signed_from:,} on{unsigned}"


def _facts(report: AuditReport) -> dict[str, str]:
    problem = report.problem
    facts = {"verdict": "ok" if problem is None else "wrong", "checked": words.counted(report.rows, "row")}
    if report.rows:
        facts["up to"] = f"seal {report.head.position:,}, {report.head.hash}"
    if problem is not None:
        place = "" if problem.position is None else f" at seal {problem.position:,}"
        facts["found"] = f"{problem.breach}{place}: {problem.detail}"
    if report.proven is not None:
        facts["anchored"] = (
            f"nothing before {rfc3339(report.proven.at)} was rewritten (seal {report.proven.position:,})"
        )
    elif not report.anchors:
        facts["anchored"] = "no anchor was given: anyone who can write to all tables can have rewritten the whole log"
    facts["signed"] = _signed(report)
    if report.warning is not None:
        facts["warning"] = report.warning
    return facts


@commands.command("anchor")
def anchor_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file that a line is added to; - prints it.", callback=legible)
    ],
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Writes down where the log stands now, to be kept where whoever could change the store cannot. One line: time,
    position, hash. `audit_anchor` in foliot.toml, or FOLIOT_AUDIT_ANCHOR, has schedulers do this by themselves."""
    anchor = with_store(app, store, lambda foliot: foliot.operate.anchor_async())
    if file != "-":
        try:
            bootstrap.append_line(file, anchor.line())
        except OSError as error:
            raise InvalidInput(f"{file} cannot be written: {error.strerror or error}") from None
    if as_json:
        print_json(anchor_shape(anchor) | {"file": None if file == "-" else file})
    else:
        say(anchor.line() if file == "-" else f"seal {anchor.position:,} is written down in {file}")


@contextmanager
def _bar(*, is_shown: bool) -> Iterator[Progress]:
    """How far it is, on a terminal."""
    shown = Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        console=console(),
        disable=not is_shown or not console().is_terminal,
        transient=True,
    )
    with shown:
        task = shown.add_task("verifying", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
