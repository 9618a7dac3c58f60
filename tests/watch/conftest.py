from __future__ import annotations

import pytest

from tests.servers.emptied import emptied
from tests.watch.watched import Place


@pytest.fixture(
    params=[pytest.param(False, id="sqlite"), pytest.param(True, id="postgres", marks=pytest.mark.needs("postgres"))]
)
def place(request: pytest.FixtureRequest) -> Place | None:
    """An empty server with several shards, or None: for what the engines ask and write each in its own way."""
    if not request.param:
        return None
    dsn = emptied(request.getfixturevalue("postgres"), shards=4, by_socket=True)
    return Place(dsn, request.getfixturevalue("warm"), request.getfixturevalue("lasting_runner"))
