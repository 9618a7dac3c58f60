"""Who may act over HTTP, and how far: tokens, their scopes, and what was asked for already. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from foliot.domain.instant import DAY, MINUTE, Duration, Instant
from foliot.errors import InvalidInput, NotAllowed

PREFIX = "foliot_"
"""Every token begins with it, so that people and scanners recognise one in a log."""
WORK_PREFIX = f"{PREFIX}work_"
"""The beginning of a token of scope `work`. Releases that know no bounds do not take such a text for a token."""
MOST_BOUNDS = 100
"""Jobs, and queues, that one token can name."""
SESSION: Duration = DAY
"""How long a browser stays logged in."""
MOST_SESSIONS = 50
"""Browsers that one token can be logged in with at a time; with one more, the oldest session ends."""
MOST_KEY = 200
KEY_PATTERN = "[!-~]+"
"""A request's key, whether a header, a form or a command gives it: up to `MOST_KEY` visible ASCII characters."""
KEPT: Duration = DAY
"""How long an answer is kept for whoever asks again under the same Idempotency-Key."""
MOST_KEYS = 10_000
"""So many Idempotency-Keys one credential may have within that time: it cannot fill the store."""
UNDER_WAY: Duration = MINUTE
"""After this time without an answer, whoever was at it is taken to be gone."""
USED_EVERY: Duration = MINUTE
"""A token's last use is written down this often at most."""
SHARED = frozenset(
    {"queue", "priority", "labels", "concurrency_key", "key_limit", "destination", "breaker_after", "breaker_probe"}
    | {"requires", "ping", "poison_after"}
)
"""What a schedule or a promise can say that reaches beyond its tenant: who works at it and before whom, with what it
takes turns, whose results it waits for, where its worker calls, and how many workers may die of it."""
LOCAL = 0
"""What stands for the local user, where a token's number would."""

_TOKEN = re.compile(rf"{PREFIX}(work_)?[A-Za-z0-9_-]{{43}}", re.ASCII)
_KEY = re.compile(KEY_PATTERN, re.ASCII)
_MAKE_ONE = "foliot tokens create NAME --scope work --job JOB --tenant TENANT"


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"
    """Look at everything."""
    WORK = "work"
    """Take runs within the token's bound, as a worker, and report their outcomes; nothing else."""
    OPERATE = "operate"
    """Act as an operator; includes read."""
    ADMIN = "admin"
    """Create and revoke tokens; includes operate."""


_INCLUDED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.WORK: frozenset({Scope.WORK}),
    Scope.OPERATE: frozenset({Scope.READ, Scope.OPERATE}),
    Scope.ADMIN: frozenset({Scope.READ, Scope.OPERATE, Scope.ADMIN}),
}
"""No other scope includes `work`: a claim answers with arguments as they are, and readers see them redacted."""


def allows(given: Scope, wanted: Scope) -> bool:
    return wanted in _INCLUDED[given]


class WorkBound(NamedTuple):
    """The runs that a token of scope `work` reaches."""

    jobs: tuple[str, ...] = ()
    """Empty: all jobs."""
    queues: tuple[str, ...] = ()
    """Empty: all queues."""
    tenant: str | None = None
    """None: runs without a tenant, unless `all_tenants`."""
    all_tenants: bool = False

    def covers(self, job: str, queue: str, tenant: str | None) -> bool:
        return self._has_job(job) and self._has_queue(queue) and (self.all_tenants or tenant == self.tenant)

    def narrowed(self, jobs: Iterable[str], queues: Iterable[str]) -> tuple[list[str], list[str]]:
        """Those of a worker's jobs and queues that lie within the bound."""
        return [job for job in jobs if self._has_job(job)], [queue for queue in queues if self._has_queue(queue)]

    def check(self, jobs: Iterable[tuple[str, str, Iterable[str]]], queues: Iterable[str]) -> None:
        """NotAllowed when a worker registers a job (name, queue, names of settings) or a queue outside the bound."""
        for job, queue, settings in jobs:
            if not self._has_job(job):
                raise NotAllowed(
                    f"job {job!r}: the token is restricted to the jobs {_listed(self.jobs)}; register only these"
                )
            self._check_queue(queue, f"job {job!r} has the queue {queue!r}")
            shared = sorted((SHARED - {"queue"}) & set(settings))
            if shared and not self.all_tenants:
                runs = "runs without a tenant" if self.tenant is None else f"tenant {self.tenant!r}"
                raise NotAllowed(
                    f"job {job!r}, settings {', '.join(shared)}: they affect other tenants, the token is restricted "
                    f"to {runs}; leave them out, declare the job in code, or use a token with --all-tenants"
                )
        for queue in queues:
            self._check_queue(queue, f"queue {queue!r}")

    def _check_queue(self, queue: str, given: str) -> None:
        if not self._has_queue(queue):
            raise NotAllowed(f"{given}: the token is restricted to the queues {_listed(self.queues)}; use only these")

    def _has_job(self, job: str) -> bool:
        return not self.jobs or job in self.jobs

    def _has_queue(self, queue: str) -> bool:
        return not self.queues or queue in self.queues

    @property
    def words(self) -> str:
        """For people: `jobs resize, queues gpu, tenant acme`."""
        parts = [f"jobs {_listed(self.jobs)}"] if self.jobs else []
        parts += [f"queues {_listed(self.queues)}"] if self.queues else []
        whose = "all tenants" if self.all_tenants else "no tenant" if self.tenant is None else f"tenant {self.tenant}"
        return ", ".join([*parts, whose])


