"""What two ends of a PostgreSQL connection say to each other, followed as far as a fault needs it.

Nothing here does I/O: bytes go in, whole messages and the moments that matter come out. A moment is one message of the
client that executes a statement or makes a transaction durable: that is where a cut hurts.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

READY = b"Z"
COPY_IN = b"G"

# Inside of these a semicolon ends nothing, and a COMMIT commits nothing.
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_OPAQUE = re.compile(
    rf"""(?P<comment>{_COMMENT.pattern})|[eE]'(?:[^'\\]|\\.|'')*'|'[^']*'|"[^"]*"|\$(?P<tag>(?:[a-z_]\w*)?)\$.*?\$(?P=tag)\$""",
    re.DOTALL | re.IGNORECASE,
)
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|MERGE|TRUNCATE|COPY|CREATE|ALTER|DROP)\b", re.IGNORECASE)
_TO_SAVEPOINT = re.compile(r"ROLLBACK(\s+(WORK|TRANSACTION))?\s+TO\b", re.IGNORECASE)


def _bare(sql: str) -> str:
    """The text without comments, and with nothing inside its quotes."""
    return _OPAQUE.sub(lambda found: " " if found["comment"] else "''", sql)


@lru_cache(maxsize=1_000)
def verbs(sql: str) -> tuple[str, ...]:
    """The first word of each statement in a text, with the other spellings of COMMIT and ROLLBACK made one."""
    statements = [part.strip() for part in _bare(sql).split(";") if part.strip()]
    if len(statements) == 1 and statements[0].split()[0].upper() == "END":
        return ("COMMIT",)  # only where it stands alone: elsewhere it may close a BEGIN ATOMIC body
    return tuple(
        "SAVEPOINT" if _TO_SAVEPOINT.match(one) else {"ABORT": "ROLLBACK", "START": "BEGIN"}.get(verb, verb)
        for one in statements
        for verb in [re.split(r"\W", one, maxsplit=1)[0].upper()]
    )


def writes(sql: str) -> bool:
    """Whether the text itself says that it writes. A SELECT of a function that writes does not say so."""
    return _WRITES.search(_bare(sql)) is not None


class Framer:
    """Cuts a stream of bytes into whole messages: a type byte, a length that counts itself, a body."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._rest += chunk
        start = 0
        while len(self._rest) - start >= 5:
            end = start + 1 + int.from_bytes(self._rest[start + 1 : start + 5], "big")
            if end > len(self._rest):
                break
            yield bytes(self._rest[start:end])
            start = end
        del self._rest[:start]


@dataclass(eq=False)
class Unit:
    """What the server closes with one ReadyForQuery: a simple Query, or everything up to a Sync."""

    commits: int = 0
    """How many COMMITs the client has sent in it."""
    committed: int = 0
    """How many of them the server has answered with success."""
    synced: bool = False
    failed: bool = False
    done: bool = False

    @property
    def succeeded(self) -> bool:
        """The server has done all of it. COMMIT of a transaction that had failed is answered too, with ROLLBACK."""
        return self.done and not self.failed and self.committed == self.commits


class Moment(NamedTuple):
    """One message of the client that does something."""

    unit: Unit
    statement: str | None
    """The text that it executes; None for a Sync."""
    durable: tuple[str, ...] | None = None
    """The statements that become durable with it; None when it ends no transaction."""
    explicit: bool = False
    """Ended by a COMMIT, not by the end of the unit."""


@dataclass
class Conversation:
    """Follows one connection from its first ReadyForQuery on.

    Whether a transaction block is open is what the client's own words say, because a client may send ahead of the
    answers; whenever nothing is left unanswered, the server's status byte is the truth.
    """

    _statements: dict[bytes, str] = field(default_factory=dict)
    _portals: dict[bytes, str] = field(default_factory=dict)
    _units: deque[Unit] = field(default_factory=deque)
    _current: Unit | None = None
    _open: bool = False
    _aborted: bool = False
    _transaction: list[str] = field(default_factory=list)

    def client_says(self, message: bytes) -> Moment | None:
        kind, body = message[:1], message[5:]
        if kind not in b"PBDECHSQF":
            return None  # a password, COPY's data, a farewell: no part of any unit
        unit = self._unit()
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._statements[name] = text.decode(errors="replace")
        elif kind == b"B":
            portal, name, _ = body.split(b"\0", 2)
            self._portals[portal] = self._statements.get(name, "")
        elif kind == b"E":
            return self._execute(unit, self._portals.get(body.split(b"\0", 1)[0], ""))
        elif kind in b"QFS":
            self._current = None
            unit.synced = kind == b"S"
            moment = self._execute(unit, body[:-1].decode(errors="replace")) if kind == b"Q" else Moment(unit, None)
            return moment if self._open else self._end(moment)
        return None

    def server_says(self, message: bytes) -> Unit | None:
        """The unit that the message answers; None while nothing was asked."""
        kind = message[:1]
        if kind == READY:
            return self._ready(status=message[5:6])
        if not self._units:
            return None
        unit = self._units[0]
        if kind == b"E":
            unit.failed = True
        elif kind == b"C" and message[5:-1] == b"COMMIT":
            unit.committed += 1
        elif kind == COPY_IN and unit.synced and unit is self._units[-1]:
            self._current = unit  # the server skips a Sync that reaches it in copy mode: the next one ends the unit
        return unit

    def _unit(self) -> Unit:
        if self._current is None:
            self._current = Unit()
            self._units.append(self._current)
        return self._current

    def _execute(self, unit: Unit, text: str) -> Moment:
        durable: tuple[str, ...] | None = None
        for verb in verbs(text):
            if verb == "BEGIN":
                self._open = True
            elif verb in ("COMMIT", "ROLLBACK"):
                if verb == "COMMIT" and not self._aborted:  # COMMIT of a failed transaction rolls back
                    unit.commits += 1
                    durable = (*(durable or ()), *self._transaction)
                self._open = self._aborted = False
                self._transaction = []
            else:
                self._transaction.append(text)
        return Moment(unit, text, durable, explicit=durable is not None)

    def _end(self, moment: Moment) -> Moment:
        """Outside of a block the end of the unit commits whatever it did since the last COMMIT."""
        if not self._transaction:
            return moment
        durable = (*(moment.durable or ()), *self._transaction)
        self._transaction = []
        return moment._replace(durable=durable)

    def _ready(self, status: bytes) -> Unit | None:
        unit = self._units.popleft() if self._units else None
        if unit is not None:
            unit.done = True
            if unit is self._current:
                self._current = None
        if not self._units:
            self._open, self._aborted = status != b"I", status == b"E"
            if not self._open:
                self._transaction = []
        return unit
