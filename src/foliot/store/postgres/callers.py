"""What we do inside a transaction that the caller has begun, on a connection of the caller's own.

Whatever the library, it is one statement with one text in it, sent the way that the caller's own statements are.
Nothing is begun, committed, rolled back or set. Libraries are recognised and never imported: whoever hands us a
connection has imported its library.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from foliot.domain.run import Kept, Promise
from foliot.errors import InvalidInput, LostOwnership, StoreError
from foliot.store.postgres.promising import kept
from foliot.store.verbs.transaction import Row

Send = Callable[[Any, str, str], Sequence[Row]]
SendAsync = Callable[[Any, str, str], Awaitable[Sequence[Row]]]
S = TypeVar("S", Send, SendAsync)

PROMISE = "SELECT number, name, outcome, state, fire_at FROM foliot.promise_all({})"
BEGIN_EFFECT = "SELECT foliot.begin_effect({})"
END_EFFECT = "SELECT foliot.end_effect({})"
EFFECTS = "SELECT * FROM foliot.effects_of({})"
COMPLETE = "SELECT foliot.complete_as({})"
"""Each takes one text: what to do, as JSON."""
_NOT_OWNED = "FL001"
_NOT_THERE = ("3F000", "42883")
"""What PostgreSQL says of a schema, or of a function, that does not exist."""


def promise(connection: Any, wanted: Sequence[Promise]) -> list[Kept]:
    return _answers(say(connection, PROMISE, _text(wanted)) if wanted else [], wanted)


async def promise_async(connection: Any, wanted: Sequence[Promise]) -> list[Kept]:
    return _answers(await say_async(connection, PROMISE, _text(wanted)) if wanted else [], wanted)


def is_blocking(connection: Any) -> bool:
    """InvalidInput when it is none that we know."""
    if _sender(connection, _BLOCKING) is not None:
        return True
    if _sender(connection, _AWAITED) is None:
        raise _refusal(connection, {}, "")
    return False


def say(connection: Any, query: str, text: str) -> Sequence[Row]:
    send = _sender(connection, _BLOCKING)
    if send is None:
        raise _refusal(
            connection,
            _AWAITED,
            ("it is async: use it with await and at_async, delay_async, now_async or promise_many_async"),
        )
    try:
        return send(connection, query, text)
    except Exception as error:
        _explain(error)
        raise


async def say_async(connection: Any, query: str, text: str) -> Sequence[Row]:
    send = _sender(connection, _AWAITED)
    if send is None:
        raise _refusal(connection, _BLOCKING, "it is not async: use it with at, delay, now or promise_many")
    try:
        return await send(connection, query, text)
    except Exception as error:
        _explain(error)
        raise


def _text(wanted: Sequence[Promise]) -> str:
    """A JSON array by the names of `foliot.wish`, bytes in the server's own form."""
    return msgspec.json.encode(
        [
            {name: _hex(value) if isinstance(value, bytes) else value for name, value in one._asdict().items()}
            for one in wanted
        ]
    ).decode()


def _hex(value: bytes) -> str:
    return f"\\x{value.hex()}"


def _answers(rows: Sequence[Row], wanted: Sequence[Promise]) -> list[Kept]:
    """Or the Conflict of the first that was refused: an answer as any other, so the transaction is still good."""
    answers = []
    for row, one in zip(rows, wanted, strict=True):
        answer = kept(row, one)
        if isinstance(answer, Exception):
            raise answer
        answers.append(answer)
    return answers


# How each library sends it


def _psycopg(connection: Any, query: str, text: str) -> Sequence[Row]:
    with connection.cursor(row_factory=_tuples) as cursor:
        found: Sequence[Row] = cursor.execute(query.format("%s"), [text]).fetchall()
        return found


async def _psycopg_async(connection: Any, query: str, text: str) -> Sequence[Row]:
    async with connection.cursor(row_factory=_tuples) as cursor:
        found: Sequence[Row] = await (await cursor.execute(query.format("%s"), [text])).fetchall()
        return found


