"""For how long what is over is kept."""

from __future__ import annotations

from typing import Protocol


class KeepStore(Protocol):
    """The term of what is over: ended runs with their attempts and names, events, and ledgers of which no run is left.
    What waits for a person is not over, and the operators' log is kept for ever. `tidy` removes what has outlived its
    term."""

    async def keep_days(self) -> int | None:
        """None: for ever."""

    async def set_keep_days(self, days: int | None, *, actor: str, note: str) -> None:
        """From the next `tidy` on. A shorter term removes what is older: that cannot be undone."""
