"""Brings the tables to this release, step by step, while older releases go on working.

Every step is additive or reads on for the release before, so old processes and new tables go together; tables that are
newer than this release knows are used as they are. A step that older releases could not live with says so in its first
line (`-- breaks: 3`: releases that know fewer than 3 steps must not open it any more).
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, NamedTuple

from foliot.errors import SchemaMismatch
from foliot.store.postgres.address import Address

_LOCK = "SELECT pg_advisory_xact_lock(x'466F6C69'::integer, 2)"
_TABLE = """
CREATE SCHEMA IF NOT EXISTS foliot;
CREATE TABLE IF NOT EXISTS foliot.migration (
    step        integer     PRIMARY KEY,
    name        text        NOT NULL,
    needs       integer     NOT NULL DEFAULT 1,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
"""
_NEEDS = re.compile(r"\A-- breaks: (\d+)$", re.MULTILINE)


class Step(NamedTuple):
    number: int
    name: str
    text: str

    @property
    def needs(self) -> int:
        """How many steps a release must know to live with this one."""
        found = _NEEDS.match(self.text)
        return int(found[1]) if found else 1


def steps() -> list[Step]:
    found = sorted(
        entry.name for entry in files(__package__).joinpath("migrations").iterdir() if entry.name.endswith(".sql")
    )
    folder = files(__package__).joinpath("migrations")
    return [
        Step(place + 1, name.removesuffix(".sql"), folder.joinpath(name).read_text("utf-8"))
        for place, name in enumerate(found)
    ]


async def applied(connection: Any) -> tuple[int, int]:
    """The last step that was made, and how many a release must know; zeros where there is nothing yet."""
    if await connection.fetchval("SELECT to_regclass('foliot.migration') IS NULL"):
        return 0, 0
    row = await connection.fetchrow("SELECT coalesce(max(step), 0), coalesce(max(needs), 0) FROM foliot.migration")
    return row[0], row[1]


async def pending(connection: Any, where: Address) -> list[Step]:
    """The steps that are still to be made. SchemaMismatch when the tables are too new for this release."""
    known = steps()
    current, needs = await applied(connection)
    if needs > len(known):
        raise SchemaMismatch(
            f"{where.shown} has schema {current}, which needs a release that knows {needs} steps; this one knows "
            f"{len(known)}: upgrade it"
        )
    return known[current:]


async def migrate(connection: Any, where: Address) -> int:
    """Makes all pending steps in one transaction, and answers with the schema's number. One process at a time."""
    if await pending(connection, where):
        async with connection.transaction():
            await connection.execute("SET LOCAL statement_timeout = 0")
            await connection.execute(_LOCK)
            await connection.execute(_TABLE)
            for step in await pending(connection, where):
                await connection.execute(step.text)
                await connection.execute(
                    "INSERT INTO foliot.migration (step, name, needs) VALUES ($1, $2, $3)", *step[:2], step.needs
                )
    return (await applied(connection))[0]


async def refuse_pending(connection: Any, where: Address) -> int:
    """For whoever must not change tables."""
    left = await pending(connection, where)
    if left:
        raise SchemaMismatch(
            f"{where.shown} lacks {len(left)} step(s) of the schema, from {left[0].name}; run `foliot migrate`"
        )
    return (await applied(connection))[0]


def as_sql(left: list[Step]) -> str:
    """What `migrate` would do, for whoever wants to read it first, or to run it by other means."""
    pieces = [_TABLE.strip()]
    for step in left:
        pieces.append(step.text.strip())
        pieces.append(
            f"INSERT INTO foliot.migration (step, name, needs) VALUES ({step.number}, '{step.name}', {step.needs});"
        )
    return "BEGIN;\n" + "\n\n".join(pieces) + "\nCOMMIT;\n"
