"""Connections that are lent and given back."""

from __future__ import annotations

import asyncio
import time

import pytest

from foliot.store.postgres.pool import IDLE_FOR, Pool
from tests.waiting import soon


class Connection:
    def __init__(self) -> None:
        self.closed = False
        self.in_order = False

    def is_closed(self) -> bool:
        return self.closed

    def terminate(self) -> None:
        self.closed = True

    async def close(self, timeout: float) -> None:
        self.closed = self.in_order = True


class Server:
    def __init__(self) -> None:
        self.made: list[Connection] = []
        self.is_away = False

    async def connect(self) -> Connection:
        await asyncio.sleep(0)
        if self.is_away:
            raise ConnectionRefusedError("away")
        self.made.append(Connection())
        return self.made[-1]


async def test_the_one_that_was_used_last_is_lent_first():
    pool = Pool(Server().connect, 3, is_eager=True)
    first, second = await pool.acquire(1), await pool.acquire(1)
    pool.release(first)
    pool.release(second)
    assert await pool.acquire(1) is second
    assert await pool.acquire(1) is first


async def test_whoever_finds_all_lent_waits_for_the_next_that_comes_back():
    server = Server()
    pool = Pool(server.connect, 1)
    only = await pool.acquire(1)
    waiting = asyncio.create_task(pool.acquire(1))
    await asyncio.sleep(0)
    pool.release(only)
    assert await waiting is only
    assert len(server.made) == 1


async def test_nobody_overtakes_those_who_wait():
    pool = Pool(Server().connect, 1)
    only = await pool.acquire(1)
    first = asyncio.create_task(pool.acquire(1))
    await asyncio.sleep(0)
    pool.release(only)
    with pytest.raises(TimeoutError):
        await pool.acquire(0.01)
    assert await first is only


async def test_whoever_waits_when_it_is_closed_does_not_wait_for_long():
    pool = Pool(Server().connect, 1)
    only = await pool.acquire(1)
    waiting = [asyncio.create_task(pool.acquire(60)) for _ in range(2)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(pool.close(1))
    await asyncio.sleep(0)
    pool.release(only)
    await closing
    for waiter in waiting:
        with pytest.raises(ConnectionAbortedError):
            await soon(waiter)


async def test_waiting_has_an_end():
    pool = Pool(Server().connect, 1)
    only = await pool.acquire(1)
    with pytest.raises(TimeoutError):
        await pool.acquire(0.01)
    pool.release(only)
    assert await pool.acquire(1) is only


async def test_a_waiter_that_is_cancelled_in_its_turn_passes_it_on():
    pool = Pool(Server().connect, 1)
    only = await pool.acquire(1)
    first, second = (asyncio.create_task(pool.acquire(1)) for _ in range(2))
    await asyncio.sleep(0)
    pool.release(only)
    first.cancel()
    assert await second is only


async def test_one_that_broke_is_not_lent_again_and_leaves_its_place_to_another():
    server = Server()
    pool = Pool(server.connect, 1)
    broken = await pool.acquire(1)
    broken.terminate()
    pool.release(broken)
    idle = await pool.acquire(1)
    pool.release(idle)
    idle.terminate()
    assert await pool.acquire(1) is server.made[2]


async def test_when_the_server_went_away_those_that_lie_idle_are_not_tried_one_by_one():
    server = Server()
    pool = Pool(server.connect, 2, is_eager=True)
    both = [await pool.acquire(1), await pool.acquire(1)]
    for connection in both:
        pool.release(connection)
    pool.forget_idle()
    assert [one.closed for one in both] == [True, True]
    fresh = [await pool.acquire(1), await pool.acquire(1)]
    assert fresh == server.made[2:]


async def test_a_server_that_cannot_be_reached_takes_nobodys_place():
    server = Server()
    pool = Pool(server.connect, 1)
    server.is_away = True
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            await pool.acquire(1)
    server.is_away = False
    assert await pool.acquire(1) is server.made[0]


async def test_one_that_nobody_needed_for_long_goes(monkeypatch: pytest.MonkeyPatch):
    server, now = Server(), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pool = Pool(server.connect, 2, is_eager=True)
    first, second = await pool.acquire(1), await pool.acquire(1)
    pool.release(first)
    pool.release(second)
    now += IDLE_FOR + 1
    used = await pool.acquire(1)
    pool.release(used)
    assert used is second
    assert (first.closed, second.closed) == (True, False)


async def test_closing_waits_for_a_connection_that_is_lent_again():
    pool = Pool(Server().connect, 1)
    pool.release(await pool.acquire(1))
    lent = await pool.acquire(1)
    closing = asyncio.create_task(pool.close(3_600))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    pool.release(lent)
    await soon(closing)
    assert lent.closed


async def test_closing_waits_for_what_is_lent_and_then_ends_it():
    pool = Pool(Server().connect, 3, is_eager=True)
    idle, back, kept = [await pool.acquire(1) for _ in range(3)]
    pool.release(idle)
    closing = asyncio.create_task(pool.close(3_600))
    await asyncio.sleep(0)
    pool.release(back)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    for timer in asyncio.get_running_loop()._scheduled:  # type: ignore[attr-defined]  # the time is over
        timer._run()
    await closing
    assert [one.closed for one in (idle, back, kept)] == [True] * 3
    assert idle.in_order


async def test_callers_of_one_moment_share_a_connection():
    server = Server()
    pool = Pool(server.connect, 5)
    used = await pool.acquire(60)
    callers = [asyncio.create_task(pool.acquire(60)) for _ in range(3)]
    await asyncio.sleep(0)
    for caller in callers:
        pool.release(used)
        assert await soon(caller) is used
    assert len(server.made) == 1


async def test_a_caller_that_gets_no_connection_back_opens_another():
    server = Server()
    pool = Pool(server.connect, 2)
    await pool.acquire(60)
    assert await soon(pool.acquire(60)) is server.made[1]


async def test_callers_that_keep_their_connections_do_not_wait_for_one():
    server = Server()
    pool = Pool(server.connect, 2, is_eager=True)
    await pool.acquire(60)
    caller = asyncio.create_task(pool.acquire(60))
    for _ in range(5):
        await asyncio.sleep(0)
    assert caller.done()


async def test_callers_who_wait_much_of_the_time_get_another_connection(monkeypatch: pytest.MonkeyPatch):
    server, now = Server(), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pool = Pool(server.connect, 5)
    used = await pool.acquire(60)

    async def waits_and_shares() -> bool:
        nonlocal now
        caller = asyncio.create_task(pool.acquire(60))
        for _ in range(5):
            await asyncio.sleep(0)
        if caller.done():
            return False
        now += 0.008
        pool.release(used)
        assert await soon(caller) is used
        return True

    for _ in range(20):  # once a second
        assert await waits_and_shares()
        now += 1
    assert [await waits_and_shares() for _ in range(5)] == [True] * 4 + [False]
    assert len(server.made) == 2
