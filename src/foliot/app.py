"""Foliot: what a user creates. It registers jobs and schedules, and makes promises.

Every verb acts now and is durable when it returns. Each has an `_async` twin, which is the real one; the plain verb
runs it in a thread of its own, and refuses to block a running event loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, overload
from weakref import WeakSet

from foliot import bootstrap
from foliot.clock import Clock, SystemClock
from foliot.domain import fingerprint_0
from foliot.domain.alerts import Alert
from foliot.domain.fingerprint import digest_of, is_same, release_of, rule_before, shared_wire_policy, wire
from foliot.domain.gates import Gate, stated_gate
from foliot.domain.identity import checked_key, checked_line, checked_name, checked_priority, checked_tenant
from foliot.domain.instant import Instant, duration, instant
from foliot.domain.policy import Policy, choices, choices_to_json, refuse_of_jobs
from foliot.domain.redaction import NO_SECRETS, stated_secrets
from foliot.domain.rule import Rule
from foliot.domain.run import Kept, Promise, checked_due
from foliot.domain.schedule import FORMAT, Applied, Declaration, Fingerprint, Release, Schedule
from foliot.domain.signals import Tracer, with_trace
from foliot.domain.store import Store
from foliot.errors import Conflict, InvalidInput, ScheduleChanged, StoreError, TickTaken, UnknownName
from foliot.job import Job, Moment
from foliot.members import Members
from foliot.operate import Operator
from foliot.operate.comparing import compared
from foliot.operate.stating import check_binding, check_complete, check_readable
from foliot.portal import Portal, refuse_to_block
from foliot.timing.binding import Binding, binding
from foliot.timing.combine import Composable
from foliot.timing.ticks import armed, standing
from foliot.work.context import Context
from foliot.work.handler import Handler

P = ParamSpec("P")
R = TypeVar("R")


class Foliot:
    """An application: its store, its jobs, its schedules.

    `store` is a URL (`sqlite:///foliot.db`), or a store that is open already; without one, FOLIOT_STORE says which,
    and else `sqlite:///foliot.db`. Further settings are defaults for every job: `Foliot(attempts=3, timeout="5m")`.
    `tracer_provider` is one of OpenTelemetry: promises and attempts are traced with it. Without one, the environment
    says whether anything is traced, by OpenTelemetry's own variables.
    `encryption`: keys with which arguments, results and checkpoints are locked before they are stored: the first one
    locks, all unlock; without it, FOLIOT_ENCRYPTION_KEYS says which, and else nothing is locked.
    `audit`: keys that sign rows of the audit log: the first one signs, all verify. Default: those of
    FOLIOT_AUDIT_KEYS; without any, rows are not signed.
    `secret`: names of keys whose values are shown nowhere, beside those that never are (`password`, `api_key`, …).
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        clock: Clock | None = None,
        tracer_provider: Any = None,
        secret: Iterable[str] = (),
        encryption: str | Iterable[str] | None = None,
        audit: str | Iterable[str] | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(store, str | None) and not hasattr(store, "promise"):
            raise InvalidInput(f"{store!r:.80} is not a store; give its URL, such as sqlite:///foliot.db")
        self.clock: Clock = clock or SystemClock()
        self._is_open: bool = store is not None and not isinstance(store, str)
        self.encryption_keys = bootstrap.encryption_keys(encryption)
        self.audit_keys = bootstrap.audit_keys(audit)
        self.store: Store = (
            bootstrap.make_store(store, self.clock, self.encryption_keys, self.audit_keys)
            if isinstance(store, str | None)
            else bootstrap.with_keys(store, self.encryption_keys)
        )
        self._secret_keys = tuple(".".join(path) for path in stated_secrets("the app", secret).paths)
        chosen = choices(settings)
        self.policy = Policy().merged(chosen)
        self._chosen = frozenset(chosen)
        """What was chosen for every job, by name."""
        self.jobs: dict[str, Job[..., Any]] = {}
        self._chosen_by: dict[str, frozenset[str]] = {}
        """The same, by job."""
        self._unintroduced: set[str] = set()
        """Jobs with secrets, of which this process has not told the store yet."""
        self._schedules: dict[str, _Stated] = {}
        self._signatures: dict[str, Fingerprint] = {}
        """By schedule, once computed. What a schedule declares never changes after `schedule()`."""
        self._known_release: tuple[int, Release] | None = None
        """With the number of schedules that it was computed for."""
        self._limits: dict[str, Gate] = {}
        self.member_sets: dict[str, Members] = {}
        self._tracer = None if tracer_provider is None else bootstrap.make_tracer(tracer_provider)
        self._has_asked_for_tracer = tracer_provider is not None
        self.alert_hooks: list[Callable[[Alert], Any]] = []
        self.portal = Portal()
        self._opening = threading.Lock()
        self._is_lent = False
        """Whether others than the plain verbs may be using the open store."""
        self._is_inherited = False
        """Whether the store was open, in a file, when this process was forked off."""
        _apps.add(self)
        self.guard = bootstrap.make_guard()
        """Decides which addresses may be pinged by URLs of tenants, operators and remote workers."""
        self.operate = Operator(self.opened, self.portal.call, self.guard)

    # Declaring

    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> Job[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, /, **settings: Any) -> _Decorator: ...
    def job(self, function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
        """Registers a function as a job; it stays a plain function that can be called and tested.

        Settings: `name`, `queue`, `owner`, `runbook`, `changes`; `retry_on` and `give_up_on` (exception classes);
        `effects` (the names of all that it does to the world outside; `()` for none), `idempotent` (doing all of it
        again does no harm), `rewritable` (its output can be written again, and comes out the same); `secret` (what of
        its arguments, and of its result, is shown nowhere: `("card.number", "result.receipt")`); and policies:
        `attempts`, `timeout`, `lease`, `backoff`, `useful_until`, … (see `foliot.domain.policy.Policy`).
        """
        if function is None:
            return lambda decorated: self._register(decorated, dict(settings))
        return self._register(function, settings)

    def _register(self, function: Callable[..., Any], settings: dict[str, Any]) -> Job[..., Any]:
        describing = {name: settings.pop(name) for name in _HANDLER_SETTINGS if name in settings}
        if describing.get("name") is not None:
            checked_name(describing["name"], "job")
        _check_lines(describing)
        chosen = choices(settings, _HANDLER_SETTINGS)
        policy = self.policy.merged(chosen)
        handler = Handler.of(function, policy=policy, secret_keys=self._secret_keys, **describing)
        if handler.name in self.jobs:
            raise InvalidInput(
                f'a job {handler.name!r} exists already; give this one another name: @app.job(name="...")'
            )
        job: Job[..., Any] = Job(self, handler)
        self.jobs[handler.name] = job
        if handler.secrets != NO_SECRETS:
            self._unintroduced.add(handler.name)
        self._chosen_by[handler.name] = self._chosen | frozenset(chosen)
        return job

    def schedule(
        self,
        name: str,
        job: Job[..., Any],
        rule: Rule,
        *,
        args: Mapping[str, Any] | None = None,
        bind: Mapping[str, str] | None = None,
        queue: str | None = None,
        priority: int = 0,
        tenant: str | None = None,
        owner: str | None = None,
        runbook: str | None = None,
        changes: str | None = None,
        over: str | Members | None = None,
        **settings: Any,
    ) -> None:
        """Declares a standing rule. It is applied when a scheduler starts, or by `apply`.

        `args` are the same for every run; `bind` names arguments that each run gets from its tick, in the rule's zone:
        `bind={"day": "tick.date"}` (see `foliot.timing.binding`).
        `over`: a set of members (see `members`): each tick makes one run for each of them, and waits for all. Overlap
        is judged by member, `jitter` spreads them, and `bind={"tenant": "member"}` gives each run its own.
        Settings are policies: `overlap`, `catch_up`, `useful_until`, `jitter`, and what the job chose otherwise.
        """
        checked_name(name, "schedule")
        if name in self._schedules:
            raise InvalidInput(f"a schedule {name!r} exists already; give this one another name")
        if not isinstance(job, Job) or job.app is not self:
            raise InvalidInput(
                f"schedule {name!r}: {job!r:.80} is not a job of this app; decorate the function with @app.job"
            )
        if self.jobs.get(job.name) is not job:
            raise InvalidInput(
                f"schedule {name!r}: give the job itself, and pass the settings of using(...) to schedule(...)"
            )
        # The first question answers for rules of this package; the second one, of a protocol, is slow.
        if not isinstance(rule, Composable | Rule) or isinstance(rule, type):
            raise InvalidInput(f"schedule {name!r}: {rule!r:.80} is not a rule; {_rule_advice(rule)}")
        rule = rule.named(name)
        encoded = check_readable(name, rule)
        refuse_of_jobs(f"schedule {name!r}", settings, "a schedule creates only some of its runs")
        chosen = choices(settings, _SCHEDULE_SETTINGS)
        self._check_chosen(name, job, chosen)
        if not isinstance(args, Mapping | None) or not all(isinstance(key, str) for key in args or ()):
            raise InvalidInput(
                f'schedule {name!r}: args={args!r:.80}: give them by name, as in args={{"day": "monday"}}'
            )
        _check_lines({"owner": owner, "runbook": runbook, "changes": changes})
        card = job.handler
        over_set = None if over is None else self._over(name, over, rule)
        described = {
            "queue": card.own_queue if queue is None else checked_name(queue, "queue"),
            "priority": checked_priority(priority),
            "tenant": _tenant(tenant),
            "owner": owner or card.owner,
            "runbook": runbook or card.runbook,
            "changes": changes or card.changes,
            "over": over_set,
        }
        bound = binding(bind or {}, rule.tz)
        check_binding(name, bound, rule, over_set)
        check_complete(name, chosen, over_set)
        payload = card.encode((), dict(args or {}), bound.values("", 0, 0, ""))
        carried = _carried(name, card, chosen, payload, bound)
        self._schedules[name] = _Stated(job, rule, encoded, payload, described, chosen, bound, carried)

    def members(self, name: str, members: Iterable[str] | None = None) -> Members:
        """A set of members that schedules can go over: `app.schedule(..., over="tenants")`.

        What is given here is added when schedules are applied (what is no longer given goes with `prune`). The set
        changes at run time, too: `tenants = app.members("tenants")`, then `tenants.add("acme")`, `tenants.remove(...)`,
        `tenants.set([...])`.
        """
        known = self.member_sets.get(name)
        if known is None:
            known = self.member_sets[name] = Members(self, name, members)
        elif members is not None:
            raise InvalidInput(f"a member set {name!r} is declared already; declare its members in one place")
        return known

    def _over(self, schedule: str, over: str | Members, rule: Rule) -> str:
        name = over.name if isinstance(over, Members) else over
        if not isinstance(name, str) or name not in self.member_sets:
            known = ", ".join(sorted(self.member_sets)) or "none"
            raise InvalidInput(
                f"schedule {schedule!r}: over={over!r:.80} is not a member set of this app (known: {known}); "
                'declare it with app.members("tenants")'
            )
        if rule.delay is not None:
            raise InvalidInput(
                f"schedule {schedule!r}: a fixed delay counts from the end of one run, and over= creates many; use "
                "every(...)"
            )
        return name

    def limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        weight: float | None = None,
    ) -> None:
        """Declares what is allowed of something: `app.limit("tenant:acme", concurrency=10, rate="5/s")`. It is applied
        with the schedules, unless an operator said otherwise of the same.

        Names: `job:X`, `queue:X`, `schedule:X`, `tenant:X` (`tenant:*`: each of them), `to:X` (a destination),
        `lane:catch-up`, `lane:backfill`, and one thing in a lane: `lane:backfill/job:X`. `burst`: so many may start at
        once where the rate was not used before. `weight`: a tenant's share of the workers.
        """
        if name in self._limits:
            raise InvalidInput(f"a limit for {name!r} is declared already; declare all its values in one call")
        gate = stated_gate(name, concurrency=concurrency, rate=rate, burst=burst, weight=weight)
        self._limits[name] = replace(gate, source="code")

    def on_alert(self, function: Callable[[Alert], R]) -> Callable[[Alert], R]:
        """Has a function called with each alert, when it opens and again when it is resolved, in the scheduler that
        has the watch. It may be async. One that raises is called again, later and later."""
        self.alert_hooks.append(function)
        return function

    def _check_chosen(self, schedule: str, job: Job[..., Any], settings: Mapping[str, Any]) -> None:
        """What is done to the world outside must not be left out, or done late, because nobody thought of it."""
        chosen = self._chosen_by[job.name] | settings.keys()
        missing = [setting for setting in ("overlap", "catch_up") if setting not in chosen]
        if job.handler.effects and missing:
            examples = {"overlap": 'overlap="skip"', "catch_up": 'catch_up="once"'}
            wanted = " and ".join(examples[setting] for setting in missing)
            raise InvalidInput(
                f"schedule {schedule!r}: {job.name} has effects ({', '.join(job.handler.effects)}), so its "
                f"policies for overlapping and missed ticks must be set; add {wanted}"
            )

    def declarations(
        self,
        known: Mapping[str, Schedule] | None = None,
        taken: Mapping[str, Instant] | None = None,
        names: Collection[str] | None = None,
    ) -> list[Declaration]:
        """The declared schedules, as the store wants them. `known`: as it has them; `taken`: ticks that exist there;
        `names`: of these alone."""
        now = self.clock.now()
        found = []
        for name, stated in self._schedules.items():
            if names is not None and name not in names:
                continue
            before = (known or {}).get(name)
            # Never again what was decided already, also when the clock was set back since.
            begin = max(now, (before and before.evaluated_through) or 0, (taken or {}).get(name, 0))
            signature = self._signature(name)
            declaration = replace(self._unsigned(stated, name), fingerprint=signature.hash, former=signature.former)
            found.append(armed(declaration, stated.rule, begin, before))
        return found

    @property
    def declared_queues(self) -> set[str]:
        """The queues that declared schedules name."""
        return {queue for stated in self._schedules.values() if (queue := stated.described["queue"])}

    @property
    def schedule_count(self) -> int:
        """How many schedules are declared here."""
        return len(self._schedules)

    def _unsigned(self, stated: _Stated, name: str) -> Declaration:
        """A declared schedule without its fingerprints and its first tick."""
        return Declaration(
            id=name,
            job=stated.job.name,
            rule=stated.encoded,
            payload=stated.payload,
            policy=stated.job.handler.policy.merged(stated.carried),
            options=choices_to_json(stated.carried | stated.bound_options),
            delay=stated.rule.delay,
            said=self._said(stated),
            **stated.described,
        )

    def _said(self, stated: _Stated) -> frozenset[str]:
        chosen = self._chosen_by[stated.job.name]
        return chosen.union(stated.chosen, stated.carried)

    def _signature(self, name: str) -> Fingerprint:
        """The fingerprints of a declared schedule. Its first tick is no part of them."""
        known = self._signatures.get(name)
        if known is not None:
            return known
        stated = self._schedules[name]
        former = fingerprint_0.of_code(
            name=name,
            job=stated.job.name,
            rule=rule_before(stated.encoded),
            payload=stated.payload,
            described=stated.described,
            chosen=wire(stated.chosen),
            policy=shared_wire_policy(stated.job.handler.policy.merged(stated.chosen), self._said(stated)),
            bound=stated.bound_options,
            carried=wire(stated.carried),
        )
        signature = Fingerprint(digest_of(self._unsigned(stated, name)), FORMAT, former)
        self._signatures[name] = signature
        return signature

    @property
    def release(self) -> str:
        """All that is declared here, as one word: processes whose code declares the same are of one release."""
        return self._release.name

    @property
    def _release(self) -> Release:
        count = len(self._schedules)
        if self._known_release is None or self._known_release[0] != count:
            self._known_release = count, release_of({name: self._signature(name) for name in self._schedules})
        return self._known_release[1]

    # Acting

    async def apply_async(self, *, prune: bool = False, actor: str = "code") -> Applied:
        """Brings the store's schedules to what is declared here, where a declaration changed since it was applied; and
        its limits, where no operator said otherwise.

        What a newer release declares that is running stays as it is (`outdated`), until that one is gone.
        """
        store = await self.opened()
        await self._introduce(store, [stated.job.name for stated in self._schedules.values()])
        await store.declare_limits(list(self._limits.values()))
        for members in self.member_sets.values():
            if members.declared is not None:
                await store.declare_members(members.name, members.declared, prune=prune, actor=actor)
        applied = await self._apply(self._schedules, prune=prune, actor=actor)
        return replace(applied, lacking=await self._lacking(store))

    async def _lacking(self, store: Store) -> dict[str, str]:
        """By schedule, the one that it requires where that exists neither here nor in the store."""
        required = {
            name: requires
            for name, stated in self._schedules.items()
            if (requires := stated.carried.get("requires", stated.job.handler.policy.requires)) is not None
            and requires not in self._schedules
        }
        known = {one.id for one in await store.templates(sorted(set(required.values())))} if required else set()
        return {name: requires for name, requires in required.items() if requires not in known}

    async def settle_async(self, *, actor: str = "code") -> Applied:
        """As `apply`, for what the store holds otherwise than declared here: an older release has its way again once no
        newer one is left. Makes no schedule that is not there: somebody removed it."""
        store, last = await self.opened(), ""
        differing: set[str] = set()
        while page := await store.fingerprints(after=last, limit=_COMPARED_AT_ONCE):
            declared = ((name, applied) for name, applied in page.items() if name in self._schedules)
            differing.update(name for name, applied in declared if not is_same(self._signature(name), applied))
            last = next(reversed(page))
            if len(page) < _COMPARED_AT_ONCE:
                break
            await asyncio.sleep(_COMPARISON_REST)
        return await self._apply(differing, prune=False, actor=actor) if differing else Applied()

    async def _apply(self, names: Collection[str], *, prune: bool, actor: str) -> Applied:
        """Computes and sends in full only what the store has not settled: few schedules change from one start to the
        next."""
        store = await self.opened()
        ticks: dict[str, Instant] = {}
        for _ in range(_TRIES):
            stored = await store.settled()
            # A rule whose tables end may come to that end without any change of its own.
            settled = {
                name: declared
                for name in names
                if (declared := self._signature(name).hash) == stored.get(name)
                and self._schedules[name].rule.horizon is None
            }
            rest = {name for name in names if name not in settled}
            known = {one.id: one for one in await store.templates(sorted(rest))} if rest else {}
            stated = self.declarations(known, ticks, rest)
            try:
                return await store.apply(
                    stated,
                    prune=prune,
                    actor=actor,
                    release=self._release,
                    standing=standing(stated, known),
                    settled=settled,
                )
            except TickTaken as taken:  # fired between our look and our word, or before the schedule was removed once
                ticks[taken.schedule] = taken.nominal
            except ScheduleChanged:
                pass  # edited, removed or set aside between our look and our word
        raise Conflict("the schedules kept changing while they were applied; apply them again")

    def apply(self, *, prune: bool = False, actor: str = "code") -> Applied:
        return self.portal.call(lambda: self.apply_async(prune=prune, actor=actor), "apply_async")

    async def promise_many_async(self, promises: Iterable[Promise], *, connection: Any = None) -> list[Kept]:
        """Makes all of them, or none: one transaction, one answer each, in order.

        With `connection`, one of your own to the store's PostgreSQL, they are part of the transaction that you have
        begun on it: they exist if and only if that commits.
        """
        listed = _listed(promises)
        if self.tracer is None:
            return await self._promise_async(listed, connection)
        with self.tracer.promising(listed) as made:
            return await self._promise_async(_traced(listed, made), connection)

    async def _promise_async(self, listed: list[Promise], connection: Any) -> list[Kept]:
        if connection is not None:
            return await self.store.promise_within_async(connection, listed)
        store = await self.opened()
        if self._unintroduced:
            await self._introduce(store, {promise.job for promise in listed})
        kept = await store.promise(listed)
        for answer in kept:
            if answer.outcome == "kept":
                return await compared(store, listed, kept)
        return kept

    async def _introduce(self, store: Store, jobs: Iterable[str]) -> None:
        """Nobody may see what is secret in a run that no worker has heard of yet: once for each job and process."""
        wanted = sorted(self._unintroduced.intersection(jobs))
        if wanted:
            await store.introduce([self.jobs[name].handler.card() for name in wanted])
            self._unintroduced.difference_update(wanted)

    def promise_many(self, promises: Iterable[Promise], *, connection: Any = None) -> list[Kept]:
        if connection is not None:  # here, in the caller's thread: it is the caller's connection
            listed = _listed(promises)
            if self.tracer is None:
                return self.store.promise_within(connection, listed)
            with self.tracer.promising(listed) as made:
                return self.store.promise_within(connection, _traced(listed, made))
        return self.portal.call(lambda: self.promise_many_async(promises), "promise_many_async")

    async def move_async(self, key: str, when: Moment, *, tenant: str | None = None) -> Kept:
        """Changes when a keyed promise is due, until an attempt owns it."""
        wanted = checked_key(key), _tenant(tenant), checked_due(instant(when), f"move {key!r:.80}")
        return await (await self.opened()).move(*wanted)

    def move(self, key: str, when: Moment, *, tenant: str | None = None) -> Kept:
        return self.portal.call(lambda: self.move_async(key, when, tenant=tenant), "move_async")

    async def cancel_async(self, key: str, *, tenant: str | None = None, reason: str = "") -> Kept:
        """Cancels a keyed promise; one that runs is asked to stop."""
        wanted = checked_key(key), _tenant(tenant)
        note = reason and checked_line(reason, "reason")
        return await (await self.opened()).cancel_promise(*wanted, actor="code", note=note)

    def cancel(self, key: str, *, tenant: str | None = None, reason: str = "") -> Kept:
        return self.portal.call(lambda: self.cancel_async(key, tenant=tenant, reason=reason), "cancel_async")

    # Its own life

    @property
    def tracer(self) -> Tracer | None:
        """Who follows promises to their attempts; None when nobody does. The environment is asked once."""
        if not self._has_asked_for_tracer:
            self._tracer, self._has_asked_for_tracer = bootstrap.make_tracer(), True
        return self._tracer

    async def opened(self) -> Store:
        """The store, opened by whoever comes first, and again by whoever comes after `close`."""
        if self._is_inherited:
            raise StoreError(
                "this process was forked while its parent had the store open, and SQLite could lose writes; close "
                "the app before the fork (app.close()), or open it after"
            )
        if not self.portal.is_here():
            self._is_lent = True
        if not self._is_open:
            await asyncio.get_running_loop().run_in_executor(None, self._open)
        return self.store

    def _open(self) -> None:
        with self._opening:
            if not self._is_open:
                asyncio.run(bootstrap.open_store(self.store))
                self._is_open = True

    async def close_async(self) -> None:
        """Closes the store. Nothing is lost: what was acknowledged is durable already. The next use opens it again."""
        if self._is_open and not self._is_inherited:
            await self.store.close()
            self._is_open = self._is_lent = False

    def move_to(self, store: str) -> None:
        """To another store, before anybody else uses this app: what it did so far stays in the one that it had."""
        self.close()
        self._unintroduced = {name for name, job in self.jobs.items() if job.handler.secrets != NO_SECRETS}
        self.store = bootstrap.make_store(store, self.clock, self.encryption_keys, self.audit_keys)

    def close(self) -> None:
        """As `close_async`; plain verbs that are under way in other threads have some seconds to end."""
        refuse_to_block("close_async")
        self.portal.rest(cut_off=True)
        try:
            asyncio.run(self.close_async())
        finally:
            self.portal.resume()

    def __enter__(self) -> Foliot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def standing_on(self, store: Store, clock: Clock) -> Iterator[None]:
        """For tests: the same jobs and schedules on another store, which is open, and another clock."""
        before = self.store, self.clock, self._is_open, self._is_lent, self._is_inherited
        self._unintroduced = {name for name, job in self.jobs.items() if job.handler.secrets != NO_SECRETS}
        self.store, self.clock, self._is_open, self._is_lent, self._is_inherited = store, clock, True, True, False
        try:
            yield
        finally:
            self.store, self.clock, self._is_open, self._is_lent, self._is_inherited = before

    # Forks

    def _before_fork(self) -> None:
        """Closes the store if the plain verbs alone use it, so that parent and child each open their own.

        SQLite counts a process's locks in memory. A child that inherits the count believes in locks that it does not
        hold, even on a connection of its own: when the parent closes the file, the child writes on into a log that was
        deleted, and what it was told is durable is gone.
        """
        at_rest = self.portal.rest(cut_off=False)
        self._opening.acquire()
        if at_rest and self._is_open and not self._is_lent and self.store.file is not None:
            # In a thread: the one that forks may be running an event loop.
            closing = threading.Thread(target=asyncio.run, args=(self.close_async(),))
            closing.start()
            closing.join()

    def _after_fork_in_parent(self) -> None:
        self._opening.release()
        self.portal.resume()

    def _after_fork_in_child(self) -> None:
        self._opening = threading.Lock()
        self.portal.forget()
        self._is_inherited = self._is_open and self.store.file is not None
        if self.store.is_server:
            self._is_open = False  # it draws numbers under a name of its own, so it has to open anew

    def job_named(self, name: str) -> Job[..., Any]:
        try:
            return self.jobs[name]
        except KeyError:
            raise UnknownName(
                f"there is no job {name!r}; known jobs: {', '.join(sorted(self.jobs)) or 'none'}"
            ) from None


