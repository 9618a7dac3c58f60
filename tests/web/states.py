"""States of a store, drawn from a seed: an app with odd names lives for some hours of virtual time, while operators and
callers use the public verbs in random order. Free text has no digits, so that each digit on a page has a meaning."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

from foliot import Context, Foliot, Permanent, Verdict, after, bootstrap, cron, every
from foliot.clock import ManualClock
from foliot.domain.instant import instant
from foliot.domain.pauses import What
from foliot.domain.run import Promise
from foliot.domain.state import PARKED, State
from foliot.errors import FoliotError
from foliot.testing import World
from tests.web.rows import Rule

START = datetime(2026, 3, 28, 20, 0, tzinfo=UTC)
"""The night in which the clocks of Europe change."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz_.:-"
_ODD = "<b>'\"&é漢 {{x}}%/\\"
_MINUTE = 60_000_000


def _name(draw: Random, most: int = 200) -> str:
    """A name of a schedule, a job, a queue or a set, now and then as long as it may be."""
    size = draw.choice([3, 8, 20, most - 1]) if draw.random() < 0.4 else 8
    return draw.choice("abcdefgh") + "".join(draw.choice(_LETTERS) for _ in range(size))


def _text(draw: Random) -> str:
    """Text that a person wrote."""
    return "".join(draw.choice(_LETTERS + _ODD) for _ in range(draw.choice([4, 12, 60]))) + "x"