def _tuples(_cursor: Any) -> type[tuple[Any, ...]]:
    """Whatever shape the caller's own rows have."""
    return tuple


async def _asyncpg(connection: Any, query: str, text: str) -> Sequence[Row]:
    return [tuple(row) for row in await connection.fetch(query.format("$1"), text)]


def _sqlalchemy(connection: Any, query: str, text: str) -> Sequence[Row]:
    found: Sequence[Row] = connection.execute(*_clause(connection, query, text)).all()
    return found


async def _sqlalchemy_async(connection: Any, query: str, text: str) -> Sequence[Row]:
    found: Sequence[Row] = (await connection.execute(*_clause(connection, query, text))).all()
    return found


def _clause(connection: Any, query: str, text: str) -> tuple[Any, dict[str, str]]:
    _check_engine((connection if hasattr(connection, "dialect") else connection.get_bind()).dialect.name)
    return sys.modules["sqlalchemy"].text(query.format(":said")), {"said": text}


def _django(connection: Any, query: str, text: str) -> Sequence[Row]:
    _check_engine(connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(query.format("%s"), [text])
        found: Sequence[Row] = cursor.fetchall()
        return found


def _check_engine(name: str) -> None:
    if name != "postgresql":
        raise InvalidInput(
            f"connection= is a connection to {name}, but the store is in PostgreSQL; a promise can only join a "
            "transaction of the store's own database"
        )


_BLOCKING: dict[tuple[str, str], Send] = {
    ("psycopg", "Connection"): _psycopg,
    ("sqlalchemy.orm", "Session"): _sqlalchemy,
    ("sqlalchemy.orm", "scoped_session"): _sqlalchemy,
    ("sqlalchemy.engine", "Connection"): _sqlalchemy,
    ("django.utils.connection", "ConnectionProxy"): _django,
    ("django.db.backends.base.base", "BaseDatabaseWrapper"): _django,
}
_AWAITED: dict[tuple[str, str], SendAsync] = {
    ("asyncpg", "Connection"): _asyncpg,  # a pool's proxies say that they are connections, too
    ("psycopg", "AsyncConnection"): _psycopg_async,
    ("sqlalchemy.ext.asyncio", "AsyncSession"): _sqlalchemy_async,
    ("sqlalchemy.ext.asyncio", "async_scoped_session"): _sqlalchemy_async,
    ("sqlalchemy.ext.asyncio", "AsyncConnection"): _sqlalchemy_async,
}
"""By module and class. SQLAlchemy with any driver for PostgreSQL."""


def _sender(connection: Any, known: Mapping[tuple[str, str], S]) -> S | None:
    for (module, name), send in known.items():
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(connection, kind):
            return send
    return None


def _refusal(connection: Any, others: Mapping[tuple[str, str], Any], advice: str) -> InvalidInput:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if _sender(connection, others) is not None:
        return InvalidInput(f"connection= is a {kind}: {advice}")
    return InvalidInput(
        f"connection={connection!r:.80} ({kind}) cannot be used for promises. Give an open connection (not its "
        f"engine or pool): of psycopg 3 (Connection, AsyncConnection), asyncpg (Connection), SQLAlchemy 2 (Session, "
        f"Connection, AsyncSession, AsyncConnection), or django.db.connection. With another driver, execute "
        f"SELECT foliot.promise(job, at, arguments, key => ...) in your transaction"
    )


def _explain(error: Exception) -> None:
    """Errors stay what the caller's library makes of them: callers know those, and when to try again. Only a database
    that is not ours needs our words."""
    told: Any = getattr(error, "orig", None) or error.__cause__ or error  # SQLAlchemy and Django wrap the driver's
    code = getattr(told, "sqlstate", None) or getattr(told, "pgcode", None) or str(told)  # pg8000 tells it in its text
    if _NOT_OWNED in code:
        raise LostOwnership(f"{told}; roll back, and let the handler end") from error
    if any(one in code for one in _NOT_THERE):
        raise StoreError(
            "the database of connection= has no schema foliot, or an old one; run `foliot migrate` on it, or give "
            "a connection to the store's own database"
        ) from error
