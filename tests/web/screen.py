"""What tests in a browser are played on: a store with a past, its pages on a port, and a real Chromium.

Time is virtual: the world that made the past goes on when a test says so, and the server shows it by the same clock.
Whatever people or programs can have stored carries a canary: markup and addresses that a careless page would run.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from foliot import Context, Foliot, Permanent, Verdict, bootstrap, cron, every
from foliot.clock import ManualClock
from foliot.domain.audit import AuditRow
from foliot.domain.instant import instant
from foliot.domain.run import Promise, RunView
from foliot.domain.schedule import ScheduleView
from foliot.operate import Operator
from foliot.testing import World
from foliot.web.server import serve
from foliot.web.settings import WebSettings
from tests.waiting import HANG

T = TypeVar("T")

START = datetime(2026, 3, 27, 6, 0, tzinfo=UTC)
"""Two days before the clocks of Paris change."""
SCRIPT = "<script>window.ran=1</script>"
IMAGE = '"><img src=x onerror="window.ran=1">'
ADDRESS = "javascript:window.ran=1"
BRACES = "{{7*7}}"
CANARY = f"{SCRIPT}{IMAGE}{BRACES}"
DOUBT = f"order:{CANARY}"
"""The key of a run that is ambiguous, and holds every canary."""


is_mended: list[bool] = []
"""Whether there is paper again."""


def make_app(url: str) -> Foliot:
    app = Foliot(url, attempts=1, backoff="1s")

    @app.job(owner=f"ana {CANARY}", runbook=ADDRESS, changes=f"the books {CANARY}")
    async def report(ctx: Context, day: str = "today") -> dict[str, str]:
        ctx.progress(1, of=2, note=CANARY)
        return {"day": day, "seen": CANARY}

    @app.job(effects=("pay",), owner=CANARY, runbook=ADDRESS, changes=CANARY)
    async def settle(ctx: Context, account: str) -> None:
        async with ctx.effect("pay", key=f"7 {CANARY}"):
            raise TimeoutError(f"no answer {CANARY}")

    @app.job(effects=("letter",))
    async def write(ctx: Context) -> None:
        async for number in ctx.each(range(4)):
            if number == 2 and not is_mended:
                raise Permanent("no paper")
            async with ctx.effect("letter", key=number, idempotent=True) as letter:
                letter.result = number

    @app.job(owner="registry", runbook="https://wiki.example.org/certificates")
    async def certify(student: str = CANARY) -> None:
        raise Permanent(f"no legal name of {student} in {'a' * 200}\n  {CANARY}")

    @app.job(attempts=2)
    async def mail(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError(f"busy {CANARY}")

    @app.job(timeout="2h")
    async def slow(ctx: Context) -> None:
        ctx.progress(3, of=10, note=f"halfway {CANARY}")
        await asyncio.sleep(3600)

    @app.job
    async def count() -> int:
        return 412

    @count.verify
    def all_counted() -> Verdict:
        return Verdict(False, f"411 of 412 {CANARY}")

    @app.job
    async def visit(school: str) -> None:
        if school == "atlantis":
            raise Permanent(f"it is not there {CANARY}")

    app.members("schools", ["athens", "atlantis"])
    app.schedule("nightly-report", report, cron("30 2 * * *", tz="Europe/Paris"), args={"day": CANARY}, owner=CANARY)
    app.schedule("feed/hourly", mail, every("10m"), overlap="skip")
    app.schedule("certificates", certify, every("15m"), tenant="acme")
    app.schedule("globex-mail", mail, every("30m"), tenant="globex")
    app.schedule("schools", visit, every("30m"), over="schools", bind={"school": "member"})
    app.schedule("to-pause", report, every("1h"), catch_up="all")
    app.schedule("to-edit", report, cron("0 6 * * *"), runbook=ADDRESS)
    app.schedule("to-fill", report, every("1h"))
    app.schedule("to-delete", report, every("1h"))
    app.schedule("counted", count, every("1h"))
    app.limit("job:report", concurrency=100)
    return app


class Screen:
    """The world behind the pages, and where they are served. The world has a thread of its own: that of a test belongs
    to what drives the browser."""

    def __init__(self, world: World, hand: ThreadPoolExecutor, address: str) -> None:
        self.world = world
        self.address = address.rstrip("/")
        self._hand = hand

    @property
    def operate(self) -> Operator:
        return self.world.app.operate

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._hand.submit(self.world.call, work).result()

    def run_for(self, length: str) -> None:
        self._hand.submit(self.world.run_for, length).result()

    def schedule(self, name: str) -> ScheduleView:
        return self.call(self.operate.schedule_async(name))

    def run(self, name: str) -> RunView:
        return self.call(self.operate.run_async(name))

    def runs(self, **wanted: Any) -> list[RunView]:
        return self.call(self.operate.runs_async(**wanted))

    def audited(self, action: str) -> AuditRow:
        """The last thing of this kind that was done: who, to what, why."""
        [sealed] = self.call(self.operate.audit_async(action=action, limit=1))
        assert sealed.row is not None
        return sealed.row

    def token(self, name: str, scope: str = "operate", **more: Any) -> str:
        made = self.operate.create_token_async(name, reason=CANARY, actor="ana", scope=scope, **more)
        return self.call(made).text


@contextmanager
def screened(folder: Path, settings: WebSettings | None = None) -> Iterator[Screen]:
    """The pages of a store with a past, on a port of their own."""
    with ThreadPoolExecutor(1) as hand:
        making = made_world(folder)
        world = hand.submit(making.__enter__).result()
        try:
            with served(folder, world, settings) as address:
                yield Screen(world, hand, address)
        finally:
            hand.submit(making.__exit__, None, None, None).result()


@contextmanager
def made_world(folder: Path) -> Iterator[World]:
    """Three hours of a small company, in which everything that can go wrong has."""
    url, clock = f"sqlite:///{folder}/foliot.db", ManualClock(instant(START))
    app, store = make_app(url), bootstrap.make_store(url, clock)
    asyncio.run(store.open())
    with app.standing_on(store, clock):
        world = World(app, store, clock, slots=50)
        world.start()
        world.watch("10m")
        _promise(world, "settle", DOUBT, b'{"account": "7 <b>"}', tenant=CANARY)
        _promise(world, "settle", "in-doubt", b'{"account": "8"}')
        _promise(world, "write", "letters", b"{}")
        _promise(world, "certify", "late-one", b"{}")
        for number in range(3):
            _promise(world, "mail", f"future:{number}", b"{}", after=timedelta(days=2))
            _promise(world, "mail", f"cancel-me:{number}", b"{}", after=timedelta(days=2))
        world.run_for("3h1m")
        _promise(world, "slow", "slow-one", b"{}")
        world.run_for("2m")
        try:
            yield world
        finally:
            world.close()


def _promise(world: World, job: str, key: str, payload: bytes, after: timedelta = timedelta(), **more: Any) -> None:
    at = instant(world.now + after)
    world.call(world.store.promise([Promise(job, payload, at, key=key, **more)]))


@contextmanager
def served(folder: Path, world: World, settings: WebSettings | None = None) -> Iterator[str]:
    """The pages of that store, by the world's clock, from a thread of their own."""
    url = f"sqlite:///{folder}/foliot.db"
    told: list[str] = []
    ready, ended = threading.Event(), threading.Event()
    handles: dict[str, Any] = {}

    async def serving() -> None:
        store = bootstrap.make_store(url, world.clock)
        await store.open()
        app = Foliot(url)

        def serving(address: str) -> None:
            told.append(address)
            ready.set()

        stop = handles["stop"] = asyncio.Event()
        handles["loop"] = asyncio.get_running_loop()
        with app.standing_on(store, world.clock):
            await serve(app, settings or WebSettings(port=0), stop, ready=serving)
        await store.close()

    def run() -> None:
        try:
            asyncio.run(serving())
        finally:
            ended.set()
            ready.set()

    threading.Thread(target=run, daemon=True).start()
    assert ready.wait(HANG)
    assert told, "the server did not come up"
    try:
        yield told[0]
    finally:
        handles["loop"].call_soon_threadsafe(handles["stop"].set)
        assert ended.wait(HANG)
