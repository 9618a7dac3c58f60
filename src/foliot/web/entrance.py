"""Whose token or session it is. Who is turned away waits a little, the longer the more often, and is written down."""

from __future__ import annotations

import getpass
import hmac
import logging
import os
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers

from foliot.clock import Clock
from foliot.domain.access import LOCAL, UNBOUNDED, USED_EVERY, Scope, Token, WorkBound
from foliot.domain.instant import MILLISECOND, MINUTE, SECOND, Duration, Instant
from foliot.errors import FoliotError
from foliot.operate import Operator
from foliot.operate.tokens import Session
from foliot.web.problems import Problem
from foliot.web.settings import WebSettings

COOKIE = "foliot_session"
CSRF_HEADER = "x-csrf-token"
_FIRST_WAIT: Duration = 100 * MILLISECOND
_LONGEST_WAIT: Duration = 5 * SECOND
_FORGET: Duration = 10 * MINUTE
_REMEMBERED = 10_000

_log = logging.getLogger("foliot.web")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    name: str
    """The actor of whatever is done."""
    scope: Scope
    tenant: str | None
    credential: int
    """The token's number, or LOCAL."""
    csrf: str
    """What a page's forms, and its scripts, must say."""
    bound: WorkBound | None = None
    """The runs that it takes as a worker; None: none."""
    session: str | None = None
    """The browser's, where it is one: then whatever changes something needs `csrf`."""


class Entrance:
    """Knows everybody who may come in."""

    def __init__(self, operate: Operator, settings: WebSettings, clock: Clock) -> None:
        self._operate = operate
        self._settings = settings
        self._clock = clock
        self._used: dict[int, Instant] = {}
        self._failures: OrderedDict[str, tuple[int, Instant]] = OrderedDict()
        """By address: how often in a row, and when the last time was."""
        self._secret = secrets.token_bytes(32)
        """What the local user's pages are marked with."""

    async def is_open(self) -> bool:
        """Whether the local user needs no token: only this host can come, and nobody ever made one. Behind a proxy
        anybody may seem to come from this host."""
        return self._settings.is_alone and not await self._operate.any_token_async()

    async def principal(self, headers: Headers, address: str) -> Principal | None:
        """Who it is; None when they do not say, and have to. Problem when what they say is not true."""
        said = headers.get("authorization")
        if said is not None:
            return await self._bearer(said, address)
        session = session_in(headers)
        token = None if session is None else await self._operate.token_of_session_async(session)
        if token is not None and session is not None:
            await self._note_use(token)
            return _principal(token, _mark(session.encode()), session)
        if await self.is_open():
            return Principal(local_user(), Scope.ADMIN, None, LOCAL, _mark(self._secret), UNBOUNDED)
        return None

    async def stands(self, principal: Principal, headers: Headers) -> bool:
        """Whether whoever came with these may still be here as who they were: what goes on for long asks again."""
        if principal.credential == LOCAL:
            return await self.is_open()
        if principal.session is not None:
            token = await self._operate.token_of_session_async(principal.session)
        else:
            token = await self._token_said(headers.get("authorization", ""))
        mine = principal.credential, principal.scope, principal.tenant
        return token is not None and (token.number, token.scope, token.tenant) == mine

    async def log_in(self, text: str, address: str) -> Session:
        session = await self._operate.log_in_async(text.strip())
        if session is None:
            await self._turn_away(address)
            raise Problem("no-credential", "unknown, expired or revoked token")
        self._failures.pop(address, None)
        await self._note_use(session.token)
        return session

    async def log_out(self, principal: Principal) -> None:
        if principal.session is not None:
            await self._operate.log_out_async(principal.session)

    async def _token_said(self, said: str) -> Token | None:
        scheme, _, text = said.partition(" ")
        return await self._operate.token_of_async(text.strip()) if scheme.lower() == "bearer" else None

    async def _bearer(self, said: str, address: str) -> Principal:
        token = await self._token_said(said)
        if token is None:
            await self._turn_away(address)
            raise Problem(
                "no-credential",
                "unknown, expired or revoked token; create one with foliot tokens create",
                headers={"www-authenticate": 'Bearer realm="foliot", error="invalid_token"'},
            )
        await self._note_use(token)
        return _principal(token, "")

    async def _turn_away(self, address: str) -> None:
        """Tokens are too long to be found by trying; this only keeps the log short, and the store at rest."""
        now = self._clock.now()
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > _FORGET else count + 1
        self._failures[address] = (count, now)
        while len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)
        _log.warning("login refused, wrong or expired token from %s (%d consecutive)", address, count)
        await self._clock.sleep(min(_FIRST_WAIT << min(count - 1, 10), _LONGEST_WAIT))

    async def _note_use(self, token: Token) -> None:
        now = self._clock.now()
        if now - self._used.get(token.number, 0) < USED_EVERY:
            return
        self._used[token.number] = now
        try:
            await self._operate.used_async(token)
        except FoliotError as error:  # nobody is turned away for that
            _log.warning("recording the last use of token %s failed: %s", token.name, error)


def session_in(headers: Headers) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if found is None or not found.value.isascii() else found.value


def is_csrf_right(principal: Principal, given: str | None) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), principal.csrf.encode())


def _principal(token: Token, csrf: str, session: str | None = None) -> Principal:
    return Principal(token.name, token.scope, token.tenant, token.number, csrf, token.bound, session)


def _mark(secret: bytes) -> str:
    return hmac.digest(secret, b"csrf", "sha256").hex()


def local_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        return f"uid:{os.getuid()}"
