"""Who is called when work was handed off: one worker where there is work for one, all where that is not enough."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foliot.domain.instant import MILLISECOND, SECOND
from foliot.domain.run import Promise
from foliot.store.postgres import bell as bells
from foliot.store.postgres import calls
from foliot.store.postgres.bell import Bell, channel
from foliot.store.postgres.calls import Message
from tests.contract.stage import Stage
from tests.servers.postgres import PostgresServer
from tests.store.lines import line, stages
from tests.waiting import until_async

Hand = Callable[[int], Any]
LYING = 10 * MILLISECOND
"""A chunk that was ready for so long may be one that nobody comes for."""


@asynccontextmanager
async def heard(server: PostgresServer) -> AsyncIterator[tuple[Stage, Any, Callable[[int], Awaitable[Message]]]]:
    """A stage, where nobody goes by himself; a connection for judging; and what hands so many runs off, and answers
    what was said of it."""
    async with stages(server, 1) as (judge, [stage]):
        said: asyncio.Queue[str] = asyncio.Queue()
        await judge.add_listener(channel("handoff"), lambda *heard: said.put_nowait(heard[-1]))
        lease = await stage.lease()

        async def hand(count: int) -> Message:
            # The workers that live are heard of with each renewal.
            [renewed] = await stage.store.renew([lease], 60 * SECOND, lease.high_water)
            now = stage.now
            kept = await stage.store.promise([Promise("job", b"{}", now - SECOND) for _ in range(count)])
            due = [(one.fire_at, one.number) for one in kept]
            fired = await stage.store.fire([renewed], due, lease.cursor, lambda facts, now: [])
            assert fired.handed_off == count
            message = Message.read(await said.get())
            assert message is not None
            return message

        yield stage, judge, hand


@asynccontextmanager
async def called(server: PostgresServer) -> AsyncIterator[tuple[Stage, Any, Hand]]:
    """The same; answered is only who was called."""
    async with heard(server) as (stage, judge, hand):

        async def whom(count: int) -> str:
            [call] = (await hand(count)).calls
            assert call.at == 0, "at once"
            return call.worker

        yield stage, judge, whom


async def test_work_for_one_calls_the_workers_in_turn(postgres: PostgresServer) -> None:
    async with called(postgres) as (stage, _, hand):
        workers = {await stage.register(), await stage.register()}
        words = []
        for _ in range(4):
            words.append(await hand(3))
            await stage.claim(worker=min(workers))
        assert set(words) == set(map(str, workers))
        assert words[0] != words[1]
        assert words[:2] == words[2:]


async def test_more_work_than_one_chunk_holds_calls_all(postgres: PostgresServer) -> None:
    async with called(postgres) as (stage, _, hand):
        await stage.register()
        assert await hand(201) == ""


async def test_work_that_nobody_came_for_calls_all(postgres: PostgresServer) -> None:
    async with called(postgres) as (stage, judge, hand):
        worker = await stage.register()
        assert await hand(1) == str(worker)
        await judge.execute("UPDATE foliot.handoff SET fired_at = fired_at - 1000000")
        assert await hand(1) == ""


async def test_a_firing_says_until_when_everything_was_taken(postgres: PostgresServer) -> None:
    async with heard(postgres) as (stage, judge, hand):
        worker = await stage.register()
        first = await hand(1)
        assert first.taken == first.at - LYING
        assert first.since == first.calls[0].chunk - 400, "of chunks before that, nothing is said"
        await judge.execute("UPDATE foliot.handoff SET fired_at = fired_at - 500000")
        second = await hand(1)
        assert second.taken == first.at - 500_000 - LYING, "that one is still there"
        await stage.claim(worker=worker)
        third = await hand(1)
        assert third.taken == third.at - LYING


async def test_what_was_laid_aside_long_before_or_is_still_to_come_is_not_waited_for(postgres: PostgresServer) -> None:
    async with heard(postgres) as (stage, judge, hand):
        await stage.register()
        await hand(1)
        for change in ("aside = true", "aside = false, fired_at = fired_at + 60000000"):
            await judge.execute(f"UPDATE foliot.handoff SET {change}, ready_at = 1")
            said = await hand(1)
            assert said.taken == said.at - LYING
            await judge.execute("DELETE FROM foliot.handoff WHERE ready_at = 0")


async def test_workers_of_a_queue_that_do_not_know_the_same_are_all_called(postgres: PostgresServer) -> None:
    async with called(postgres) as (stage, judge, hand):
        first, second = await stage.register(), await stage.register()
        await judge.execute("UPDATE foliot.instance SET jobs = '[\"another\"]' WHERE number = $1", first)
        assert await hand(1) == ""
        await stage.claim(worker=second)
        await judge.execute("UPDATE foliot.instance SET beat_at = 0 WHERE number = $1", first)
        assert await hand(1) == str(second), "the other one has been silent for long"


async def test_only_who_takes_a_queue_is_called_for_it(postgres: PostgresServer) -> None:
    async with called(postgres) as (stage, judge, hand):
        workers = [await stage.register() for _ in range(3)]
        await judge.execute("UPDATE foliot.instance SET queues = '[\"reports\"]' WHERE number = $1", workers[0])
        await judge.execute(
            'UPDATE foliot.instance SET queues = \'["reports", "default"]\' WHERE number = $1', workers[1]
        )
        words = set()
        for _ in range(6):
            words.add(await hand(1))
            await stage.claim(worker=workers[2])
        assert words == set(map(str, workers[1:]))


async def test_what_lies_in_one_queue_changes_nothing_for_another(postgres: PostgresServer) -> None:
    async with called(postgres) as (stage, judge, hand):
        worker = await stage.register()
        await hand(1)
        await judge.execute("UPDATE foliot.handoff SET fired_at = fired_at - 1000000, queue = 'reports'")
        assert await hand(1) == str(worker)


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a server, nobody passes anything on by himself; without, whoever does not go has done so when the event loop
    has gone around."""
    seconds = 60 if "postgres" in request.fixturenames else 0
    monkeypatch.setattr(bells, "ANSWERED_WITHIN", seconds)


