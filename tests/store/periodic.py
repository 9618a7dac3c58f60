"""The statements that a fleet with nothing to do says again and again, found by letting one run.

Whoever adds periodic work to a loop that `idle_rounds` turns need not add its statements anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foliot import Foliot, bootstrap, every
from foliot.clock import ManualClock
from foliot.domain.instant import DAY, SECOND, to_datetime
from foliot.domain.store import Duty, Store
from foliot.watch.retention import Retention


class Asked(dict[str, Any]):
    """The queries of a store. `names`: which of them were asked for."""

    def __init__(self, queries: Mapping[str, Any]) -> None:
        super().__init__(queries)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)


class _Channel:
    name = "nobody"

    async def send(self, message: Any) -> None:
        """Takes everything."""


async def idle_rounds(store: Store, clock: ManualClock) -> None:
    """A schedule and a promise wait. Then each periodic loop of a scheduler and a worker makes its rounds."""
    app = Foliot()

    @app.job(expect_every="1d")
    async def tick() -> None:
        pass

    app.schedule("hourly", tick, every("1h"))
    await store.set_keep_days(30, actor="test", note="so that retention looks")
    with app.standing_on(store, clock):
        await app.apply_async()
        await store.promise([tick.promise_at(to_datetime(clock.now() + 30 * DAY))])
    scheduler = (await store.register("scheduler", version="", queues=(), slots=0, jobs=())).number
    worker = bootstrap.make_worker(store, {"tick": tick.handler}, clock=clock)
    await worker.start()
    dispatcher = bootstrap.make_dispatcher(store, scheduler, clock=clock)
    herald = bootstrap.make_herald(store, [_Channel()], clock=clock)
    loops = (
        bootstrap.make_reaper(store, clock=clock),
        bootstrap.make_alarm(store, clock=clock),
        herald,
        bootstrap.make_sealer(store, clock=clock),
        bootstrap.make_backfiller(store, clock=clock),
        bootstrap.make_sentry(store, herald, clock=clock),
        Retention(store, clock),
        worker.heartbeat,
        worker,
    )
    lease = await store.take(Duty.WATCH, scheduler, 60 * SECOND)
    assert lease is not None
    for _ in range(2):  # the second round is the usual one
        await store.renew([lease], 60 * SECOND, lease.high_water)
        await dispatcher.run_once()
        for loop in loops:
            await loop.run_once()
        await worker.settle()
        await store.count_endings()
        await store.beat(scheduler, [])
        assert worker.number is not None
        await store.report_clock(worker.number, 0, 0, False)
        clock.advance(2 * SECOND)
    await dispatcher.release()
    await worker.drain(0)
    await store.retire(scheduler)
