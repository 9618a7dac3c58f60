"""A handler is a registered function: how it is called, and what its class of work chose."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from foliot.domain.identity import checked_name
from foliot.domain.policy import Policy, policy_to_json
from foliot.domain.store import DEFAULT_QUEUE, JobCard
from foliot.errors import InvalidInput
from foliot.work.arguments import Arguments

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
    ) -> Handler:
        """Registers a plain function; InvalidInput when it cannot be a job, with what to do about it."""
        if not callable(function):
            raise InvalidInput(f"{function!r:.80} is not a function; a job is a function with named arguments")
        name = checked_name(str(name or getattr(function, "__name__", "")), "job")
        for call in (function, getattr(function, "__call__", None)):  # noqa: B004 - an object's own, to look at
            if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
                raise InvalidInput(
                    f"{name} is a generator: calling it would do nothing; a job returns, it does not yield"
                )
        return cls(
            name=name,
            function=function,
            is_async=inspect.iscoroutinefunction(function)
            or inspect.iscoroutinefunction(getattr(function, "__call__", None)),  # noqa: B004
            arguments=Arguments(name, function),
            policy=policy or Policy(),
            retry_on=_failures(name, "retry_on", retry_on),
            give_up_on=_failures(name, "give_up_on", give_up_on),
            queue=checked_name(queue, "queue"),
            owner=owner,
            runbook=runbook,
            changes=changes,
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

    def card(self) -> JobCard:
        """What the store is told of the job."""
        return JobCard(self.name, policy_to_json(self.policy), self.queue, self.owner, self.runbook, self.changes)


def _failures(job: str, setting: str, given: Failures) -> tuple[type[BaseException], ...]:
    if given is None:
        return ()
    classes = (given,) if isinstance(given, type) else tuple(given)
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidInput(f"{job}: {setting} takes exception classes; {kind!r:.80} is none")
    return classes