class Post:
    """A bell without a server: what it sends is kept."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.bell = Bell(self._send, None)
        self.bell.listen({"handoff"}, 7)
        self.bell._has_ears = True

    async def _send(self, who: str) -> None:
        self.sent.append(who)

    def hear(self, message: str) -> int:
        """How much news that is."""
        before = self.bell.version
        self.bell._hear("handoff", None, 0, channel("handoff"), message)
        return self.bell.version - before


async def test_a_connection_that_lost_its_other_end_is_given_up_and_heard_on_anew(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "ASKED_EVERY", 0.05)
    monkeypatch.setattr(bells, "ANSWERS_WITHIN", 0.2)
    async with line(postgres) as fleet:
        await fleet.stage.register()
        bell = fleet.store.bell
        await until_async(lambda: bell._has_ears, "the store listens")
        await fleet.proxy.freeze_before("listening")
        await fleet.ask("NOTIFY foliot_handoff")
        heard = bell.version
        await until_async(lambda: bell.version != heard and bell._has_ears, "the store listens again")
        [[listening]] = await fleet.ask(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%listening%' AND state = 'idle'"
        )
        assert listening >= 1


async def around() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_worker_that_is_called_and_goes_calls_nobody_else() -> None:
    post = Post()
    assert post.hear("1000 0:7") == 1
    post.bell.answered()
    await around()
    assert post.sent == []


async def test_a_worker_that_is_called_and_cannot_go_passes_it_on_to_all() -> None:
    post = Post()
    post.hear("1000 0:7")
    await around()
    assert post.sent == ["handoff"]
    await post.bell.close()


async def test_a_call_for_another_is_no_news_yet_and_one_for_all_is() -> None:
    post = Post()
    assert post.hear("1000 0:8") == 0
    assert post.hear("1000 0:") == 1
    assert post.hear("1000 9000000:") == 0, "a call for later"
    assert post.hear("1000 9000000:8:55") == 0, "somebody else's"
    await around()
    assert post.sent == []
    await post.bell.close()


async def test_who_hears_that_another_came_does_not_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "COVERED_AFTER", 0)
    post = Post()
    now = time.time_ns() // 1_000
    post.hear(f"{now} {now + 5_000}:8:55")
    post.hear(f"{now}/{now + 5_001}/54 {now + 10_000_000}:8:56")
    before = post.bell.version
    post.hear(f"{now} {now + 25_000}:8:57")
    # The moment of the first two has come by then: of one of them there would be news before.
    await until_async(lambda: post.bell.version != before, "the store goes for the third, which no worker took")
    assert post.bell.version == before + 1
    await post.bell.close()


async def test_a_call_for_a_chunk_that_is_to_come_is_news_for_whoever_is_to_take_it() -> None:
    post = Post()
    assert post.hear("1000 9000000:7:55 9000000:8:56 9000000:7:57") == 2
    answer = post.bell.answered()
    assert (list(answer.chunks), answer.anything) == ([55, 57], False)
    await around()
    assert post.sent == []
    await post.bell.close()
