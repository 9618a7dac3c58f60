"""The verbs that make, move and cancel promises by the job's name, for processes that do not have its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from foliot.domain.identity import checked_key, checked_line, checked_name, checked_priority, checked_tenant
from foliot.domain.instant import LAST, Instant, duration, rfc3339
from foliot.domain.policy import OF_SCHEDULES, choices, refuse_of_jobs
from foliot.domain.run import Kept, Promise, checked_conflict, checked_due
from foliot.domain.store import DEFAULT_QUEUE, JobCard
from foliot.errors import InvalidInput, UnknownName
from foliot.operate.acting import Acting, acting, as_instant
from foliot.operate.comparing import compared
from foliot.operate.stating import promised_options, stated_arguments

Length = str | float | timedelta


class Promised(NamedTuple):
    """What somebody promises: one run of a job, by its name. See `PromiseVerbs.promise_async`."""

    job: str
    arguments: Mapping[str, Any] = {}
    at: datetime | Instant | None = None
    delay: Length | None = None
    key: str | None = None
    tenant: str | None = None
    queue: str | None = None
    priority: int = 0
    on_conflict: str = "keep"
    unique_for: Length | None = None
    useful_until: datetime | Length | None = None
    settings: Mapping[str, Any] = {}


class PromiseVerbs(Acting):
    """Delayed runs, made by a person or on another's behalf: who it was is kept. What code promises to its own jobs is
    work, and the run itself is the record of it."""

    async def promise_async(
        self,
        job: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        actor: str,
        reason: str = "",
        at: datetime | Instant | None = None,
        delay: Length | None = None,
        key: str | None = None,
        tenant: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        on_conflict: str = "keep",
        unique_for: Length | None = None,
        useful_until: datetime | Length | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Kept:
        """One run of a job that the store knows, due at `at`, after `delay`, or now. Arguments are given by name, and
        are data; whether they fit the job's signature is found out by whoever executes it (`dead: bad_payload`).

        With a `key`, said again it is the same promise (`on_conflict`, `unique_for`); without one, another one."""
        wanted = Promised(
            job,
            arguments or {},
            at,
            delay,
            key,
            tenant,
            queue,
            priority,
            on_conflict,
            unique_for,
            useful_until,
            settings or {},
        )
        return (await self.promise_many_async([wanted], actor=actor, reason=reason))[0]

    def promise(self, job: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Kept:
        return self._call(lambda: self.promise_async(job, arguments, **options), "promise_async")

    async def promise_many_async(self, wanted: Sequence[Promised], *, actor: str, reason: str = "") -> list[Kept]:
        """All of them or none, in one transaction; answered in the same order."""
        who, note = acting(actor), _note(reason)
        self._check_addresses(one.settings for one in wanted)
        store = await self._opened()
        cards, now = await store.jobs(), await store.now()
        promises = [_promise(one, cards, now) for one in wanted]
        return await compared(store, promises, await store.promise_as(promises, actor=who, note=note))

    async def move_promise_async(
        self, key: str, at: datetime | Instant, *, actor: str, reason: str = "", tenant: str | None = None
    ) -> Kept:
        """Changes when a keyed promise is due, until an attempt owns it."""
        due = checked_due(as_instant(at), f"move {key!r:.80}")
        who, note = acting(actor), _note(reason)
        return await (await self._opened()).move(checked_key(key), _tenant(tenant), due, actor=who, note=note)

    def move_promise(
        self, key: str, at: datetime | Instant, *, actor: str, reason: str = "", tenant: str | None = None
    ) -> Kept:
        return self._call(
            lambda: self.move_promise_async(key, at, actor=actor, reason=reason, tenant=tenant), "move_promise_async"
        )

    async def cancel_promise_async(self, key: str, *, actor: str, reason: str = "", tenant: str | None = None) -> Kept:
        """Cancels a keyed promise; one that runs is asked to stop. Conflict when it has ended already."""
        store = await self._opened()
        return await store.cancel_promise(checked_key(key), _tenant(tenant), actor=acting(actor), note=_note(reason))

    def cancel_promise(self, key: str, *, actor: str, reason: str = "", tenant: str | None = None) -> Kept:
        return self._call(
            lambda: self.cancel_promise_async(key, actor=actor, reason=reason, tenant=tenant), "cancel_promise_async"
        )


def _promise(wanted: Promised, cards: Mapping[str, JobCard], now: Instant) -> Promise:
    job, card = wanted.job, cards.get(wanted.job)
    if card is None:
        raise UnknownName(f"there is no job {job!r:.80}; a worker that has its code registers it when it starts")
    if wanted.at is not None and wanted.delay is not None:
        raise InvalidInput(f"{job}: give at or delay, not both")
    refuse_of_jobs(job, wanted.settings, "a promise creates only one of its runs")
    chosen = {name: value for name, value in choices(wanted.settings).items() if name not in OF_SCHEDULES}
    payload = stated_arguments(job, wanted.arguments)
    policy, options = promised_options(job, card, chosen, payload)
    delay = 0 if wanted.delay is None else duration(wanted.delay)
    due = now + delay if wanted.at is None else as_instant(wanted.at)
    queue = card.queue if wanted.queue is None else checked_name(wanted.queue, "queue")
    return Promise(
        job=job,
        payload=payload,
        fire_at=checked_due(due, job),
        key=None if wanted.key is None else checked_key(wanted.key),
        tenant=_tenant(wanted.tenant),
        queue=None if queue == DEFAULT_QUEUE else queue,
        priority=checked_priority(wanted.priority),
        useful_until=_useful_until(job, due, wanted.useful_until, policy.useful_until),
        options=options,
        on_conflict=checked_conflict(wanted.on_conflict),
        unique_for=None if wanted.unique_for is None else duration(wanted.unique_for),
        is_relative=wanted.at is None,
    )


def _note(reason: str) -> str:
    return reason and checked_line(reason, "reason")


def _tenant(given: str | None) -> str | None:
    return None if given is None else checked_tenant(given)


def _useful_until(job: str, due: Instant, given: datetime | Length | None, useful_for: int | None) -> Instant | None:
    if isinstance(given, datetime):
        end = as_instant(given)
        if end < due:
            raise InvalidInput(
                f"{job}: useful until {rfc3339(end)}, but due at {rfc3339(due)}: give a later "
                "useful_until, or it can never run"
            )
        return end
    length = useful_for if given is None else duration(given)
    return None if length is None else min(due + length, LAST)
