"""Who may act over HTTP, what was asked for already, and workers that come that way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec

from foliot.domain.access import (
    KEPT,
    LOCAL,
    MOST_KEYS,
    MOST_SESSIONS,
    UNDER_WAY,
    USED_EVERY,
    Answer,
    Asked,
    NewToken,
    Request,
    Scope,
    Token,
    WorkBound,
)
from foliot.domain.elsewhere import Guest, GuestWorker
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.run import Kept, SilentAttempt
from foliot.domain.store import Instance, JobCard, Ticking
from foliot.errors import Conflict, UnknownName
from foliot.store import process
from foliot.store.verbs import promises, watching
from foliot.store.verbs.acts import ActVerbs
from foliot.store.verbs.rows import handed_off
from foliot.store.verbs.transaction import Row, Transaction, as_json

OVERDUE: Duration = 10 * SECOND
"""What is due, and not handed off for this long, was not fired."""
_LOOKED_AT = 1_000


class AccessVerbs(ActVerbs):
    """The verbs, as methods."""

    shard_count: int

    async def add_token(self, wanted: NewToken, *, actor: str, note: str) -> Token:
        return await self.write(lambda tx: add_token(tx, wanted, actor, note))

    async def tokens(self) -> list[Token]:
        return [_token(row) for row in await self.read(lambda tx: tx.all("all_tokens"))]

    async def token(self, hash: bytes) -> Token | None:
        row = await self.read(lambda tx: tx.one("token_by_hash", hash=hash))
        return None if row is None else _token(row)

    async def any_token(self) -> bool:
        return bool(await self.read(lambda tx: tx.value("any_token")))

    async def revoke_token(self, name: str, *, actor: str, note: str) -> Token:
        return await self.write(lambda tx: revoke_token(tx, name, actor, note))

    async def use_token(self, number: int) -> None:
        await self.write(
            lambda tx: tx.run("use_token", number=number, now=tx.now, before=tx.now - USED_EVERY), lazily=True
        )

    async def begin_session(self, hash: bytes, token: int, until: Instant) -> None:
        await self.write(lambda tx: begin_session(tx, hash, token, until))

    async def session(self, hash: bytes) -> Token | None:
        row = await self.read(lambda tx: tx.one("token_of_session", hash=hash, now=tx.now))
        return None if row is None else _token(row)

    async def end_session(self, hash: bytes) -> None:
        await self.write(lambda tx: tx.run("end_session", hash=hash))

    async def begin_request(self, credential: int, key: str, digest: bytes, *, most: int = MOST_KEYS) -> Request:
        return await self.write(lambda tx: begin_request(tx, credential, key, digest, most))

    async def end_request(self, credential: int, key: str, answer: Answer) -> None:
        kept = {"status": answer.status, "headers": as_json(answer.headers), "body": answer.body}
        await self.write(lambda tx: tx.run("end_request", credential=credential, key=key, **kept))

    async def drop_request(self, credential: int, key: str) -> None:
        await self.write(lambda tx: tx.run("drop_request", credential=credential, key=key))

    async def register_guest(self, wanted: Guest, jobs: Sequence[JobCard]) -> Instance:
        return await self.write(lambda tx: register_guest(tx, wanted, jobs))

    async def guest(self, worker: int) -> GuestWorker | None:
        return await self.read(lambda tx: guest(tx, worker))

    async def attempts_of(self, worker: int) -> list[SilentAttempt]:
        return await self.read(lambda tx: watching.attempts_of(tx, worker))

    async def ticking(self) -> Ticking:
        return await self.read(lambda tx: ticking(tx, self.shard_count))


# Tokens


async def add_token(tx: Transaction, wanted: NewToken, actor: str, note: str) -> Token:
    lists = {"jobs": as_json(wanted.jobs), "queues": as_json(wanted.queues)}
    given = wanted._asdict() | {"scope": str(wanted.scope)} | lists
    row = await tx.one("add_token", **given, now=tx.now, actor=actor)
    if row is None:
        raise Conflict(
            f"the token name {wanted.name!r} is or was in use, and the audit log names actors by it; choose "
            "another name"
        )
    bound = WorkBound(wanted.jobs, wanted.queues, wanted.tenant, wanted.all_tenants)
    detail = f" ({bound.words})" if wanted.scope is Scope.WORK else ""
    await tx.audit(actor, "create_token", f"token:{wanted.name}", f"{note}{detail}")
    return _token(row)


async def revoke_token(tx: Transaction, name: str, actor: str, note: str) -> Token:
    revoked = await tx.run("revoke_token", name=name, now=tx.now)
    row = await tx.one("token_by_name", name=name)
    if row is None:
        raise UnknownName(f"there is no token {name!r}")
    if revoked:  # else somebody did before
        await tx.run("end_sessions_of", name=name)
        await tx.audit(actor, "revoke_token", f"token:{name}", note)
    return _token(row)


async def begin_session(tx: Transaction, hash: bytes, token: int, until: Instant) -> None:
    """Ends the token's oldest sessions, so that this one is within `MOST_SESSIONS`."""
    await tx.all("lock_token", number=token)
    await tx.run("sweep_sessions", now=tx.now)
    await tx.run("end_oldest_sessions", token=token, kept=MOST_SESSIONS - 1)
    await tx.run("add_session", hash=hash, token=token, until=until, now=tx.now)


