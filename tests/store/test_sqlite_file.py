"""The SQLite file itself: what is refused, what survives a kill, and several processes on one file."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from foliot.bootstrap import make_store
from foliot.clock import ManualClock, SystemClock
from foliot.domain.instant import HOUR
from foliot.domain.run import Promise
from foliot.domain.state import State
from foliot.errors import NotWritten, SchemaMismatch, StoreError, StoreTooOld
from foliot.store.sqlite import SqliteStore, connection
from tests.contract.stage import START, Stage, declared
from tests.tiers import by_tier
from tests.timing.calls import at_most
from tests.waiting import HANG, until_async

pytestmark = pytest.mark.needs("sqlite")

PREAMBLE = """
import asyncio, sys
from foliot.domain.run import Promise
from foliot.domain.store import JobCard
from foliot.store.sqlite import SqliteStore

async def main(store, path):
    {body}

store = SqliteStore(sys.argv[1])
asyncio.run(main(store, sys.argv[1]))
"""


@contextmanager
def another_process(path: Path, body: str) -> Iterator[subprocess.Popen[str]]:
    """A real process that has the file open; killed when the block ends, if it still lives."""
    text = PREAMBLE.format(body=body.strip().replace("\n", "\n    "))
    process = subprocess.Popen(
        [sys.executable, "-c", text, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ends_well(process: subprocess.Popen[str]) -> None:
    """Lets it go on past its `sys.stdin.read()`, and waits for its end."""
    process.communicate(timeout=HANG)
    assert process.returncode == 0


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(str(path))
    await store.open()
    return store


def with_store(path: Path, use: Callable[[SqliteStore], Coroutine[Any, Any, Any]]) -> Any:
    async def work() -> Any:
        store = await opened(path)
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(work())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "foliot.db"


def made_by_others(path: Path, user_version: int = 0) -> bytes:
    """A SQLite file of another program; what it looks like."""
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('Ada')")
    other.pragma("user_version", user_version)
    other.close()
    return path.read_bytes()


# -------------------------------------------------------------------------------------------------------------- opening


def test_a_new_file_is_made_together_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "foliot.db"
    health = with_store(path, lambda store: store.health())
    assert path.exists()
    assert (health["engine"], health["journal_mode"], health["synchronous"]) == ("sqlite", "wal", "full")
    assert health["path"] == str(path)
    assert health["bytes"] > 0


def modes(path: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir() if file.is_file()}


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
@pytest.mark.parametrize("is_link", [False, True])
def test_only_its_owner_can_read_a_new_file_its_log_and_its_shared_memory(path: Path, is_link: bool) -> None:
    place = path
    if is_link:
        place = path.parent / "elsewhere" / "target.db"
        place.parent.mkdir()
        path.symlink_to(place)

    async def look(store: SqliteStore) -> list[str]:
        await store.promise([Promise("job", b"[1]", START)])
        assert modes(place) == {f"{place.name}{suffix}": 0o600 for suffix in ("", "-wal", "-shm")}
        return list((await store.health())["shared_files"])

    assert with_store(path, look) == []


@pytest.mark.usefixtures("_open_umask")
def test_only_its_owner_can_read_a_file_that_a_migration_creates(path: Path) -> None:
    asyncio.run(SqliteStore(str(path)).migrate())
    assert modes(path) == {"foliot.db": 0o600}


@pytest.mark.usefixtures("_open_umask")
def test_a_file_that_exists_keeps_its_mode_and_the_store_names_it_as_shared(path: Path) -> None:
    path.touch(0o640)

    async def look(store: SqliteStore) -> list[str]:
        return list((await store.health())["shared_files"])

    assert with_store(path, look) == [f"{path}{suffix}" for suffix in ("", "-wal", "-shm")]
    assert modes(path) == {"foliot.db": 0o640}


def test_a_file_in_a_folder_that_cannot_be_written_to_is_refused_with_the_reason() -> None:
    with pytest.raises(StoreError, match=r"^/proc/foliot\.db: the file cannot be created: .+; give a path in a folder"):
        asyncio.run(opened(Path("/proc/foliot.db")))


def test_what_was_promised_is_there_when_the_file_is_opened_again(path: Path) -> None:
    [kept] = with_store(path, lambda store: store.promise([Promise("job", b"[1]", START)]))
    run = with_store(path, lambda store: store.run(kept.id))
    assert (run.state, run.payload) == (State.SCHEDULED, b"[1]")


def test_a_schema_from_the_future_is_refused_and_left_as_it_is(path: Path) -> None:
    with_store(path, lambda store: store.promise([Promise("job", b"", START)]))
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", 4711)
    newer.close()
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch, match=r"4711.*newer"):
        asyncio.run(opened(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("user_version", [0, 1, 4711])
def test_a_sqlite_file_of_another_program_is_refused(path: Path, user_version: int) -> None:
    """Many programs count their schema in user_version, too: the number alone does not make the file ours."""
    made_by_others(path, user_version)
    with pytest.raises(SchemaMismatch):
        asyncio.run(opened(path))


def test_a_file_that_is_refused_is_not_changed(path: Path) -> None:
    """`open` raises before anything was changed, also the journal mode of somebody else's file."""
    before = made_by_others(path)
    with pytest.raises(SchemaMismatch):
        asyncio.run(opened(path))
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_in_our_words_and_not_changed(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 100)
    with pytest.raises(StoreError, match=r"foliot\.db"):
        asyncio.run(opened(path))
    assert path.read_bytes() == b"Dear diary, " * 100


