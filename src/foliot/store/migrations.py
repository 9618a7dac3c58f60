"""Numbered steps that bring tables from one release to the next: what both engines share.

A step is additive, or reads on for the release before, so that processes of older releases go on while newer tables are
there. One that they could not live with says so in its first line (`-- breaks: 3`: releases that know fewer than three
steps must not use the tables any more).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from foliot.domain.store import Schema
from foliot.errors import SchemaMismatch

_BREAKS = re.compile(r"\A-- breaks: (\d+)$", re.MULTILINE)


class Step(NamedTuple):
    number: int
    name: str
    text: str

    @property
    def needs(self) -> int:
        """How many steps a release must know to live with this one."""
        found = _BREAKS.match(self.text)
        return int(found[1]) if found else 1


def steps_of(package: str) -> list[Step]:
    return list(_read(package))


@cache  # a store that is opened asks several times, and the files are those of a release
def _read(package: str) -> tuple[Step, ...]:
    folder = files(package).joinpath("migrations")
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    for place, name in enumerate(found):
        if not name.startswith(f"{place + 1:04}_"):
            raise RuntimeError(f"{package}: the step {name} is in position {place + 1}; give each number one file")
    return tuple(
        Step(place + 1, name.removesuffix(".sql"), folder.joinpath(name).read_text("utf-8"))
        for place, name in enumerate(found)
    )


def schema_of(known: Sequence[Step], current: int, needs: int) -> Schema:
    return Schema(current, len(known), needs, tuple(step.name for step in known[current:]))


def refuse_too_new(schema: Schema, place: str) -> None:
    if schema.is_too_new:
        raise SchemaMismatch(
            f"{place} has schema {schema.current} of a newer release of Foliot; the store needs a release that "
            f"supports {schema.needs} steps, and this release supports {schema.latest}: upgrade Foliot"
        )


def refuse_pending(schema: Schema, place: str) -> None:
    """For whoever must not change tables."""
    refuse_too_new(schema, place)
    if schema.pending:
        raise SchemaMismatch(
            f"{place}: the schema is incomplete (missing steps: {len(schema.pending)}, from {schema.pending[0]}), and "
            "its URL has migrate=never; run `foliot migrate`"
        )
