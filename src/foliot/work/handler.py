"""A handler is a registered function: how it is called, and what its class of work chose."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from foliot.domain.identity import checked_name
from foliot.domain.ledger import Traits, traits_to_json
from foliot.domain.policy import Policy, policy_to_json
from foliot.domain.redaction import NO_SECRETS, RESULT, Secrets, plain, stated_secrets
from foliot.domain.store import DEFAULT_QUEUE, JobCard
from foliot.domain.templates import Carried
from foliot.errors import InvalidInput
from foliot.work.arguments import Arguments
from foliot.work.check import CheckArguments, check_choices
from foliot.work.confinement import checked_isolation, checked_memory

Failures = type[BaseException] | Iterable[type[BaseException]] | None


@dataclass(frozen=True, slots=True)
class Handler:
    """Everything that making a promise to it, and keeping that promise, needs to know of a job."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    arguments: Arguments
    policy: Policy
    retry_on: tuple[type[BaseException], ...] = ()
    """Only these are tried again; empty means all that are not in `give_up_on`."""
    give_up_on: tuple[type[BaseException], ...] = ()
    """These are permanent, whatever `retry_on` says."""
    queue: str = DEFAULT_QUEUE
    owner: str | None = None
    runbook: str | None = None
    changes: str | None = None
    isolation: str = "none"
    """`process`: every attempt has a process of its own, which can be ended whatever it does."""
    memory: int | None = None
    """How many bytes of data that process may hold."""
    effects: tuple[str, ...] | None = None
    """The names of all effects that it has; None when it says nothing of them."""
    idempotent: bool = False
    """Doing all of it again does no harm."""
    rewritable: bool = False
    """Its output can be written again, and comes out the same."""
    secrets: Secrets = NO_SECRETS
    """What of its arguments and its result must not be shown."""
    check: Handler | None = None
    """What says whether its business result is right: a handler of its own, with the same payload."""

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        policy: Policy | None = None,
        retry_on: Failures = None,
        give_up_on: Failures = None,
        queue: str = DEFAULT_QUEUE,
        owner: str | None = None,
        runbook: str | None = None,
        changes: str | None = None,
        isolation: str = "none",
        memory: int | str | None = None,
        effects: Iterable[str] | None = None,
        idempotent: bool = False,
        rewritable: bool = False,
        secret: Iterable[str] = (),
        secret_keys: Iterable[str] = (),
    ) -> Handler:
        """Registers a plain function; InvalidInput when it cannot be a job, with what to do about it."""
        if not callable(function):
            raise InvalidInput(f"{function!r:.80} is not a function; a job is a function with named arguments")
        name = checked_name(str(name or getattr(function, "__name__", "")), "job")
        for call in (function, getattr(function, "__call__", None)):  # noqa: B004 - an object's own, to look at
            if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
                raise InvalidInput(
                    f"{name} is a generator, and calling it would run no code; use return instead of yield"
                )
        arguments = Arguments(name, function)
        arguments.secrets = _secrets(name, secret, secret_keys, arguments)
        return cls(
            name=name,
            function=function,
            is_async=inspect.iscoroutinefunction(function)
            or inspect.iscoroutinefunction(getattr(function, "__call__", None)),  # noqa: B004
            arguments=arguments,
            policy=policy or Policy(),
            retry_on=_failures(name, "retry_on", retry_on),
            give_up_on=_failures(name, "give_up_on", give_up_on),
            queue=checked_name(queue, "queue"),
            owner=owner,
            runbook=runbook,
            changes=changes,
            isolation=checked_isolation(name, isolation),
            memory=checked_memory(name, memory, isolation),
            effects=_effects(name, effects),
            idempotent=_flag(name, "idempotent", idempotent),
            rewritable=_flag(name, "rewritable", rewritable),
            secrets=arguments.secrets,
        )

    def checked_by(self, function: Callable[..., Any], settings: Mapping[str, Any]) -> Handler:
        """The same job, with a function that looks whether its business result is right."""
        if self.check is not None:
            raise InvalidInput(f"{self.name} has a check already; a job has one check")
        look = Handler.of(function, name=self.name, policy=self.policy.merged(check_choices(self.name, settings)))
        arguments = CheckArguments(self.name, function, self.function, self.arguments)
        arguments.secrets = self.secrets
        return replace(self, check=replace(look, arguments=arguments, secrets=self.secrets))

    def for_check(self, policy: Policy) -> tuple[Handler, Policy] | None:
        """How a run of this policy is checked; None when there is no check here."""
        if self.check is None:
            return None
        own = self.check.policy
        # Whoever looks may do so in silence for a while: only the time that he may take is bounded.
        chosen = {"timeout": own.timeout, "attempts": own.attempts, "backoff": own.backoff, "stall_after": None}
        return self.check, policy.merged(chosen)

    def traits(self) -> Traits:
        """What its code says of itself."""
        return Traits(
            effects=self.effects,
            idempotent=self.idempotent,
            rewritable=self.rewritable,
            checked=self.check is not None,
            isolated=self.isolation == "process",
            secret=tuple(".".join(path) for path in self.secrets.paths),
            secret_keys=tuple(sorted(self.secrets.keys)),
        )

    @property
    def own_queue(self) -> str | None:
        """The job's queue as runs store it: None for the default, which most have."""
        return None if self.queue == DEFAULT_QUEUE else self.queue

    @property
    def wants_context(self) -> str | None:
        """The name of the parameter that is given the Context; None when there is none."""
        return self.arguments.context

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: Mapping[str, Any] | None = None) -> bytes:
        """The payload of a call; InvalidInput when the call does not fit the signature."""
        return self.arguments.encode(args, kwargs, bound)

    def decode(self, payload: bytes) -> dict[str, Any]:
        """The typed keyword arguments in a payload; InvalidInput when they do not fit the signature."""
        return self.arguments.decode(payload)

    def given(self, payload: bytes, bound: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The same, with the function's own defaults for what the payload leaves out."""
        return self.arguments.defaults | self.arguments.decode(payload, bound)

    def carried(self, chosen: Mapping[str, Any]) -> Carried:
        """What its runs carry as options, where a schedule or a promise chose this beside the job's own policy."""
        carried = Carried(self.name, self.policy, chosen, self.arguments.fields, others=self.arguments.takes_others)
        for name in sorted(carried.names):
            if plain(name) in self.secrets.keys or any(path[0] == name for path in self.secrets.paths):
                raise InvalidInput(
                    f"{self.name}: its key or destination contains {name}, which is secret, and Foliot shows keys "
                    "and destinations; use another argument"
                )
        return carried

    def card(self) -> JobCard:
        """What the store is told of the job."""
        return JobCard(
            name=self.name,
            policy=policy_to_json(self.policy),
            queue=self.queue,
            owner=self.owner,
            runbook=self.runbook,
            changes=self.changes,
            traits=traits_to_json(self.traits()),
        )


def _failures(job: str, setting: str, given: Failures) -> tuple[type[BaseException], ...]:
    if given is None:
        return ()
    classes = (given,) if isinstance(given, type) else tuple(given)
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidInput(f"{job}: {setting} takes exception classes, not {kind!r:.80}")
    return classes


def _effects(job: str, given: Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput(
            f'{job}: effects={given!r:.80}: name all its effects, as in effects=("payout",); use effects=() for a '
            "job without effects"
        )
    return tuple(dict.fromkeys(checked_name(name, "effect") for name in given))


def _secrets(job: str, paths: Iterable[str], keys: Iterable[str], arguments: Arguments) -> Secrets:
    """What the job says of itself, and its app of all its jobs."""
    found = stated_secrets(job, paths, map(plain, keys))
    for path in found.paths:
        if path[0] == RESULT and RESULT in arguments.fields:
            raise InvalidInput(
                f"{job}: secret={'.'.join(path)!r} could mean its argument {RESULT!r} or its return value; rename "
                "the argument"
            )
        if path[0] not in (*arguments.fields, RESULT) and not arguments.takes_others:
            near = get_close_matches(path[0], arguments.fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes: {', '.join(arguments.fields) or 'none'}"
            raise InvalidInput(f"{job}: secret= names {path[0]!r}, which is not an argument; {hint}")
    return found


def _flag(job: str, setting: str, given: bool) -> bool:
    if not isinstance(given, bool):
        raise InvalidInput(f"{job}: {setting}={given!r:.80}; give True or False")
    return given