_COMPARED_AT_ONCE = 500
"""Schedules that are compared with the store in one piece: a scheduler fires on the same event loop."""
_COMPARISON_REST = 0.01
"""Seconds between two of these."""
_TRIES = 10_000
_SCHEDULE_SETTINGS = ("args", "bind", "queue", "priority", "tenant", "owner", "runbook", "changes", "over")
"""What `schedule` takes beside policies."""

_HANDLER_SETTINGS = (
    "name",
    "retry_on",
    "give_up_on",
    "queue",
    "owner",
    "runbook",
    "changes",
    "isolation",
    "memory",
    "effects",
    "idempotent",
    "rewritable",
    "secret",
)


def _listed(promises: Iterable[Promise]) -> list[Promise]:
    if not isinstance(promises, Iterable):
        raise InvalidInput(
            f"{promises!r:.80} is not a list of promises; create promises with job.promise_at(when, ...)"
        )
    listed = list(promises)
    if not {Promise}.issuperset(map(type, listed)):
        wrong = next(one for one in listed if type(one) is not Promise)
        raise InvalidInput(f"{wrong!r:.80} is not a promise; create promises with job.promise_at(when, ...)")
    return listed


def _traced(promises: list[Promise], made: str | None) -> list[Promise]:
    """With where they come from, for their attempts to point back to."""
    if made is None:
        return promises
    return [one._replace(options=with_trace(one.options, made)) for one in promises]


