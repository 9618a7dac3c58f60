"""What is given wrong is refused when it is given, in words that say what would be right."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from foliot import Context, Foliot, every
from foliot.bootstrap import scheduling
from foliot.clock import ManualClock
from foliot.domain.instant import LAST, SECOND
from foliot.errors import InvalidInput, StoreError
from foliot.job import Job
from foliot.testing import World, virtual_time
from foliot.timing import Every
from tests.cli.support import refused, run
from tests.waiting import until_async

START = datetime(2026, 4, 1, 9, tzinfo=UTC)


@pytest.fixture
def app() -> Foliot:
    return Foliot("sqlite:///:memory:")


@pytest.fixture
def greet(app: Foliot) -> Job[..., Any]:
    @app.job
    def greet(ctx: Context, who: str = "all") -> None: ...

    return greet


@pytest.fixture
def world(app: Foliot, greet: Job[..., Any]) -> Iterator[World]:
    app.schedule("greetings", greet, every("1h"))
    with virtual_time(app, start=START) as world:
        yield world


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"priority": "high"}, "-1000 to 1000"),
        ({"priority": 10**30}, "-1000 to 1000"),
        ({"priority": True}, "-1000 to 1000"),
        ({"queue": "a\nb"}, "cannot name a queue"),
        ({"queue": 5}, "cannot name a queue"),
        ({"queue": ""}, "cannot name a queue"),
        ({"tenant": 5}, "cannot name a tenant"),
        ({"tenant": ""}, "cannot name a tenant"),
        ({"owner": 5}, "owner=5"),
        ({"owner": "ana\nbob"}, "one line"),
        ({"runbook": "\udcff"}, "runbook="),
        ({"changes": "a\u2028b"}, "changes="),
        ({"args": 5}, "by name"),
        ({"args": ["ana"]}, "by name"),
        ({"args": {5: "ana"}}, "by name"),
    ],
)
def test_a_schedule_is_refused_when_declared_not_when_applied(
    app: Foliot, greet: Job[..., Any], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        app.schedule("greetings", greet, every("1h"), **given)
    app.schedule("greetings", greet, every("1h"), owner="équipe 👩‍🚀 ventes", args={"who": "ana"}, priority=-5)


@dataclass(frozen=True)
class _Odd(Every):
    """Ticks as nobody else does, and is stored as if it did not."""


class _Unreadable(Every):
    def encode(self) -> str:
        return '{"moon":"full"}'


class _Failing(Every):
    def encode(self) -> str:
        raise KeyError("moon")


@pytest.mark.parametrize("rule", [_Odd(SECOND), _Unreadable(SECOND), _Failing(SECOND), Every])
def test_a_rule_that_the_store_could_not_give_back_is_refused(app: Foliot, greet: Job[..., Any], rule: Any) -> None:
    with pytest.raises(InvalidInput, match="greetings"):
        app.schedule("greetings", greet, rule)


def test_a_job_is_refused_a_name_or_an_owner_that_is_no_text(app: Foliot) -> None:
    for wrong in ({"name": 5}, {"name": ""}, {"owner": 5}, {"runbook": "a\nb"}):
        with pytest.raises(InvalidInput):
            app.job(**wrong)(lambda: None)
    assert app.jobs == {}


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="5 is not a store"):
        Foliot(5)  # type: ignore[arg-type]


def test_what_is_no_list_of_promises_is_refused(app: Foliot, world: World) -> None:
    with pytest.raises(InvalidInput, match="None is not a list of promises"):
        app.promise_many(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", ["overlap", "catch_up", "catch_up_window", "missed_after", "jitter"])
def test_a_promise_is_refused_what_only_a_schedule_can_have(greet: Job[..., Any], setting: str) -> None:
    with pytest.raises(InvalidInput, match=f"{setting} applies to a schedule's ticks"):
        greet.using(**{setting: "1m"})  # type: ignore[arg-type]


def test_a_promise_is_not_moved_to_before_1970_nor_asked_for_by_a_wrong_tenant(
    app: Foliot, greet: Job[..., Any], world: World
) -> None:
    greet.using(key="class:7").delay("1h")
    with pytest.raises(InvalidInput, match="between 1970 and 9999"):
        app.move("class:7", datetime(1969, 12, 31, tzinfo=UTC))
    for tenant in (5, "a b", "\udcff"):
        with pytest.raises(InvalidInput, match="tenant"):
            app.move("class:7", START, tenant=tenant)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="tenant"):
            app.cancel("class:7", tenant=tenant)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="reason"):
        app.cancel("class:7", reason="\udcff")


def test_usefulness_ends_with_the_calendar(greet: Job[..., Any]) -> None:
    late = datetime(9999, 12, 31, tzinfo=UTC)
    assert greet.using(useful_until="1000d").promise_at(late).useful_until == LAST


# Operators


@pytest.mark.parametrize("actor", ["", " ", None, 5, "ana\nbob", "\udcff"])
def test_an_operator_says_who_acts(app: Foliot, world: World, actor: Any) -> None:
    with pytest.raises(InvalidInput, match="actor="):
        app.operate.trigger("greetings", reason="a test", actor=actor)


@pytest.mark.parametrize("reason", ["", None, 5, "\udcff", "a\x1b[2Jb", "a\nb"])
def test_an_operator_says_why(app: Foliot, world: World, reason: Any) -> None:
    with pytest.raises(InvalidInput, match="reason"):
        app.operate.resume("greetings", reason=reason, actor="ana")


@pytest.mark.parametrize("until", ["2h", True, 1.5, -1, LAST + 1, timedelta(hours=2), datetime(2027, 1, 1)])
def test_a_pause_ends_at_an_instant_or_is_refused(app: Foliot, world: World, until: Any) -> None:
    with pytest.raises(InvalidInput):
        app.operate.pause("greetings", reason="a test", actor="ana", until=until)
    app.operate.pause("greetings", reason="a test", actor="ana", until=START + timedelta(hours=2))


# The store


def test_a_store_that_cannot_be_made_is_an_error_in_one_line() -> None:
    app = Foliot("sqlite:////proc/x/y.db")
    with pytest.raises(StoreError, match=r"^the store /proc/x/y\.db cannot be opened: No such file.*$"):
        app.apply()
    app.close()


def test_the_command_says_in_one_line_that_the_store_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    file.write_text("from foliot import Foliot\napp = Foliot()\n")
    said = refused(run("worker", "--app", file, "--store", "sqlite:////proc/x/y.db"), 1)
    assert "/proc/x/y.db cannot be opened" in said
    assert "cannot be reached" in refused(run("runs", "list", "--store", f"sqlite:////tmp/{'a' * 300}"), 1)


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "show", "\udcff"),
        ("runs", "list", "--job", "\udcff"),
        ("schedules", "show", "\udcff"),
        ("schedules", "pause", "x", "--reason", "\udcff"),
        ("schedules", "pause", "x", "--reason", "a test", "--actor", "\udcff"),
        ("runs", "list", "--store", "sqlite:///\udcff"),
        ("runs", "list", "--app", "\udcff"),
    ],
)
def test_the_command_refuses_bytes_that_are_no_text(words: tuple[str, ...]) -> None:
    assert "is not text" in refused(run(*words), 2)


def test_the_schedulers_heart_beats_on_after_any_error(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    beats: list[int] = []

    class Ill:
        async def beat(self, number: int, progress: list[Any]) -> None:
            beats.append(number)
            raise KeyError("a bug")

    async def live() -> None:
        beating = asyncio.create_task(scheduling._beat(Ill(), 7, clock, asyncio.Event()))  # type: ignore[arg-type]
        for number in range(1, 4):
            await until_async(lambda: clock.next_sleeper() is not None, "it waits for the next beat")
            clock.advance(scheduling.BEAT_EVERY)
            await until_async(lambda number=number: len(beats) == number, "it has tried to beat")  # type: ignore[misc]
        beating.cancel()

    with caplog.at_level(logging.ERROR, "foliot"):
        asyncio.run(live())
    assert beats == [7, 7, 7]
    assert "heartbeat failed" in caplog.text