def test_a_path_that_cannot_be_a_file_is_refused_in_our_words(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        asyncio.run(opened(tmp_path))


def test_an_engine_that_may_corrupt_data_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SAFE_VERSION", apsw.SQLITE_VERSION_NUMBER + 1)
    with pytest.raises(StoreTooOld, match="pip install"):
        asyncio.run(opened(path))
    assert not path.exists()


def test_a_store_that_could_not_be_opened_can_be_closed(path: Path) -> None:
    made_by_others(path)

    async def work() -> None:
        store = SqliteStore(str(path))
        with pytest.raises(SchemaMismatch):
            await store.open()
        await store.close()

    asyncio.run(work())


# ---------------------------------------------------------------------------------------------------- several processes


def test_processes_that_open_one_new_file_at_once_all_succeed(path: Path) -> None:
    """Again and again, because a race is lost only now and then; they meet at agreed moments of the host's clock."""
    files = by_tier(4, 10)
    body = """
import time
print("ready", flush=True)
start = float(sys.stdin.readline())
for place in range(FILES):
    while time.time() < start + place * 0.04:
        pass
    store = SqliteStore(f"{path}.{place}")
    await store.open()
    await store.promise([Promise("job", b"", 0)])
    await store.close()
"""
    body = body.replace("FILES", str(files))
    with another_process(path, body) as a, another_process(path, body) as b, another_process(path, body) as c:
        for process in (a, b, c):
            assert line(process) == "ready"
        start = time.time() + 0.1
        for process in (a, b, c):
            assert process.stdin is not None
            process.stdin.write(f"{start}\n")
            process.stdin.flush()
        for process in (a, b, c):
            ends_well(process)
    for place in range(files):
        assert with_store(Path(f"{path}.{place}"), lambda store: store.counts())["scheduled"] == 3


@pytest.fixture
def has_met_a_lock(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as a connection of this process pauses because another one has the lock."""
    met = threading.Event()

    def sleep(seconds: float) -> None:
        met.set()
        time.sleep(seconds)

    monkeypatch.setattr(connection, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    return met


def test_a_file_that_another_process_is_just_turning_to_its_journal_mode_is_waited_for(
    path: Path, has_met_a_lock: threading.Event
) -> None:
    """The moment at which the race above is lost, held still: SQLite does not ask the busy handler there."""
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    async def work() -> None:
        opening = asyncio.create_task(opened(path))
        await until_async(lambda: has_met_a_lock.is_set() or opening.done(), "the opening has met the lock")
        other.execute("ROLLBACK")
        other.close()
        await (await opening).close()

    asyncio.run(work())


def test_an_acknowledged_promise_survives_kill_9(path: Path) -> None:
    body = """
await store.open()
for place in range(1000):
    [kept] = await store.promise([Promise("job", b"%d" % place, 0)])
    print(kept.id, flush=True)
sys.stdin.read()
"""
    with another_process(path, body) as process:
        acknowledged = [line(process) for _ in range(25)]
        process.kill()
        process.wait()
        assert process.stdout is not None
        acknowledged += process.stdout.read().splitlines()[:-1]

    async def look(store: SqliteStore) -> list[bytes]:
        assert (await store.health())["integrity"] == "ok"
        return [(await store.run(identifier)).payload for identifier in acknowledged]

    assert with_store(path, look) == [b"%d" % place for place in range(len(acknowledged))]


def test_a_promise_of_another_process_changes_the_version(path: Path) -> None:
    async def look(store: SqliteStore) -> None:
        before = store.version()
        assert store.version() == before
        body = "await store.open(); await store.promise([Promise('job', b'', 0)]); await store.close()"
        with another_process(path, body) as process:
            await asyncio.get_running_loop().run_in_executor(None, ends_well, process)
        assert store.version() != before

    with_store(path, look)


def test_an_owner_whose_process_is_gone_is_replaced_at_once_and_not_before(path: Path) -> None:
    body = """
await store.open()
instance = await store.register("scheduler", version="1", queues=[], slots=0, jobs=[])
lease = await store.take(0, instance.number, 3_600_000_000)
print(lease.epoch, flush=True)
sys.stdin.read()
"""

    async def look(store: SqliteStore) -> None:
        with another_process(path, body) as process:
            epoch = int(line(process))
            me = await store.register("scheduler", version="1", queues=[], slots=0, jobs=[])
            assert await store.take(0, me.number, HOUR) is None
            process.kill()
            process.wait()
            lease = await store.take(0, me.number, HOUR)
            assert lease is not None
            assert lease.epoch > epoch

    with_store(path, look)


def test_attempts_of_a_worker_whose_process_is_gone_are_silent_at_once(path: Path) -> None:
    body = """
await store.open()
worker = await store.register("worker", version="1", queues=["default"], slots=1, jobs=[])
[run] = await store.claim(worker.number, ["default"], ["job"], 1)
print(run.number, flush=True)
sys.stdin.read()
"""

    async def look(store: SqliteStore) -> None:
        stage = Stage(store, ManualClock(SystemClock().now()))
        await stage.promise()
        await stage.fire()
        with another_process(path, body) as process:
            number = int(line(process))
            assert await store.silent(0) == []
            assert [one.role for one in await store.instances()] == ["scheduler", "worker"]
            process.kill()
            process.wait()
            [attempt] = await store.silent(0)
            assert (attempt.number, attempt.gone) == (number, True)
            assert [one.role for one in await store.instances()] == ["scheduler"]

    with_store(path, look)


def test_a_writer_waits_for_another_process_that_writes(path: Path, has_met_a_lock: threading.Event) -> None:
    async def look(store: SqliteStore) -> None:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.promise([Promise("job", b"", START)]))
        await until_async(lambda: has_met_a_lock.is_set() or waiting.done(), "the writer has met the lock")
        assert not waiting.done()
        # Readers are not kept waiting by it.
        assert (await store.counts())["scheduled"] == 0
        other.execute("ROLLBACK")
        other.close()
        assert len(await waiting) == 1

    with_store(path, look)


def test_a_writer_gives_up_in_our_words_and_works_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_LIMIT", 0.02)

    async def look(store: SqliteStore) -> None:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="Busy"):
            await store.promise([Promise("job", b"", START)])
        other.execute("ROLLBACK")
        other.close()
        assert len(await store.promise([Promise("job", b"", START)])) == 1
        assert (await store.counts())["scheduled"] == 1

    with_store(path, look)


# -------------------------------------------------------------------------------------------------------- on the inside


def test_every_operators_action_leaves_an_audit_row(path: Path) -> None:
    clock = ManualClock(START)

    async def work() -> list[tuple[Any, ...]]:
        store = SqliteStore(str(path), clock)
        await store.open()
        stage = Stage(store, clock)
        dead = await stage.running("dead")
        await stage.finish(stage.died(dead))
        running = await stage.running("running")
        await stage.promise("waiting", after=HOUR)
        await store.retry("dead#1", actor="ada", note="fixed", override=False)
        await store.cancel(running.id, actor="bob", note="stop")
        await store.cancel_promise("waiting", None, actor="cy", note="off")
        await stage.apply(declared("hourly", START + HOUR))
        await store.pause("hourly", until=None, actor="ada", note="wait")
        await store.resume("hourly", actor="ada", note="go")
        await store.trigger("hourly", actor="ada", note="now")
        await stage.apply(prune=True)
        await store.close()
        look = apsw.Connection(str(path))
        rows = look.execute("SELECT at, actor, action, subject, note FROM audit ORDER BY n").fetchall()
        look.close()
        return rows

    assert asyncio.run(work()) == [
        (START, "ada", "retry", "dead#1", "fixed"),
        (START, "bob", "cancel", "running#1", "stop"),
        (START, "cy", "cancel", "waiting#1", "off"),
        (START, "test", "apply", "hourly", "{}"),
        (START, "ada", "pause", "hourly", "wait"),
        (START, "ada", "resume", "hourly", "go"),
        (START, "ada", "trigger", "hourly", "now"),
        (START, "test", "delete", "hourly", "no longer declared"),
    ]


def test_a_schedule_whose_policy_cannot_be_read_does_not_stop_the_others(path: Path) -> None:
    async def look(store: SqliteStore) -> None:
        stage = Stage(store, ManualClock(START))
        await stage.apply(declared("bad", START), declared("good", START))
        other = apsw.Connection(str(path))
        other.execute("UPDATE schedule SET policy = X'00FF' WHERE id = 'bad'")
        other.close()
        bad, good = await store.schedules()
        assert bad.schedule.fault is not None
        assert good.schedule.fault is None
        assert (await stage.fire()).handed_off == 2

    with_store(path, look)


def test_tables_of_finished_work_are_left_empty(path: Path) -> None:
    """Chunks, claims, cancellations and stirs are for work under way; nothing of them stays behind."""
    clock = ManualClock(START)

    async def work() -> dict[str, int]:
        store = SqliteStore(str(path), clock)
        await store.open()
        stage = Stage(store, clock)
        for ending in (Stage.succeeded, Stage.failed, Stage.died, Stage.interrupted, Stage.stopped):
            run = await stage.running()
            await store.cancel(run.id, actor="test", note="")
            await stage.finish(ending(stage, run))
        lost = await stage.running()
        await store.cancel(lost.id, actor="test", note="")
        await store.lose([stage.lost(lost, retry_at=START + HOUR)])
        back = await stage.running(worker=await stage.register())
        await store.give_back(1, [back])
        await store.cancel(back.id, actor="test", note="")
        await stage.fire()
        await stage.claim()
        for view in await store.runs(states=[State.RUNNING]):
            await store.cancel(view.id, actor="test", note="")
        for silent in await store.silent(START + 2 * HOUR):
            last = stage.succeeded(back)._replace(number=silent.number, token=silent.token, attempt=silent.attempt)
            await stage.finish(last)
        await stage.lease()
        await store.close()
        look = apsw.Connection(str(path))
        tables = ("handoff", "claim", "cancellation", "stir")
        rows = {table: look.execute(f"SELECT count(*) FROM {table}").get for table in tables}
        look.close()
        return rows

    assert asyncio.run(work()) == {"handoff": 0, "claim": 0, "cancellation": 0, "stir": 0}


def test_what_was_stirred_is_forgotten_by_the_firing_that_knows_it(path: Path) -> None:
    async def look(store: SqliteStore) -> None:
        stage = Stage(store, ManualClock(START))
        await stage.promise("class:7", after=HOUR)
        lease = await stage.lease()
        for _ in range(3):
            await store.move("class:7", None, START + HOUR)
        told = await store.arrivals([lease], lease.cursor)
        await store.move("class:7", None, START + HOUR)
        await store.fire([lease], [], told.cursor, lambda facts, now: [])
        inside = apsw.Connection(str(path))
        assert inside.execute("SELECT count(*) FROM stir").get == 1
        inside.close()

    with_store(path, look)


def test_the_version_is_cheap_to_ask(path: Path) -> None:
    """A process asks every few milliseconds, in its event loop."""

    async def look(store: SqliteStore) -> None:
        with at_most(20_000):
            for _ in range(1_000):
                store.version()

    with_store(path, look)


def test_nothing_is_acknowledged_once_the_file_was_deleted_or_replaced(path: Path) -> None:
    """A write to a file without a name succeeds, and is gone with the process."""

    async def use(store: SqliteStore) -> None:
        await store.promise([Promise("job", b"{}", START)])
        os.rename(path, f"{path}.moved")
        with pytest.raises(NotWritten, match="deleted or replaced"):
            await store.promise([Promise("job", b"{}", START)])
        os.rename(f"{path}.moved", path)
        await store.promise([Promise("job", b"{}", START)])

    with_store(path, use)


def test_a_tick_that_a_newer_release_wrote_is_set_aside_and_the_others_fire(path: Path) -> None:
    async def meddle(tx: Any) -> None:
        tx._connection.execute("UPDATE run SET origin = 9 WHERE schedule = 'odd'")

    async def use(store: SqliteStore) -> None:
        clock = ManualClock(START)
        store._clock = clock
        stage = Stage(store, clock)
        await stage.apply(declared("odd", START), declared("even", START))
        await store.write(meddle)
        fired = await stage.fire()
        assert fired.handed_off == 1
        assert [str(run.state) for run in await store.runs(schedule="odd")] == ["dead"]
        assert [event.kind for event in await store.events_since(0, 10)] == ["run_set_aside"]

    with_store(path, use)


def test_its_url_leads_other_processes_to_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store, careful = make_store("sqlite:///books.db"), make_store("sqlite:///books.db?migrate=never")
    monkeypatch.chdir("/")
    assert store.url == f"sqlite:///{tmp_path}/books.db"
    assert careful.url == f"sqlite:///{tmp_path}/books.db?migrate=never"
    assert make_store(store.url).url == store.url
    assert make_store("sqlite:///:memory:").url is None, "nobody else can reach it"


def test_a_connection_that_waits_for_a_writer_asks_less_and_less_often_until_it_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, pauses = [100.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(connection, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
    wait = connection._wait_for_writer()
    tries = next(number for number in itertools.count() if not wait(number))
    assert pauses[:21] == [0.000_3] * 10 + [0.001] * 10 + [0.003]
    assert len(pauses) == tries + 1
    assert set(pauses[20:]) == {0.003}
    assert 100 + connection.BUSY_LIMIT <= clock[0] < 100 + connection.BUSY_LIMIT + 0.01
