"""What `forked` imports before it forks: all that a `foliot` process imports before it opens a store."""

from __future__ import annotations

import gc

import apsw  # noqa: F401
import asyncpg  # noqa: F401
from typer.testing import CliRunner

import foliot.store.postgres
import foliot.store.sqlite  # noqa: F401
from foliot.cli import foliot as command

# The parser of options imports its own parts when it parses the first one.
refused = CliRunner().invoke(command, ["worker", "--slots", "none"])
assert refused.exit_code == 2, refused.output
gc.collect()
gc.freeze()
