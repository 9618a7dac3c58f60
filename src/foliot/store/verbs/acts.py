"""The verbs for what operators do beside runs, as methods: the log, pauses, workers, edits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from foliot.domain.audit import AuditFilter, AuditKeys, SealedRow, Standing, Unsealed
from foliot.domain.instant import Instant
from foliot.domain.pauses import Pause, What
from foliot.domain.run import Kept
from foliot.domain.schedule import Declaration
from foliot.domain.store import Wish
from foliot.store.verbs import auditing, editing, pausing, promises, schedules, watching
from foliot.store.verbs.transaction import Transaction

T = TypeVar("T")
Tx = TypeVar("Tx", bound=Transaction)

Work = Callable[[Transaction], Coroutine[Any, Any, T]]
"""A verb, bound to what was asked."""


class ActVerbs(ABC):
    """What an engine has to be able to do, and what operators do with that."""

    audit_keys: AuditKeys | None = None
    """Keys that rows of the audit log are signed with; None: this process signs none."""

    def with_audit_keys(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> Callable[[Tx], Coroutine[Any, Any, T]]:
        """A verb whose transaction knows the keys."""
        keys = self.audit_keys
        if keys is None:
            return work

        def known(tx: Tx) -> Coroutine[Any, Any, T]:
            tx.audit_keys = keys
            return work(tx)

        return known

    @abstractmethod
    async def write(self, work: Work[T], *, lazily: bool = False) -> T:
        """Runs a verb in a transaction. `lazily`: its loss in a crash does no harm, so no disk need be waited for."""

    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """All queries of one look see one moment."""

    # The log

    async def audit(self, wanted: AuditFilter, *, before: int | None = None, limit: int = 50) -> list[SealedRow]:
        return await self.read(lambda tx: auditing.audit(tx, wanted, before, limit))

    async def seal(self, limit: int = 1_000) -> int:
        if not await self.read(auditing.any_unsealed):
            return 0
        return await self.write(lambda tx: auditing.seal(tx, limit))

    async def seals(self, after: int, limit: int) -> list[SealedRow]:
        return await self.read(lambda tx: auditing.seals(tx, after, limit))

    async def sealing(self) -> Standing:
        return await self.read(auditing.sealing)

    async def unsealed(self, after: int, limit: int) -> tuple[list[Unsealed], int | None]:
        return await self.read(lambda tx: auditing.unsealed(tx, after, limit))

    # Pauses

    async def put_pause(self, name: str, what: What, *, until: Instant | None, actor: str, note: str) -> Pause:
        return await self.write(lambda tx: schedules.put_pause(tx, name, what, until, actor, note))

    async def end_pause(self, name: str, what: What, *, actor: str, note: str, catch_up: bool = False) -> Pause | None:
        return await self.write(lambda tx: schedules.end_pause(tx, name, what, actor, note, catch_up))

    async def pauses(self) -> list[Pause]:
        return await self.read(pausing.listed)

    async def forget_ended_pauses(self) -> None:
        """Cheap when there are none: a part of `tidy`."""
        if await self.read(pausing.any_ended):
            await self.write(pausing.forget_ended)

    # Edits

    async def edit(self, edited: Declaration, revision: int, *, fields: Sequence[str], actor: str, note: str) -> int:
        return await self.write(lambda tx: editing.edit(tx, edited, revision, fields, actor, note))

    # Runs

    async def skip(self, run_id: str, *, actor: str, note: str) -> Kept:
        return await self.write(lambda tx: promises.skip(tx, run_id, actor, note))

    # Workers

    async def wish(self, worker: int, wish: Wish | None, *, actor: str, note: str) -> bool:
        return await self.write(lambda tx: watching.wish(tx, worker, wish, actor, note))
