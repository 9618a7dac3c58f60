"""The journal: a line for each start, end and loss, and the numbers that metrics are made of."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from foliot import Context, Foliot, Permanent, cron, every
from foliot.domain.run import Loss, SilentAttempt
from foliot.domain.state import Event, Reason
from foliot.testing import World, virtual_time
from foliot.watch import journal as module
from foliot.watch.journal import WARNING, Journal, as_text
from tests.waiting import HANG


class Lines:
    def __init__(self) -> None:
        self.data = b""

    def __call__(self, data: bytes) -> None:
        self.data += data

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.data.splitlines()]


def an_app() -> Foliot:
    app = Foliot("sqlite:///:memory:", backoff="0s")

    @app.job(queue="mail")
    async def remind(class_id: int, password: str) -> None: ...

    @app.job(attempts=2)
    def pay() -> None:
        raise ValueError("no answer\nand a second line")

    @app.job
    async def give_up(ctx: Context) -> None:
        raise Permanent("never")

    return app


def played(app: Foliot, journal: Journal, play: Any) -> None:
    with virtual_time(app) as world:
        world.workers[0].recorder = journal
        play(world)
        world.run_for("1m")
    journal.run_once()


def test_every_start_and_end_is_one_line_with_its_ids() -> None:
    app, lines = an_app(), Lines()
    app.schedule("nightly", app.jobs["remind"], every("1h"), args={"class_id": 7, "password": "hunter2"})

    def play(world: World) -> None:
        app.jobs["pay"].using(key="april", tenant="acme").now()
        world.run_for("1h")

    played(app, Journal(lines), play)
    told = lines.told()
    assert [(one["event"], one["run"], one["attempt"], one.get("outcome")) for one in told] == [
        ("started", "april[acme]#1", 1, None),
        ("ended", "april[acme]#1", 1, "failed"),
        ("started", "april[acme]#1", 2, None),
        ("ended", "april[acme]#1", 2, "failed"),
        ("started", "nightly@2026-01-01T01:00:00Z", 1, None),
        ("ended", "nightly@2026-01-01T01:00:00Z", 1, "succeeded"),
    ]
    assert [one.get("then") for one in told if one["event"] == "ended"] == ["retry_granted", "exhausted", "completed"]
    assert told[1] == {
        "at": "2026-01-01T00:00:00.000000Z",
        "level": "warning",
        "event": "ended",
        "run": "april[acme]#1",
        "attempt": 1,
        "job": "pay",
        "tenant": "acme",
        "queue": "default",
        "lane": "live",
        "worker": told[1]["worker"],
        "outcome": "failed",
        "then": "retry_granted",
        "duration": 0.0,
        "retry_at": "2026-01-01T00:00:00.000000Z",
        "reason": "failed",
        "error": "ValueError: no answer",
    }
    assert told[5]["schedule"] == "nightly"
    assert told[5]["queue"] == "mail"
    assert b"hunter2" not in lines.data, "arguments are nobody's business"


def test_a_members_run_names_its_schedule_and_its_member() -> None:
    app, lines = Foliot("sqlite:///:memory:"), Lines()

    @app.job
    async def check() -> None: ...

    app.members("tenants", ["acme"])
    app.schedule("health", check, every("1h"), over="tenants")
    played(app, Journal(lines), lambda world: world.run_for("1h"))
    assert {(one["schedule"], one["member"]) for one in lines.told()} == {("health", "acme")}


def test_a_check_says_that_it_is_one() -> None:
    app, lines = an_app(), Lines()

    @app.jobs["remind"].verify
    def reminded() -> bool:
        return True

    played(app, Journal(lines), lambda world: app.jobs["remind"].now(class_id=7, password=""))
    assert [one.get("check", False) for one in lines.told()] == [False, False, True, True]


def test_failures_alone_are_written_where_nothing_else_is_wanted() -> None:
    app, lines = an_app(), Lines()

    def play(world: World) -> None:
        app.jobs["remind"].now(class_id=7, password="")
        app.jobs["give_up"].now()

    played(app, Journal(lines, level=WARNING), play)
    assert [(one["job"], one["outcome"]) for one in lines.told()] == [("give_up", "permanent")]


def test_errors_are_cleaned_before_anybody_reads_them() -> None:
    app, lines = an_app(), Lines()
    journal = Journal(lines, clean_text=lambda text: text.replace("answer", "***"))
    played(app, journal, lambda world: app.jobs["pay"].now())
    assert {one["error"] for one in lines.told() if "error" in one} == {"ValueError: no ***"}


def test_a_start_is_told_once_it_has_started_and_never_twice() -> None:
    class Waiting:
        """It waits for a thread."""

        started_at: int | None = None

        def __init__(self, claimed: Any) -> None:
            self.claimed = claimed

    from tests.work.fakes import claimed

    lines = Lines()
    journal, attempt = Journal(lines), Waiting(claimed())
    journal.claimed(3, [attempt])
    journal.run_once()
    assert lines.told() == []
    attempt.started_at = attempt.claimed.fire_at + 5_000
    journal.run_once()
    journal.run_once()
    assert [(one["event"], one["late"], one["worker"]) for one in lines.told()] == [("started", 0.005, 3)]
    given_back = Waiting(claimed())
    journal.claimed(3, [given_back])
    journal.ended(given_back, None)
    journal.run_once()
    given_back.started_at = 1
    journal.run_once()
    assert len(lines.told()) == 1, "one that never began leaves no line"


def test_a_reader_that_takes_nothing_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 10)
    monkeypatch.setattr(module, "MOST_HEAPED", 5)
    waits, takes, lines = threading.Event(), threading.Event(), Lines()

    def write(data: bytes) -> None:
        waits.set()
        takes.wait(HANG)
        lines(data)

    app, journal = an_app(), Journal(write)
    journal.start()
    with virtual_time(app) as world:
        world.workers[0].recorder = journal
        app.jobs["give_up"].now()
        world.run_for("1m")
        assert waits.wait(HANG), "the thread that writes is kept waiting"
        for _ in range(59):
            app.jobs["give_up"].now()
        world.run_for("1m")
        assert {str(state) for state in world.states()} == {"dead"}, "work went on"
    assert len(journal._ended) <= 5, "what waits for the journal is bounded, too"
    journal.take()
    assert journal.tally.attempts["give_up", "default", "permanent"] == 60, "what is not written is counted"
    takes.set()
    journal.close()
    told = lines.told()
    written = [one for one in told if one["event"] != "dropped"]
    assert len(written) + journal.dropped == 120
    assert sum(one["lines"] for one in told if one["event"] == "dropped") == journal.dropped > 0


def test_a_reader_that_has_gone_does_no_harm() -> None:
    def write(data: bytes) -> None:
        raise BrokenPipeError

    app, journal = an_app(), Journal(write)
    played(app, journal, lambda world: app.jobs["give_up"].now())
    assert journal.dropped == 2


def test_lost_attempts_are_told_by_whoever_took_them_away() -> None:
    lines = Lines()
    journal = Journal(lines)
    silent = SilentAttempt(7, "class:7#1", "remind", 9, 2, 1, 0, None, 0, 0, True, worker=4)
    journal.lost([(silent, Loss(7, 9, 2, Event.RETRY_GRANTED, 0, Reason.LOST, "the worker process has ended"))])
    journal.run_once()
    [line] = lines.told()
    assert (line["event"], line["run"], line["attempt"], line["worker"]) == ("lost", "class:7#1", 2, 4)
    assert (line["outcome"], line["then"]) == ("lost", "retry_granted")


def test_numbers_are_counted_by_job_queue_and_outcome() -> None:
    app, journal = an_app(), Journal()
    app.schedule("nightly", app.jobs["remind"], cron("0 2 * * *"), args={"class_id": 7, "password": ""})

    def play(world: World) -> None:
        app.jobs["pay"].now()
        world.run_for("3h")

    played(app, journal, play)
    tally = journal.tally
    assert dict(tally.attempts) == {("pay", "default", "failed"): 2, ("remind", "mail", "succeeded"): 1}
    assert (dict(tally.useful), dict(tally.retries), dict(tally.claimed)) == ({"remind": 1}, {"pay": 1}, {"live": 3})
    assert (sum(tally.times["pay"].counts), sum(tally.delays["live"].counts)) == (2, 3)


def test_a_line_can_be_read_by_people() -> None:
    app, found = an_app(), Lines()
    played(app, Journal(found, style=as_text), lambda world: app.jobs["remind"].using(key="class:7").now(7, "hunter2"))
    started, ended = found.data.decode().splitlines()
    assert started.startswith("2026-01-01T00:00:00.000000Z started class:7#1/1 job=remind queue=mail lane=live worker=")
    assert ended.endswith("outcome=succeeded then=completed duration=0.0")


class Stopping(threading.Event):
    """Counts the waits of the journal's thread, and makes none of them long."""

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        return super().wait(0)


def test_its_thread_sleeps_while_there_is_nothing_to_write() -> None:
    written, stopping = threading.Semaphore(0), Stopping()
    journal = Journal(lambda data: written.release())
    journal._stopping = stopping
    journal.start()
    silent = SilentAttempt(7, "class:7#1", "remind", 9, 2, 1, 0, None, 0, 0, True, worker=4)
    loss = Loss(7, 9, 2, Event.RETRY_GRANTED, 0, Reason.LOST, "the worker process has ended")
    for count in (1, 2, 3):
        journal.lost([(silent, loss)])
        assert written.acquire(timeout=HANG)
        assert stopping.waits <= count
    journal.close()
