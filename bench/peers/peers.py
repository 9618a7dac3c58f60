"""Who is compared, where each comes from, and what each cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Workload = Literal["promises", "burst", "steady", "pending", "held", "recurring"]
WORKLOADS: tuple[Workload, ...] = ("promises", "burst", "steady", "pending", "held", "recurring")


@dataclass(frozen=True, slots=True)
class Peer:
    """One scheduler. Its adapter, in the folder of its id, holds the settings under which it does best here."""

    id: str
    name: str
    runtime: Literal["ours", "python", "node"]
    packages: tuple[str, ...]
    """What is installed; the first is the peer itself."""
    fill_rate: int
    """Promises per second that can be counted on, to know how long before their time jobs must be made."""
    unfinished: str
    """SQL: whether anything is left to do. Cheap, because it is asked again and again beside the workers."""
    settings: str
    """For the report: under which settings it runs, and what it keeps of a job that is done."""
    workers: int = 2
    tickers: int = 2
    """Processes when work recurs."""
    has_batches: bool = True
    cannot: Mapping[Workload, str] = field(default_factory=dict)


FOLIOT = Peer(
    id="foliot",
    name="Foliot",
    runtime="ours",
    packages=(),
    fill_rate=15_000,
    unfinished="SELECT EXISTS (SELECT 1 FROM foliot.run)",
    settings="a scheduler and two workers of 1,000 slots; keeps history",
    workers=3,
    tickers=3,
)

OTHERS = (
    Peer(
        id="procrastinate",
        name="Procrastinate",
        runtime="python",
        packages=("procrastinate", "psycopg[binary]"),
        fill_rate=6_000,
        unfinished="SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
        settings="two workers, concurrency 20, poll 20 ms; deletes finished jobs",
    ),
    Peer(
        id="pgqueuer",
        name="PgQueuer",
        runtime="python",
        packages=("pgqueuer", "asyncpg"),
        fill_rate=15_000,
        unfinished="SELECT EXISTS (SELECT 1 FROM pgqueuer)",
        settings="two workers, batches of 1,000, uvloop; keeps a log; its cron runs in one process",
        tickers=1,
    ),
    Peer(
        id="apscheduler3",
        name="APScheduler 3",
        runtime="python",
        packages=("apscheduler<4", "sqlalchemy", "psycopg[binary]"),
        fill_rate=700,
        unfinished="SELECT EXISTS (SELECT 1 FROM apscheduler_jobs)",
        settings="one process, jobs in its threads; removes a job before it runs, so a crash loses it",
        workers=1,
        tickers=1,
        has_batches=False,
    ),
    Peer(
        id="apscheduler4",
        name="APScheduler 4",
        runtime="python",
        # With the newest anyio it hears no notifications, and runs nothing; this one is of its own time.
        packages=("apscheduler>=4.0.0a6", "sqlalchemy[asyncio]", "asyncpg", "anyio<4.10"),
        fill_rate=150,
        unfinished="SELECT EXISTS (SELECT 1 FROM schedules WHERE next_fire_time IS NOT NULL)"
        " OR EXISTS (SELECT 1 FROM jobs)",
        settings="one process that schedules and works; keeps nothing of a job that is done",
        workers=1,
        tickers=1,
        has_batches=False,
    ),
    Peer(
        id="graphile_worker",
        name="graphile-worker",
        runtime="node",
        packages=("graphile-worker",),
        fill_rate=15_000,
        unfinished="SELECT EXISTS (SELECT 1 FROM graphile_worker._private_jobs)",
        settings="two processes, batch mode (local queue of 500, completions in batches), poll 10 ms; deletes jobs",
        cannot={"recurring": "its cron ticks once a minute"},
    ),
)
EVERYBODY = (FOLIOT, *OTHERS)
