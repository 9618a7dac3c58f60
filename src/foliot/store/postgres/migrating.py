"""Brings the tables to this release, step by step, while older releases go on working."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg

from foliot.domain.store import Schema
from foliot.errors import StoreError
from foliot.store.migrations import Step, refuse_too_new, schema_of, steps_of
from foliot.store.postgres.address import Address
from foliot.store.postgres.connection import AGAIN, UNREACHABLE, Connections, as_store_error, checked

_LOCK = "SELECT pg_advisory_xact_lock(x'466F6C69'::integer, 2);"
_BRIEFLY = "SET LOCAL lock_timeout = '3s';"
"""A step that waits for a table keeps everybody waiting who comes after it: rather go back, and try again."""
_TRIES, _PAUSE = 10, 1.0
_LONGEST = 6 * 3600.0
"""Seconds for one step: to build an index over much takes its time."""
_TABLE = """
CREATE SCHEMA IF NOT EXISTS foliot;
CREATE TABLE IF NOT EXISTS foliot.migration (
    step        integer     PRIMARY KEY,
    name        text        NOT NULL,
    needs       integer     NOT NULL DEFAULT 1,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
"""


def steps() -> list[Step]:
    return steps_of(__package__)


async def stand(connection: Any) -> Schema:
    """How the tables stand."""
    current = needs = 0
    if await connection.fetchval(
        "SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = 'foliot' AND c.relname = 'migration')"
    ):
        row = await connection.fetchrow("SELECT coalesce(max(step), 0), coalesce(max(needs), 0) FROM foliot.migration")
        current, needs = row
    return schema_of(steps(), current, needs)


async def migrate(connection: Any, where: Address) -> Schema:
    """Makes all pending steps in one transaction; answers how the tables stood before. One process at a time."""
    for left in reversed(range(_TRIES)):
        try:
            before = await stand(connection)
            refuse_too_new(before, where.shown)
            if before.pending:
                async with connection.transaction():
                    before = await _make_pending(connection, where)
            return before
        except asyncpg.InsufficientPrivilegeError as error:
            raise StoreError(
                f"{where.shown} has no tables of this release yet, and this role may not create them ({error}); run "
                f"`foliot migrate` with a role that may, or allow this one: GRANT CREATE ON DATABASE ..."
            ) from error
        except AGAIN as error:
            if not left:
                raise StoreError(
                    f"{where.shown}: long transactions lock the tables, so the migration changed nothing "
                    f"({error}). End these transactions and run it again"
                ) from error
            await asyncio.sleep(_PAUSE)
    raise AssertionError("unreachable")


async def _make_pending(connection: Any, where: Address) -> Schema:
    await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
    await connection.execute(_LOCK, timeout=_LONGEST)
    # Of several that start together the first has made them by now.
    before = await stand(connection)
    refuse_too_new(before, where.shown)
    if before.pending:
        await connection.execute(_BRIEFLY)
        await connection.execute(_TABLE)
        for step in steps()[before.current :]:
            await connection.execute(step.text, timeout=_LONGEST)
            await connection.execute(_entry(step))
    return before


def _entry(step: Step) -> str:
    return f"INSERT INTO foliot.migration (step, name, needs) VALUES ({step.number}, '{step.name}', {step.needs});"


def as_sql(after: int) -> str:
    """What `migrate` does from there on, for whoever wants to read it first, or to run it by other means."""
    left = steps()[after:]
    if not left:
        return f"-- The schema of Foliot is at step {after}: no migration is needed.\n"
    title = (
        f"-- The schema of Foliot, from step {after} to {left[-1].number}. Run all of it in one transaction:\n--   "
        "  psql -1 -v ON_ERROR_STOP=1 -f FILE"
    )
    pieces = [title, f"{_LOCK}\n{_BRIEFLY}", _TABLE.strip()]
    for step in left:
        pieces += [step.text.strip(), _entry(step)]
    return "\n\n".join(pieces) + "\n"


# Without an open store


@asynccontextmanager
async def _connected(where: Address) -> AsyncIterator[Any]:
    try:
        connection = await Connections(where).connect()
        try:
            yield connection
        finally:
            await connection.close(timeout=5)
    except (asyncpg.PostgresError, *UNREACHABLE) as error:
        raise as_store_error(error, where) from error


async def look(where: Address) -> Schema:
    """Changes nothing: a role that may only read will do."""
    # Such a role's sessions may be read-only by themselves, which is not what `read-write` asks for.
    where = replace(where, session="primary" if where.session == "read-write" else where.session)
    async with _connected(where) as connection:
        try:
            return await stand(connection)
        except asyncpg.InsufficientPrivilegeError as error:
            raise StoreError(
                f"{where.shown}: this role may not read how the tables stand ({error}); "
                f"GRANT USAGE ON SCHEMA foliot, and GRANT SELECT ON foliot.migration"
            ) from error


async def bring(where: Address) -> Schema:
    async with _connected(where) as connection:
        await checked(connection, where)
        return await migrate(connection, where)
