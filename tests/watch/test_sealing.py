"""The sealer, and the anchors that it writes, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from foliot import bootstrap
from foliot.clock import ManualClock
from foliot.domain.audit import read_anchors
from foliot.domain.gates import Gate
from foliot.domain.instant import MILLISECOND, MINUTE, SECOND
from foliot.domain.store import Store
from foliot.watch.sealing import Sealer
from tests.contract.stage import START
from tests.waiting import soon


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def store(clock: ManualClock, runner: asyncio.Runner) -> Iterator[Store]:
    made = bootstrap.make_store("sqlite:///:memory:", clock)
    runner.run(made.open())
    yield made
    runner.run(made.close())


async def _acted(store: Store, count: int = 1) -> None:
    for number in range(count):
        await store.set_limit(Gate(f"job:{number}", most=1), actor="ana")


async def test_rows_are_sealed_a_batch_at_a_time(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foliot.watch.sealing.AT_ONCE", 3)
    await _acted(store, 8)
    sealer = Sealer(store, clock)
    assert [await sealer.run_once() for _ in range(4)] == [3, 3, 2, 0]


async def test_the_sealer_rests_after_each_full_batch_so_that_its_process_can_fire() -> None:
    clock, stop = ManualClock(START), asyncio.Event()
    batches, rests = [1_000, 1_000, 999, 0], []

    class Slow:
        async def seal(self, limit: int) -> int:
            clock.advance(20 * MILLISECOND)
            if len(batches) == 1:
                stop.set()
            return batches.pop(0)

    async def rested(_: object, length: int, stop: asyncio.Event) -> None:
        rests.append(length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foliot.watch.sealing.rest", rested)
        await soon(Sealer(Slow(), clock).run(stop))  # type: ignore[arg-type]
    assert rests == [180 * MILLISECOND, 180 * MILLISECOND, SECOND, SECOND]


async def test_an_anchor_is_written_at_most_once_a_minute_and_only_when_the_chain_has_grown(
    store: Store, clock: ManualClock
) -> None:
    lines: list[str] = []
    sealer = Sealer(store, clock, lines.append)
    await sealer.run_once()
    assert lines == [], "the audit log is empty: there is no row to anchor"
    clock.advance(MINUTE)
    await _acted(store)
    await sealer.run_once()
    await _acted(store)
    clock.advance(MINUTE - SECOND)
    await sealer.run_once()
    assert [anchor.position for anchor in read_anchors("\n".join(lines))] == [1]
    clock.advance(SECOND)
    await sealer.run_once()
    clock.advance(MINUTE)
    await sealer.run_once()
    anchors = read_anchors("\n".join(lines))
    assert [(anchor.position, anchor.at) for anchor in anchors] == [(1, START + MINUTE), (2, START + 2 * MINUTE)]
    assert anchors[-1].hash == (await store.sealing()).head.hash


async def test_a_file_that_cannot_be_written_is_told_once_and_never_stops_the_sealing(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(line: str) -> None:
        raise OSError("the vault is closed")

    sealer = Sealer(store, clock, refuse)
    with caplog.at_level(logging.ERROR, "foliot.watch"):
        for _ in range(3):
            await _acted(store)
            assert await sealer.run_once() == 1
            clock.advance(MINUTE)
    assert [record.message for record in caplog.records] == [
        "writing the audit anchor failed, retrying every minute: the vault is closed"
    ]


async def test_an_error_of_the_store_never_ends_the_loop(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    stop = asyncio.Event()

    class Broken:
        tries = 0

        async def seal(self, limit: int = 1_000) -> int:
            self.tries += 1
            if self.tries == 3:
                stop.set()
            raise RuntimeError("out of order")

    class Hurried(ManualClock):
        async def sleep(self, length: int) -> None:
            self.advance(length)

    broken = Broken()
    await Sealer(broken, Hurried(START)).run(stop)  # type: ignore[arg-type]
    assert broken.tries == 3
    assert [record.message for record in caplog.records] == ["sealing the audit log failed, retrying"]
