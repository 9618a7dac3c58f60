"""Helpers: the command in this process, the command as a process, and a store in which things have happened."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import typer.testing
from typer.testing import CliRunner, Result

import foliot
from foliot import Context, Foliot, Permanent, after, bootstrap, every
from foliot.cli import foliot as command
from foliot.domain.alerts import Finding, Kind
from foliot.domain.instant import SECOND
from foliot.domain.store import Store
from foliot.domain.survey import Conclusion
from tests import waiting
from tests.waiting import HANG, until_async

# Commands keep nothing between calls, and to describe them all to the parser takes longer than what most of them do.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

T = TypeVar("T")

PACKAGE = Path(foliot.__file__).parents[1]
EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def run_json(*arguments: str | Path) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(result: Result, code: int) -> str:
    """The one line that a failing command says on stderr."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("foliot: ")
    return result.stderr


def environment() -> dict[str, str]:
    cleaned = {name: value for name, value in os.environ.items() if not name.startswith("FOLIOT_")}
    return {**cleaned, "PYTHONPATH": str(PACKAGE), "PYTHONUNBUFFERED": "1"}


class Process:
    """One `foliot` process, whose lines are gathered in files."""

    def __init__(self, folder: Path, *arguments: str | Path) -> None:
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        if arguments[0] == "up" and "--port" not in arguments:
            arguments = (*arguments, "--no-web")  # hundreds of tests, and one port that is usual
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "foliot", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=environment(),
            )

    def lines(self) -> list[dict[str, Any]]:
        """What it printed, for a process that prints JSON."""
        return [json.loads(line) for line in self.out.read_text("utf-8").splitlines(keepends=True) if line[-1:] == "\n"]

    def started(self, name: str) -> list[int]:
        """The process ids that a supervisor gave to this child, in order."""
        told = [line["what"] for line in self.lines() if line["kind"] == "process" and line["process"] == name]
        return [int(what.split("pid ")[1].rstrip(")")) for what in told if what.startswith("started")]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(HANG)


@contextmanager
def process(folder: Path, *arguments: str | Path) -> Iterator[Process]:
    started = Process(folder, *arguments)
    try:
        yield started
    finally:
        if started.popen.poll() is None:
            started.popen.kill()
            started.popen.wait()


def until(condition: Callable[[], T], what: str) -> T:
    """As `tests.waiting.until`, for a condition that costs CPU: most of them here run a whole command."""

    def asked() -> T:
        answer = condition()
        if not answer:
            time.sleep(0.15)
        return answer

    return waiting.until(asked, what)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


NEVER = "10000d"
"""An interval whose next tick is years away: a full hour, or a new day, changes nothing while a test runs."""


def make_app(url: str) -> Foliot:
    """An app with one job for each way to end."""
    app = Foliot(url, backoff="0s")

    @app.job
    async def greet(name: str) -> str:
        return f"hello {name}"

    @app.job(owner="finance", runbook="https://wiki.example.org/pay")
    def pay(invoice: int) -> None:
        raise Permanent(f"invoice {invoice} has no address")

    app.schedule("greetings", greet, every(NEVER), args={"name": "all"}, owner="sales")
    app.schedule("sweep", greet, after("1h"), args={"name": "rest"})
    return app


async def live_through(app: Foliot, ended: int) -> None:
    """Runs scheduler and worker here until so many runs have ended or died."""
    stop = asyncio.Event()
    store = await app.opened()
    handlers = {name: job.handler for name, job in app.jobs.items()}
    scheduling = asyncio.create_task(bootstrap.run_scheduler(store, stop))
    working = asyncio.create_task(
        bootstrap.run_worker(store, handlers, stop, grace=SECOND, queues=["default"], slots=4)
    )
    try:

        async def is_over() -> bool:
            return await _over(store) >= ended

        await until_async(is_over, f"{ended} runs have ended")
    finally:
        stop.set()
        await asyncio.gather(scheduling, working)


async def _over(store: Store) -> int:
    counts = await store.counts()
    return sum(counts.get(state, 0) for state in ("history", "dead", "ambiguous", "unverified"))


async def make_history(url: str) -> None:
    """One run that succeeded, one that is dead, one that was cancelled, one that waits, and two schedules."""
    app = make_app(url)
    greet, pay = app.jobs["greet"], app.jobs["pay"]
    await app.apply_async()
    await greet.using(key="class:1", tenant="acme").now_async(name="Ada")
    await pay.using(key="invoice:1").now_async(invoice=1)
    await greet.using(key="class:2").delay_async("1h", name="Grace")
    await app.cancel_async("class:2", reason="called off")
    await greet.using(key="class:3").delay_async("2h", name="Edsger")
    await live_through(app, ended=3)
    await app.close_async()


def make_doubtful_app(url: str) -> Foliot:
    """An app whose transfers end in the middle, and whose checks find fault."""
    app = Foliot(url, attempts=1)

    @app.job(effects=("wire",), owner="treasury")
    async def transfer(ctx: Context, number: int) -> None:
        async with ctx.effect("wire", key=str(number)):
            raise TimeoutError("no answer")

    @app.job(effects=())
    async def tally(ctx: Context) -> None:
        ctx.progress(397, of=412)
        raise ValueError("account 398 has no owner")

    @app.job(effects=(), rewritable=True)
    async def close_books() -> None: ...

    @close_books.verify
    def balanced() -> bool:
        return False

    return app


async def make_doubts(url: str) -> None:
    """Two transfers that nobody knows of, a tally that is dead, and books that do not balance."""
    app = make_doubtful_app(url)
    await app.apply_async()
    for number in (1, 2):
        await app.jobs["transfer"].using(key=f"wire:{number}").now_async(number=number)
    await app.jobs["tally"].using(key="tally").now_async()
    await app.jobs["close_books"].using(key="books").now_async()
    await live_through(app, ended=4)
    await app.close_async()


async def make_overdue(url: str) -> None:
    """Two runs were due a minute ago, and no scheduler was ever there; an alert is open."""
    app = make_app(url)
    for _ in range(2):
        await app.jobs["greet"].at_async(datetime.now(UTC) - timedelta(minutes=1), "ana")
    finding = Finding(Kind.DEAD, "run:greet#1", "it failed five times")
    await (await app.opened()).open_alert(Conclusion(b"", [finding]))
    await app.close_async()
