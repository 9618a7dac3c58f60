"""One run from attempt to attempt on a fake store, without a worker: whatever its ending says is done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from foliot.clock import ManualClock
from foliot.domain.instant import SECOND, Duration
from foliot.domain.ledger import EffectState, EffectView, Item
from foliot.domain.policy import Policy
from foliot.domain.run import Ending
from foliot.work.attempt import Attempt, Stop
from foliot.work.desk import StoreDesks
from foliot.work.execute import execute, execute_in_thread
from foliot.work.handler import Handler
from tests.work.fakes import START, FakeStore, claimed


class ImpatientClock(ManualClock):
    """Whoever sleeps moves it."""

    async def sleep(self, length: Duration) -> None:
        self.advance(length)


class Life:
    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        policy: Policy | None = None,
        check: Callable[..., Any] | None = None,
        run: Mapping[str, Any] | None = None,
        **traits: Any,
    ) -> None:
        self.store = FakeStore()
        self.clock = ImpatientClock(START)
        handler = Handler.of(function, name="pay", policy=policy or Policy(attempts=4, backoff=8 * SECOND), **traits)
        self.handler = handler if check is None else handler.checked_by(check, {})
        payload = msgspec.json.encode(dict(arguments or {}))
        self.run = claimed(job="pay", payload=payload, **({"name": "pay@monday"} | dict(run or {})))
        self.last: Any = None
        """The attempt that was made last."""

    def attempt(self, stop: Stop | None = None) -> Ending:
        """The next attempt at the run, to its end."""
        ending: Ending = asyncio.run(self._attempt(stop))
        return ending

    async def _attempt(self, stop: Stop | None) -> Any:
        run = self.run
        self.run = run._replace(attempt=run.attempt + 1, token=run.token + 1, spent=run.spent + 1)
        self.store.owned[run.number] = run
        handler, policy = self.handler, self.handler.policy
        if run.phase is not None:
            found = handler.for_check(policy)
            assert found is not None
            handler, policy = found
        desks = StoreDesks(self.store, lambda: 1)
        desks.loop = asyncio.get_running_loop()
        attempt = self.last = Attempt(run, handler, policy)
        attempt.stop = stop
        if handler.is_async:
            attempt.task = asyncio.ensure_future(execute(attempt, self.clock, lambda: 0.5, desks))  # type: ignore[arg-type]
            return await attempt.task
        return await asyncio.to_thread(execute_in_thread, attempt, self.clock, lambda: 0.5, desks)

    @property
    def ledger(self) -> dict[str, str]:
        """`{"payout 7": "done"}`."""
        return {f"{line.name} {line.key}": str(line.state) for line in self.lines}

    @property
    def lines(self) -> list[EffectView]:
        return list(self.store.effects.get(self.run.lineage or self.run.number, {}).values())

    @property
    def open(self) -> list[EffectView]:
        return [line for line in self.lines if line.state is EffectState.STARTED]

    @property
    def said(self) -> list[Item]:
        """What the last attempt says of its items before its ending is told."""
        words = self.last.report()
        return [] if words is None else list(words.items)

    def told(self) -> None:
        """The store hears that."""
        for item in self.said:
            self.store.items.setdefault(self.run.number, {})[item.batch, item.key] = item
