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

commands = typer.Typer(help="Inspect the audit log: list, verify, anchor.", no_args_is_help=True)

_COLUMNS = (
    Column("row", rank=4, right=True),
    Column("time", right=True),
    Column("actor"),
    Column("action"),
    Column("subject"),
    Column("reason", rank=1, shrinks=True, least=24),
    Column("seal", rank=3, right=True),
)


@commands.command("list")
def list_(
    actor: Annotated[str | None, typer.Option("--actor", help="Only actions of this actor.", callback=legible)] = None,
    action: Annotated[
        str | None, typer.Option("--action", help="Only actions of this kind: pause, retry, limit, …", callback=legible)
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", help="Only actions on this run, schedule, limit, …", callback=legible),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only actions at or after this time: 2026-04-03T02:00:00Z.", metavar="TIME"),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only actions before this time: 2026-04-03T06:00:00Z.", metavar="TIME")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", help="Only actions with this text in actor, subject or reason.", callback=legible),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Number of actions to list.")] = 20,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", help="Continue after this cursor, from the end of the previous page.", metavar="CURSOR"
        ),
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List operators' actions with reasons, newest first. SEAL is the position in the hash chain."""
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
        print_table(_COLUMNS, [_row(one, now) for one in found], nothing="no matching actions")


def _row(one: SealedRow, now: Instant) -> tuple[str, ...]:
    row = one.row
    assert row is not None  # it was found by what it says
    seal = "-" if one.seal is None else str(one.seal.position)
    return str(one.number), words.relative(row.at, now), row.actor, row.action, row.subject, row.note, seal


@commands.command("verify")
def verify(
    anchor: Annotated[
        list[str] | None,
        typer.Option("--anchor", help="File with anchors to compare the log with. Repeatable.", metavar="FILE"),
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the whole log for changed or removed rows. Exit 1 at the first one.

    With FOLIOT_AUDIT_KEYS, also find rows that were inserted without a key. Only an anchor proves that the log was not
    rewritten as a whole or cut off.
    """
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
    """The given files; else the file that schedulers write to, if it exists."""
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
        raise InvalidInput(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}; give another file"
        ) from None


def _signed(report: AuditReport) -> str:
    if report.signed is None:
        return "not checked: this process has no audit key"
    unsigned = f", {report.unsigned:,} without the required signature" if report.unsigned else ""
    if report.signed_from is None:
        return f"no rows{unsigned}"
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
        facts["anchored"] = (
            "no anchor given: without one, a user with write access to all tables could have rewritten the whole log"
        )
    facts["signed"] = _signed(report)
    if report.warning is not None:
        facts["warning"] = report.warning
    return facts


@commands.command("anchor")
def anchor_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File to append the anchor to; - prints it.", callback=legible)
    ],
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Append an anchor to a file.

    An anchor has the time, position and hash of the last audit row. Keep the file where users with write access to the
    store cannot change it. With `audit_anchor` in foliot.toml, or FOLIOT_AUDIT_ANCHOR, schedulers write anchors
    automatically.
    """
    anchor = with_store(app, store, lambda foliot: foliot.operate.anchor_async())
    if file != "-":
        try:
            bootstrap.append_line(file, anchor.line())
        except OSError as error:
            raise InvalidInput(f"{file} cannot be written: {error.strerror or error}; give another path") from None
    if as_json:
        print_json(anchor_shape(anchor) | {"file": None if file == "-" else file})
    else:
        say(anchor.line() if file == "-" else f"appended the anchor of seal {anchor.position:,} to {file}")


@contextmanager
def _bar(*, is_shown: bool) -> Iterator[Progress]:
    """A progress bar, on a terminal."""
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
