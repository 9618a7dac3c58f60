"""Foliot: what a user creates. It registers jobs and schedules, and makes promises.

Every verb acts now and is durable when it returns. Each has an `_async` twin, which is the real one; the plain verb
runs it in a thread of its own, and refuses to block a running event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import blake2b
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from foliot import bootstrap
from foliot.clock import Clock, SystemClock
from foliot.domain.identity import checked_key, checked_name, checked_tenant
from foliot.domain.instant import Instant, instant
from foliot.domain.policy import Policy, choices, choices_to_json
from foliot.domain.rule import Rule
from foliot.domain.run import Kept, Promise
from foliot.domain.schedule import Applied, Declaration
from foliot.domain.store import Store
from foliot.errors import Conflict, InvalidInput, TickTaken, UnknownName
from foliot.job import Job, Moment
from foliot.operate import Operator
from foliot.portal import Portal
from foliot.timing import jittered
from foliot.work.context import Context
from foliot.work.handler import Handler

P = ParamSpec("P")
R = TypeVar("R")


class Foliot:
    """An application: its store, its jobs, its schedules.

    `store` is a URL (`sqlite:///foliot.db`), or a store that is open already; without one, FOLIOT_STORE says which,
    and else `sqlite:///foliot.db`. Further settings are defaults for every job: `Foliot(attempts=3, timeout="5m")`.
    """

    def __init__(self, store: str | Store | None = None, *, clock: Clock | None = None, **settings: Any) -> None:
        self.clock: Clock = clock or SystemClock()
        self._is_open: bool = store is not None and not isinstance(store, str)
        self.store: Store = bootstrap.make_store(store, self.clock) if isinstance(store, str | None) else store
        self.policy = Policy().merged(choices(settings))
        self.jobs: dict[str, Job[..., Any]] = {}
        self._schedules: dict[str, tuple[Job[..., Any], Rule, bytes, dict[str, Any], dict[str, Any]]] = {}
        self.portal = Portal()
        self._opening = threading.Lock()
        self.operate = Operator(self.opened, self.portal.call)

    # Declaring

    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> Job[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, /, **settings: Any) -> _Decorator: ...
    def job(self, function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
        """Registers a function as a job; it stays a plain function that can be called and tested.

        Settings: `name`, `queue`, `owner`, `runbook`, `changes`; `retry_on` and `give_up_on` (exception classes); and
        policies: `attempts`, `timeout`, `lease`, `backoff`, `useful_until`, … (see `foliot.domain.policy.Policy`).
        """
        if function is None:
            return lambda decorated: self._register(decorated, settings)
        return self._register(function, settings)

    def _register(self, function: Callable[..., Any], settings: dict[str, Any]) -> Job[..., Any]:
        describing = {name: settings.pop(name) for name in _HANDLER_SETTINGS if name in settings}
        handler = Handler.of(function, policy=self.policy.merged(choices(settings)), **describing)
        if handler.name in self.jobs:
            raise InvalidInput(f'there is a job {handler.name!r} already; give this one another: @app.job(name="...")')
        job: Job[..., Any] = Job(self, handler)
        self.jobs[handler.name] = job
        return job

    def schedule(
        self,
        name: str,
        job: Job[..., Any],
        rule: Rule,
        *,
        args: Mapping[str, Any] | None = None,
        queue: str | None = None,
        priority: int = 0,
        tenant: str | None = None,
        owner: str | None = None,
        runbook: str | None = None,
        changes: str | None = None,
        **settings: Any,
    ) -> None:
        """Declares a standing rule. It is applied when a scheduler starts, or by `apply`.

        Settings are policies: `overlap`, `catch_up`, `useful_until`, `jitter`, and what the job chose otherwise.
        """
        checked_name(name, "schedule")
        if name in self._schedules:
            raise InvalidInput(f"there is a schedule {name!r} already")
        if not isinstance(job, Job) or job.app is not self:
            raise InvalidInput(f"schedule {name!r}: {job!r:.80} is not a job of this app; decorate it with @app.job")
        if self.jobs.get(job.name) is not job:
            raise InvalidInput(f"schedule {name!r}: give the job itself, and what using(...) says to schedule(...)")
        if not isinstance(rule, Rule):
            raise InvalidInput(f'schedule {name!r}: {rule!r:.80} is not a rule; use cron("0 2 * * *") or every("15m")')
        if tenant is not None:
            checked_tenant(tenant)
        card = job.handler
        described = {
            "queue": queue or card.own_queue,
            "priority": priority,
            "tenant": tenant,
            "owner": owner or card.owner,
            "runbook": runbook or card.runbook,
            "changes": changes or card.changes,
        }
        self._schedules[name] = (job, rule, card.encode((), dict(args or {})), described, choices(settings))

    def declarations(self, evaluated: Mapping[str, Instant] | None = None) -> list[Declaration]:
        """The declared schedules, as the store wants them. `evaluated`: how far the store has come with each."""
        now = self.clock.now()
        found = []
        for name, (job, rule, payload, described, chosen) in self._schedules.items():
            policy = job.handler.policy.merged(chosen)
            # Never again what was decided already, also when the clock was set back since.
            begin = max(now, (evaluated or {}).get(name, now))
            first = None if rule.delay is not None else rule.next(begin)
            since = None if first is None else rule.previous(first)
            fire_at = None if first is None else jittered(name, first, policy.jitter, rule.next(first))
            # Only what differs from the defaults: a release that adds a setting changes nobody's declaration.
            apart = [(one, value) for one, value in asdict(policy).items() if value != getattr(_DEFAULTS, one)]
            words = (name, job.name, rule.encode(), payload, sorted(described.items()), sorted(chosen.items()), apart)
            found.append(
                Declaration(
                    id=name,
                    job=job.name,
                    rule=rule.encode(),
                    payload=payload,
                    policy=policy,
                    options=choices_to_json(chosen),
                    delay=rule.delay,
                    first=first,
                    first_fire_at=fire_at,
                    first_since=since,
                    fingerprint=blake2b(repr(words).encode(), digest_size=16).hexdigest(),
                    **described,
                )
            )
        return found

    # Acting

    async def apply_async(self, *, prune: bool = False, actor: str = "code") -> Applied:
        """Brings the store's schedules to what is declared here, where a declaration changed since it was applied."""
        store = await self.opened()
        evaluated = {view.schedule.id: view.schedule.evaluated_through or 0 for view in await store.schedules()}
        for _ in range(_TRIES):
            try:
                return await store.apply(self.declarations(evaluated), prune=prune, actor=actor)
            except TickTaken as taken:  # fired between our look and our word, or before the schedule was removed once
                evaluated[taken.schedule] = taken.nominal
        raise Conflict("the schedules changed again and again while they were being applied; try once more")

    def apply(self, *, prune: bool = False, actor: str = "code") -> Applied:
        return self.portal.call(lambda: self.apply_async(prune=prune, actor=actor), "apply_async")

    async def promise_many_async(self, promises: Iterable[Promise]) -> list[Kept]:
        """Makes all of them, or none: one transaction, one answer each, in order."""
        listed = list(promises)
        for promise in listed:
            if not isinstance(promise, Promise):
                raise InvalidInput(f"{promise!r:.80} is not a promise; make them with job.promise_at(when, ...)")
        store = await self.opened()
        return await store.promise(listed)

    def promise_many(self, promises: Iterable[Promise]) -> list[Kept]:
        return self.portal.call(lambda: self.promise_many_async(promises), "promise_many_async")

    async def move_async(self, key: str, when: Moment, *, tenant: str | None = None) -> Kept:
        """Changes when a keyed promise is due, until an attempt owns it."""
        store = await self.opened()
        return await store.move(checked_key(key), tenant, instant(when))

    def move(self, key: str, when: Moment, *, tenant: str | None = None) -> Kept:
        return self.portal.call(lambda: self.move_async(key, when, tenant=tenant), "move_async")

    async def cancel_async(self, key: str, *, tenant: str | None = None, reason: str = "") -> Kept:
        """Cancels a keyed promise; one that runs is asked to stop."""
        store = await self.opened()
        return await store.cancel_promise(checked_key(key), tenant, actor="code", note=reason)

    def cancel(self, key: str, *, tenant: str | None = None, reason: str = "") -> Kept:
        return self.portal.call(lambda: self.cancel_async(key, tenant=tenant, reason=reason), "cancel_async")

    # Its own life

    async def opened(self) -> Store:
        """The store, opened by whoever comes first."""
        if not self._is_open:
            await asyncio.get_running_loop().run_in_executor(None, self._open)
        return self.store

    def _open(self) -> None:
        with self._opening:
            if not self._is_open:
                asyncio.run(self.store.open())
                self._is_open = True

    async def close_async(self) -> None:
        """Closes the store. Nothing is lost: what was acknowledged is durable already."""
        if self._is_open:
            await self.store.close()
            self._is_open = False

    def close(self) -> None:
        if self._is_open:
            self.portal.call(self.close_async, "close_async")
        self.portal.close()

    def __enter__(self) -> Foliot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def standing_on(self, store: Store, clock: Clock) -> Iterator[None]:
        """For tests: the same jobs and schedules on another store, which is open, and another clock."""
        before = self.store, self.clock, self._is_open
        self.store, self.clock, self._is_open = store, clock, True
        try:
            yield
        finally:
            self.store, self.clock, self._is_open = before

    def job_named(self, name: str) -> Job[..., Any]:
        try:
            return self.jobs[name]
        except KeyError:
            raise UnknownName(
                f"there is no job {name!r}; there are: {', '.join(sorted(self.jobs)) or 'none'}"
            ) from None


_DEFAULTS = Policy()
_TRIES = 10_000
_HANDLER_SETTINGS = ("name", "retry_on", "give_up_on", "queue", "owner", "runbook", "changes")


class _Decorator:
    """The type of `@app.job(...)`: what it does to a function."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Job[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any: ...
