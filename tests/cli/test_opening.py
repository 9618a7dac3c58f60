"""A process that is there to stay waits for a server that is away, and for nothing that waiting cannot cure."""

from __future__ import annotations

import asyncio
import logging

import pytest

from foliot import Foliot
from foliot.cli import opening
from foliot.domain.store import Store
from foliot.errors import StoreAway, StoreError
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.waiting import soon, until_async

pytestmark = pytest.mark.needs("postgres")


async def test_a_server_that_comes_later_is_waited_for(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "FIRST_PAUSE", 0.01)
    tries: list[int] = []
    dsn = emptied(postgres)
    with Proxy(postgres.port) as proxy, caplog.at_level(logging.WARNING, "foliot"):
        app = Foliot(proxy.through(dsn))
        try_to_open = app.opened

        async def counted() -> Store:
            tries.append(len(caplog.messages))
            return await try_to_open()

        monkeypatch.setattr(app, "opened", counted)
        proxy.refuse()
        opened = asyncio.create_task(opening.opened(app, asyncio.Event()))
        await until_async(lambda: len(tries) > 3, "it has tried three times and begins a fourth try")
        assert tries[1:4] == [1, 1, 1], "only the first failure is logged"
        assert not opened.done()
        proxy.allow()
        assert await soon(opened) is app.store
        await app.close_async()
    waiting, there = caplog.messages
    assert "cannot be reached" in waiting
    assert "waiting for the store" in waiting
    assert there.startswith("store reachable after ")


async def test_who_is_told_to_end_waits_no_longer(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "FIRST_PAUSE", 3_600)
    with Proxy(postgres.port) as proxy:
        app, stop = Foliot(proxy.through(emptied(postgres))), asyncio.Event()
        proxy.refuse()
        opened = asyncio.create_task(opening.opened(app, stop))
        await until_async(lambda: caplog.messages, "the first try has failed")
        stop.set()
        with pytest.raises(StoreAway):
            await soon(opened)


@pytest.mark.parametrize("wrong", ["?target_session_attrs=readwrite", "_that_is_not_there"])
async def test_what_waiting_cannot_cure_is_told_at_once(postgres: PostgresServer, wrong: str) -> None:
    with pytest.raises(StoreError) as refused:
        await opening.opened(Foliot(emptied(postgres) + wrong), asyncio.Event())
    assert not isinstance(refused.value, StoreAway)
