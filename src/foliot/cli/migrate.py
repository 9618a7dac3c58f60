"""`foliot migrate`: migrates the store's schema to this release, or prints the steps."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from foliot import bootstrap
from foliot.cli.options import AppOption, JsonOption, StoreOption, WrongUsage, settings_of
from foliot.cli.output import print_json, say
from foliot.domain.store import Schema


def migrate(
    app: AppOption = None,
    store: StoreOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing. Exit 1 when steps are missing, or the schema is too new.")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL of the missing steps, and change nothing.")] = False,
    after: Annotated[
        int | None,
        typer.Option(
            "--from", help="With --sql: print the steps after this one, without reading the store.", metavar="STEP"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Migrate the store's schema to this release. Processes of the previous release can keep running."""
    if check and sql:
        raise WrongUsage("give --check or --sql, not both")
    if after is not None and (not sql or after < 0):
        raise WrongUsage("--from STEP requires --sql and a number from 0 (an empty store)")
    if sql and as_json:
        raise WrongUsage("give --sql or --json, not both")
    found = settings_of(app, store).on_store().store
    where = found.name
    if sql:
        begin = asyncio.run(found.schema()).current if after is None else after
        print(found.migration_sql(begin), end="")
        return
    schema = asyncio.run(found.schema() if check else bootstrap.migrate_store(found))
    if as_json:
        print_json(_shape(schema, where, done=not check))
    else:
        say(_words(schema, where, done=not check))
    if check and (schema.pending or schema.is_too_new):
        raise typer.Exit(1)


def _shape(schema: Schema, where: str, *, done: bool) -> dict[str, object]:
    return {
        "store": where,
        "from": schema.current,
        "to": max(schema.latest, schema.current) if done else schema.current,
        "known": schema.latest,
        "made": list(schema.pending) if done else [],
        "pending": [] if done else list(schema.pending),
        "too_new": schema.is_too_new,
    }


def _words(schema: Schema, where: str, *, done: bool) -> str:
    if schema.is_too_new:
        return (
            f"{where} is at step {schema.current} of a newer release; this one supports {schema.latest}: upgrade Foliot"
        )
    if not schema.pending:
        newer = f"; this release supports {schema.latest} and can use it" if schema.current > schema.latest else ""
        return f"{where} is up to date, at step {schema.current}{newer}"
    steps = ", ".join(schema.pending)
    if done:
        return f"migrated {where} from step {schema.current} to {schema.latest} ({steps})"
    return f"{where} is at step {schema.current}; missing steps: {steps}: run `foliot migrate`"
