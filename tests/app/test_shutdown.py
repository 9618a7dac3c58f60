"""A worker process that ends while a handler goes on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from foliot.bootstrap import make_store, run_scheduler, run_worker
from foliot.domain.instant import SECOND
from foliot.domain.policy import Policy
from foliot.domain.run import Promise
from foliot.work.handler import Handler
from tests.waiting import HANG, until_async


async def test_a_process_whose_handler_goes_on_ends_itself_although_it_has_more_to_close(tmp_path: Path) -> None:
    gate, begun = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        assert gate.wait(HANG)

    store = make_store(f"sqlite:///{tmp_path / 'foliot.db'}")
    await store.open()
    handler = Handler.of(block, policy=Policy(lease=SECOND))
    over, stop, exits = asyncio.Event(), asyncio.Event(), list[int]()
    scheduling = asyncio.create_task(run_scheduler(store, over))
    end = {"grace": 0, "end_process": exits.append}
    working = asyncio.create_task(
        run_worker(store, {handler.name: handler}, stop, queues=["default"], slots=1, **end)  # type: ignore[arg-type]
    )
    try:
        [kept] = await store.promise([Promise(handler.name, b"{}", await store.now())])
        await until_async(begun.is_set, "the handler runs")
        stop.set()
        left = await working
        assert (left.executing, left.exit_code) == ([kept.id], 0)
        await until_async(lambda: exits, "the process would have ended")
        assert exits == [0]
    finally:
        gate.set()
        over.set()
        await scheduling
        await store.close()
