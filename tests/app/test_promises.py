"""Delayed promises, from the call to the outcome, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import pytest

from foliot import Context, Foliot, Permanent, RetryAfter
from foliot.domain.run import Promise, Promised, differing
from foliot.domain.state import Outcome, State
from foliot.errors import Conflict, InvalidInput, UnknownName
from foliot.operate.shapes import kept_shape
from foliot.testing import World, virtual_time

START = datetime(2026, 4, 1, 9, tzinfo=UTC)


@dataclass
class Campus:
    app: Foliot
    sent: list[tuple[datetime, int]] = field(default_factory=list)


@pytest.fixture
def campus() -> Campus:
    campus = Campus(Foliot("sqlite:///:memory:"))

    @campus.app.job
    async def remind(ctx: Context, class_id: int) -> None:
        campus.sent.append((ctx.nominal, class_id))

    return campus


@pytest.fixture
def world(campus: Campus) -> Iterator[World]:
    with virtual_time(campus.app, start=START) as world:
        yield world


def test_a_reminder_is_sent_when_due_and_not_before(campus: Campus, world: World) -> None:
    remind = campus.app.job_named("remind")
    due = START + timedelta(hours=3)
    kept = remind.at(due, class_id=7)
    world.run_until(due - timedelta(microseconds=1))
    assert campus.sent == []
    assert world.run(kept.id).state is State.SCHEDULED
    world.run_until(due)
    assert campus.sent == [(due, 7)]
    assert world.run(kept.id).state is State.SUCCEEDED


def test_one_promise_per_key_also_after_it_ran(campus: Campus, world: World) -> None:
    remind = campus.app.job_named("remind").using(key="class:7")
    assert remind.delay("1h", class_id=7).outcome == "made"
    assert remind.delay("2h", class_id=8).outcome == "kept"
    world.run_for("1d")
    assert remind.delay("1h", class_id=9).outcome == "kept"
    world.run_for("1d")
    assert [class_id for _, class_id in campus.sent] == [7]


def test_a_moved_class_moves_its_reminder(campus: Campus, world: World) -> None:
    campus.app.job_named("remind").using(key="class:7").delay("1h", class_id=7)
    campus.app.move("class:7", START + timedelta(hours=5))
    world.run_for("4h")
    assert campus.sent == []
    world.run_for("1h")
    assert campus.sent == [(START + timedelta(hours=5), 7)]


def test_a_reminder_can_be_moved_to_an_earlier_time_that_is_loaded_already(campus: Campus, world: World) -> None:
    campus.app.job_named("remind").using(key="class:7").delay("4m", class_id=7)
    world.run_for("1s")
    campus.app.move("class:7", START + timedelta(seconds=10))
    world.run_for("30s")
    assert campus.sent == [(START + timedelta(seconds=10), 7)]
    world.run_for("1h")
    assert len(campus.sent) == 1


def test_a_cancelled_class_has_no_reminder_and_a_row_that_says_why(campus: Campus, world: World) -> None:
    kept = campus.app.job_named("remind").using(key="class:7").delay("1h", class_id=7)
    campus.app.cancel("class:7", reason="the teacher is ill")
    world.run_for("1d")
    run = world.run(kept.id)
    assert (run.state, run.reason, run.detail) == (State.CANCELLED, "requested", "the teacher is ill")
    assert campus.sent == []


def test_what_has_run_can_be_neither_moved_nor_cancelled_nor_replaced(campus: Campus, world: World) -> None:
    remind = campus.app.job_named("remind").using(key="class:7")
    remind.delay("1h", class_id=7)
    world.run_for("2h")
    with pytest.raises(Conflict, match="succeeded"):
        campus.app.move("class:7", world.now + timedelta(hours=1))
    with pytest.raises(Conflict, match="succeeded"):
        campus.app.cancel("class:7")
    with pytest.raises(Conflict, match="renew"):
        remind.using(on_conflict="replace").delay("1h", class_id=7)
    assert remind.using(on_conflict="renew").delay("1h", class_id=7).id == "class:7#2"
    with pytest.raises(UnknownName, match="class:8"):
        campus.app.cancel("class:8")


def test_many_promises_are_made_all_or_none(campus: Campus, world: World) -> None:
    remind = campus.app.job_named("remind")
    keyed = remind.using(key="class:1", on_conflict="error")
    keyed.delay("1h", class_id=1)
    with pytest.raises(Conflict):
        campus.app.promise_many([remind.promise_at(START, class_id=2), keyed.promise_at(START, class_id=3)])
    assert len(world.runs()) == 1
    campus.app.promise_many([remind.promise_delay("1m", class_id=i) for i in range(1_500)])
    world.run_for("1m")
    assert sorted(class_id for _, class_id in campus.sent) == list(range(1_500))


def test_arguments_are_checked_when_the_promise_is_made(campus: Campus, world: World) -> None:
    remind = campus.app.job_named("remind")
    for wrong in ({}, {"class_id": "seven"}, {"class_id": 7, "klass": 1}):
        with pytest.raises(InvalidInput, match="remind"):
            remind.delay("1h", **wrong)
    with pytest.raises(InvalidInput, match="no time zone"):
        remind.at(datetime(2026, 4, 2), class_id=7)
    assert world.runs() == []


def test_typed_arguments_arrive_as_they_were_given(world: World, campus: Campus) -> None:
    got: list[date] = []

    @campus.app.job
    def settle(day: date) -> None:
        got.append(day)

    world.add_worker()
    world.kill_worker(0)
    settle.now(day=date(2026, 4, 3))
    world.run_for("1m")
    assert got == [date(2026, 4, 3)]


def test_inside_an_event_loop_the_plain_verb_names_its_async_twin(campus: Campus, world: World) -> None:
    remind = campus.app.job_named("remind")

    async def blocked() -> None:
        remind.delay("1h", class_id=7)

    with pytest.raises(RuntimeError, match=r"await remind\.delay_async"):
        asyncio.run(blocked())
    asyncio.run(remind.delay_async("1h", class_id=7))
    world.run_for("2h")
    assert len(campus.sent) == 1


def test_a_run_that_is_no_longer_useful_is_skipped_with_the_reason(campus: Campus, world: World) -> None:
    kept = campus.app.job_named("remind").using(useful_until="10m").delay("1h", class_id=7)
    world.outage("2h")
    world.run_for("1m")
    assert (world.run(kept.id).state, world.run(kept.id).reason) == (State.SKIPPED, "too_late")


def test_failures_are_retried_then_the_run_is_dead_and_a_person_can_retry_it(campus: Campus, world: World) -> None:
    healthy = False

    @campus.app.job(attempts=3, backoff="1m")
    def charge() -> str:
        if not healthy:
            raise ConnectionError("the bank does not answer")
        return "charged"

    world.add_worker()
    world.kill_worker(0)
    kept = charge.now()
    world.run_for("1d")
    run = world.run(kept.id)
    assert (run.state, run.reason, run.spent) == (State.DEAD, "attempts", 3)
    assert [one.outcome for one in run.attempts] == [Outcome.FAILED] * 3
    assert "the bank does not answer" in (run.attempts[0].error or "")
    healthy = True
    campus.app.operate.retry(kept.id, reason="the bank is back", actor="ana")
    world.run_for("1m")
    assert world.run(kept.id).state is State.SUCCEEDED
    assert world.run(kept.id).result == b'"charged"'


def test_a_permanent_error_is_not_retried_and_a_retry_after_is_honoured(campus: Campus, world: World) -> None:
    tries: list[datetime] = []

    @campus.app.job
    def refuse() -> None:
        raise Permanent("no such account")

    @campus.app.job
    def busy(ctx: Context) -> None:
        tries.append(world.now)
        if ctx.attempt == 1:
            raise RetryAfter("2h")

    world.add_worker()
    world.kill_worker(0)
    dead, later = refuse.now(), busy.now()
    world.run_for("1d")
    assert (world.run(dead.id).state, world.run(dead.id).spent) == (State.DEAD, 1)
    assert world.run(later.id).state is State.SUCCEEDED
    assert tries[1] - tries[0] >= timedelta(hours=2)


def test_a_handler_that_takes_too_long_times_out(campus: Campus, world: World) -> None:
    @campus.app.job(timeout="10s", attempts=1)
    async def sleepy() -> None:
        await world.clock.sleep(60_000_000)

    world.add_worker()
    world.kill_worker(0)
    kept = sleepy.now()
    world.run_for("30s")
    run = world.run(kept.id)
    assert (run.state, run.attempts[0].outcome) == (State.DEAD, Outcome.TIMED_OUT)


def test_a_lost_worker_costs_an_attempt_and_the_run_goes_on(campus: Campus, world: World) -> None:
    begun: list[int] = []

    @campus.app.job(lease="30s", backoff="1s")
    async def long(ctx: Context) -> None:
        begun.append(ctx.attempt)
        await world.clock.sleep(600_000_000)

    world.add_worker()
    world.kill_worker(0)
    kept = long.now()
    world.run_for("1m")
    world.kill_worker()
    world.add_worker()
    world.run_for("20s")
    assert world.run(kept.id).state is State.RUNNING, "its lease has not ended yet"
    world.run_for("20m")
    run = world.run(kept.id)
    assert run.state is State.SUCCEEDED
    assert [one.outcome for one in run.attempts] == [Outcome.LOST, Outcome.SUCCEEDED]
    assert begun == [1, 2]


def test_a_job_that_asks_first_is_ambiguous_after_a_loss_and_never_retried_blindly(
    campus: Campus, world: World
) -> None:
    @campus.app.job(on_lost="ask")
    async def pay() -> None:
        await world.clock.sleep(600_000_000)

    world.add_worker()
    world.kill_worker(0)
    kept = pay.now()
    world.run_for("1m")
    world.outage("1m")
    world.run_for("1d")
    assert world.run(kept.id).state is State.AMBIGUOUS
    with pytest.raises(Conflict, match="First find out"):
        campus.app.operate.retry(kept.id, reason="I feel lucky", actor="ana")
    campus.app.operate.retry(kept.id, reason="the bank says no", actor="ana", override=True)
    world.run_for("1h")
    assert world.run(kept.id).state is State.SUCCEEDED


def test_a_running_job_is_asked_to_stop_when_it_is_cancelled(campus: Campus, world: World) -> None:
    @campus.app.job
    async def long() -> None:
        await world.clock.sleep(600_000_000)

    world.add_worker()
    world.kill_worker(0)
    kept = long.now()
    world.run_for("10s")
    assert campus.app.operate.cancel(kept.id, reason="wrong file", actor="ana").outcome == "asked"
    world.run_for("30s")
    assert world.run(kept.id).state is State.CANCELLED


def test_a_job_that_no_worker_knows_waits_and_is_reported_while_others_go_on(campus: Campus, world: World) -> None:
    stranger = Foliot(world.store)

    @stranger.job
    def unknown() -> None: ...

    with stranger.standing_on(world.store, world.clock):
        lost = asyncio.run(unknown.now_async())
    known = campus.app.job_named("remind").now(class_id=7)
    world.run_for("1h")
    assert world.run(known.id).state is State.SUCCEEDED
    assert world.run(lost.id).state is State.READY
    assert [event.subject for event in world.events() if event.kind == "unknown_job"] == ["unknown"]


def test_a_broken_payload_is_set_aside_and_the_others_go_on(campus: Campus, world: World) -> None:
    remind = campus.app.job_named("remind")
    broken = remind.promise_at(START, class_id=1)._replace(payload=b"\xff{not json")
    bad, good = campus.app.promise_many([broken, remind.promise_at(START, class_id=2)])
    world.run_for("1h")
    assert (world.run(bad.id).state, world.run(bad.id).reason) == (State.DEAD, "bad_payload")
    assert world.run(good.id).state is State.SUCCEEDED
    assert [event.kind for event in world.events()] == ["run_set_aside"]


def test_a_key_that_is_promised_again_otherwise_is_kept_and_says_so(
    campus: Campus, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    remind = campus.app.job_named("remind").using(key="class:7")
    due = START + timedelta(hours=1)
    first = remind.at(due, class_id=7)
    assert first.differs == remind.at(due, class_id=7).differs == ()
    assert caplog.messages == []
    other = remind.at(due + timedelta(hours=1), class_id=8)
    assert (other.id, other.outcome, other.differs) == (first.id, "kept", ("args", "time"))
    assert "with another args and another time" in str(other)
    [warning] = caplog.messages
    assert "'class:7' was promised again with another args and another time, keeping class:7#1 unchanged" in warning
    assert remind.delay("2h", class_id=7).differs == (), "a delay counts from the call"
    world.run_for("1d")
    assert remind.at(due, class_id=8).differs == ("args",), "also after it ended"
    by_name = campus.app.operate.promise("remind", {"class_id": 9}, key="class:7", actor="ana")
    assert by_name.differs == ("args",)
    assert kept_shape(by_name)["differs"] == ["args"]


@pytest.mark.parametrize(
    ("given", "differs"),
    [(b'{"b":2, "a":1}', ()), (b'{"a":1,"b":3}', ("args",)), (b'{"a":true,"b":2}', ("args",)), (b"\xff", ("args",))],
)
def test_the_order_of_arguments_is_not_compared(given: bytes, differs: tuple[str, ...]) -> None:
    stored = Promised("job", b'{"a":1,"b":2}', 0)
    assert differing(Promise("job", given, 0), stored) == differs


def test_a_relative_time_is_not_compared() -> None:
    stored = Promised("job", b'{"a":1}', 0)
    assert differing(Promise("job", b'{"a":1}', 0), stored) == ()
    assert differing(Promise("other", b'{"a":2}', 5, is_relative=True), stored) == ("job", "args")
