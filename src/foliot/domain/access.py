"""Who may act over HTTP, and how far: tokens, their scopes, and what was asked for already. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from foliot.domain.instant import DAY, MINUTE, Duration, Instant
from foliot.errors import InvalidInput

PREFIX = "foliot_"
"""What every token begins with: whoever finds one in a log knows what it is, and so do scanners."""
SESSION: Duration = DAY
"""How long a browser stays logged in."""
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

_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}", re.ASCII)


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"
    """Look at everything."""
    WORK = "work"
    """Take runs and say how they ended, as a worker; nothing else."""
    OPERATE = "operate"
    """Act as an operator, and whatever read and work allow."""
    ADMIN = "admin"
    """All that, and tokens."""


_INCLUDED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.WORK: frozenset({Scope.WORK}),
    Scope.OPERATE: frozenset({Scope.READ, Scope.WORK, Scope.OPERATE}),
    Scope.ADMIN: frozenset(Scope),
}


def allows(given: Scope, wanted: Scope) -> bool:
    return wanted in _INCLUDED[given]


@dataclass(frozen=True, slots=True)
class Token:
    """A credential as the store knows it: never the text, only what was made of it."""

    number: int
    name: str
    """Also the actor of whatever is done with it."""
    scope: Scope
    tenant: str | None
    """The only one whose runs, schedules and promises exist for it; None: all do."""
    made_at: Instant
    made_by: str
    expires_at: Instant | None = None
    used_at: Instant | None = None
    """To the minute."""
    revoked_at: Instant | None = None

    def is_good(self, now: Instant) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class NewToken(NamedTuple):
    name: str
    hash: bytes
    scope: Scope
    tenant: str | None
    expires_at: Instant | None


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


def is_token(text: str) -> bool:
    """Whether it looks like one at all."""
    return _TOKEN.fullmatch(text) is not None


def read_scope(given: str) -> Scope:
    try:
        return Scope(given)
    except ValueError:
        raise InvalidInput(f"scope={given!r:.40}: choose one of {', '.join(Scope)}") from None
