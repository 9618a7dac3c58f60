"""A store with a past: a million ended runs, ten thousand schedules, and what waits, runs and lies parked beside them.

Rows are written as they would stand there, past the verbs: living through them would take an hour. Both engines get the
same rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import asyncpg

from bench.raw import Raw, payload
from foliot import every
from foliot.domain.identity import number_at, tick_name
from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Instant, to_datetime
from foliot.domain.run import Lane, Origin
from foliot.domain.state import Reason, State

HISTORY = (
    *("number", "name", "state", "origin", "lane", "priority", "job", "payload", "fire_at", "nominal", "since"),
    *("schedule", "revision", "tenant", "attempt", "spent", "worker", "fired_at", "claimed_at", "started_at"),
    *("finished_at", "reason", "detail"),
)
RUN = (
    *("number", "name", "state", "origin", "lane", "priority", "job", "payload", "fire_at", "nominal", "since"),
    *("schedule", "revision", "tenant", "attempt", "spent", "worker", "fired_at", "claimed_at", "started_at"),
    *("waits_for", "reason", "detail"),
)
DAYS = 30
JOBS, TENANTS = 50, 200
RARE_JOB, RARE_TENANT = "job-rare", "tenant-rare"
WORKER = 1
_PIECE = 10_000


@dataclass(frozen=True, slots=True)
class Size:
    history: int = 1_000_000
    schedules: int = 10_000
    pending: int = 100_000
    parked: int = 2_000
    held: int = 1_000
    retrying: int = 500
    running: int = 100

    def smaller(self, by: int) -> Size:
        return Size(*(max(getattr(self, name) // by, 10) for name in self.__slots__))


class Past:
    """What is on record at `now`, the same for every store: chance has a seed."""

    def __init__(self, size: Size, now: Instant) -> None:
        self.size = size
        self.now = now
        self._chance = random.Random(7)
        self._place = 0

    def schedules(self) -> list[str]:
        return [f"schedule-{place:05}" for place in range(self.size.schedules)]

    def history(self) -> Iterator[tuple[Any, ...]]:
        """In the order of their endings; six in ten are ticks."""
        step = DAYS * DAY // self.size.history
        names = self.schedules()
        for place in range(self.size.history):
            fire_at = self.now - DAYS * DAY + place * step
            if place % 10 < 6:
                yield self._tick(names[(place // 10 * 6 + place % 10) % len(names)], fire_at)
            else:
                yield self._delayed(place, fire_at)

    def _tick(self, schedule: str, fire_at: Instant) -> tuple[Any, ...]:
        state, reason, detail = self._ending()
        name = tick_name(schedule, fire_at)
        return self._ended(name, state, Origin.SCHEDULED, fire_at, fire_at - HOUR, schedule, None, reason, detail)

    def _delayed(self, place: int, fire_at: Instant) -> tuple[Any, ...]:
        state, reason, detail = self._ending()
        name = f"order:{place}#1" if place % 4 == 0 else None
        tenant = RARE_TENANT if place % 100_007 == 0 else f"tenant-{place % TENANTS:03}"
        return self._ended(
            name, state, Origin.DELAYED, fire_at, None, None, tenant if place % 2 else None, reason, detail
        )

    def _ending(self) -> tuple[State, str | None, str | None]:
        drawn = self._chance.random()
        if drawn < 0.97:
            return State.SUCCEEDED, None, None
        if drawn < 0.98:
            return State.VERIFIED, None, "412 of 412 accounts"
        if drawn < 0.99:
            return State.SKIPPED, str(Reason.OVERLAP), "an earlier run"
        return State.CANCELLED, str(Reason.REQUESTED), "asked by ops"

    def _ended(
        self,
        name: str | None,
        state: State,
        origin: Origin,
        fire_at: Instant,
        since: Instant | None,
        schedule: str | None,
        tenant: str | None,
        reason: str | None,
        detail: str | None,
    ) -> tuple[Any, ...]:
        late = 2 * MINUTE if self._chance.random() < 0.01 else 0
        began = fire_at + late + int(self._chance.expovariate(1 / 20_000))
        attempt = 2 if self._chance.random() < 0.02 else 1
        nominal = None if since is None else fire_at
        times = (fire_at, began, began, began + int(self._chance.expovariate(1 / (2 * SECOND))))
        return (
            *self._start(name, state, origin, fire_at - HOUR, self._job()),
            *(fire_at, nominal, since, schedule, None if schedule is None else 1, tenant, attempt, attempt, WORKER),
            *times,
            *(reason, detail),
        )

    def _job(self) -> str:
        return RARE_JOB if self._place % 20_011 == 0 else f"job-{self._chance.randrange(JOBS):02}"

    def _start(self, name: str | None, state: State, origin: Origin, made: Instant, job: str) -> tuple[Any, ...]:
        self._place += 1
        number = number_at(made, self._place % (1 << 20))
        return number, name, int(state), int(origin), int(Lane.LIVE), 0, job, payload(self._place)

    def live(self) -> Iterator[tuple[Any, ...]]:
        """One pending tick for each schedule, then delayed ones, then what is out of the ordinary."""
        size, now = self.size, self.now
        for place, schedule in enumerate(self.schedules()):
            due = now + MINUTE + place * HOUR // size.schedules
            yield self._alive(State.SCHEDULED, due, schedule=schedule)
        for _ in range(size.pending):
            yield self._alive(State.SCHEDULED, now + HOUR + self._chance.randrange(300 * DAY))
        for place in range(size.parked):
            state = State.AMBIGUOUS if place % 20 == 7 else State.DEAD
            due = now - place * DAYS * DAY // size.parked
            yield self._alive(state, due, reason=Reason.ATTEMPTS, detail="ValueError: no such order")
        for place in range(size.held):
            yield self._alive(State.HELD, now - MINUTE, reason=Reason.LIMIT, waits_for=f"job:job-{place % JOBS:02}")
        for _ in range(size.retrying):
            yield self._alive(State.RETRYING, now + self._chance.randrange(HOUR), reason=Reason.FAILED, detail="no")
        for place in range(size.running):
            yield self._alive(State.RUNNING, now - 5 * SECOND, started=now - 4 * SECOND, place=place)

    def _alive(
        self,
        state: State,
        fire_at: Instant,
        *,
        schedule: str | None = None,
        reason: str | None = None,
        detail: str | None = None,
        waits_for: str | None = None,
        started: Instant | None = None,
        place: int = 0,
    ) -> tuple[Any, ...]:
        name = None if schedule is None else tick_name(schedule, fire_at)
        origin = Origin.DELAYED if schedule is None else Origin.SCHEDULED
        made = min(fire_at, self.now) - HOUR
        tried = state not in (State.SCHEDULED, State.HELD)
        return (
            *self._start(name, state, origin, made, self._job()),
            *(fire_at, None if schedule is None else fire_at, None if schedule is None else fire_at - HOUR, schedule),
            *(None if schedule is None else 1, f"tenant-{self._place % TENANTS:03}" if self._place % 2 else None),
            *(int(tried), int(tried), WORKER if tried else None, started, started, started),
            *(waits_for, None if reason is None else str(reason), detail),
        )


def _pieces(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    while piece := list(islice(rows, _PIECE)):
        yield piece


_JOB = ("name", "policy", "queue", "seen_at")
_SCHEDULE = ("id", "job", "rule", "payload", "policy", "priority", "owner", "revision", "fingerprint", "made_at")


def _jobs(past: Past) -> list[tuple[Any, ...]]:
    """As workers that knew them have left them."""
    names = (RARE_JOB, *(f"job-{place:02}" for place in range(JOBS)))
    return [(name, b"{}", "default", past.now) for name in names]


def _schedules(past: Past) -> list[tuple[Any, ...]]:
    rule = every("1h").encode()
    return [
        (name, f"job-{place % JOBS:02}", rule, b"{}", b"{}", 0, f"team-{place % 7}", 1, "v1", past.now - DAYS * DAY)
        for place, name in enumerate(past.schedules())
    ]


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def fill_sqlite(path: Path, past: Past) -> None:
    with Raw(path) as raw:
        connection = raw.connection
        connection.execute("PRAGMA synchronous = off")
        running: list[int] = []
        for table, columns, rows in (
            ("job", _JOB, iter(_jobs(past))),
            ("schedule", _SCHEDULE, iter(_schedules(past))),
            ("history", HISTORY, past.history()),
            ("run", RUN, past.live()),
        ):
            for piece in _pieces(rows):
                connection.execute("BEGIN")
                connection.executemany(_insert(table, columns), piece)
                connection.execute("COMMIT")
                running += [row[0] for row in piece if table == "run" and row[2] == State.RUNNING]
        connection.execute(
            "INSERT INTO claim VALUES (1, ?, ?, ?, ?)",
            (WORKER, past.now, len(running), b"".join(number.to_bytes(8, "little") for number in running)),
        )
        connection.execute("UPDATE run SET token = 1 WHERE number IN (SELECT value FROM json_each(?))", (str(running),))
        connection.execute("ANALYZE")


async def fill_postgres(dsn: str, past: Past) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_partitions(past.now))
        await _copy(connection, "job", _JOB, iter(_jobs(past)))
        await _copy(connection, "schedule", _SCHEDULE, iter(_schedules(past)))
        await _copy(connection, "history", HISTORY, past.history())
        shards: int = await connection.fetchval("SELECT shards FROM foliot.setting")
        await _copy(connection, "run", (*RUN, "shard"), ((*row, row[0] % shards) for row in past.live()))
        await connection.execute(
            """INSERT INTO foliot.named SELECT name, number FROM foliot.history WHERE name IS NOT NULL
            UNION ALL SELECT name, number FROM foliot.run WHERE name IS NOT NULL"""
        )
        await connection.execute(
            """INSERT INTO foliot.claim (token, claimed_at, fired_at, worker, open, lane, written, numbers)
            SELECT 1, $1, $1, $2, count(*), 0, true, array_agg(number) FROM foliot.run WHERE state = 4""",
            *(past.now, WORKER),
        )
        # A claim whose runs do not name it is an empty one, which is tidied away.
        await connection.execute("UPDATE foliot.run SET token = 1 WHERE state = 4")
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def _copy(connection: Any, table: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    for piece in _pieces(rows):
        await connection.copy_records_to_table(table, schema_name="foliot", columns=columns, records=piece)


def _partitions(now: Instant) -> str:
    """Days of the past, as they would be there had the store lived through them."""
    today = to_datetime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    made = []
    for back in range(1, DAYS + 2):
        day = today - timedelta(days=back)
        starts = int((day - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * SECOND
        made.append(
            f"CREATE TABLE IF NOT EXISTS foliot.history_{day:%Y%m%d} PARTITION OF foliot.history "
            f"FOR VALUES FROM ({starts}) TO ({starts + DAY})"
        )
    return "; ".join(made)
