"""A scheduler looks now and then whether the store's schedules are its app's, so that a rollback settles by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from foliot import Foliot, every
from foliot import app as app_module
from foliot.cli import processes
from foliot.domain.schedule import Applied, Fingerprint
from foliot.errors import StoreAway
from tests.waiting import until_async

URL = "sqlite:///foliot.db"


def app_that_says(rule: str) -> Foliot:
    app = Foliot(URL)

    @app.job
    def report() -> None: ...

    app.schedule("report", report, every(rule))
    return app


async def deployed(app: Foliot) -> int:
    """A process of this app's release, which has applied what its code declares."""
    await app.apply_async()
    store = await app.opened()
    instance = await store.register("scheduler", version="", queues=(), slots=0, jobs=(), release=app.release)
    return instance.number


async def in_force(app: Foliot) -> str:
    return (await (await app.opened()).fingerprints())["report"].hash


@asynccontextmanager
async def settling(app: Foliot, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(processes, "SETTLE_EVERY", 0.01)
    task = asyncio.create_task(processes._settle(app, []))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_rollback_settles_without_anybody_being_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = app_that_says("1h"), app_that_says("2h")
    await deployed(old)
    before = await in_force(old)
    newer = await deployed(new)
    async with settling(old, monkeypatch):
        with caplog.at_level(logging.WARNING, "foliot"):
            await until_async(lambda: caplog.records, "the task that settles has found the newer release")
        assert await in_force(old) != before
        await (await new.opened()).retire(newer)

        async def is_as_before() -> bool:
            return await in_force(old) == before

        await until_async(is_as_before, "the older release is in force again")
    assert [record.message for record in caplog.records if "newer release" in record.message] == [
        "schedules not applied, because a newer release that is running declares them differently: report"
    ]
    for app in (old, new):
        await app.close_async()


@pytest.mark.parametrize("error", [StoreAway("the server is away"), RuntimeError("a bug")])
async def test_an_error_does_not_end_the_comparison_of_schedules(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    app = app_that_says("1h")
    await deployed(app)
    compared = app.settle_async
    outcomes: list[Exception | None] = [error, None]

    async def settle() -> Applied:
        if outcomes and (failure := outcomes.pop(0)) is not None:
            raise failure
        return await compared()

    monkeypatch.setattr(app, "settle_async", settle)
    async with settling(app, monkeypatch):
        await until_async(lambda: not outcomes, "the schedules are compared again after the error")
    failures = [record for record in caplog.records if "comparing schedules with the app failed" in record.message]
    assert len(failures) == 1
    await app.close_async()


async def test_to_settle_brings_nothing_back_that_somebody_removed() -> None:
    app = app_that_says("1h")
    await deployed(app)
    await app.operate.delete_async("report", reason="not needed", actor="ana")
    assert (await app.settle_async()).created == []
    assert await app.operate.schedules_async() == []
    assert (await app.apply_async()).created == ["report"]
    await app.close_async()


async def test_to_settle_writes_nothing_where_all_is_as_declared() -> None:
    app = app_that_says("1h")
    await deployed(app)
    settled = await app.settle_async()
    assert (settled.unchanged, settled.changed) == ([], [])
    await app.close_async()


def test_a_release_is_known_by_what_it_declares() -> None:
    assert app_that_says("1h").release == app_that_says("1h").release
    assert app_that_says("1h").release != app_that_says("2h").release


async def test_schedules_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands compared at once would keep the scheduler, which has the same event loop, from firing."""
    monkeypatch.setattr(app_module, "_COMPARED_AT_ONCE", 2)
    monkeypatch.setattr(app_module, "_COMPARISON_REST", 0)
    app, other = Foliot(URL), Foliot(URL)
    for each, last in ((app, "1h"), (other, "2h")):

        @each.job
        def report() -> None: ...

        for place in range(5):
            each.schedule(f"report{place}", report, every(last if place == 4 else "1h"))
    await other.apply_async()
    store = await app.opened()
    pieces, ask = [], store.fingerprints

    async def asked(**wanted: Any) -> dict[str, Fingerprint]:
        pieces.append(list(await ask(**wanted)))
        return await ask(**wanted)

    monkeypatch.setattr(store, "fingerprints", asked)
    assert (await app.settle_async()).changed == ["report4"]
    assert pieces == [["report0", "report1"], ["report2", "report3"], ["report4"]]
    for each in (app, other):
        await each.close_async()


def test_a_scheduler_warns_of_a_required_schedule_that_does_not_exist(caplog: pytest.LogCaptureFixture) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def report() -> None: ...

    app.schedule("report", report, every("1h"), requires="orders", cutoff="10m")
    asyncio.run(processes._apply(app))
    assert "schedule report requires schedule orders, which does not exist: its ticks wait until their cutoff" in [
        record.message for record in caplog.records if record.levelname == "WARNING"
    ]