UNBOUNDED = WorkBound(all_tenants=True)
"""The bound of the local user, who needs no token."""


@dataclass(frozen=True, slots=True)
class Token:
    """A credential as the store knows it: never the text, only what was made of it."""

    number: int
    name: str
    """Also the actor of whatever is done with it."""
    scope: Scope
    tenant: str | None
    """The only one whose runs, schedules and promises exist for it; None: all do. A token of scope `work` reaches the
    runs of this tenant; None: those without a tenant, unless `all_tenants`."""
    made_at: Instant
    made_by: str
    expires_at: Instant | None = None
    used_at: Instant | None = None
    """To the minute."""
    revoked_at: Instant | None = None
    jobs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    all_tenants: bool = False

    @property
    def bound(self) -> WorkBound | None:
        """The runs that it takes; None: none. Older releases made tokens of scope `work` without jobs and queues."""
        if self.scope is not Scope.WORK or not (self.jobs or self.queues):
            return None
        return WorkBound(self.jobs, self.queues, self.tenant, self.all_tenants)

    def is_good(self, now: Instant) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class NewToken(NamedTuple):
    name: str
    hash: bytes
    scope: Scope
    tenant: str | None
    expires_at: Instant | None
    jobs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    all_tenants: bool = False


class Answer(NamedTuple):
    """What was answered to a request, to be said again to whoever asks again."""

    status: int
    headers: dict[str, str]
    body: bytes


class Asked(StrEnum):
    """What is known of a request under its Idempotency-Key."""

    NEW = "new"
    """Nobody asked before: it is yours to do."""
    ANSWERED = "answered"
    UNDER_WAY = "under way"
    """Somebody is at it."""
    UNKNOWN = "unknown"
    """Whoever was at it never answered: whether it was done, nobody knows."""
    OTHER = "other"
    """The key was used for something else."""
    TOO_MANY = "too many"
    """Whoever asks has as many keys as they may have."""


class Request(NamedTuple):
    standing: Asked
    answer: Answer | None = None


def hashed(secret: str) -> bytes:
    """What is kept of a secret of 256 random bits: nobody finds those by trying, so the hash may be a fast one."""
    return sha256(secret.encode()).digest()


def check_bound(scope: Scope, bound: WorkBound) -> None:
    """InvalidInput unless a token of scope `work`, and no other, names jobs or queues, and one tenant or all."""
    if scope is not Scope.WORK:
        if bound.jobs or bound.queues or bound.all_tenants:
            raise InvalidInput(
                f"job, queue and all_tenants apply only to tokens of scope work, and this one has {scope}; leave "
                "them out"
            )
        return
    if not (bound.jobs or bound.queues):
        raise InvalidInput(f"a token of scope work needs jobs or queues; name them: {_MAKE_ONE}")
    if bound.all_tenants and bound.tenant is not None:
        raise InvalidInput(f"tenant={bound.tenant!r:.80} and all_tenants: give one of them")
    for names, kind in ((bound.jobs, "jobs"), (bound.queues, "queues")):
        if len(names) > MOST_BOUNDS:
            raise InvalidInput(f"{len(names)} {kind}: a token names at most {MOST_BOUNDS}; create several tokens")


def why_no_work(name: str, scope: Scope) -> str:
    """Why a token takes no runs, and how to make one that does."""
    if scope is Scope.WORK:
        return (
            f"token {name!r} has no jobs or queues, because an older release created it, so it cannot claim "
            f"runs; create another: {_MAKE_ONE}"
        )
    return f"the request needs a token of scope work, and {name!r} has {scope}; create one: {_MAKE_ONE}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def checked_request_key(key: str) -> str:
    """The key under which a request is done once."""
    if not isinstance(key, str) or len(key) > MOST_KEY or not _KEY.fullmatch(key):
        raise InvalidInput(
            f"{key!r:.80} cannot be the key of a request; give 1 to {MOST_KEY} visible ASCII characters, such as a UUID"
        )
    return key


def is_token(text: str) -> bool:
    """Whether it looks like one at all."""
    return _TOKEN.fullmatch(text) is not None


def read_scope(given: str) -> Scope:
    try:
        return Scope(given)
    except ValueError:
        raise InvalidInput(f"scope={given!r:.40}: give one of {', '.join(Scope)}") from None
