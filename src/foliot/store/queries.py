"""Named queries: SQL lives in .sql files, one statement per name, each with a comment that says what it is for.

-- name: claim_runs
-- Takes pending runs of one chunk; the row is compared and set, so a stale chunk claims nothing.
UPDATE run SET ...
"""

from __future__ import annotations

import re
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def load(folder: Traversable) -> dict[str, str]:
    """All named queries below a folder. A name that stands twice is a mistake of ours, found at once."""
    queries: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            pieces = _NAME.split(file.read_text("utf-8"))
            for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
                if name in queries:
                    raise RuntimeError(f"the query {name!r} stands twice, the second time in {file.name}")
                queries[name] = text.strip()
    return queries