def _grid(minutes: int) -> tuple[Any, tuple[Any, ...], Rule]:
    words = {60: ()}.get(minutes, (minutes,))
    return every, (f"{minutes}m",), Rule(words, lambda at: int(at.timestamp()) // 60 % minutes == 0)


def _at_night(at: datetime) -> bool:
    """02:30 in Paris; in the night in which that is missing, the end of the gap."""
    is_changed = at.date() == date(2026, 3, 29)
    return (at.hour, at.minute) == ((3, 0) if is_changed else (2, 30))


RULES: dict[str, tuple[Any, tuple[Any, ...], Rule]] = {
    **{f"{minutes}m": _grid(minutes) for minutes in (5, 6, 7, 10, 15, 20, 25, 30, 40)},
    "1h": _grid(60),
    "after": (after, ("12m",), Rule((12,), lambda at: False, delay=True)),
    "tens": (cron, ("*/10 * * * *", "Europe/Paris"), Rule((10,), lambda at: at.minute % 10 == 0, "Europe/Paris")),
    "night": (cron, ("30 2 * * *", "Europe/Paris"), Rule((2, 30), _at_night, "Europe/Paris")),
    "morning": (cron, ("0 6 * * *", "UTC"), Rule((6, 0), lambda at: (at.hour, at.minute) == (6, 0))),
}
"""Rules of the sample by name: how each is stated, and its ticks."""


class Lived:
    """A store with a past, and what made it."""

    def __init__(self, world: World, draw: Random) -> None:
        self.world = world
        self.draw = draw
        self.actor = "ana"
        self.refused: list[str] = []
        """Verbs that did not fit the state at their moment."""
        self.schedules = [one.id for one in world.app.declarations()]
        self.rules: dict[str, Rule] = world.app.rules  # type: ignore[attr-defined]

    def live(self, actions: Sequence[Action | None]) -> None:
        """Some hours, with an action after each stretch of them: the given one, or a random one."""
        for given in actions:
            self.world.run_for(timedelta(seconds=self.draw.choice([1, 7, 40, 300, 900, 1800])))
            action = given or self.draw.choice(_ACTIONS)
            try:
                action(self)
            except FoliotError as error:
                self.refused.append(f"{action.__name__}: {error}")
        self.world.run_for(timedelta(seconds=self.draw.choice([0, 3, 61, 200])))
        # What one duty does every few seconds of real time.
        self.world.call(self.world.store.count_endings())

    # What people and programs do

    @property
    def said(self) -> dict[str, str]:
        return {"reason": _text(self.draw), "actor": self.actor}

    def call(self, verb: str, *given: Any, **more: Any) -> Any:
        return self.world.call(getattr(self.world.app.operate, f"{verb}_async")(*given, **more))

    def some_run(self, *states: State) -> str:
        found = [run.id for run in self.world.runs() if run.state in states] or ["none"]
        return self.draw.choice(found)

    def schedule(self) -> str:
        return self.draw.choice(self.schedules)


# Actions


def _promises(state: Lived, job: str, count: int, later: bool = False) -> None:
    draw, now = state.draw, instant(state.world.now)
    tenant = draw.choice([None, None, "acme", "globex"])
    promises = [
        Promise(
            job,
            b"{}",
            now + (draw.randrange(1, 90) * _MINUTE if later else 0),
            key=f"{_text(draw)}-{number}" if draw.random() < 0.5 else None,
            tenant=tenant,
        )
        for number in range(count)
    ]
    state.world.call(state.world.store.promise(promises))


def promise_now(state: Lived) -> None:
    _promises(
        state,
        state.draw.choice(["good", "flaky", "tired", "pay", "books", "slow", "scarce"]),
        state.draw.randrange(1, 5),
    )


def promise_later(state: Lived) -> None:
    _promises(state, state.draw.choice(["good", "broken", "pay"]), state.draw.randrange(1, 12), later=True)


def die_by_the_hundred(state: Lived) -> None:
    _promises(state, state.draw.choice(["broken", "tired"]), state.draw.choice([3, 60, 120]))


def pause_schedule(state: Lived) -> None:
    until = state.draw.choice([None, timedelta(minutes=7), timedelta(hours=3)])
    at = None if until is None else state.world.now + until
    state.call("pause", state.schedule(), until=at, **state.said)


def resume_schedule(state: Lived) -> None:
    state.call("resume", state.schedule(), catch_up=state.draw.random() < 0.5, **state.said)


def pause_others(state: Lived) -> None:
    name = state.draw.choice(["job:good", "queue:slow-lane", "tenant:acme", "job:flaky"])
    what = state.draw.sample(list(What), state.draw.randrange(1, 3))
    kind, _, subject = name.partition(":")
    state.call("pause_of", kind, subject, what=[str(one) for one in what], **state.said)


def resume_others(state: Lived) -> None:
    for pause in state.call("pauses"):
        kind, _, subject = pause.name.partition(":")
        if kind != "schedule":
            state.call("resume_of", kind, subject, **state.said)


def trigger(state: Lived) -> None:
    state.call("trigger", state.schedule(), override_overlap=state.draw.random() < 0.3, **state.said)


def skip(state: Lived) -> None:
    state.call("skip", state.some_run(State.SCHEDULED, State.HELD), **state.said)


def cancel(state: Lived) -> None:
    for _ in range(state.draw.randrange(1, 6)):
        run = state.some_run(State.SCHEDULED, State.HELD, State.READY, State.RUNNING, State.RETRYING)
        state.call("cancel", run, **state.said)


def retry(state: Lived) -> None:
    state.call("retry", state.some_run(*PARKED), override=state.draw.random() < 0.3, **state.said)


def rerun(state: Lived) -> None:
    ended = state.some_run(State.SUCCEEDED, State.VERIFIED, State.CANCELLED, State.SKIPPED, State.DEAD)
    state.call("rerun", ended, override=True, **state.said)


def replay(state: Lived) -> None:
    state.call(
        "replay_dead", job=state.draw.choice([None, "broken", "tired"]), limit=state.draw.choice([3, 50]), **state.said
    )


def settle(state: Lived) -> None:
    run = state.world.run(state.some_run(State.AMBIGUOUS))
    answer = state.draw.choice(["done", "not_done"])
    effects = [f"{one.name}:{one.key}={answer}" for one in run.effects if str(one.state) == "started"]
    then = state.draw.choice([None, "resume", "close"])
    more = {"reason": "nobody needs it"} if then == "close" else {}
    state.call("reconcile", run.id, evidence="the bank said so", effects=effects, then=then, actor=state.actor, **more)


def verify(state: Lived) -> None:
    state.call("verify", state.some_run(State.UNVERIFIED), **state.said)


def backfill(state: Lived) -> None:
    end = state.world.now.replace(second=0, microsecond=0) - timedelta(days=state.draw.randrange(2, 9))
    start = end - timedelta(minutes=state.draw.choice([30, 400]))
    pace: dict[str, Any] = state.draw.choice([{}, {"rate": "10/m"}, {"at_once": 7}])
    state.call("backfill", state.schedule(), start, end, **pace, **state.said)


def change_backfill(state: Lived) -> None:
    numbers = [one.number for one in state.call("backfills")]
    verb = state.draw.choice(["pause_backfill", "resume_backfill", "cancel_backfill"])
    state.call(verb, state.draw.choice(numbers or [1]), **state.said)


def limit(state: Lived) -> None:
    name = state.draw.choice(["job:good", "tenant:acme", "queue:slow-lane"])
    given: dict[str, Any] = state.draw.choice(
        [{"concurrency": 1}, {"rate": "30/m"}, {"concurrency": 2000, "weight": 2.5}]
    )
    state.call("limit", name, **given, **state.said)


def snooze(state: Lived) -> None:
    alerts = [one.number for one in state.call("alerts").alerts if one.number]
    for number in state.draw.sample(alerts, min(len(alerts), 3)):
        state.call("snooze", number, "2h", **state.said)


def outage(state: Lived) -> None:
    state.world.outage(timedelta(minutes=state.draw.choice([2, 40, 200])))


def lose_a_worker(state: Lived) -> None:
    if state.world.workers:
        state.world.kill_worker()
    state.world.add_worker()


def run_without_workers(state: Lived) -> None:
    if state.world.workers:
        state.world.kill_worker()
    state.world.run_for(timedelta(minutes=state.draw.choice([1, 5])))
    if state.draw.random() < 0.7:
        state.world.add_worker()


def change_members(state: Lived) -> None:
    members = [one.key for one in state.call("members", "shops")]
    if len(members) > 3 and state.draw.random() < 0.5:
        state.call("remove_members", "shops", [state.draw.choice(members)], **state.said)
    else:
        state.call("add_members", "shops", [f"new-{_name(state.draw, 30)}"], **state.said)


def heal(state: Lived) -> None:
    state.world.app.healthy = not state.world.app.healthy  # type: ignore[attr-defined]


Action = Callable[[Lived], None]
_ACTIONS: list[Action] = [
    promise_now,
    promise_now,
    promise_later,
    die_by_the_hundred,
    pause_schedule,
    resume_schedule,
    pause_others,
    resume_others,
    trigger,
    skip,
    cancel,
    retry,
    rerun,
    replay,
    settle,
    settle,
    verify,
    backfill,
    change_backfill,
    limit,
    snooze,
    outage,
    lose_a_worker,
    run_without_workers,
    change_members,
    heal,
]
RICH: list[Action] = [
    backfill,
    promise_now,
    outage,
    pause_schedule,
    limit,
    promise_later,
    snooze,
    run_without_workers,
]
"""Few actions after which most pages have something to count."""
FEW: list[Action] = [promise_now, run_without_workers]
"""For PostgreSQL, where an hour costs several times as much CPU time as on SQLite."""


# The app


def _app(url: str, draw: Random) -> Foliot:
    app = Foliot(url, backoff="20s")
    app.healthy = False  # type: ignore[attr-defined]
    minute = 60_000_000

    async def rest(*lengths: int) -> None:
        await app.clock.sleep(draw.choice(lengths))

    @app.job(owner=_text(draw), runbook="https://wiki.example.org/good")
    async def good(ctx: Context) -> str:
        ctx.progress(1, of=draw.choice([2, 4000]))
        await rest(0, 300, 4_000_000, minute)
        return "done"

    @app.job(attempts=3)
    async def flaky(ctx: Context) -> None:
        await rest(0, 2_000_000)
        if ctx.attempt == 1:
            raise ConnectionError(_text(draw))

    @app.job(attempts=2, backoff="5s")
    async def tired() -> None:
        raise ConnectionError(_text(draw))

    @app.job(attempts=1)
    async def broken() -> None:
        raise Permanent(f"no such account {_text(draw)}")

    @app.job(effects=("pay", "mail"), attempts=2)
    async def pay(ctx: Context) -> None:
        for name in ("pay", "mail"):
            async with ctx.effect(name, key=_name(draw, 20)):
                await rest(0, 1_000_000)
                if draw.random() < 0.3:
                    raise TimeoutError(f"no answer {_text(draw)}")

    @app.job(effects=("letter",), attempts=1)
    async def books(ctx: Context) -> None:
        stop = draw.choice([2, 7, 99])
        async for number in ctx.each(range(draw.choice([5, 12])), name=draw.choice(["", "accounts"])):
            if number == stop:
                raise Permanent("no paper")
            async with ctx.effect("letter", key=number, idempotent=draw.random() < 0.5):
                pass

    @app.job(attempts=2, stall_after="4m")
    async def slow(ctx: Context) -> None:
        ctx.progress(3, of=1200, note="halfway")
        await rest(20 * minute, 50 * minute)

    @app.job(queue="slow-lane", concurrency=1)
    async def scarce() -> None:
        await rest(minute, 9 * minute)

    @app.job
    async def counted() -> int:
        return 4

    # A coroutine: a thread would end at a moment of its own.
    @counted.verify
    async def right() -> Verdict:
        return Verdict(bool(app.healthy), "they do not add up")  # type: ignore[attr-defined]

    @app.job(attempts=1)
    async def visit(ctx: Context, shop: str) -> None:
        await rest(0, 2_000_000)
        if shop.startswith("south") and not app.healthy:  # type: ignore[attr-defined]
            raise Permanent(f"it is closed {_text(draw)}")

    members = [
        f"{where}-{_name(draw, 60)}" for where in ("north", "south", "east", "west", "south", "mid", "up", "down")
    ]
    app.members("shops", members[: draw.choice([2, 5, 8])])
    rules: dict[str, Rule] = {}

    def schedule(job: Any, *choices: str, **settings: Any) -> None:
        name, chosen = _name(draw), draw.choice(choices)
        kind, given, rules[name] = RULES[chosen]
        app.schedule(name, job, kind(given[0], tz=given[1]) if kind is cron else kind(*given), **settings)

    overlap = draw.choice(["skip", "queue", "allow", "coalesce"])
    schedule(good, "7m", "15m", "1h", overlap=overlap, tenant="acme", owner=_text(draw))
    schedule(flaky, "tens", "night")
    schedule(broken, "5m", "20m")
    schedule(tired, "30m", catch_up="all", jitter="2m")
    schedule(slow, "10m", overlap=draw.choice(["skip", "queue"]))
    schedule(good, "after")
    schedule(counted, "25m", tenant="globex")
    schedule(visit, "15m", "40m", over="shops", bind={"shop": "member"})
    schedule(scarce, "6m", overlap="allow", priority=3)
    schedule(good, "morning")
    app.rules = rules  # type: ignore[attr-defined]
    app.limit("job:flaky", concurrency=100)
    return app


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the generator from which the product draws its backoff and its numbers; puts it back as it was."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def restarted(url: str) -> Iterator[None]:
    """PostgreSQL's sequences begin anew. Then they go on where they were, since other stores have drawn from them."""
    if url.startswith("sqlite"):
        yield
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        before = connection.execute(f"SELECT oid, pg_sequence_last_value(oid) {_SEQUENCES}").fetchall()
        connection.execute(f"SELECT setval(oid, seqstart, false) {_SEQUENCES}")
        try:
            yield
        finally:
            for sequence, last in before:
                if last is not None:
                    connection.execute(
                        "SELECT setval(%(oid)s::oid, greatest(%(last)s, pg_sequence_last_value(%(oid)s::oid)))",
                        {"oid": sequence, "last": last},
                    )


_SEQUENCES = "FROM pg_sequence JOIN pg_class ON oid = seqrelid WHERE relnamespace = 'foliot'::regnamespace"


@contextmanager
def drawn_state(seed: int, actions: Sequence[Action | None], url: str = "sqlite:///:memory:") -> Iterator[Lived]:
    """One state for each seed: the actions, the handlers and the product draw from generators with that seed."""
    with seeded(seed), restarted(url), _drawn_state(seed, actions, url) as state:
        yield state


@contextmanager
def _drawn_state(seed: int, actions: Sequence[Action | None], url: str) -> Iterator[Lived]:
    draw = Random(seed)
    clock = ManualClock(instant(START))
    app = _app(url, draw)
    store = bootstrap.make_store(url, clock)
    asyncio.run(store.open())
    with app.standing_on(store, clock):
        world = World(app, store, clock, slots=draw.choice([4, 30]))
        try:
            world.start()
            world.watch("5m")
            state = Lived(world, draw)
            state.live(actions)
            yield state
        finally:
            world.close()
