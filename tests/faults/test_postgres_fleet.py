"""A whole fleet on one server: schedulers and workers are killed and stopped, and the server crashes in between."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from foliot.domain.instant import SECOND
from foliot.domain.run import RunView
from tests.faults.processes import Fleet
from tests.faults.test_kills import (
    everything,
    judge_all,
    promised_so_far,
    start_what_is_missing,
    wait_until_drained,
)
from tests.servers.forked import Forked
from tests.servers.postgres import PostgresServer
from tests.tiers import by_tier
from tests.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.needs("postgres")]

ROUNDS = by_tier(3, 9, 60)
SCHEDULERS = by_tier(2, 3, 8)
LEASE = 2 * SECOND
"""Of the job `record`."""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def fleet(tmp_path: Path, server: PostgresServer) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, server.dsn(), CAMPUS_SCHEDULES="1")
    yield fleet
    fleet.close()


class Campaign:
    """What was done to the fleet, and to which processes: one that was never harmed must not be called lost."""

    def __init__(self, fleet: Fleet, server: PostgresServer, seed: int) -> None:
        self.fleet = fleet
        self.server = server
        self.chance = random.Random(seed)
        self.harmed: set[int] = set()
        self.stopped: list[Forked] = []
        self.returns: list[int] = []
        """When the server came back after a crash, in microseconds by its own clock."""

    def start_what_is_missing(self, producing_from: int | None = None) -> None:
        start_what_is_missing(self.fleet, producing_from, schedulers=SCHEDULERS)

    def wait_for_promises(self, producing_from: int) -> None:
        """A producer may give up on a server that is away, some seconds after that went: then another one goes on."""
        enough = promised_so_far(self.fleet) + self.chance.randint(1, 300)

        def are_made() -> bool:
            producer = self.fleet.alive.get("producer")
            if producer is not None and producer.poll() is not None:
                del self.fleet.alive["producer"]
                self.start_what_is_missing(producing_from)
            return promised_so_far(self.fleet) >= enough

        until(are_made, f"the store has acknowledged {enough} promises")

    def wait_for_registration(self) -> None:
        """A process that has not registered yet ends if the server is away. After that, it waits for the server."""

        def are_registered() -> bool:
            assert set(self.fleet.fallen()) <= {"producer"}
            listed = self.server.psql("SELECT pid FROM foliot.instance WHERE ended_at IS NULL").split()
            awaited = {
                process.pid
                for name, process in self.fleet.alive.items()
                if name != "producer" and process not in self.stopped
            }
            return awaited <= set(map(int, listed))

        until(are_registered, "each scheduler and each worker has registered")

    def harm(self, round_: int) -> None:
        self.wait_for_registration()
        names = sorted(name for name in self.fleet.alive if self.fleet.alive[name] not in self.stopped)
        if round_ % 3 == 0:
            # Stopped, not dead: when it wakes, rounds later, it believes in leases that ended long ago.
            chosen = self.fleet.alive[self.chance.choice([name for name in names if name != "producer"])]
            chosen.send_signal(signal.SIGSTOP)
            self.stopped.append(chosen)
        elif round_ % 3 == 1:
            self.crash()
            return
        else:
            chosen = self.fleet.alive[name := self.chance.choice(names)]
            self.fleet.kill(name)
        self.harmed.add(chosen.pid)

    def crash(self) -> None:
        """A producer may give up on a server that is away. No other process may."""
        self.server.restart("immediate")
        asked = "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
        self.returns.append(int(self.server.psql(asked)))
        assert set(self.fleet.fallen()) <= {"producer"}

    def wake(self) -> None:
        for process in self.stopped:
            process.send_signal(signal.SIGCONT)
        self.stopped.clear()


@pytest.mark.timeout(by_tier(600, 2_400))
def test_a_fleet_loses_and_doubles_nothing_whatever_is_killed_stopped_or_crashes(
    fleet: Fleet, server: PostgresServer
) -> None:
    campaign = Campaign(fleet, server, 11)
    before: dict[str, RunView] = {}
    for round_ in range(ROUNDS):
        campaign.start_what_is_missing(round_ * 1_000_000)
        campaign.wait_for_promises(round_ * 1_000_000 + 500_000)
        campaign.harm(round_)
        if round_ % 6 == 5:
            campaign.wake()
        if round_ == ROUNDS // 2:
            before, _, _ = fleet.ask(everything)
        assert set(fleet.fallen()) <= {"producer"}
    stopped = {process.pid for process in campaign.stopped}
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        until(
            lambda: not stopped & set(shares := _shares(connection)) and sum(shares.values()) == 16,
            "the leases of the stopped processes have ended",
        )
    campaign.wake()
    if "producer" in fleet.alive:
        fleet.kill("producer")
    campaign.start_what_is_missing()
    wait_until_drained(fleet)
    assert fleet.fallen() == []
    fleet.kill_all()
    judge_all(fleet, before)
    assert server.psql("SELECT count(*) FROM foliot.history WHERE claimed_at < fire_at OR fired_at < fire_at") == "0"
    _judge_losses(server, campaign)


def _judge_losses(server: PostgresServer, campaign: Campaign) -> None:
    """The watch may call a worker lost if the test harmed it, or if the server ran for a whole lease without its beat.

    The second case comes from a slow machine. The absence of the server is no reason to call a worker lost.
    """
    workers = dict(row.split("|") for row in server.psql("SELECT number, pid FROM foliot.instance").splitlines())
    for row in server.psql("SELECT at, detail FROM foliot.event WHERE kind = 'lost'").splitlines():
        at, _, detail = row.partition("|")
        found = re.search(r" on worker (\d+): ", detail)
        if found is None or int(workers[found[1]]) in campaign.harmed:
            continue
        assert "no heartbeat of the worker for" in detail, f"called lost without having been harmed: {detail}"
        since = max((moment for moment in campaign.returns if moment <= int(at)), default=0)
        assert int(at) - since >= LEASE, f"called lost for the absence of the server: {detail}"


def test_the_shards_of_a_scheduler_that_is_stopped_or_killed_are_taken_over(
    fleet: Fleet, server: PostgresServer
) -> None:
    for number in range(3):
        fleet.start_scheduler(f"scheduler-{number}")
    with psycopg.connect(server.dsn(), autocommit=True) as connection:

        def shares() -> dict[int, int]:
            return _shares(connection)

        until(lambda: sorted(shares().values()) == [5, 5, 6], "each scheduler has its share")
        stopped, killed = fleet.alive["scheduler-1"].pid, fleet.alive["scheduler-2"].pid
        os.kill(stopped, signal.SIGSTOP)
        until(lambda: stopped not in (now := shares()) and sum(now.values()) == 16, "the others have all of it")
        os.kill(stopped, signal.SIGCONT)
        # Shares may stay uneven for a minute after a takeover.
        until(lambda: stopped in shares(), "the stopped scheduler has a share again")
        fleet.kill("scheduler-2")
        until(lambda: killed not in (now := shares()) and sum(now.values()) == 16, "the others have all of it again")


def _shares(connection: psycopg.Connection) -> dict[int, int]:
    """By process, how many shards it holds by a lease that has not ended."""
    try:
        rows = connection.execute(
            "SELECT i.pid, count(*) FROM foliot.shard s JOIN foliot.instance i ON i.number = s.owner "
            "WHERE s.shard >= 0 AND s.until > foliot.now() GROUP BY i.pid"
        ).fetchall()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction):
        return {}  # the tables are not there yet
    return dict(rows)
