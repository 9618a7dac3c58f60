"""Work that is done elsewhere, over HTTP, in virtual time: by a worker like any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from foliot.domain.elsewhere import MOST_ERROR
from foliot.domain.instant import MINUTE, SECOND, rfc3339
from foliot.domain.run import Promise
from foliot.domain.state import Outcome, Reason, State
from foliot.store.keyring import Keyring
from foliot.store.keys import new_key
from tests.web.stage import Caller, Stage, staged

JOB = {"name": "resize", "settings": {"attempts": 3, "timeout": "5m", "backoff": "1s", "lease": "30s"}}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(lived=False) as made:
        yield made


@pytest.fixture
def guest(stage: Stage) -> Guest:
    return Guest(stage, stage.caller("resizer", "work"))


class Guest:
    """A worker elsewhere, with two slots."""

    def __init__(self, stage: Stage, caller: Caller) -> None:
        self.stage, self.caller = stage, caller
        self.number = caller.post("/external/workers", 201, name="laptop", jobs=[JOB], slots=2)["worker"]

    def claim(self, limit: int = 1) -> list[Any]:
        self.stage.world.run_for("1s")
        return list(self.caller.post(f"/external/workers/{self.number}/claim", limit=limit)["attempts"])

    def claimed(self, key: str = "picture", arguments: dict[str, Any] | None = None) -> Any:
        self.stage.promise("resize", key, arguments)
        [taken] = self.claim()
        return taken

    def beat(self, *said: Any) -> Any:
        return self.caller.post(f"/external/workers/{self.number}/beat", attempts=list(said))

    def say(self, taken: Any, how: str, status: int = 200, **body: Any) -> Any:
        return self.caller.post(f"/external/attempts/{taken['attempt_token']}/{how}", status, **body)

    def run(self, taken: Any) -> Any:
        return self.stage.world.run(taken["run"])


def test_a_run_is_claimed_with_its_arguments_and_completed(guest: Guest) -> None:
    taken = guest.claimed(arguments={"width": 80})
    assert (taken["run"], taken["attempt"], taken["arguments"]) == ("picture#1", 1, {"width": 80})
    assert taken["deadline"] == rfc3339(guest.stage.world.clock.now() + 5 * MINUTE)
    assert guest.claim() == []
    guest.say(taken, "complete", result={"bytes": 7})
    run = guest.run(taken)
    assert (run.state, run.result, run.worker) == (State.SUCCEEDED, b'{"bytes":7}', guest.number)


def test_what_a_worker_says_of_a_run_is_stored_without_the_secrets_of_its_arguments(guest: Guest) -> None:
    taken = guest.claimed(arguments={"width": 80, "password": "c4nary-x"})
    guest.beat({"attempt": taken["attempt_token"], "done": 1, "note": "as c4nary-x, 80 wide"})
    assert b'"as [redacted], 80 wide"' in (guest.run(taken).progress or b"")
    guest.say(taken, "fail", error="." * (MOST_ERROR - 3) + "c4nary-x is wrong", permanent=True)
    run = guest.run(taken)
    stored = " ".join([run.detail or "", *(one.error or "" for one in run.attempts)])
    assert run.state is State.DEAD
    assert "..." in stored
    assert "c4" not in stored, "also where the text is cut"


def test_a_worker_takes_no_more_than_its_slots(guest: Guest) -> None:
    for number in range(3):
        guest.stage.promise("resize", f"picture-{number}")
    taken = guest.claim(limit=10)
    assert len(taken) == 2
    assert guest.claim() == []
    guest.say(taken[0], "complete")
    assert len(guest.claim()) == 1


def test_a_worker_takes_only_a_part_of_its_slots_full_of_runs_that_were_lost_twice(guest: Guest) -> None:
    for number in range(2):
        guest.stage.promise("resize", f"picture-{number}")
    for _ in range(2):
        assert len(guest.claim(limit=10)) == 2, "the first loss raises no suspicion"
        guest.stage.world._orphans = True
        guest.stage.world.run_for("1m")
        guest = Guest(guest.stage, guest.caller)
    [first] = guest.claim(limit=10)
    assert guest.claim(limit=10) == []
    assert guest.run(first).spent == 0
    guest.say(first, "complete")
    assert len(guest.claim(limit=10)) == 1


def test_what_an_attempt_says_of_itself_is_kept_for_the_next(guest: Guest) -> None:
    taken = guest.claimed()
    said = {"attempt": taken["attempt_token"], "done": 3, "of": 9, "note": "tiles", "checkpoint": {"tile": 3}}
    assert guest.beat(said) == {"stop": [], "lost": []}
    assert b'"done":3' in (guest.run(taken).progress or b"")
    guest.say(taken, "fail", error="no memory")
    [again] = _again(guest, "10s")
    assert (again["attempt"], again["checkpoint"]) == (2, {"tile": 3})


def _again(guest: Guest, after: str) -> list[Any]:
    guest.stage.world.run_for(after)
    return guest.claim()


def test_a_failure_is_tried_again_as_its_policy_says_until_it_is_dead(guest: Guest) -> None:
    taken = guest.claimed()
    for attempt in (1, 2, 3):
        assert taken["attempt"] == attempt
        guest.say(taken, "fail", error=f"boom {attempt}")
        if attempt < 3:
            [taken] = _again(guest, "10s")
    run = guest.run(taken)
    assert (run.state, [one.error for one in run.attempts]) == (State.DEAD, ["boom 1", "boom 2", "boom 3"])


def test_what_cannot_be_helped_is_dead_at_once_and_what_asks_to_wait_waits(guest: Guest) -> None:
    taken = guest.claimed("hopeless")
    guest.say(taken, "fail", error="no such picture", permanent=True)
    assert guest.run(taken).state is State.DEAD
    taken = guest.claimed("patient")
    guest.say(taken, "fail", error="busy", retry_after="10m")
    assert _again(guest, "9m") == []
    assert len(_again(guest, "1m")) == 1


def test_what_is_given_back_costs_no_attempt(guest: Guest) -> None:
    taken = guest.claimed()
    guest.say(taken, "give-back")
    [again] = guest.claim()
    assert guest.run(again).spent == 0
    assert again["run"] == taken["run"]


def test_a_worker_that_falls_silent_loses_its_runs_and_comes_too_late(guest: Guest) -> None:
    taken = guest.claimed()
    guest.stage.world._orphans = True
    guest.stage.world.run_for("1m")
    run = guest.run(taken)
    assert [one.outcome for one in run.attempts] == [Outcome.LOST]
    late = guest.caller.ask("POST", f"/api/v1/external/attempts/{taken['attempt_token']}/complete", json={})
    assert late.status_code == 404  # its worker was declared dead
    assert guest.caller.ask("POST", f"/api/v1/external/workers/{guest.number}/beat", json={}).status_code == 404
    another = Guest(guest.stage, guest.caller)
    [again] = another.claim()
    assert again["run"] == taken["run"]
    another.say(again, "complete")
    assert guest.run(again).state is State.SUCCEEDED


def test_who_says_it_twice_is_fenced_the_second_time(guest: Guest) -> None:
    taken = guest.claimed()
    guest.say(taken, "complete")
    for how, body in (("complete", {}), ("fail", {"error": "no"}), ("give-back", {})):
        response = guest.caller.ask("POST", f"/api/v1/external/attempts/{taken['attempt_token']}/{how}", json=body)
        assert response.status_code == 409
        assert response.json()["type"] == "urn:foliot:problem:fenced"
    assert guest.run(taken).state is State.SUCCEEDED
    assert guest.beat({"attempt": taken["attempt_token"]})["lost"] == [taken["attempt_token"]]


def test_a_run_that_somebody_cancels_is_to_be_stopped(guest: Guest) -> None:
    taken = guest.claimed()
    operator = guest.stage.caller("operator")
    operator.post("/runs/picture%231/cancel", reason="not needed")
    assert guest.beat()["stop"] == [taken["attempt_token"]]
    guest.say(taken, "fail", error="stopped", cancelled=True)
    assert guest.run(taken).state is State.CANCELLED


def test_an_attempt_that_takes_too_long_is_asked_to_stop_and_then_ended(guest: Guest) -> None:
    taken = guest.claimed()
    told: list[Any] = []
    for _ in range(34):
        guest.stage.world.clock.advance(10 * SECOND)
        told.append(guest.beat({"attempt": taken["attempt_token"]}))
    assert told[28] == {"stop": [], "lost": []}
    assert told[30] == {"stop": [taken["attempt_token"]], "lost": []}
    assert told[33] == {"stop": [], "lost": [taken["attempt_token"]]}
    assert [one.outcome for one in guest.run(taken).attempts] == [Outcome.TIMED_OUT]


def test_a_worker_that_leaves_hands_over_what_it_had(guest: Guest) -> None:
    taken = guest.claimed()
    assert guest.caller.ask("DELETE", f"/api/v1/external/workers/{guest.number}").status_code == 200
    [again] = Guest(guest.stage, guest.caller).claim()
    assert (again["run"], guest.run(again).spent) == (taken["run"], 0)


def test_nobody_else_speaks_for_a_worker(guest: Guest) -> None:
    taken, other = guest.claimed(), guest.stage.caller("another", "work")
    answers = [
        other.ask("POST", f"/api/v1/external/workers/{guest.number}/{how}", json={}) for how in ("claim", "beat")
    ] + [
        other.ask("DELETE", f"/api/v1/external/workers/{guest.number}"),
        other.ask("POST", f"/api/v1/external/attempts/{taken['attempt_token']}/complete", json={}),
    ]
    assert [answer.status_code for answer in answers] == [404] * 4
    assert guest.run(taken).state is State.RUNNING


def test_an_attempt_cannot_be_made_up(guest: Guest) -> None:
    taken = guest.claimed()
    token = taken["attempt_token"]
    another = "A" if token[-1] != "A" else "B"
    for wrong in (token[:-1] + another, another + token[1:], token[:-4], "AAAA"):
        response = guest.caller.ask("POST", f"/api/v1/external/attempts/{wrong}/complete", json={})
        assert response.status_code in (404, 422), wrong
    assert guest.run(taken).state is State.RUNNING


def test_what_is_too_large_to_be_kept_is_refused_and_the_attempt_goes_on(guest: Guest) -> None:
    taken = guest.claimed()
    response = guest.say(taken, "complete", 422, result="x" * 70_000)
    assert "65,536" in response["detail"]
    assert guest.run(taken).state is State.RUNNING


def test_a_job_that_code_declares_keeps_the_settings_of_the_code(stage: Stage) -> None:
    caller = stage.caller("reporter", "work", jobs=["report"])
    caller.post("/external/workers", 201, name="laptop", jobs=[{"name": "report", "settings": {"attempts": 99}}])
    assert stage.caller("reader", "read").get("/jobs/report")["policy"]["attempts"] == 1


def test_a_claim_takes_no_key_so_that_its_arguments_are_kept_nowhere(guest: Guest) -> None:
    path, headers = f"/api/v1/external/workers/{guest.number}/claim", {"idempotency-key": "k1"}
    assert guest.caller.ask("POST", path, json={"limit": 1}, headers=headers).status_code == 422


def test_what_is_locked_with_a_key_that_is_not_here_is_told_and_waits(guest: Guest) -> None:
    world = guest.stage.world
    shut = Keyring([new_key()]).lock(b'{"width":80}', "arguments:resize")
    world.call(world.store.promise([Promise("resize", shut, world.clock.now(), key="picture")]))
    world.run_for("1s")
    told = guest.caller.post(f"/external/workers/{guest.number}/claim", 503, limit=1)
    assert told["type"] == "urn:foliot:problem:locked"
    assert "FOLIOT_ENCRYPTION_KEYS" in told["detail"]
    run = world.run("picture#1")
    assert (run.state, run.reason, run.spent) == (State.RETRYING, Reason.LOCKED, 0)
    assert guest.claim() == [], "it waits, and the slot is free"
    assert guest.claimed("another")["run"] == "another#1"
