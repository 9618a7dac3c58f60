"""What a verb sees of the transaction it runs in: named queries, one moment of time, and fresh numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from foliot.domain.audit import AuditKeys, AuditRow
from foliot.domain.gates import Need, Taken
from foliot.domain.instant import Duration, Instant
from foliot.domain.run import Kept, Promise
from foliot.errors import Locked

Row = Sequence[Any]

_NO_AUDIT_KEY = (
    "the audit log of this store is signed and this process has no key for it, so the action was refused; set "
    "FOLIOT_AUDIT_KEYS, or audit_keys in foliot.toml"
)


class Transaction(ABC):
    """A write transaction in progress, or a read of one snapshot.

    Values are bound by name. A list of numbers is bound as `longs(...)`, a list of texts as a list, a table of rows as
    `as_json(...)`: each dialect unfolds them in its own way.
    """

    __slots__ = ("audit_keys", "now")

    now: Instant
    audit_keys: AuditKeys | None
    """Keys of the process for the audit log; None: it has none."""
    lately: ClassVar[Sequence[Duration]] = ()
    """How far back to look at history first, longer and longer; then at all of it. Where it lies in pieces by days, a
    look at the latest costs less than one at every piece."""

    @abstractmethod
    async def run(self, query: str, /, **values: Any) -> int:
        """Executes, and returns how many rows changed."""

    @abstractmethod
    async def run_each(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Executes once per row of positional values."""

    @abstractmethod
    async def all(self, query: str, /, **values: Any) -> list[Row]: ...

    @abstractmethod
    async def one(self, query: str, /, **values: Any) -> Row | None: ...

    async def value(self, query: str, /, **values: Any) -> Any:
        """The single value of a query that always has one."""
        row = await self.one(query, **values)
        assert row is not None, query
        return row[0]

    @abstractmethod
    async def numbers(self, count: int) -> Sequence[int]:
        """Fresh run numbers, growing, none of them drawn before."""

    @abstractmethod
    async def token(self) -> int:
        """A fencing token that was never handed out before."""

    @abstractmethod
    async def stir(self, numbers: Sequence[int]) -> None:
        """Tells the owner of the cells that these runs are pending again, or at another time."""

    @abstractmethod
    async def added(self, numbers: Sequence[int]) -> None:
        """Tells the owner of the cells of new runs, where the runs' own numbers do not tell it."""

    @abstractmethod
    async def promise(self, promises: Sequence[Promise]) -> list[Kept]:
        """As the store's own verb, in this transaction."""

    @abstractmethod
    async def lock(self, schedules: Collection[str]) -> None:
        """Nobody else decides about these schedules' runs before this transaction has ended.

        Taken before any of their runs is written: admission and finish both come here first, so that a run which is
        held is seen by whoever ends the one it is held for."""

    @abstractmethod
    async def lock_slots(self, numbers: Collection[int]) -> None:
        """Nobody else takes or sets free the slots of these runs before this transaction has ended. After schedules."""

    @abstractmethod
    async def lock_free_slots(self, names: Collection[str]) -> Collection[str]:
        """Takes slots without waiting for anybody; answers which of them somebody else holds."""

    @abstractmethod
    async def lock_needed(self, needs: Sequence[Need]) -> dict[str, Taken]:
        """Locks these slots, in their order, brings them to the limits that the needs name, and answers how they
        stand."""

    @abstractmethod
    async def let_in(self, slots: Collection[str]) -> None:
        """Lets runs in that wait for one of these slots and for which there is room. The slots are locked."""

    @abstractmethod
    async def lock_free(self, schedules: Collection[str]) -> Collection[str]:
        """As `lock`, without waiting for anybody; answers which of them somebody else holds."""

    @abstractmethod
    async def passed_over(self, entries: Collection[tuple[Instant, int]]) -> Collection[tuple[Instant, int]]:
        """Of entries that a query did not find, those that are still pending: somebody else holds their rows."""

    @abstractmethod
    async def lock_all(self) -> None:
        """Nobody else applies declarations before this transaction has ended."""

    @abstractmethod
    def packed(self, numbers: Iterable[int]) -> Any:
        """Run numbers as one stored value."""

    @abstractmethod
    def unpacked(self, stored: Any) -> array[int]: ...

    async def free_names(self, names: Collection[str]) -> set[str]:
        """Which of these names no run has any more, live or ended, although they were kept for one: somebody deleted
        its row by hand. They can be given again from now on. Only where names are kept apart from rows."""
        return set()

    async def event(self, kind: str, subject: str, detail: str) -> None:
        await self.run("add_event", at=self.now, kind=kind, subject=subject, detail=detail)

    async def audit(self, actor: str, action: str, subject: str, note: str) -> None:
        """Records who did what to what, and why, in the transaction of the action. Signs the row if the process has a
        key. Locked if it has none and the log is signed. Only this and `audit_each` write rows of the audit log."""
        if self.audit_keys is not None:
            await self.audit_each(actor, action, [(subject, note)])
        elif not await self.run("add_audit", at=self.now, actor=actor, action=action, subject=subject, note=note):
            raise Locked(_NO_AUDIT_KEY)

    async def audit_each(self, actor: str, action: str, told: Iterable[tuple[str, str]]) -> None:
        """The same done to many things: subject and note of each."""
        rows = [AuditRow(self.now, actor, action, note, subject) for subject, note in told]
        keys = self.audit_keys
        if keys is None:
            await self.run_each("add_audit", [(row.at, actor, action, row.subject, row.note) for row in rows])
            # Asked afterwards: a row that was signed before the insert, which then did nothing, is visible now.
            if rows and await self.value("any_signed"):
                raise Locked(_NO_AUDIT_KEY)
            return
        numbered = [row._replace(number=n) for row, n in zip(rows, await self.audit_numbers(len(rows)), strict=True)]
        await self.run_each(
            "add_signed_audit",
            [(row.number, row.at, actor, action, row.subject, row.note, keys.sign(row)) for row in numbered],
        )

    @abstractmethod
    async def audit_numbers(self, count: int) -> Sequence[int]:
        """Fresh numbers for rows of the audit log."""


def longs(numbers: Iterable[int]) -> array[int]:
    """Run numbers as one bound value."""
    return numbers if isinstance(numbers, array) else array("q", numbers)


def as_json(values: object) -> str:
    return msgspec.json.encode(values).decode()
