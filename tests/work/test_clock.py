from __future__ import annotations

import asyncio

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
