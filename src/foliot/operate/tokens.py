"""Tokens, and the entrance for whoever comes over HTTP: whose text is this, which session, was this asked before."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from foliot.domain.access import (
    MOST_KEYS,
    PREFIX,
    SESSION,
    WORK_PREFIX,
    Answer,
    NewToken,
    Request,
    Scope,
    Token,
    WorkBound,
    check_bound,
    checked_request_key,
    hashed,
    is_token,
    read_scope,
)
from foliot.domain.identity import checked_name, checked_tenant
from foliot.domain.instant import Instant, duration
from foliot.errors import InvalidInput
from foliot.operate.acting import Acting, acting, as_instant, stated
from foliot.operate.shapes import Shape, moment


class Minted(NamedTuple):
    """A new token, and its text, which nobody can tell again."""

    token: Token
    text: str


class Session(NamedTuple):
    """A browser that was logged in."""

    text: str
    """What its cookie holds."""
    token: Token


class TokenVerbs(Acting):
    """Who may act over HTTP."""

    async def create_token_async(
        self,
        name: str,
        *,
        reason: str,
        actor: str,
        scope: str = "read",
        tenant: str | None = None,
        all_tenants: bool = False,
        jobs: Sequence[str] = (),
        queues: Sequence[str] = (),
        expires_in: str | timedelta | None = None,
        expires_at: datetime | Instant | None = None,
    ) -> Minted:
        """Makes a token. Only a hash of it is kept: its text is told here, once.

        `scope`: read, work, operate or admin. `tenant`: only this tenant's runs, schedules and promises exist for it.
        `jobs`, `queues`: for the scope work alone, which needs one of them: the runs that a worker takes. It takes
        those of `tenant`; without it those that have no tenant, or with `all_tenants` those of all.
        Conflict when there is, or was, one of this name.
        """
        store, who, why = await self._opened(), acting(actor), stated(reason)
        if expires_in is not None and expires_at is not None:
            raise InvalidInput("expires_in and expires_at: give one of them")
        now = await store.now()
        end = None if expires_at is None else as_instant(expires_at)
        end = end if expires_in is None else now + duration(expires_in)
        if end is not None and end <= now:
            raise InvalidInput("expires_at is in the past; give a later time")
        bound = WorkBound(
            tuple(dict.fromkeys(checked_name(job, "job") for job in jobs)),
            tuple(dict.fromkeys(checked_name(queue, "queue") for queue in queues)),
            None if tenant is None else checked_tenant(tenant),
            all_tenants,
        )
        kind = read_scope(scope)
        check_bound(kind, bound)
        text = (WORK_PREFIX if kind is Scope.WORK else PREFIX) + secrets.token_urlsafe(32)
        named = checked_name(name, "token")
        wanted = NewToken(named, hashed(text), kind, bound.tenant, end, bound.jobs, bound.queues, all_tenants)
        return Minted(await store.add_token(wanted, actor=who, note=why), text)

    def create_token(self, name: str, *, reason: str, actor: str, **more: object) -> Minted:
        return self._call(
            lambda: self.create_token_async(name, reason=reason, actor=actor, **more),  # type: ignore[arg-type]
            "create_token_async",
        )

    async def tokens_async(self) -> list[Token]:
        """All that were ever made, by name."""
        return await (await self._opened()).tokens()

    def tokens(self) -> list[Token]:
        return self._call(self.tokens_async, "tokens_async")

    async def revoke_token_async(self, name: str, *, reason: str, actor: str) -> Token:
        """From now on it opens nothing, and whoever logged in with it is logged out."""
        return await (await self._opened()).revoke_token(name, actor=acting(actor), note=stated(reason))

    def revoke_token(self, name: str, *, reason: str, actor: str) -> Token:
        return self._call(lambda: self.revoke_token_async(name, reason=reason, actor=actor), "revoke_token_async")

    # The entrance

    async def any_token_async(self) -> bool:
        """Whether one was ever made: then nobody acts without one."""
        return await (await self._opened()).any_token()

    async def token_of_async(self, text: str) -> Token | None:
        """Whose text this is; None when it is nobody's, or not good any more."""
        if not is_token(text):
            return None
        store = await self._opened()
        return _good(await store.token(hashed(text)), await store.now())

    async def token_of_session_async(self, text: str) -> Token | None:
        store = await self._opened()
        return _good(await store.session(hashed(text)), await store.now())

    async def used_async(self, token: Token) -> None:
        await (await self._opened()).use_token(token.number)

    async def log_in_async(self, text: str) -> Session | None:
        """Begins a session for whoever has a token; None when that is none, or not good any more."""
        token = await self.token_of_async(text)
        if token is None:
            return None
        store = await self._opened()
        opened = secrets.token_urlsafe(32)
        now = await store.now()
        until = now + SESSION if token.expires_at is None else min(now + SESSION, token.expires_at)
        await store.begin_session(hashed(opened), token.number, until)
        return Session(opened, token)

    async def log_out_async(self, text: str) -> None:
        await (await self._opened()).end_session(hashed(text))

    # What was asked before

    async def begin_request_async(self, credential: int, key: str, digest: bytes, *, most: int = MOST_KEYS) -> Request:
        return await (await self._opened()).begin_request(credential, checked_request_key(key), digest, most=most)

    async def end_request_async(self, credential: int, key: str, answer: Answer) -> None:
        await (await self._opened()).end_request(credential, key, answer)

    async def drop_request_async(self, credential: int, key: str) -> None:
        await (await self._opened()).drop_request(credential, key)


def _good(token: Token | None, now: Instant) -> Token | None:
    return token if token is not None and token.is_good(now) else None


def token_state(token: Token, now: Instant) -> str:
    """`good`, `expired` or `revoked`."""
    if token.revoked_at is not None:
        return "revoked"
    return "good" if token.is_good(now) else "expired"


def token_shape(token: Token, now: Instant) -> Shape:
    return {
        "name": token.name,
        "scope": str(token.scope),
        "tenant": token.tenant,
        "all_tenants": token.all_tenants,
        "jobs": list(token.jobs),
        "queues": list(token.queues),
        "state": token_state(token, now),
        "made_at": moment(token.made_at),
        "made_by": token.made_by,
        "expires_at": moment(token.expires_at),
        "used_at": moment(token.used_at),
        "revoked_at": moment(token.revoked_at),
    }
