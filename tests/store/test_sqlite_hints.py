"""Processes of one host tell one another that something was committed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import SECOND
from foliot.store.sqlite import SqliteStore
from foliot.store.sqlite.hints import _ABSENT_FOR, Listener, directory_of, listen
from tests.waiting import soon, until_async

PROMISE = """
import sys
from foliot import Foliot
app = Foliot(store=sys.argv[1])
@app.job
async def noop() -> None: ...
noop.now()
"""


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(str(path))
    await store.open()
    return store


def listeners(path: Path) -> list[str]:
    return os.listdir(directory_of(str(path)))


async def test_a_promise_of_another_process_calls_who_listens(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    store = await opened(path)
    called = asyncio.Event()
    assert store.when_new(called.set)
    before = store.version()
    made = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", PROMISE, f"sqlite:///{path}"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    await soon(called.wait())
    assert store.version() != before
    await store.close()


async def test_a_commit_just_before_a_sender_notices_the_first_listeners_is_seen_by_each(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    first, second, writing = [await opened(path) for _ in range(3)]
    assert writing._sender is not None
    await writing.set_keep_days(29, actor="test", note="the sender finds no listener")
    assert first.when_new(lambda: None)  # it creates the directory
    assert second.when_new(lambda: None)
    before = first.version(), second.version()
    writing._sender._absent_until = float("inf")  # as if this commit were made within the next 10 ms
    await writing.set_keep_days(30, actor="test", note="no hint")
    await until_async(lambda: first.version() != before[0], "the first listener looked again")
    await until_async(lambda: second.version() != before[1], "the second listener looked again")
    for store in (writing, second, first):
        await store.close()


async def test_a_listener_whose_socket_cannot_be_made_leaves_no_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(listener: Listener, made: socket.socket, name: str) -> None:
        raise OSError("no sockets on this file system")

    path, loop, faults = tmp_path / "foliot.db", asyncio.get_running_loop(), list[object]()
    path.touch(0o600)
    monkeypatch.setattr(Listener, "_bind", refuse)
    loop.set_exception_handler(lambda _, context: faults.append(context))
    assert listen(str(path), loop) is None
    later = asyncio.Event()
    loop.call_later(2 * _ABSENT_FOR, later.set)  # after a timer of the listener
    await soon(later.wait())
    assert faults == []


async def test_leases_and_heartbeats_send_no_hint(tmp_path: Path) -> None:
    """The second commit is news: when its hint has come, one for the first would have come, too."""
    path = tmp_path / "foliot.db"
    os.mkdir(directory_of(str(path)), 0o700)  # so that the sender looks for listeners at each commit
    listening, writing = await opened(path), await opened(path)
    instance = await writing.register("worker", version="", queues=("default",), slots=1, jobs=())
    assert listening.when_new(lambda: None)
    assert listening._listener is not None
    listening._listener._late_look.cancel()
    before = listening.version()
    await writing.beat(instance.number, [])
    lease = await writing.take(0, instance.number, 5 * SECOND)
    assert lease is not None
    await writing.renew([lease], 5 * SECOND, 0)
    await writing.set_keep_days(30, actor="test", note="news")
    await until_async(lambda: listening.version() != before, "the hint has come")
    assert listening.version() == before + 1
    await writing.close()
    await listening.close()


async def test_a_claim_shares_the_commit_of_outcomes_that_were_submitted_just_before(tmp_path: Path) -> None:
    """A query between the two would let the writer commit the outcomes alone."""
    store = await opened(tmp_path / "foliot.db")
    worker = await store.register("worker", version="", queues=("default",), slots=1, jobs=())
    assert store.when_new(lambda: None)
    assert store._sentry is not None
    queries: list[str] = []

    def record(cursor: object, query: str, values: object) -> bool:
        queries.append(query)
        return True

    store._sentry.exec_trace = record
    outcomes = asyncio.create_task(store.finish(worker.number, []))
    claim = asyncio.create_task(store.claim(worker.number, ("default",), ("job",), 1))
    assert (await outcomes, await claim, queries) == ([], [], [])
    assert await store.claim(worker.number, ("default",), ("job",), 1) == []
    assert len(queries) == 1
    await store.close()


async def test_a_socket_that_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    store = await opened(path)
    assert store.when_new(lambda: None)
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(os.path.join(directory_of(str(path)), "1-left"))
    left.close()
    assert len(listeners(path)) == 2
    await store.set_keep_days(30, actor="test", note="news")
    assert len(listeners(path)) == 1
    await store.close()
    assert "foliot.db-wake" not in os.listdir(tmp_path)


async def test_a_socket_may_lie_deeper_than_its_address_can_say(tmp_path: Path) -> None:
    path = tmp_path / ("deep" * 30) / "foliot.db"
    store = await opened(path)
    called = asyncio.Event()
    assert store.when_new(called.set)
    await store.set_keep_days(30, actor="test", note="news")
    await soon(called.wait())
    await store.close()


async def test_who_finds_that_its_socket_was_removed_listens_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foliot.store.sqlite.hints._CHECK_EVERY", 0.0)
    path = tmp_path / "foliot.db"
    store = await opened(path)
    called = asyncio.Event()
    assert store.when_new(called.set)
    [name] = listeners(path)
    os.unlink(os.path.join(directory_of(str(path)), name))
    before = store.version()
    assert store.version() != before or listeners(path)
    await store.set_keep_days(30, actor="test", note="news")
    await soon(called.wait())
    await store.close()


async def test_nobody_listens_where_others_may_write_the_file(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    store = await opened(path)
    path.chmod(0o660)
    assert not store.when_new(lambda: None)
    await store.close()


async def test_only_the_owner_can_look_into_the_directory(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    os.mkdir(directory_of(str(path)), 0o755)
    store = await opened(path)
    assert store.when_new(lambda: None)
    assert os.stat(directory_of(str(path))).st_mode & 0o777 == 0o700
    await store.close()


async def test_a_store_in_virtual_time_calls_nobody(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "foliot.db"), ManualClock(0))
    await store.open()
    assert not store.when_new(lambda: None)
    await store.close()


async def test_a_listener_that_reads_nothing_neither_delays_a_commit_nor_loses_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    store = await opened(path)
    called = asyncio.Event()
    assert store.when_new(called.set)
    name = os.path.join(directory_of(str(path)), "1-full")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as full,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filling,
    ):
        full.bind(name)
        filling.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                filling.sendto(b"!", name)
        await soon(store.set_keep_days(30, actor="test", note="news"))
        await soon(called.wait())
        assert "1-full" in listeners(path)
        os.unlink(name)
    await store.close()


async def test_nobody_listens_in_a_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "foliot.db"
    os.mkdir(directory_of(str(path)), 0o700)
    store = await opened(path)
    lstat = os.lstat

    def owned_by_another_user(name: str) -> os.stat_result:
        fields = list(lstat(name))
        fields[4] += 1
        return os.stat_result(fields)

    monkeypatch.setattr("foliot.store.sqlite.hints.os.lstat", owned_by_another_user)
    assert not store.when_new(lambda: None)
    assert listeners(path) == []
    await store.close()


async def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", directory_of(str(path)))
    store = await opened(path)
    assert not store.when_new(lambda: None)
    assert os.listdir(tmp_path / "elsewhere") == []
    await store.close()


async def test_periodic_loops_without_work_do_not_wake_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path / "foliot.db")
    assert store.when_new(lambda: None)
    while await store.seal():
        pass
    with monkeypatch.context() as closed:
        closed.setattr(store, "_looks", None)
        closed.setattr(store, "_writer", None)  # a request of either thread would fail
        asking = store.silent(0), store.seal(), store.backfills_under_way(), store.gather(), store.give_up()
        assert await asyncio.gather(*asking) == [[], 0, [], 0, 0]
    await store.set_keep_days(30, actor="test", note="a row to seal")
    assert await store.seal() == 1
    await store.close()
