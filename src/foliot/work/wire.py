"""What a worker and the process of one attempt say to one another: typed messages in msgpack, each behind its length.

Data only, as everywhere: neither side can make the other run anything by what it sends.

    worker   Start   Stopping*                    Answer*
    child    Began   Said*      Asked*            Ended | Broken
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, NamedTuple, TypeVar

import msgspec

from foliot.domain.instant import Duration, Instant
from foliot.domain.ledger import Begun, Effect, EffectState, EffectView
from foliot.domain.run import Claimed, Ending, Progress
from foliot.work.attempt import Stop

MOST = 1 << 26
"""Bytes of one message: far more than any of them has, unless something else writes into the pipe."""

_LENGTH = struct.Struct("!I")


class Place(NamedTuple):
    """Where another process finds a job: the module that has it, and the file that the module is made from."""

    module: str
    file: str | None
    job: str


class Start(msgspec.Struct, frozen=True, tag=True):
    """Everything that the attempt needs to know."""

    place: Place
    path: list[str]
    """Where modules are looked for."""
    claimed: Claimed
    policy: bytes
    ahead: Duration
    """By how much the worker's clock is ahead of the host's."""
    worker: int
    """What the store calls the worker that owns the attempt."""
    store: str | None = None
    """The URL of the store, which may hold a password: so it travels here, and not on a command line."""


class Stopping(msgspec.Struct, frozen=True, tag=True):
    """The attempt is to stop."""

    reason: Stop


class Answer(msgspec.Struct, frozen=True, tag=True):
    """What the store said: a value, or the name and text of an error."""

    question: int
    value: bytes = b""
    error: tuple[str, str] | None = None


class Began(msgspec.Struct, frozen=True, tag=True):
    """The handler begins: by the clock, and by the monotonic clock, which both processes share."""

    started_at: Instant
    begun_at: Instant


class Said(msgspec.Struct, frozen=True, tag=True):
    """What is new about the attempt since it last said something."""

    progress: Progress | None
    moved_at: Instant | None


class Asked(msgspec.Struct, frozen=True, tag=True):
    """A question to the store; see `foliot.work.desk`."""

    question: int
    verb: str
    arguments: bytes


class Ended(msgspec.Struct, frozen=True, tag=True):
    """How the attempt ended; None when it never began."""

    ending: Ending | None


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The handler could not be begun at all."""

    error: str
    permanent: bool


ToChild = Start | Stopping | Answer
FromChild = Began | Said | Asked | Ended | Broken

QUESTIONS: dict[str, tuple[Any, Any]] = {
    "begin_effect": (tuple[Effect], Begun),
    "end_effect": (tuple[Effect, EffectState, bytes | None, str | None], None),
    "done_items": (tuple[str], set[str]),
    "ledger": (tuple[()], list[EffectView]),
    "say": (tuple[Progress], None),
}
"""What a child may ask of its desk: by verb, what it gives and what it gets."""

_T = TypeVar("_T")
# Not strict: engines that know no truth values say 0 and 1.
_to_child = msgspec.msgpack.Decoder(ToChild, strict=False)
_from_child = msgspec.msgpack.Decoder(FromChild, strict=False)


def send(writer: asyncio.StreamWriter, message: ToChild | FromChild) -> None:
    data = msgspec.msgpack.encode(message)
    writer.write(_LENGTH.pack(len(data)) + data)


async def from_worker(reader: asyncio.StreamReader) -> ToChild | None:
    """None when the worker is gone."""
    return await _received(reader, _to_child)


async def from_child(reader: asyncio.StreamReader) -> FromChild | None:
    """None when the child is gone. ValueError for what is no message."""
    return await _received(reader, _from_child)


async def _received(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[_T]) -> _T | None:
    try:
        length = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
        if length > MOST:
            raise ValueError(f"a message of {length:,} bytes")
        return decoder.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
