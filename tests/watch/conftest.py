from __future__ import annotations

import pytest

from tests.servers.emptied import emptied


@pytest.fixture(
    params=[pytest.param(False, id="sqlite"), pytest.param(True, id="postgres", marks=pytest.mark.needs("postgres"))]
)
def dsn(request: pytest.FixtureRequest) -> str | None:
    """Of an empty server with several shards, or None: for what the engines ask and write each in its own way."""
    return emptied(request.getfixturevalue("postgres"), shards=4) if request.param else None
