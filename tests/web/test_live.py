"""Live streams: how many one credential may have, and what their timing may show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from foliot.web.pages import live
from foliot.web.slots import Slots
from tests.waiting import soon, until_async
from tests.web.stage import ELSEWHERE, Caller, Stage, staged


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(lived=False) as made:
        made.token("first")
        yield made


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_EVERY", 0.01)


class Streams:
    """Opens streams, and ends each of them afterwards."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[httpx.Response]] = []

    def open(self, caller: Caller) -> asyncio.Task[httpx.Response]:
        self._tasks.append(asyncio.create_task(caller.ask_async("GET", "/live")))
        return self._tasks[-1]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def streams() -> Any:
    made = Streams()
    try:
        yield made
    finally:
        await made.end()


def _slots(stage: Stage, monkeypatch: pytest.MonkeyPatch, total: int, each: int) -> Slots:
    slots: Slots = stage.application._app.state.streams  # type: ignore[attr-defined]
    monkeypatch.setattr(slots, "_total", total)
    monkeypatch.setattr(slots, "_each", each)
    return slots


def _session(stage: Stage, token: str) -> Caller:
    response = stage.somebody(ELSEWHERE, origin=ELSEWHERE).ask("POST", "/login", data={"token": token})
    return stage.somebody(ELSEWHERE, cookie=response.headers["set-cookie"].partition(";")[0])


def test_a_token_and_its_sessions_together_have_a_limit_of_streams(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = _slots(stage, monkeypatch, total=10, each=3)
    token = stage.token("greedy", "read")
    greedy = stage.somebody(ELSEWHERE, authorization=f"Bearer {token}")
    sessions = [_session(stage, token) for _ in range(2)]
    other = stage.caller("modest", "read")

    async def played() -> None:
        async with streams() as opened:
            # All of them at once: each must be counted before any of them is answered.
            asked = [opened.open(one) for one in (greedy, greedy, *sessions, *sessions)]
            await until_async(lambda: sum(one.done() for one in asked) == 3, "three streams are refused")
            for refused in (one.result() for one in asked if one.done()):
                assert refused.status_code == 429
                assert refused.headers["retry-after"] == "10"
            opened.open(other)
            await until_async(lambda: slots.taken == 4, "another token gets a stream")
        await until_async(lambda: slots.taken == 0, "streams that have ended free their slots")

    stage.world.call(played())


def test_all_streams_together_have_a_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = _slots(stage, monkeypatch, total=2, each=2)
    first, second = stage.caller("one", "read"), stage.caller("two", "read")

    async def played() -> None:
        async with streams() as opened:
            held = [opened.open(first), opened.open(first)]
            await until_async(lambda: slots.taken == 2, "both streams are counted")
            refused = await soon(opened.open(second))
            assert refused.status_code == 503
            assert not any(task.done() for task in held)

    stage.world.call(played())


def test_one_token_cannot_take_all_streams() -> None:
    assert live.MOST_OF_ONE * 4 <= live.MOST_OPEN


def test_a_stream_of_a_tenant_shows_nothing_of_the_time_of_changes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both streams look after each change. Only the one that sees all tenants has events, however fast they come."""
    monkeypatch.setattr(live, "QUIET_FOR", 1e9)
    looks: dict[bool, list[bool]] = {True: [], False: []}
    is_due = live.Feed.is_due

    def noted(feed: live.Feed, now: float) -> bool:
        due = is_due(feed, now)
        looks[feed.sees_changes].append(due)
        return due

    monkeypatch.setattr(live.Feed, "is_due", noted)
    bound, whole = stage.caller("bound", "read", tenant="acme"), stage.caller("whole", "read")

    def looked_more(count: int) -> Callable[[], bool]:
        return lambda: len(looks[False]) > count

    async def played() -> None:
        async with streams() as opened:
            for caller in (bound, whole):
                opened.open(caller)
            await until_async(lambda: all(looks.values()), "both streams have looked")
            for number in range(2):
                seen = sum(looks[True])
                await stage.app.operate.pause_async("globex-report", reason=f"change {number}", actor="ana")
                await until_async(lambda: sum(looks[True]) > seen, "the stream of the whole sees the change")  # noqa: B023
                await until_async(looked_more(len(looks[False])), "the stream of the tenant has looked since")
                await stage.app.operate.resume_async("globex-report", reason=f"change {number}", actor="ana")
        assert not any(looks[False])

    stage.world.call(played())


def test_a_feed_has_an_event_after_a_change_and_after_a_quiet_time() -> None:
    version = 7
    feed, fixed = live.Feed(lambda: version, 0.0), live.Feed(None, 0.0)
    assert [feed.is_due(1.0), fixed.is_due(1.0)] == [False, False]
    version = 8
    assert [feed.is_due(2.0), fixed.is_due(2.0)] == [True, False]
    assert [feed.is_due(2.1), fixed.is_due(2.1)] == [False, False]
    assert [feed.is_due(5.1), fixed.is_due(5.1)] == [False, True]
    assert [feed.is_due(7.1), fixed.is_due(7.1)] == [True, False]
