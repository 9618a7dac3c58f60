"""Callers that come while a statement is under way share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from foliot.errors import Conflict
from foliot.store.postgres import together as module
from foliot.store.postgres.together import Alone, Together
from tests.waiting import until_async


class Server:
    """Doubles what it is sent, once it may."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.may = asyncio.Event()
        self.may.set()

    async def send(self, items: Sequence[int]) -> Sequence[int | Exception]:
        self.sent.append(list(items))
        await self.may.wait()
        return [2 * item for item in items]


async def test_a_caller_alone_is_answered():
    server = Server()
    assert await Together(server.send, 10).add(21) == 42
    assert server.sent == [[21]]


async def turns() -> None:
    """A few turns of the loop: what can go on without time or the server has gone on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_callers_of_one_moment_share_a_statement():
    server = Server()
    together = Together(server.send, 10)
    assert await asyncio.gather(*(together.add(n) for n in range(5))) == [0, 2, 4, 6, 8]
    assert server.sent == [[0, 1, 2, 3, 4]]


async def test_who_comes_while_one_is_under_way_shares_the_next(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PATIENCE", 3_600)
    server = Server()
    together = Together(server.send, 10)
    server.may.clear()
    callers = [asyncio.create_task(together.add(1))]
    await turns()
    callers += [asyncio.create_task(together.add(n)) for n in (2, 3)]
    await turns()
    assert server.sent == [[1]]
    server.may.set()
    assert await asyncio.gather(*callers) == [2, 4, 6]
    assert server.sent == [[1], [2, 3]]


async def test_no_statement_is_larger_than_it_may_be():
    server = Server()
    together = Together(server.send, 2)
    await asyncio.gather(*(together.add(n) for n in range(5)))
    assert server.sent == [[0, 1], [2, 3], [4]]


async def test_one_that_takes_long_keeps_nobody_waiting():
    server = Server()
    together = Together(server.send, 10)
    server.may.clear()
    slow = asyncio.create_task(together.add(1))
    await turns()
    quick = asyncio.create_task(together.add(2))
    await until_async(lambda: len(server.sent) > 1, "the second is sent")
    assert server.sent == [[1], [2]]
    server.may.set()
    assert await asyncio.gather(slow, quick) == [2, 4]


async def test_what_concerns_one_is_told_to_that_one():
    async def send(items: Sequence[int]) -> Sequence[int | Exception]:
        return [Conflict("taken") if item == 2 else item for item in items]

    together = Together(send, 10)
    answers = await asyncio.gather(*(together.add(n) for n in (1, 2, 3)), return_exceptions=True)
    assert answers[0] == 1
    assert isinstance(answers[1], Conflict)
    assert answers[2] == 3


async def test_what_fails_as_a_whole_is_told_to_all_and_the_next_goes_on():
    calls = 0

    async def send(items: Sequence[int]) -> Sequence[int | Exception]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionResetError
        return items

    together = Together(send, 10)
    answers = await asyncio.gather(*(together.add(n) for n in (1, 2)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ConnectionResetError] * 2
    assert await together.add(3) == 3


async def test_who_had_to_wait_in_company_is_sent_again_alone():
    sent: list[list[int]] = []

    async def send(items: Sequence[int]) -> Sequence[int | Exception]:
        sent.append(list(items))
        return [Alone()] * len(items) if len(items) > 1 else items

    together = Together(send, 10)
    assert await asyncio.gather(*(together.add(n) for n in (1, 2))) == [1, 2]
    assert sent == [[1, 2], [1], [2]]


async def test_a_caller_that_gives_up_does_not_take_its_item_back():
    server = Server()
    together = Together(server.send, 10)
    server.may.clear()
    caller = asyncio.create_task(together.add(1))
    await turns()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    server.may.set()
    await together.done()
    assert server.sent == [[1]]


async def test_done_waits_for_all_who_wait():
    server = Server()
    together = Together(server.send, 1)
    callers = [asyncio.create_task(together.add(n)) for n in range(3)]
    await asyncio.sleep(0)
    await together.done()
    assert server.sent == [[0], [1], [2]]
    assert await asyncio.gather(*callers) == [0, 2, 4]