class _Stated(NamedTuple):
    """A schedule as it was declared."""

    job: Job[..., Any]
    rule: Rule
    encoded: str
    """The rule as it is stored."""
    payload: bytes
    described: dict[str, Any]
    chosen: dict[str, Any]
    """Only what was said of this schedule."""
    bound: Binding
    carried: dict[str, Any]
    """That, with its key and destination as its arguments make them."""

    @property
    def bound_options(self) -> dict[str, Any]:
        return self.bound.encoded() if self.bound.arguments else {}


def _carried(
    schedule: str, handler: Handler, chosen: Mapping[str, Any], payload: bytes, bound: Binding
) -> dict[str, Any]:
    """What each run of a schedule carries: all of them have the same arguments, but for those that its tick gives."""
    carried = handler.carried(chosen)
    for argument, source in bound.arguments:
        if argument in carried.names:
            raise InvalidInput(
                f"schedule {schedule!r}: a key or destination contains {argument}, which is bound to {source}; use "
                "only arguments that are the same for every run"
            )
    return carried.choices(handler.given(payload, bound.values("", 0, 0, "")))


def _tenant(given: str | None) -> str | None:
    return None if given is None else checked_tenant(given)


def _check_lines(given: Mapping[str, Any]) -> None:
    for name in ("owner", "runbook", "changes"):
        if given.get(name) is not None:
            checked_line(given[name], name)


_apps: WeakSet[Foliot] = WeakSet()
_resting: list[Foliot] = []
_forking = threading.Lock()


def app_of(handler: Handler) -> Foliot | None:
    """The app that has a job."""
    return next((app for app in _apps if any(job.handler is handler for job in app.jobs.values())), None)


def _before_fork() -> None:
    _forking.acquire()
    for app in list(_apps):
        app._before_fork()
        _resting.append(app)


def _after_fork_in_parent() -> None:
    while _resting:
        _resting.pop()._after_fork_in_parent()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    _forking = threading.Lock()
    _resting.clear()
    for app in list(_apps):
        app._after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


class _Decorator:
    """The type of `@app.job(...)`: what it does to a function."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Job[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any: ...


def _rule_advice(given: object) -> str:
    try:
        if isinstance(given, str) and duration(given) > 0:
            return f"use every({given!r}), or after({given!r}) to wait that long after each run"
    except InvalidInput:
        pass
    return 'use cron("0 2 * * *") or every("15m")'
