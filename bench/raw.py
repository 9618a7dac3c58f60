"""The ceiling: what SQLite does with our tables, indexes and statements when nothing stands between.

One process, one thread, plain apsw, no handler, no event loop, and every parameter made before the clock starts. The
statements are the engine's own, by name, so that a ceiling rises when the engine's SQL gets better. The guards are in
them: epoch, states, tokens. What is left out is Python.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bench.jobs import NOTE, class_id, noop
from foliot.domain.identity import number_at
from foliot.domain.instant import DAY, SECOND, Instant
from foliot.domain.state import State
from foliot.store import queries
from foliot.store.sqlite.connection import connect
from foliot.store.sqlite.migrating import migrate

FAR_FROM, FAR_TO = 30 * DAY, 365 * DAY
"""Where pending runs lie that have nothing to do with what is measured: no scheduler loads them."""

WORKER, EPOCH, SHARD = 1, 1, 0
_TEXT = NOTE.encode()


class Raw:
    """A store's file, with the engine's tables and statements, and nothing else of the engine."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(str(path))
        migrate(self.connection, str(path))
        self._queries = queries.load(files("foliot.store.sqlite").joinpath("sql"))

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def execute(self, query: str, /, **values: Any) -> apsw.Cursor:
        try:
            return self.connection.execute(self._queries[query], values)
        except (KeyError, apsw.SQLError, apsw.BindingsError) as error:
            raise RuntimeError(f"the engine's {query!r} has changed, and bench/raw.py must follow: {error}") from error

    def each(self, query: str, rows: Any) -> None:
        self.connection.executemany(self._queries[query], rows)

    def begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def numbers(self, count: int) -> int:
        """The first of `count` fresh run numbers, as the store hands them out."""
        last = self.execute("take_numbers", candidate=number_at(now(), 0), count=count).get
        return int(last) - count + 1

    def checkpoint(self) -> None:
        """Folds the log back into the file. The log keeps its size: a store at work does not pay for growing it."""
        self.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def bytes(self) -> int:
        return int(self.connection.pragma("page_count")) * int(self.connection.pragma("page_size"))


def now() -> Instant:
    return time.time_ns() // 1_000


def payload(place: int) -> bytes:
    return b'{"class_id":%d,"note":"%s"}' % (class_id(place), _TEXT)


def far_times(count: int, seed: int = 1) -> list[Instant]:
    """Far in the future and in no order, as promises come: a sorted list would flatter every index."""
    chance = random.Random(seed)
    moment = now()
    return [moment + chance.randrange(FAR_FROM, FAR_TO) for _ in range(count)]


def _rows(first: int, times: list[Instant], place: int) -> list[tuple[object, ...]]:
    return [
        (first + offset, None, 0, noop.name, payload(place + offset), fire_at, None, None, None, None)
        for offset, fire_at in enumerate(times)
    ]


def insert(raw: Raw, times: list[Instant], batch: int = 1_000) -> float:
    """Inserts pending runs in batches; returns the seconds that it took, without those for making the rows."""
    spent = 0.0
    for place in range(0, len(times), batch):
        piece = times[place : place + batch]
        raw.begin()
        rows = _rows(raw.numbers(len(piece)), piece, place)
        began = time.perf_counter()
        raw.each("insert_promise", rows)
        raw.commit()
        spent += time.perf_counter() - began
    return spent


def insert_singly(raw: Raw, seconds: float) -> float:
    """One durable insert after another, per second: what an fsync costs here."""
    times = far_times(1_000)
    first, made, began = raw.numbers(1) + 1, 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        raw.each("insert_promise", _rows(first + made, [times[made % len(times)]], made))
        made += 1
    raw.numbers(made)  # used up
    return made / spent


class _Batch:
    """Everything that the statements of one batch are given, made before the clock starts."""

    def __init__(self, numbers: list[int], moment: Instant) -> None:
        self.numbers = array("q", numbers)
        self.packed = self.numbers.tobytes()
        self.endings = msgspec.json.encode(
            [(number, int(State.SUCCEEDED), moment, moment, None, None, None) for number in numbers]
        ).decode()


def drain_rate(folder: Path, count: int, batch: int) -> float:
    """Fires, claims and finishes due runs, with full history: two commits per batch.

    A claim must be durable before its run begins, and an ending cannot be before that; so the ending of one batch can
    share a commit with the claim of the next, and with nothing else. Firing is another process's and has its own.
    """
    path = folder / f"raw-drain-{batch}.db"
    with Raw(path) as raw:
        batches = list(_due(raw, count, batch))
        raw.checkpoint()
        jobs, lists = msgspec.json.encode([noop.name]).decode(), msgspec.json.encode(["default"]).decode()
        ended: tuple[int, _Batch] | None = None
        began = time.perf_counter()
        for one in batches:
            raw.begin()
            _fire(raw, one)
            raw.commit()
            raw.begin()
            if ended is not None:
                _finish(raw, *ended)
            ended = _claim(raw, one, jobs, lists), one
            raw.commit()
        raw.begin()
        assert ended is not None
        _finish(raw, *ended)
        raw.commit()
        spent = time.perf_counter() - began
        kept = raw.connection.execute("SELECT count(*) FROM history").get
        left = raw.connection.execute("SELECT count(*) FROM run").get
        assert (kept, left) == (count, 0), f"the ceiling moved {kept} of {count} runs to history, {left} are left"
    _remove(path)
    return count / spent


def _due(raw: Raw, count: int, batch: int) -> Iterator[_Batch]:
    moment = now()
    raw.execute(
        "take_shard", shard=SHARD, owner=WORKER, epoch=0, until=moment + 3_600 * SECOND, high_water=0
    ).fetchall()
    insert(raw, [moment] * count)
    numbers = [row[0] for row in raw.connection.execute("SELECT number FROM run ORDER BY number")]
    for start in range(0, count, batch):
        yield _Batch(numbers[start : start + batch], moment)


def _fire(raw: Raw, batch: _Batch) -> None:
    raw.execute("own_shard", shard=SHARD, owner=WORKER, epoch=EPOCH).fetchall()
    raw.execute("due_runs", numbers=apsw.carray(batch.numbers)).fetchall()
    raw.each("add_handoff", [("default", 0, 0, now(), batch.packed)])
    raw.execute("forget_stirs", cursor=0)


def _claim(raw: Raw, batch: _Batch, jobs: str, lists: str) -> int:
    moment = now()
    raw.execute("is_live_instance", number=WORKER).fetchall()
    chunk = raw.execute("ready_chunks", queues=lists, jobs=jobs, now=moment, limit=64).fetchall()[0]
    raw.execute("drop_chunk", n=chunk[0])
    token = int(raw.execute("take_token").get)
    raw.execute(
        "claim_runs",
        numbers=apsw.carray(batch.numbers),
        token=token,
        worker=WORKER,
        lane=0,
        fired_at=chunk[2],
        now=moment,
        jobs=jobs,
        queue="default",
    ).fetchall()
    raw.execute("add_claim", token=token, worker=WORKER, now=moment, open=len(batch.numbers), numbers=batch.packed)
    return token


def _finish(raw: Raw, token: int, batch: _Batch) -> None:
    raw.execute("owned_runs", numbers=apsw.carray(batch.numbers)).fetchall()
    raw.execute("end_attempts", endings=batch.endings)
    raw.execute("drop_runs", numbers=apsw.carray(batch.numbers))
    raw.execute("close_claim", token=token, ended=len(batch.numbers)).fetchall()
    raw.execute("drop_claim", token=token)
    raw.execute("any_cancellation").fetchall()


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
