from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from foliot.clock import ManualClock, SystemClock
from foliot.domain.instant import HOUR, SECOND
from tests.work.fakes import START


def test_the_hosts_monotonic_clock_counts_microseconds_and_never_goes_back():
    clock = SystemClock()
    first = clock.monotonic()
    asyncio.run(clock.sleep(2_000))
    assert 2_000 <= clock.monotonic() - first < 60 * SECOND


def test_time_passes_only_when_a_manual_clock_goes_forwards():
    clock = ManualClock(START)
    begun = clock.monotonic()
    clock.advance(SECOND)
    clock.set(START + 3 * SECOND)
    assert clock.monotonic() - begun == 3 * SECOND
    clock.set(START - HOUR)
    clock.step(HOUR)
    clock.step(-SECOND)
    assert clock.monotonic() - begun == 3 * SECOND
    assert clock.now() == START - SECOND


async def test_a_sleeper_sleeps_as_long_as_it_wanted_whatever_the_clock_shows():
    clock = ManualClock(START)
    sleeping = asyncio.create_task(clock.sleep(10 * SECOND))
    await asyncio.sleep(0)
    clock.step(HOUR)
    await asyncio.sleep(0)
    assert not sleeping.done()
    assert clock.next_sleeper() == START + HOUR + 10 * SECOND
    clock.advance(10 * SECOND)
    await sleeping


# ------------------------------------------------------------------------------------------------------- periodic work


async def test_periodic_work_of_one_process_is_due_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever its loops begin to rest, and however long: then they share a wake-up."""
    loop, now = asyncio.get_running_loop(), 5_000_000_000
    ends: list[float] = []

    def call_at(when: float, callback: Callable[..., object], *args: object) -> asyncio.Handle:
        ends.append(when)
        return loop.call_soon(callback, *args)

    monkeypatch.setattr("foliot.clock.time.monotonic_ns", lambda: now * 1_000)
    monkeypatch.setattr("foliot.clock.time.monotonic", lambda: now / SECOND)
    monkeypatch.setattr(loop, "time", lambda: now / SECOND)
    monkeypatch.setattr(loop, "call_at", call_at)
    clock = SystemClock()
    for later, every in ((0, SECOND), (123_456, SECOND), (700_000, 5 * SECOND)):
        now = 5_000_000_000 + later
        await clock.beat(every)
        assert every - SECOND < ends[-1] * SECOND - now <= every + 50_000
    places = [end % 1 for end in ends]
    assert max(places) - min(places) < 1e-6


def test_a_timer_that_fires_a_little_early_does_not_end_the_next_rest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr("foliot.clock.time.monotonic_ns", lambda: now * 1_000)
    clock = SystemClock()
    beat = clock.until_beat(SECOND)
    now = beat - 10_000
    assert clock.until_beat(SECOND) == SECOND + 10_000
    now = beat + 10_000
    assert clock.until_beat(SECOND) == SECOND - 10_000


def test_a_rest_of_parts_of_a_second_is_exact() -> None:
    assert SystemClock().until_beat(1_500_000) == 1_500_000