def _token(row: Row) -> Token:
    *known, jobs, queues, all_tenants = row
    number, name, scope, *rest = known
    token = Token(number, name, Scope(scope), *rest)
    return replace(token, jobs=_texts(jobs), queues=_texts(queues), all_tenants=bool(all_tenants))


# Requests


async def begin_request(tx: Transaction, credential: int, key: str, digest: bytes, most: int) -> Request:
    await tx.run("sweep_requests", before=tx.now - KEPT)
    if await tx.run("begin_request", credential=credential, key=key, digest=digest, now=tx.now):
        # Counted with its own row, and no further than to the limit: a look at an index.
        if await tx.value("count_requests", credential=credential, limit=most + 1) <= most:
            return Request(Asked.NEW)
        await tx.run("drop_request", credential=credential, key=key)
        return Request(Asked.TOO_MANY)
    row = await tx.one("request_row", credential=credential, key=key)
    assert row is not None  # the insert waited for whoever made it, and found it there
    kept, made_at, status, headers, body = row
    if kept != digest:
        return Request(Asked.OTHER)
    if status is not None:
        return Request(Asked.ANSWERED, Answer(status, msgspec.json.decode(headers, type=dict[str, str]), body))
    return Request(Asked.UNDER_WAY if tx.now - made_at < UNDER_WAY else Asked.UNKNOWN)


async def trigger_once(tx: Transaction, schedule: str, key: str, make: Callable[[], Awaitable[Kept]]) -> Kept:
    """The key, the run and what is answered are one transaction: whoever asks again within a day makes no second."""
    # No key of a request has a space.
    kept = f"trigger {key}"
    found = await begin_request(tx, LOCAL, kept, schedule.encode(), MOST_KEYS)
    if found.answer is not None:
        made_before = found.answer.body.decode()
        try:
            return (await promises.by_id(tx, made_before)).kept("kept")
        except UnknownName:
            raise Conflict(
                f"the key {key!r} triggered {made_before}, which retention has deleted; use a new key"
            ) from None
    if found.standing is Asked.TOO_MANY:
        raise Conflict(
            f"{MOST_KEYS:,} keys were used within a day, which is the limit; trigger without a key, or later"
        )
    if found.standing is not Asked.NEW:
        raise Conflict(f"the key {key!r} triggered another schedule within the last day; use a new key")
    made = await make()
    answer = {"status": 200, "headers": as_json({}), "body": made.id.encode()}
    await tx.run("end_request", credential=LOCAL, key=kept, **answer)
    return made


# Workers elsewhere


async def register_guest(tx: Transaction, wanted: Guest, jobs: Sequence[JobCard]) -> Instance:
    """What a guest knows of a job that is known already is left as it is: code knows more of it."""
    known = await watching.jobs(tx)
    cards = [known.get(card.name, card) for card in jobs]
    # A host that is none of ours: nobody looks for its process, and only its silence tells that it is gone.
    elsewhere = watching.Identity(f"http:{wanted.name}", 0, "")
    entered = await watching.register(
        tx, "worker", wanted.version, wanted.queues, wanted.slots, cards, "", wanted.labels, {}, elsewhere
    )
    await tx.run("sweep_guests")
    await tx.run("add_guest", worker=entered.number, credential=wanted.credential, secret=wanted.secret)
    return entered


async def guest(tx: Transaction, worker: int) -> GuestWorker | None:
    row = await tx.one("guest_row", worker=worker)
    if row is None:
        return None
    number, credential, secret, queues, jobs, slots, labels = row
    return GuestWorker(number, credential, secret, _texts(queues), _texts(jobs), slots, _texts(labels))


def _texts(stored: str) -> tuple[str, ...]:
    return tuple(msgspec.json.decode(stored, type=list[str]))


# Whether ticks happen


async def ticking(tx: Transaction, shards: int) -> Ticking:
    held = {
        row[0]
        for row in await tx.all("shard_rows")
        if row[1] is not None and row[3] > tx.now and row[7] is None and not process.is_gone(*row[4:7])
    }
    living = [row for row in await tx.all("live_schedulers") if not process.is_gone(*row[2:5])]
    due = await tx.all("due_unfired", before=tx.now - OVERDUE, limit=_LOOKED_AT)
    fired = set(await handed_off(tx)) if due else set()
    oldest = next((fire_at for number, fire_at in due if number not in fired), None)
    beat = max((row[1] for row in living), default=None)
    return Ticking(tx.now, len(living), beat, sum(shard in held for shard in range(shards)), shards, oldest)
