"""What the fleet shows, and what of that is an alert: queues, slots, clocks, and how much comes and goes."""

from __future__ import annotations

from dataclasses import fields

import pytest

from foliot.domain.alerts import FLEET, Brewing, Kind
from foliot.domain.instant import MINUTE, SECOND, Instant
from foliot.domain.store import Instance, QueueView
from foliot.domain.survey import Fleet
from foliot.watch import fleet
from foliot.watch.memory import Remembered, Series, remembered
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
    skewed = worker(host="three pid:[4026531836] 2aa47e6e", fenced=True, offset_low=3 * SECOND, offset_high=3 * SECOND)
    [found] = fleet.clocks([worker(), skewed], NOW).findings
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
    for minute in range(20, 60):
        memory = remembered(memory.encoded())
        assert kinds(busy, 1, 0, memory, NOW + minute * MINUTE) == {Kind.COMPLETIONS}  # they are not back
    assert kinds(a_fleet(), 1, 0, memory, NOW + 60 * MINUTE) == set()  # nothing waits: there is nothing to complete


@pytest.mark.parametrize(("still_end", "is_told"), [(1, False), (0, True)])
def test_fewer_completions_have_become_usual_after_an_hour_and_none_at_all_never(still_end: int, is_told: bool) -> None:
    memory, busy = Remembered(), a_fleet(queues=[waiting()])
    for minute in range(100):
        told = kinds(busy, 10 if minute < 10 else still_end, 0, memory, NOW + minute * MINUTE)
    assert (Kind.COMPLETIONS in told) is is_told


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


def test_whoever_watches_next_knows_all_that_was_known() -> None:
    known = Remembered(
        brewing=Brewing({("late", "job:a"): 1}, {("dead", "run:b"): 2}),
        ended=1 << 70,
        events=4,
        schedules_after="books",
        parked_after=5,
        completions=Series({1: 2}),
        retrying=Series({3: 4}),
        dead=Series({5: 6}),
        useful={"a": 7},
        failures={"job:a": (2, 9)},
        parked={"job:a": [3, 1 << 62]},
        tight={"schedule:b": 1},
        head=(8, 9),
        checking={10: 11},
        fallen_from=(30, 12),
    )
    empty = Remembered()
    assert all(getattr(known, one.name) != getattr(empty, one.name) for one in fields(Remembered)), "each of them"
    assert remembered(known.encoded()) == known


def test_a_memory_that_cannot_be_read_is_begun_anew() -> None:
    for data in (None, b"", b"not json", b"[]", b'{"head": 7}', b'{"failures": {"x": 1}}'):
        assert remembered(data) == Remembered()
