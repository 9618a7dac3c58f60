"""What the tests of the web are played on: an app in virtual time, its application, and callers with tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from foliot import Context, Foliot, Permanent, every
from foliot.clock import ManualClock
from foliot.domain.alerts import Finding, Kind
from foliot.domain.instant import Duration, Instant
from foliot.domain.run import Promise
from foliot.domain.survey import Conclusion
from foliot.testing import World, virtual_time
from foliot.web.application import make_application
from foliot.web.settings import WebSettings

LOCAL = "http://127.0.0.1:8300"
ELSEWHERE = "http://foliot.example.com"


class Hurried:
    """Sleeps for no time at all, and remembers for how long it should have."""

    fenced = False

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.slept: list[Duration] = []

    def now(self) -> Instant:
        return self._clock.now()

    def monotonic(self) -> Instant:
        return self._clock.monotonic()

    async def sleep(self, length: Duration) -> None:
        self.slept.append(length)

    def until_beat(self, every: Duration) -> Duration:
        return every

    async def beat(self, every: Duration) -> None:
        await self.sleep(every)


class Caller:
    """Sends requests with the same headers, from one address: a loopback address if the base is local."""

    def __init__(self, stage: Stage, headers: dict[str, str], base: str) -> None:
        self._stage = stage
        self.headers = headers
        self._base = base
        self.peer = "127.0.0.1" if base == LOCAL else "192.0.2.7"

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._stage.world.call(self.ask_async(method, path, **more))

    async def ask_async(self, method: str, path: str, **more: Any) -> httpx.Response:
        """For many requests in one coroutine: the threads of the application end with the coroutine that began them."""
        headers = self.headers | more.pop("headers", {})
        transport = httpx.ASGITransport(self._stage.application, client=(self.peer, 4711))
        async with httpx.AsyncClient(transport=transport, base_url=self._base) as client:
            return await client.request(method, path, headers=headers, **more)

    def get(self, path: str, **query: Any) -> Any:
        """What a list or a thing is; the question must be answered."""
        response = self.ask("GET", f"/api/v1{path}", params=query or None)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, status: int = 200, /, **body: Any) -> Any:
        response = self.ask("POST", f"/api/v1{path}", json=body)
        assert response.status_code == status, response.text
        return response.json()


class Stage:
    def __init__(self, world: World, settings: WebSettings) -> None:
        self.world = world
        self.app = world.app
        self.clock = Hurried(world.clock)
        self.application = make_application(world.app, settings, self.clock)

    def token(self, name: str, scope: str = "operate", **more: Any) -> str:
        if scope == "work" and not {"jobs", "queues"} & more.keys():
            more["jobs"] = ["resize"]
        made = self.app.operate.create_token_async(name, reason="a test", actor="ana", scope=scope, **more)
        return self.world.call(made).text

    def caller(self, name: str, scope: str = "operate", *, base: str = ELSEWHERE, **more: Any) -> Caller:
        """Somebody with a token of their own."""
        return Caller(self, {"authorization": f"Bearer {self.token(name, scope, **more)}"}, base)

    def somebody(self, base: str = LOCAL, **headers: str) -> Caller:
        """Who says nothing of themselves."""
        return Caller(self, {name.replace("_", "-"): value for name, value in headers.items()}, base)

    def promise(self, job: str, key: str, arguments: dict[str, Any] | None = None, **more: Any) -> str:
        """Of a job that no code here has, too."""
        payload = json.dumps(arguments or {}).encode()
        promise = Promise(job, payload, self.world.clock.now(), key=key, **more)
        [kept] = self.world.call(self.world.store.promise([promise]))
        return kept.id

    def alert(self, tenant: str) -> int:
        """The number of one that is about a run of theirs."""
        run = f"letter[{tenant}]#1"
        found = Finding(Kind.DEAD, f"run:{run}", "it is dead", tenant=tenant, run=run)
        self.world.call(self.world.store.open_alert(Conclusion(b"", [found])))
        opened = self.world.call(self.app.operate.alerts_async(tenant=tenant)).alerts
        return next(one.number for one in opened if one.subject == f"run:{run}")


is_open: list[bool] = []
"""Whether the shop in the south can be visited."""


def make_app() -> Foliot:
    app = Foliot("sqlite:///:memory:", attempts=1)

    @app.job(owner="ana")
    async def report(ctx: Context, day: str = "today") -> dict[str, str]:
        ctx.progress(1, of=2)
        return {"day": day}

    @app.job(effects=("pay",))
    async def settle(ctx: Context) -> None:
        async with ctx.effect("pay", key="6"):
            pass
        async with ctx.effect("pay", key="7"):
            raise TimeoutError("no answer")

    @app.job
    async def broken() -> None:
        raise Permanent("no such account")

    @app.job
    async def visit(shop: str) -> None:
        if shop == "south" and not is_open:
            raise Permanent("it is closed")

    app.members("shops", ["north", "south"])
    app.schedule("daily/report", report, every("1h"), args={"day": "monday"}, tenant="acme")
    app.schedule("globex-report", report, every("1h"), tenant="globex")
    app.schedule("plain", report, every("1h"), owner="ben")
    app.schedule("visits", report, every("1h"), over="shops")
    app.limit("job:report", concurrency=100)
    return app


@contextmanager
def staged(settings: WebSettings | None = None, *, lived: bool = True) -> Iterator[Stage]:
    """With some history: two hours of ticks, a dead letter and an ambiguous run for each of two tenants."""
    app = make_app()
    with virtual_time(app) as world:
        stage = Stage(world, settings or WebSettings(host="0.0.0.0"))
        if lived:
            for tenant in ("acme", "globex"):
                stage.promise("broken", "letter", tenant=tenant)
                stage.promise("settle", "doubt", tenant=tenant)
            world.run_for("2h1m")
        yield stage
