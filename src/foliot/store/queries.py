"""Named queries: SQL lives in .sql files, one statement per name, each with a comment that says what it is for.

-- name: claim_runs
-- Takes pending runs of one chunk; the row is compared and set, so a stale chunk claims nothing.
UPDATE run SET ...

What several queries of a file have in common is said once, as a part, and stands in them by its name in braces:

-- part: wanted
state = :state AND job = :job
-- name: wanted_runs
SELECT * FROM run WHERE {wanted}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- (name|part): (\w+)\s*$", re.MULTILINE)


@cache  # each store of a process asks for them, and the files are those of a release
def queries_of(package: str) -> Mapping[str, str]:
    """An engine's."""
    return load(files(package).joinpath("sql"))


def load(folder: Traversable) -> dict[str, str]:
    """All named queries below a folder. A name that stands twice is a mistake of ours, found at once."""
    queries: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            for name, text in _queries_in(file.read_text("utf-8")):
                if name in queries:
                    raise RuntimeError(f"the query {name!r} is defined twice, the second time in {file.name}")
                queries[name] = text
    return queries


def _queries_in(text: str) -> Iterator[tuple[str, str]]:
    parts: dict[str, str] = {}
    pieces = _NAME.split(text)
    for kind, name, piece in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        written = piece.strip()
        for part, meaning in parts.items():
            written = written.replace("{" + part + "}", meaning)
        if kind == "part":
            parts[name] = written
        else:
            yield name, written
