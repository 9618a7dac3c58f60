"""A destination that is down: work for it is held but for probes, others go on, and all runs end by their policy."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from foliot import Foliot
from foliot.domain.state import Reason, State
from foliot.testing import virtual_time
from foliot.testing.world import World
from tests.tiers import by_tier

START = datetime(2026, 4, 1, tzinfo=UTC)
MANY = by_tier(500, 1_000, 10_000)
SLOTS = 100
"""What a worker of virtual time runs at a time."""


class Bank:
    """Two destinations: calls to each are noted, and each may be down."""

    def __init__(self, **settings: Any) -> None:
        self.app = Foliot("sqlite:///:memory:")
        self.down: set[str] = set()
        self.calls: dict[str, list[float]] = {"bank": [], "post": []}
        given = {"breaker_after": 5, "breaker_probe": "30s", "backoff": "10s", "backoff_cap": "2m", "attempts": 1000}

        @self.app.job(destination="bank", **given | settings)
        async def pay(n: int) -> None:
            self._call("bank")

        @self.app.job(destination="post", **given)
        async def send(n: int) -> None:
            self._call("post")

        self.pay, self.send = pay, send

    def _call(self, where: str) -> None:
        self.calls[where].append(self.app.clock.now() / 1_000_000)
        if where in self.down:
            raise ConnectionError(f"{where} does not answer")


def held(world: World) -> list[Any]:
    return [run for run in world.runs() if run.state is State.HELD]


def test_work_for_a_dead_destination_is_held_but_for_a_probe_and_others_are_not_touched() -> None:
    bank = Bank()
    bank.down.add("bank")
    with virtual_time(bank.app, start=START) as world:
        bank.app.promise_many([bank.pay.promise_delay("1s", n) for n in range(MANY)])
        world.run_for("5m")
        begun = len(bank.calls["bank"])
        assert begun <= SLOTS + 10  # what was under way when it opened, and a few probes
        bank.app.promise_many([bank.send.promise_delay("1s", n) for n in range(50)])
        world.run_for("30m")
        probes = bank.calls["bank"][begun:]
        assert 10 <= len(probes) <= 16
        assert all(after - before >= 119 for before, after in pairwise(probes))
        assert len(bank.calls["post"]) == 50
        assert {run.reason for run in held(world)} == {Reason.DESTINATION_DOWN}
        assert "an answer of bank" in (held(world)[0].detail or "")
        assert "breaker_opened" in [event.kind for event in world.events()]


def test_when_it_answers_all_that_waited_goes_on_and_nothing_is_lost() -> None:
    bank = Bank()
    bank.down.add("bank")
    with virtual_time(bank.app, start=START) as world:
        bank.app.promise_many([bank.pay.promise_delay("1s", n) for n in range(200)])
        world.run_for("20m")
        bank.down.clear()
        world.run_for("10m")
        assert world.states() == [State.SUCCEEDED] * 200
        kinds = [event.kind for event in world.events()]
        assert kinds.count("breaker_opened") == kinds.count("breaker_closed") == 1


def test_what_was_held_spends_no_attempts() -> None:
    bank = Bank(attempts=3)
    bank.down.add("bank")
    with virtual_time(bank.app, start=START) as world:
        bank.app.promise_many([bank.pay.promise_delay("1s", n) for n in range(6)])
        world.run_for("10s")
        later = bank.pay.delay("1s", 99)
        world.run_for("1m")
        waiting = world.run(later.id)
        assert (waiting.state, waiting.attempt) == (State.HELD, 0)


@pytest.mark.parametrize("give_up_after", ["10m", None])
def test_a_run_gives_up_when_it_is_too_old_also_while_it_is_held(give_up_after: str | None) -> None:
    bank = Bank(give_up_after=give_up_after)
    bank.down.add("bank")
    with virtual_time(bank.app, start=START) as world:
        bank.app.promise_many([bank.pay.promise_delay("1s", n) for n in range(20)])
        world.run_for("30m")
        dead = [run for run in world.runs() if run.state is State.DEAD]
        if give_up_after is None:
            assert dead == []
        else:
            assert len(dead) == 20
            assert {run.reason for run in dead} <= {Reason.DESTINATION_DOWN, Reason.TOO_OLD}
            assert Reason.DESTINATION_DOWN in {run.reason for run in dead}


def test_an_operator_closes_a_breaker_by_hand() -> None:
    bank = Bank()
    bank.down.add("bank")
    with virtual_time(bank.app, start=START) as world:
        bank.app.promise_many([bank.pay.promise_delay("1s", n) for n in range(20)])
        world.run_for("1m")
        bank.down.clear()
        world.call(world.store.drop_limit("breaker:bank", actor="ana", note="they say it is up"))
        world.run_for("30s")
        assert world.states() == [State.SUCCEEDED] * 20


def test_a_permanent_failure_says_nothing_about_the_destination() -> None:
    bank = Bank(give_up_on=ConnectionError)
    bank.down.add("bank")
    with virtual_time(bank.app, start=START) as world:
        bank.app.promise_many([bank.pay.promise_delay("1s", n) for n in range(20)])
        world.run_for("1m")
        assert world.states() == [State.DEAD] * 20
        assert len(bank.calls["bank"]) == 20
