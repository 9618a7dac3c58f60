"""A schedule with a tick every ten seconds, a script of what its runs do, and plain words for the rows they leave."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from foliot import Context, Foliot, every
from foliot.clock import ManualClock
from foliot.domain.instant import SECOND, Instant, instant, parse_rfc3339
from foliot.domain.policy import Overlap
from foliot.domain.run import RunView
from foliot.domain.state import State
from foliot.domain.store import Store
from foliot.errors import Permanent, RetryAfter
from foliot.testing import World

ZERO = datetime(2026, 4, 1, tzinfo=UTC)
"""The tick before the first one: tick 1 is due ten seconds later."""
TICK = 10 * SECOND
SETTINGS: dict[str, Any] = {"missed_after": "2s"}
"""What every cell says beside its own. Everything is short, because virtual time costs something, too."""
WHY: dict[str, Any] = {"actor": "ana", "reason": "a test"}
_NAME = re.compile(r"report@(\S+?Z)(#m)?")
NOT_DONE = frozenset({State.SKIPPED, State.CANCELLED, State.DEAD, State.HELD})
"""States that the table gives the reason of."""
_MANY = 20
"""So many rows in a row that say the same are told as one."""


@dataclass(frozen=True)
class Part:
    """What a run does: it takes so many seconds; then it fails, for good or for a while, or heeds no call to stop."""

    takes: float = 1
    fails: bool = False
    retry_after: float | None = None
    stubborn: bool = False


@dataclass(frozen=True)
class Span:
    """One attempt, from when its handler began until it ended."""

    run: str
    nominal: Instant
    begun: Instant
    ended: Instant

    def holds(self, other: Span) -> bool:
        """It was active when the other one began."""
        return self.run != other.run and self.begun <= other.begun < self.ended


class Stage:
    """The world around one schedule `report`. Moments are seconds after `ZERO`; tick `n` is due at `10 * n`."""

    def __init__(
        self,
        make: Callable[[ManualClock], Store],
        settings: Mapping[str, Any],
        schedulers: int,
        runner: asyncio.Runner,
    ) -> None:
        self.app = Foliot("sqlite:///:memory:")
        self.clock = ManualClock(instant(ZERO) + 5 * SECOND)
        self._runner = runner
        self.script: dict[str, Part] = {}
        self.otherwise = Part()
        """What the runs do that the script does not name."""
        self.spans: list[Span] = []
        self._store = make(self.clock)
        self._schedulers = schedulers
        self.world: World
        job = self.app.job(name="report")(self._report)
        settings = {**SETTINGS, **settings}
        self.overlap = Overlap(settings.get("overlap", Overlap.SKIP))
        self.app.schedule("report", job, every("10s"), **settings)

    @contextmanager
    def open(self) -> Iterator[Stage]:
        self._runner.run(self._store.open())
        with self.app.standing_on(self._store, self.clock):
            self.world = World(self.app, self._store, self.clock)
            self.world._runner = self._runner  # in which the store's connections are at home
            self.world.start()
            self.start_schedulers(self._schedulers - 1)
            try:
                yield self
            finally:
                self.world.close()

    async def _report(self, ctx: Context) -> None:
        part = self.script.get(shown(ctx.run_id), self.otherwise)
        begun = self.clock.now()
        try:
            await self._play(part, ctx.attempt)
        finally:
            self.spans.append(Span(ctx.run_id, instant(ctx.nominal), begun, self.clock.now()))

    async def _play(self, part: Part, attempt: int) -> None:
        ends = self.clock.now() + round(part.takes * SECOND)
        try:
            await self.clock.sleep(ends - self.clock.now())
        except asyncio.CancelledError:
            if not part.stubborn:
                raise
            await self.clock.sleep(ends - self.clock.now())
        if part.fails:
            raise Permanent("no")
        if part.retry_after is not None and attempt == 1:
            raise RetryAfter(part.retry_after)

    # What events do

    def until(self, second: float) -> None:
        self.world.run_until(ZERO + timedelta(seconds=second))

    def outage(self, start: float, end: float) -> None:
        """Every process is dead from one moment to the other."""
        self.until(start)
        self.world.outage(timedelta(seconds=end - start))

    def without_schedulers(self, start: float, end: float) -> None:
        self.until(start)
        self.world.schedulers.clear()
        self.until(end)
        self.start_schedulers(self._schedulers)

    def without_workers(self, start: float, end: float) -> None:
        self.until(start)
        self.world.kill_worker()
        self.until(end)
        self.world.add_worker()

    def start_schedulers(self, count: int) -> None:
        for _ in range(count):
            self.world.add_scheduler()

    def pause(self, start: float, end: float, *, catch_up: bool = False, trigger_at: float | None = None) -> None:
        self.until(start)
        self.world.call(self.app.operate.pause_async("report", actor="ana", reason="maintenance"))
        if trigger_at is not None:
            self.until(trigger_at)
            self.trigger()
        self.until(end)
        self.world.call(self.app.operate.resume_async("report", catch_up=catch_up, **WHY))

    def trigger(self) -> None:
        self.world.call(self.app.operate.trigger_async("report", **WHY))

    def rerun(self, tick: int) -> None:
        self.world.call(self.app.operate.rerun_async(self.name(tick), **WHY))

    def reconcile(self, tick: int) -> None:
        self.world.call(self.app.operate.reconcile_async(self.name(tick), evidence="seen", actor="ana"))

    def name(self, tick: int) -> str:
        """Of that tick's run."""
        [found] = [run.id for run in self.world.runs() if shown(run.id) == str(tick)]
        return found

    # What is left

    def rows(self) -> list[RunView]:
        """All but the tick that comes next, in the order of their times."""
        found = [run for run in self.world.runs() if run.state is not State.SCHEDULED]
        return sorted(found, key=lambda run: (run.nominal, run.origin, run.number))

    def told(self) -> list[str]:
        """Each row in a line. Many in a row that differ in nothing but their time are one line."""
        lines: list[str] = []
        for _, alike in groupby(self.rows(), key=lambda run: (run.origin, run.state, run.reason, run.detail)):
            rows = list(alike)
            if len(rows) < _MANY:
                lines += map(self._told, rows)
            else:
                lines.append(f"{shown(rows[0].id)}-{shown(rows[-1].id)} {rows[0].state}, one by one")
        return lines

    def _told(self, run: RunView) -> str:
        tick, why = tick_of(run.nominal), ""
        if run.state in NOT_DONE:
            why = f": {run.reason}" + (f" ({shown(run.detail)})" if run.detail else "")
        line = f"{_span(run)} {run.state}{why}"
        first = next((span for span in sorted(self.spans, key=lambda span: span.begun) if span.run == run.id), None)
        if first is not None and first.begun - run.nominal >= SECOND:
            line += f", {(first.begun - run.nominal) // SECOND} s late"
        if first is not None and (others := [shown(one.run) for one in self.spans if one.holds(first)]):
            line += f", beside {' and '.join(others)}"
        if run.since is not None and tick_of(run.since) < tick - 1:
            line += f", for {tick_of(run.since) + 1}-{tick}"
        return line


def _span(run: RunView) -> str:
    return shown(run.id) if run.span_until is None else f"{shown(run.id)}-{tick_of(run.span_until)}"


def shown(text: str) -> str:
    """Names of runs as the table has them: `1` is the first tick's, `1#r1` a rerun of it, `m` one started by hand."""
    return _NAME.sub(lambda name: "m" if name[2] else str(tick_of(parse_rfc3339(name[1]))), text)


def tick_of(moment: Instant) -> int:
    return (moment - instant(ZERO)) // TICK
