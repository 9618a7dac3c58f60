"""The audit log and its seals: the port."""

from __future__ import annotations

from typing import Protocol

from foliot.domain.audit import AuditFilter, AuditKeys, SealedRow, Standing, Unsealed


class AuditStore(Protocol):
    """Holds a row for each action of a person. Rows are only added, and sealed one after another.

    Triggers refuse changes and removals of rows and seals. If a person removes the triggers, the chain of seals shows a
    change, and an anchor outside the store shows that the chain was rewritten. A process with keys signs each row that
    it writes, so that a row that was inserted without a key is found. If the log is signed, an action of a process
    without a key raises Locked and changes nothing."""

    audit_keys: AuditKeys | None
    """Set before the store is opened. None: this process signs no rows and checks no signatures."""

    async def audit(self, wanted: AuditFilter, *, before: int | None = None, limit: int = 50) -> list[SealedRow]:
        """Newest first, by their numbers; `before` continues after a page. Each has its seal, if it has one yet."""

    async def seal(self, limit: int = 1_000) -> int:
        """Seals at most `limit` rows that have no seal yet, oldest first; answers how many. One process seals at a
        time; processes that write rows do not wait for it. Cheap if there are none, because it is called each second.
        A row that lacks its signature is sealed too; if this process has keys, it writes an event `unsigned_audit`."""

    async def seals(self, after: int, limit: int) -> list[SealedRow]:
        """The chain in its order, behind a position; each with its row, if that is there."""

    async def sealing(self) -> Standing:
        """How far the chain has come."""

    async def unsealed(self, after: int, limit: int) -> tuple[list[Unsealed], int | None]:
        """Of the next `limit` rows behind a number, those that have not exactly one seal, and do not wait for it; and
        the last number that was looked at. None: there are no more, and rows that wait for a seal, and are gone, are
        among the answer."""
