"""kill -9 of workers and schedulers at random moments: never more handlers than limits allow, and all runs end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from foliot import Foliot
from foliot.domain.state import PARKED, TERMINAL, State
from tests.faults import judge, limited
from tests.faults.processes import Fleet
from tests.servers.emptied import emptied
from tests.tiers import by_tier
from tests.waiting import until

pytestmark = pytest.mark.faults

APP = Path(limited.__file__)
RUNS = by_tier(60, 600, 6_000)
KILLS = by_tier(4, 20, 150)
LIVE = [state for state in State if state not in TERMINAL | PARKED]


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    store = emptied(request.getfixturevalue("postgres")) if request.param == "postgres" else None
    fleet = Fleet(tmp_path, store)
    yield fleet
    fleet.close()


def start_what_is_missing(fleet: Fleet) -> None:
    if "scheduler" not in fleet.alive:
        fleet.start_scheduler(app=APP)
    for name in ("worker-0", "worker-1"):
        if name not in fleet.alive:
            fleet.start_worker(name, "--slots", "10", app=APP)


def kill(fleet: Fleet, name: str) -> None:
    """The log has the kill before it happens: the slots of the handlers may be free right after it."""
    with fleet.log.open("ab", buffering=0) as log:
        log.write(b'{"what": "kill", "pid": %d}\n' % fleet.alive[name].pid)
    fleet.kill(name)


def lines(fleet: Fleet) -> int:
    return len(fleet.log.read_bytes().splitlines()) if fleet.log.exists() else 0


def wait_for_lines(fleet: Fleet, count: int) -> None:
    until(lambda: lines(fleet) >= count or fleet.ask(is_drained), f"the log has {count} lines, or all runs have ended")


async def is_drained(app: Foliot) -> bool:
    return not await app.operate.runs_async(job="limited", states=LIVE, limit=1)


def judge_limits(log: list[dict[str, object]]) -> None:
    """Counts the handlers that run, line by line."""
    running: dict[tuple[object, object], dict[str, object]] = {}
    killed: set[object] = set()
    for line in log:
        if line["what"] == "kill":
            killed.add(line["pid"])
            running = {one: begun for one, begun in running.items() if begun["pid"] != line["pid"]}
        elif line["pid"] not in killed:
            attempt = (line["run"], line["attempt"])
            if line["what"] == "start":
                running[attempt] = line
            else:
                del running[attempt]
        assert len(running) <= limited.LIMIT, f"{len(running)} handlers run: {list(running)}"
        accounts = Counter(begun["account"] for begun in running.values())
        assert set(accounts.values()) <= {1}, f"two handlers run with one key: {accounts}"


@pytest.mark.timeout(by_tier(600, 1_800))
def test_limits_hold_and_all_runs_end_whichever_process_is_killed(fleet: Fleet) -> None:
    chance = random.Random(11)
    fleet.start("producer", "tests.faults.limited", str(RUNS)).wait()
    del fleet.alive["producer"]
    for _ in range(KILLS):
        start_what_is_missing(fleet)
        wait_for_lines(fleet, lines(fleet) + chance.randint(1, RUNS // KILLS))
        kill(fleet, chance.choice(sorted(fleet.alive)))
    start_what_is_missing(fleet)
    until(lambda: fleet.ask(is_drained), "all runs have ended")
    log = judge.read_log(fleet.log)
    assert len({line["run"] for line in log if line["what"] == "end"}) == RUNS
    judge_limits(log)
