"""Transactions of async handlers on SQLite leave the file's lock free between them."""

from __future__ import annotations

import asyncio

import pytest

from foliot.work import transaction
from foliot.work.transaction import LONGEST_REST


class FakeTime:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, length: float) -> None:
        self.now += length


async def nothing() -> None: ...


@pytest.mark.parametrize(("held", "free"), [(0.008, 0.004), (5.0, LONGEST_REST)])
async def test_other_writers_get_the_lock_between_two_turns(
    monkeypatch: pytest.MonkeyPatch, held: float, free: float
) -> None:
    clock = FakeTime()
    monkeypatch.setattr(transaction, "time", clock)
    turns = transaction._Turns()
    for _ in range(3):
        await turns.begin()
        turns.perform(nothing())
        following = asyncio.create_task(turns.begin())
        clock.sleep(held)
        turns.end()
        ended = clock.now
        await following
        turns.perform(nothing())
        assert clock.now == pytest.approx(ended + free)
        turns.perform(nothing())
        assert clock.now == pytest.approx(ended + free), "it rests once for each turn"
        turns.end()
        clock.sleep(LONGEST_REST)
    turns.thread.shutdown()


async def test_nothing_rests_when_no_turn_came_just_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime()
    monkeypatch.setattr(transaction, "time", clock)
    turns = transaction._Turns()
    await turns.begin()
    clock.sleep(5.0)
    turns.end()
    clock.sleep(LONGEST_REST)
    began = clock.now
    await turns.begin()
    turns.perform(nothing())
    assert clock.now == began
    turns.end()
    turns.thread.shutdown()
