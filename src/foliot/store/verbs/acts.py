"""The verbs for what operators do beside runs, as methods: the log, pauses, workers, edits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from foliot.domain.audit import AuditFilter, SealedRow, Standing, Unsealed
from foliot.store.verbs import auditing
from foliot.store.verbs.transaction import Transaction

T = TypeVar("T")

Work = Callable[[Transaction], Coroutine[Any, Any, T]]
"""A verb, bound to what was asked."""


class ActVerbs(ABC):
    """What an engine has to be able to do, and what operators do with that."""

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
