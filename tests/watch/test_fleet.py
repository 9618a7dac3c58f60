"""What the fleet shows, and what of that is an alert: queues, slots, clocks, and how much comes and goes."""

from __future__ import annotations

from foliot import Foliot, every
from foliot.domain.alerts import FLEET, Kind
from foliot.domain.instant import MINUTE, SECOND, Instant
from foliot.domain.store import Instance, QueueView
from foliot.domain.survey import Fleet
from foliot.testing import virtual_time
from foliot.watch import fleet
from foliot.watch.memory import Remembered, remembered
from foliot.watch.runs import LEAST_KNOWN, usual

NOW: Instant = 10_000 * MINUTE


def worker(number: int = 1, **more: object) -> Instance:
    given = {"role": "worker", "host": "here", "pid": 1, "version": "", "started_at": 0, "beat_at": NOW, "slots": 2}
    return Instance(number, **given | {"queues": ("mail",)} | more)  # type: ignore[arg-type]


def a_fleet(**more: object) -> Fleet:
    given: dict[str, object] = {"instances": [worker()], "known_jobs": frozenset({"send"}), "unowned": 0, "shards": 1}
    given |= {"queues": [], "waiting_jobs": [], "busy": {}, "dead": 0, "early": 0}
    return Fleet(**given | more)  # type: ignore[arg-type]


def waiting(queue: str = "mail", count: int = 5, for_: int = SECOND) -> QueueView:
    return QueueView(queue, count, NOW - for_)


def test_a_queue_is_saturated_when_no_slot_is_free_and_work_waits() -> None:
    full = a_fleet(queues=[waiting()], busy={1: 2})
    assert [one.key for one in fleet.queues(full, NOW).findings] == [("saturated", "queue:mail")]
    assert fleet.queues(a_fleet(queues=[waiting()], busy={1: 1}), NOW).findings == []
    assert fleet.queues(a_fleet(busy={1: 2}), NOW).findings == []


def test_a_queue_ages_when_its_first_run_waits_for_long() -> None:
    aged = a_fleet(queues=[waiting(for_=3 * MINUTE)], busy={})
    assert [one.key for one in fleet.queues(aged, NOW).findings] == [("queue_age", "queue:mail")]


def test_a_job_or_a_queue_that_nobody_serves_lacks_a_worker() -> None:
    facts = a_fleet(queues=[waiting("slow")], waiting_jobs=["resize@gpu", "settle?"])
    found = fleet.workers(facts, ["send", "pay"], frozenset(), NOW).findings
    assert [one.subject for one in found] == ["queue:slow", "job:pay", "job:resize", "job:settle"]
    silent = a_fleet(instances=[worker(beat_at=NOW - 5 * MINUTE)], queues=[waiting()])
    assert [one.subject for one in fleet.workers(silent, ["send", "pay"], frozenset(), NOW).findings] == [FLEET]
    assert fleet.workers(a_fleet(instances=[]), [], frozenset(), NOW).findings == []


def test_a_host_whose_clock_is_fenced_is_named() -> None:
    skewed = worker(host="three", fenced=True, offset_low=3 * SECOND, offset_high=3 * SECOND)
    [found] = fleet.clocks([worker(), skewed]).findings
    assert found.key == ("clock", "host:three")
    assert "3" in found.cause


def test_a_start_before_its_time_is_told() -> None:
    assert fleet.early(a_fleet()).findings == []
    assert [one.key for one in fleet.early(a_fleet(early=1)).findings] == [("early", FLEET)]


def kinds(facts: Fleet, completed: int, retrying: int, memory: Remembered, now: Instant) -> set[Kind]:
    return {one.kind for one in fleet.flow(facts, completed, retrying, memory, now).findings}


def test_completions_that_fall_while_work_waits_are_told() -> None:
    memory, busy = Remembered(), a_fleet(queues=[waiting()])
    for minute in range(10):
        assert kinds(busy, 10, 0, memory, NOW + minute * MINUTE) == set()
    for minute in range(10, 19):
        memory = remembered(memory.encoded())  # also by whoever watches next
        kinds(busy, 1, 0, memory, NOW + minute * MINUTE)
    assert kinds(busy, 1, 0, memory, NOW + 19 * MINUTE) == {Kind.COMPLETIONS}
    assert kinds(a_fleet(), 1, 0, memory, NOW + 19 * MINUTE) == set()  # nothing waits: there is nothing to complete


def test_retries_that_rise_and_dead_letters_that_grow_are_told() -> None:
    memory = Remembered()
    for minute in range(11):
        assert kinds(a_fleet(dead=3), 0, 5, memory, NOW + minute * MINUTE) == set()
    told = kinds(a_fleet(dead=14), 0, 40, memory, NOW + 11 * MINUTE)
    assert told == {Kind.RETRIES, Kind.DEAD_LETTERS}
    for minute in range(12, 80):
        last = kinds(a_fleet(dead=14), 0, 40, memory, NOW + minute * MINUTE)
    assert last == set()


def test_what_is_usual_does_not_follow_a_few_odd_ones() -> None:
    assert usual([MINUTE] * (LEAST_KNOWN - 1)) is None
    calm = usual([MINUTE + second * SECOND for second in range(10)] + [100 * MINUTE])
    assert calm is not None
    assert MINUTE <= calm.median <= MINUTE + 10 * SECOND
    assert calm.spread < 2 * MINUTE


def test_a_memory_that_cannot_be_read_is_begun_anew() -> None:
    for data in (None, b"", b"not json", b"[]", b'{"head": 7}', b'{"failures": {"x": 1}}'):
        assert remembered(data) == Remembered()


def test_runs_that_nobody_fires_are_told_although_the_watch_lives() -> None:
    """The watch of a scheduler that does nothing else any more."""
    app = Foliot("sqlite:///:memory:")

    @app.job
    def work() -> None: ...

    app.schedule("hourly", work, every("1h"))
    with virtual_time(app) as world:
        world.watch()
        world.run_for("5m")
        world.kill_scheduler()
        for _ in range(10):
            world.clock.advance(10 * SECOND)
            world.call(world._alarm.run_once())
        [alert] = [one for one in world.alerts() if one.kind is Kind.SCHEDULER_SILENT]
        assert "held by no live scheduler" in alert.cause
        world.add_scheduler()
        world.run_for("2m")
        assert world.alerts() == []
        assert len(world.alerts(everything=True)) == 1
