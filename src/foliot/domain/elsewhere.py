"""Workers elsewhere: what they say of themselves, and the capability that each of their attempts is. Pure."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import NamedTuple

MOST_RESULT = 64 * 1024
"""Bytes of JSON; as for workers here."""
MOST_CHECKPOINT = 1 << 20
MOST_ERROR = 8 * 1024
MOST_NOTE = 1_000
_MARK = 16
"""Bytes of a mark: nobody finds that many by trying."""


class Guest(NamedTuple):
    """What a worker elsewhere says of itself, and who vouches for it."""

    name: str
    credential: int
    secret: bytes
    """What marks its attempts: it never leaves the store's side."""
    queues: tuple[str, ...]
    jobs: tuple[str, ...]
    slots: int
    labels: tuple[str, ...] = ()
    version: str = ""


class GuestWorker(NamedTuple):
    number: int
    credential: int
    secret: bytes
    queues: tuple[str, ...]
    jobs: tuple[str, ...]
    slots: int
    labels: tuple[str, ...]


class AttemptKey(NamedTuple):
    """Which attempt somebody speaks of."""

    worker: int
    number: int
    token: int
    attempt: int


def sealed_key(key: AttemptKey, secret: bytes) -> str:
    """The key as a text that only the store's side can make: who has it, has the attempt."""
    said = ".".join(map(str, key)).encode()
    return urlsafe_b64encode(said + b"." + _mark(said, secret)).decode().rstrip("=")


def opened_key(text: str) -> tuple[AttemptKey, bytes] | None:
    """What a text says, and its mark, which `is_marked` has yet to judge; None when it is none at all."""
    if not text.isascii() or len(text) > 200:
        return None
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Error, ValueError):
        return None
    said, mark = raw[: -_MARK - 1], raw[-_MARK:]
    parts = said.split(b".")
    if len(parts) != 4 or not all(part.isdigit() and len(part) <= 19 for part in parts):
        return None
    return AttemptKey(*map(int, parts)), mark


def is_marked(key: AttemptKey, mark: bytes, secret: bytes) -> bool:
    return hmac.compare_digest(_mark(".".join(map(str, key)).encode(), secret), mark)


def _mark(said: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, said, "sha256")[:_MARK]
