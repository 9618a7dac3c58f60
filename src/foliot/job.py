"""A job: a registered function that is still a plain function, and that promises can be made to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from foliot.clock import Clock
from foliot.domain.identity import checked_key, checked_name, checked_priority, checked_tenant
from foliot.domain.instant import LAST, Duration, Instant, duration, instant, rfc3339
from foliot.domain.policy import OF_SCHEDULES, choices, refuse_of_jobs
from foliot.domain.run import Kept, OnConflict, Promise, checked_conflict, checked_due, new_promise
from foliot.domain.templates import Carried
from foliot.errors import InvalidInput
from foliot.portal import Portal
from foliot.work.handler import Handler

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

Moment = datetime
Length = str | float | timedelta


_USING = ("key", "tenant", "queue", "priority", "on_conflict", "unique_for", "useful_until", "connection")
"""What `using` takes beside policies."""


class _App(Protocol):
    """What a job needs of its app."""

    clock: Clock
    portal: Portal
    jobs: dict[str, Job[..., Any]]

    async def promise_many_async(self, promises: Iterable[Promise], *, connection: Any = None) -> list[Kept]: ...
    def promise_many(self, promises: Iterable[Promise], *, connection: Any = None) -> list[Kept]: ...


@dataclass(frozen=True, slots=True)
class _Options:
    """What `using` chose for the promises made through it."""

    key: str | None = None
    tenant: str | None = None
    queue: str | None = None
    priority: int = 0
    on_conflict: OnConflict = OnConflict.KEEP
    unique_for: Duration | None = None
    useful_until: Instant | None = None
    useful_for: Duration | None = None
    connection: Any = None
    settings: dict[str, Any] = field(default_factory=dict)


class Job(Generic[P, R]):
    """Call it, and the function runs here and now. Promise it, and it runs when due, wherever a worker is."""

    def __init__(
        self, app: _App, handler: Handler, options: _Options | None = None, carried: Carried | None = None
    ) -> None:
        self.app = app
        self.handler = handler
        self.name = handler.name
        self._options = options or _Options(queue=handler.own_queue)
        self._carried = carried or handler.carried(self._options.settings)
        self._encoded_settings = self._carried.constant
        update_wrapper(self, handler.function)

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def using(
        self,
        *,
        key: str | None = None,
        tenant: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        on_conflict: str | None = None,
        unique_for: Length | None = None,
        useful_until: Length | datetime | None = None,
        connection: Any = None,
        **settings: Any,
    ) -> Job[P, R]:
        """The same job with other options for the promises made through it.

        `key`: one promise per key (and tenant); `on_conflict` says what happens to the one that exists: `keep`
        (default), `replace`, `error`, `renew`. `priority`: higher goes first. `connection`: your own, to the
        PostgreSQL that the store is in; the promise is part of the transaction that you have begun on it. Further
        settings are policies.
        """
        for name in OF_SCHEDULES:
            if name in settings:
                raise InvalidInput(
                    f"{self.name}: {name} applies to a schedule's ticks, and a promise is due once; give it to "
                    "@app.job or to app.schedule"
                )
        refuse_of_jobs(self.name, settings, "a promise creates only one of its runs")
        chosen: dict[str, Any] = {}
        if key is not None:
            chosen["key"] = checked_key(key)
        if tenant is not None:
            chosen["tenant"] = checked_tenant(tenant)
        if queue is not None:
            chosen["queue"] = checked_name(queue, "queue")
        if priority is not None:
            chosen["priority"] = checked_priority(priority)
        if on_conflict is not None:
            chosen["on_conflict"] = checked_conflict(on_conflict)
        if unique_for is not None:
            chosen["unique_for"] = duration(unique_for)
        if useful_until is not None:
            chosen["useful_until"] = instant(useful_until) if isinstance(useful_until, datetime) else None
            chosen["useful_for"] = None if isinstance(useful_until, datetime) else duration(useful_until)
        if connection is not None:
            chosen["connection"] = connection
        if not settings:
            return Job(self.app, self.handler, replace(self._options, **chosen), self._carried)
        # A preset speaks of ticks as well, which a promise has none of.
        own = {name: value for name, value in choices(settings, _USING).items() if name not in OF_SCHEDULES}
        chosen["settings"] = {**self._options.settings, **own}
        return Job(self.app, self.handler, replace(self._options, **chosen))

    @overload
    def verify(self, function: F, /) -> F: ...
    @overload
    def verify(
        self, /, *, timeout: Length | None = None, attempts: int | None = None, backoff: Length | None = None
    ) -> Callable[[F], F]: ...
    def verify(self, function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
        """Registers a function that says whether the business result of a run is right; it stays a plain function.

        It is called when the handler has succeeded, and when nobody knows whether it has; with any of the job's
        arguments, by name. It changes nothing, and returns True or False, or a Verdict with what it looked at. One that
        raises is tried again: `attempts` (3) in all, each for `timeout` (5 min) at most.
        """
        if function is None:
            return lambda decorated: self._verify(decorated, settings)
        return self._verify(function, settings)

    def _verify(self, function: F, settings: dict[str, Any]) -> F:
        if self.app.jobs.get(self.name) is not self:
            raise InvalidInput(
                f"{self.name}: a check belongs to the job itself, not to the result of using(...); use @job.verify"
            )
        given = {name: value for name, value in settings.items() if value is not None}
        self.handler = self.handler.checked_by(function, given)
        return function

    # One promise at a time

    async def at_async(self, when: Moment, /, *args: P.args, **kwargs: P.kwargs) -> Kept:
        """Promises a run at an instant; durable when this returns. A time that has passed means at once."""
        return await self._make_async(self._promise(instant(when), args, kwargs))

    def at(self, when: Moment, /, *args: P.args, **kwargs: P.kwargs) -> Kept:
        return self._make(lambda: self._promise(instant(when), args, kwargs), "at_async")

    async def delay_async(self, length: Length, /, *args: P.args, **kwargs: P.kwargs) -> Kept:
        """Promises a run after some time: `job.delay_async("10m", ...)`."""
        return await self._make_async(self._promise(self._after(length), args, kwargs, is_relative=True))

    def delay(self, length: Length, /, *args: P.args, **kwargs: P.kwargs) -> Kept:
        return self._make(lambda: self._promise(self._after(length), args, kwargs, is_relative=True), "delay_async")

    async def now_async(self, *args: P.args, **kwargs: P.kwargs) -> Kept:
        """Promises a run at once."""
        return await self._make_async(self._promise(self.app.clock.now(), args, kwargs, is_relative=True))

    def now(self, *args: P.args, **kwargs: P.kwargs) -> Kept:
        return self._make(lambda: self._promise(self.app.clock.now(), args, kwargs, is_relative=True), "now_async")

    # Many at once

    def promise_at(self, when: Moment, /, *args: P.args, **kwargs: P.kwargs) -> Promise:
        """A promise that is checked but not made yet: give many of them to `app.promise_many`."""
        if self._options.connection is not None:
            raise self._where_is_said()
        return self._promise(instant(when), args, kwargs)

    def promise_delay(self, length: Length, /, *args: P.args, **kwargs: P.kwargs) -> Promise:
        if self._options.connection is not None:
            raise self._where_is_said()
        return self._promise(self._after(length), args, kwargs, is_relative=True)

    def _where_is_said(self) -> InvalidInput:
        return InvalidInput(
            f"{self.name}: promise_at and promise_in take no connection=; give it to app.promise_many(promises, "
            "connection=...)"
        )

    def _after(self, length: Length) -> Instant:
        return self.app.clock.now() + duration(length)

    def _promise(
        self, fire_at: Instant, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_relative: bool = False
    ) -> Promise:
        options = self._options
        payload = self.handler.arguments.encode(args, kwargs)
        # By place, not by name, and not through the class: of a million promises this is a good part of the time.
        return new_promise(
            (
                self.handler.name,
                payload,
                checked_due(fire_at, self.handler.name),
                options.key,
                options.tenant,
                options.queue,
                options.priority,
                self._useful_until(fire_at),
                self._carried.encoded(self.handler.given(payload)) if self._carried.names else self._encoded_settings,
                options.on_conflict,
                options.unique_for,
                is_relative,
            )
        )

    def _useful_until(self, fire_at: Instant) -> Instant | None:
        options = self._options
        if options.useful_until is not None:
            if options.useful_until < fire_at:
                raise InvalidInput(
                    f"{self.name}: useful until {rfc3339(options.useful_until)}, but due at {rfc3339(fire_at)}: "
                    "give a later useful_until, or it can never run"
                )
            return options.useful_until
        useful_for = self.handler.policy.useful_until if options.useful_for is None else options.useful_for
        return None if useful_for is None else min(fire_at + useful_for, LAST)

    async def _make_async(self, promise: Promise) -> Kept:
        return (await self.app.promise_many_async([promise], connection=self._options.connection))[0]

    def _make(self, promise: Callable[[], Promise], twin: str) -> Kept:
        if self._options.connection is not None:
            return self.app.promise_many([promise()], connection=self._options.connection)[0]

        async def make() -> Kept:
            return await self._make_async(promise())

        return self.app.portal.call(make, f"{self.name}.{twin}")
