"""Makes promises to the campus app from the test's own process, without importing its log."""

from __future__ import annotations

from foliot import Foliot
from tests.faults.processes import Fleet


def promise_slow(fleet: Fleet, seconds: float) -> str:
    """A run of `slow`, due now; the client knows only the job's name and arguments."""
    with Foliot(fleet.store) as app:

        @app.job(name="slow")
        async def slow(seconds: float) -> None: ...

        return slow.now(seconds=seconds).id
