"""Following a store: what is there already is no news, and everything after that is told once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from foliot.cli.follow import Follower
from foliot.domain.instant import MINUTE
from tests.cli.support import live_through, make_app
from tests.waiting import until_async


def test_everything_new_is_told_once_with_its_verdict(store: str):
    async def follow() -> None:
        app = make_app(store)
        follower = Follower(app.operate)
        await follower.begin()
        now = app.clock.now()
        assert await follower.look(now) == []
        await app.jobs["greet"].using(key="new:1").now_async(name="Ada")
        await app.jobs["pay"].using(key="new:2").now_async(invoice=2)
        await app.store.note("unknown_job", "nobody", "nobody knows it")
        await live_through(app, ended=5)
        told: list[tuple[str | None, str]] = []

        async def are_told() -> bool:
            lines = [(line.run, line.verdict) for line in await follower.look(now)]
            told.extend(line for line in lines if not line[1].startswith("alert "))  # the watch has its own say
            return len(told) >= 3

        await until_async(are_told, "the follower has shown three runs")  # it does not look for live runs each time
        assert sorted(told) == [("new:1#1", "succeeded"), ("new:2#1", "dead"), ("nobody", "unknown job")]
        assert await follower.look(now) == []
        await app.close_async()

    asyncio.run(follow())


def test_when_nothing_happens_it_says_what_is_waited_for(store: str):
    async def follow() -> None:
        app = make_app(store)
        line = await Follower(app.operate).quiet(app.clock.now())
        assert "3 scheduled, 1 dead" in line.why
        assert "; next due in " in line.why
        assert line.shape()["counts"]["dead"] == 1
        await app.close_async()

    asyncio.run(follow())


def test_a_store_without_anything_has_nothing_to_wait_for(tmp_path: Path):
    async def follow() -> None:
        app = make_app(f"sqlite:///{tmp_path}/empty.db")
        follower = Follower(app.operate)
        await follower.begin()
        assert await follower.look(MINUTE) == []
        assert (await follower.quiet(MINUTE)).why == "quiet; no runs waiting"
        await app.close_async()

    asyncio.run(follow())
