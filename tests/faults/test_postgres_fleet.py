"""A whole fleet on one server: schedulers and workers are killed and stopped, and the server crashes in between."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from foliot.domain.instant import MILLISECOND
from foliot.domain.run import RunView
from tests.faults import judge
from tests.faults.processes import Fleet, eventually
from tests.faults.test_kills import everything, more_than, promised_so_far, unended
from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.faults, pytest.mark.needs("postgres")]

TORTURE = bool(os.environ.get("FOLIOT_TORTURE"))
ROUNDS = 60 if TORTURE else 5
SCHEDULERS = 8 if TORTURE else 3


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
    """What was done to the fleet, and to whom: whoever was never harmed must not be called lost."""

    def __init__(self, fleet: Fleet, server: PostgresServer, seed: int) -> None:
        self.fleet = fleet
        self.server = server
        self.chance = random.Random(seed)
        self.harmed: set[int] = set()
        self.stopped: list[subprocess.Popen[bytes]] = []
        self.born: dict[str, float] = {}

    def start_what_is_missing(self, producing_from: int | None = None) -> None:
        before = set(self.fleet.alive)
        for number in range(SCHEDULERS):
            if f"scheduler-{number}" not in self.fleet.alive:
                self.fleet.start_scheduler(f"scheduler-{number}")
        for number in range(2):
            if f"worker-{number}" not in self.fleet.alive:
                self.fleet.start_worker(f"worker-{number}", "--slots", "50")
        if producing_from is not None and "producer" not in self.fleet.alive:
            folder = str(self.fleet.acknowledged)
            self.fleet.start("producer", "-m", "tests.faults.producer", folder, str(producing_from))
        self.born |= dict.fromkeys(set(self.fleet.alive) - before, time.monotonic())

    def promises_go_on(self, held: int, producing_from: int) -> bool:
        """A producer may give up on a server that is away, some seconds after that went: then another one goes on."""
        producer = self.fleet.alive.get("producer")
        if producer is not None and producer.poll() is not None:
            del self.fleet.alive["producer"]
            self.start_what_is_missing(producing_from)
        return more_than(self.fleet, held)

    def harm(self, round_: int) -> None:
        names = sorted(name for name in self.fleet.alive if self.fleet.alive[name] not in self.stopped)
        if round_ % 3 == 1:
            # Stopped, not dead: when it wakes, rounds later, it believes in leases that ended long ago.
            chosen = self.fleet.alive[self.chance.choice([name for name in names if name != "producer"])]
            chosen.send_signal(signal.SIGSTOP)
            self.stopped.append(chosen)
        elif round_ % 3 == 2:
            self.server.restart("immediate")
            return
        else:
            chosen = self.fleet.alive[name := self.chance.choice(names)]
            self.fleet.kill(name)
        self.harmed.add(chosen.pid)

    def wake(self) -> None:
        for process in self.stopped:
            process.send_signal(signal.SIGCONT)
        self.stopped.clear()


@pytest.mark.timeout(2_400)
def test_a_fleet_loses_and_doubles_nothing_whatever_is_killed_stopped_or_crashes(
    fleet: Fleet, server: PostgresServer
) -> None:
    campaign = Campaign(fleet, server, 11)
    before: dict[str, RunView] = {}
    for round_ in range(ROUNDS):
        campaign.start_what_is_missing(round_ * 1_000_000)
        held = promised_so_far(fleet)
        goes_on = partial(campaign.promises_go_on, held, round_ * 1_000_000 + 500_000)
        eventually(goes_on, within=60, what=f"a new promise in round {round_}")
        time.sleep(campaign.chance.uniform(0.2, 2.0))  # the harm falls anywhere
        campaign.harm(round_)
        if round_ % 6 == 5:
            campaign.wake()
        if round_ == ROUNDS // 2:
            before, _, _ = asyncio.run(everything(fleet.store))
        # A producer may give up on a server that is away, and so may who has not begun yet. The fleet may not.
        young = {name for name, born in campaign.born.items() if time.monotonic() - born < 20}
        assert set(fleet.fallen()) <= {"producer"} | young
    eventually(partial(_stale, server), within=30, what="the leases of whoever is stopped have ended")
    campaign.wake()
    if "producer" in fleet.alive:
        fleet.kill("producer")
    campaign.start_what_is_missing()
    eventually(lambda: asyncio.run(unended(fleet.store)) <= 0, within=120, what="the backlog drained")
    assert fleet.fallen() == []
    fleet.kill_all()
    _judge(fleet, server, campaign, before)


def _stale(server: PostgresServer) -> bool:
    """Every shard has an owner that renews it: nobody who is stopped has one any more."""
    return server.psql("SELECT count(*) FROM foliot.shard WHERE shard >= 0 AND until > foliot.now()") == "16"


def _judge(fleet: Fleet, server: PostgresServer, campaign: Campaign, before: dict[str, RunView]) -> None:
    runs, attempts, early = asyncio.run(everything(fleet.store))
    promised = judge.acknowledged(fleet.acknowledged)
    assert len(promised) > 100, "too little load to prove anything"
    judge.judge_promises(runs, promised)
    judge.judge_executions(judge.read_log(fleet.log), attempts)
    judge.judge_verdicts_kept(before, runs)
    for number in range(5):
        assert judge.judge_ticks(runs, f"tick-{number}", 200 * MILLISECOND) > 10
    judge.judge_ticks(runs, "latest", 500 * MILLISECOND)
    assert early == 0
    assert server.psql("SELECT count(*) FROM foliot.history WHERE claimed_at < fire_at OR fired_at < fire_at") == "0"
    # A server that was away is no reason to call anybody lost.
    workers = dict(row.split("|") for row in server.psql("SELECT number, pid FROM foliot.instance").splitlines())
    lost = server.psql("SELECT detail FROM foliot.event WHERE kind = 'lost'").splitlines()
    blamed = {int(workers[found[1]]) for told in lost if (found := re.search(r" on worker (\d+): ", told))}
    assert blamed <= campaign.harmed, f"called lost without having been harmed: {blamed - campaign.harmed}"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_the_shards_of_a_scheduler_that_is_gone_are_taken_over(
    fleet: Fleet, server: PostgresServer, how: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        fleet.start_scheduler(f"scheduler-{number}")
    eventually(lambda: sorted(_shares(server).values()) == [5, 5, 6], within=150, what="each has its share")
    victim = fleet.alive["scheduler-1"]
    victim.send_signal(how)
    began = time.monotonic()
    if how is signal.SIGKILL:
        victim.wait(20)  # or its remains would count as a process that lives
    eventually(lambda: victim.pid not in _shares(server), within=60, what="nothing is its own any more")
    took = time.monotonic() - began
    eventually(lambda: sum(_shares(server).values()) == 16, within=60, what="the others have all of it")
    if TORTURE:
        with capsys.disabled():
            print(f"\ntaken over {took:.1f} s after it was {how.name}")
    victim.send_signal(signal.SIGCONT)
    if how is signal.SIGSTOP:
        # Shares may stay uneven for a minute after a takeover.
        eventually(lambda: victim.pid in _shares(server), within=150, what="it joins again")


def _shares(server: PostgresServer) -> dict[int, int]:
    """By process, how many shards it holds by a lease that has not ended."""
    try:
        rows = server.psql(
            "SELECT i.pid, count(*) FROM foliot.shard s JOIN foliot.instance i ON i.number = s.owner "
            "WHERE s.shard >= 0 AND s.until > foliot.now() GROUP BY i.pid"
        )
    except Exception:  # the tables are not there yet
        return {}
    return {int(pid): int(count) for pid, count in (row.split("|") for row in rows.splitlines())}
