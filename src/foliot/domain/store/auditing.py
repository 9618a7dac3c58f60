"""The operators' log, and its seals."""

from __future__ import annotations

from typing import Protocol

from foliot.domain.audit import AuditFilter, AuditKeys, SealedRow, Standing, Unsealed


class AuditStore(Protocol):
    """What people did, in a log that is only added to, and whose rows are sealed one after another.

    Rows and seals can neither be changed nor removed through the store's tables; who can take that refusal away is
    found out by the chain of seals, and who can write all of that anew by an anchor that lies elsewhere. Where the
    process has keys, each row is signed as it is written, and whoever inserts a row without them is found out.
    Locked, and nothing is done, where the log is signed and the process that acts has no key."""

    audit_keys: AuditKeys | None
    """Set before the store is opened; None: this process signs nothing, and cannot tell who wrote a row."""

    async def audit(self, wanted: AuditFilter, *, before: int | None = None, limit: int = 50) -> list[SealedRow]:
        """Newest first, by their numbers; `before` continues after a page. Each has its seal, if it has one yet."""

    async def seal(self, limit: int = 1_000) -> int:
        """Seals rows that have no seal yet, so many at most, oldest first; returns how many. One at a time does so, and
        those who write rows wait for nobody. Cheap when there are none: asked every second. A row that lacks the
        signature that it should have is sealed, too, with an event `unsigned_audit`, where the process has keys."""

    async def seals(self, after: int, limit: int) -> list[SealedRow]:
        """The chain in its order, behind a position; each with its row, if that is there."""

    async def sealing(self) -> Standing:
        """How far the chain has come."""

    async def unsealed(self, after: int, limit: int) -> tuple[list[Unsealed], int | None]:
        """Of the next `limit` rows behind a number, those that have not exactly one seal, and do not wait for it; and
        the last number that was looked at. None: there are no more, and rows that wait for a seal, and are gone, are
        among the answer."""
