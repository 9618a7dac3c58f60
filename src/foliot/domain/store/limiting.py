"""How many at a time, and how many in a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foliot.domain.gates import Gate, GateView
from foliot.domain.run import Kept


class LimitStore(Protocol):
    """How many at a time, and how many in a time; see `foliot.domain.gates` for the names of limits.

    A run that needs a slot takes it when it fires, under the slot's lock, or is held for it. Whatever ends the run, or
    makes it wait, sets its slots free and lets the next ones in, by lane, priority and time, in the same transaction.
    Between two attempts a run keeps its key and nothing else."""

    async def limits(self) -> list[GateView]:
        """All limits by name, and keys that runs wait for."""

    async def set_limit(self, gate: Gate, *, actor: str) -> None:
        """For whatever fires from now on. Who waits is let in at once where there is room now."""

    async def drop_limit(self, name: str, *, actor: str, note: str) -> None:
        """Whoever waits for it goes. UnknownName if there is none."""

    async def declare_limits(self, gates: Sequence[Gate]) -> None:
        """All that an app's code says; what an operator said of the same name stays. What code said once and says no
        more stays, too, and `limits` notes it."""

    async def release_run(self, run_id: str, *, actor: str, note: str) -> Kept:
        """Lets one run go that is held, against overlap and limits. Conflict when it is not held; UnknownName."""
