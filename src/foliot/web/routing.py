"""What every route has in common: who may, JSON that can be read, one answer for one Idempotency-Key."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from hashlib import sha256
from math import isfinite
from typing import Any, get_origin

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from foliot.domain.access import MOST_KEYS, Answer, Asked, Scope, allows, why_no_work
from foliot.operate import Operator
from foliot.web.access import TABLE, Access, Tenants
from foliot.web.entrance import Principal
from foliot.web.gate import PRINCIPAL
from foliot.web.problems import Problem, problem_of

KEY = "idempotency-key"
REPLAYED = "idempotency-replayed"
DEEPEST = 100
"""Levels of JSON inside one another."""
_KEPT_HEADERS = ("content-type", "etag", "location")
NEVER_KEPT = "/claim"
"""Its answer has arguments as they are, and what an attempt is owned by."""

Handle = Callable[[Request], Awaitable[Response]]


class Answered(Response):
    """An answer in JSON. `kept` is what is kept of it for whoever asks again, where that must be less."""

    def __init__(
        self, shape: Any, status: int = 200, headers: dict[str, str] | None = None, *, kept: Any = None
    ) -> None:
        self.kept = None if kept is None else _encoded(kept)
        super().__init__(_encoded(shape), status, headers, "application/json")


def _encoded(shape: Any) -> bytes:
    return json.dumps(shape, separators=(",", ":")).encode()


class GuardedRoute(APIRoute):
    """Asks the table of access before anything is read, and answers whatever is raised."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle, lists = super().get_route_handler(), _query_lists(self)

        async def guarded(request: Request) -> Response:
            request = _Checked(request.scope, request.receive)
            try:
                principal = check_allowed(request, TABLE.get((request.method, self.path_format)))
                if request.method in ("POST", "PUT", "PATCH"):
                    _check_json(request)
                    await request.body()
                _check_given_once(request, lists)
                return await _once(request, principal, handle)
            except Exception as error:
                return problem_of(error).response(request.scope["path"])

        return guarded


def _query_lists(route: APIRoute) -> frozenset[str]:
    """Names of query parameters that a request may give several times."""
    models = [parameter.field_info.annotation for parameter in route.dependant.query_params]
    fields = [model.model_fields for model in models if isinstance(model, type) and issubclass(model, BaseModel)]
    return frozenset(name for one in fields for name, field in one.items() if get_origin(field.annotation) is list)


def _check_given_once(request: Request, lists: frozenset[str]) -> None:
    """The framework takes the last one of several values, and the caller may have meant another."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    several = [name for name, count in counts.items() if count > 1 and name not in lists]
    if several:
        errors = [{"where": f"query.{name}", "problem": "give it once"} for name in several]
        raise Problem(
            "invalid", f"query: {', '.join(several):.200}: given several times; give each once", errors=errors
        )


def check_allowed(request: Request, access: Access | None) -> Principal:
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if access is None or principal is None:
        raise Problem("not-allowed", "requests to this address are not allowed")
    if access.scope is Scope.WORK:
        if principal.bound is None:
            raise Problem("not-allowed", why_no_work(principal.name, principal.scope))
    elif not allows(principal.scope, access.scope):
        raise Problem(
            "not-allowed",
            f"the request needs a token with the scope {access.scope}; {principal.name} has {principal.scope}",
        )
    if principal.tenant is not None and access.tenants is Tenants.ALL:
        raise Problem(
            "not-allowed", "the request concerns all tenants, and the token is bound to a tenant; use another token"
        )
    return principal


# JSON


def _check_json(request: Request) -> None:
    """A form of another site can send text, but not this."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise Problem("not-json", f"Content-Type {media!r:.80}: send application/json")


class _Checked(Request):
    """A request whose JSON holds nothing that a store could not."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = read_json(await self.body())
        return self._json


def read_json(body: bytes) -> Any:
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_number, parse_float=_finite)
        _check_value(value)
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Problem("unreadable", f"invalid JSON: {detail:.200}") from None
    return value


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    found = float(text)
    if not isfinite(found):
        raise ValueError(f"{text:.40} is too large for a number")
    return found


def _check_value(value: Any) -> None:
    """Level by level, so that depth costs nothing."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.keys())
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
            elif isinstance(one, str):
                check_text(one)
        level = below


def check_text(text: str) -> str:
    """Text that any store can hold: no NUL, no halves of letters."""
    if "\0" in text:
        raise ValueError("a text contains a NUL character; remove it")
    if not text.isascii():
        text.encode("utf-8")  # a lone surrogate is a ValueError
    return text


# One answer for one key


async def _once(request: Request, principal: Principal, handle: Handle) -> Response:
    """Without a key, whoever asks twice asks for two things."""
    key = request.headers.get(KEY)
    if request.method != "POST" or key is None:
        return await handle(request)
    if request.scope["path"].endswith(NEVER_KEPT):
        raise Problem("invalid", "a claim accepts no Idempotency-Key, because its answer is not stored; leave it out")
    operate: Operator = request.app.state.foliot.operate
    found = await operate.begin_request_async(principal.credential, key, await _digest(request))
    if found.answer is not None:
        headers = found.answer.headers | {REPLAYED: "true"}
        return Response(found.answer.body, found.answer.status, headers)
    if found.standing is not Asked.NEW:
        raise _refusal(found.standing)
    # Whoever is cut off here, or fails, may have been heard by the store all the same: nobody knows, and that is what
    # the next one under this key is told.
    response = await _answered(request, handle)
    if response.status_code >= 500:
        return response
    await operate.end_request_async(principal.credential, key, _kept(response))
    return response


async def _answered(request: Request, handle: Handle) -> Response:
    try:
        return await handle(request)
    except Exception as error:
        return problem_of(error).response(request.scope["path"])


async def _digest(request: Request) -> bytes:
    asked = f"{request.method} {request.scope['path']}?".encode() + request.scope["query_string"]
    return sha256(asked + b"\n" + await request.body()).digest()


def _kept(response: Response) -> Answer:
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    less = response.kept if isinstance(response, Answered) else None
    return Answer(response.status_code, headers, bytes(response.body) if less is None else less)


def _refusal(standing: Asked) -> Problem:
    if standing is Asked.OTHER:
        return Problem("key-reused", "this Idempotency-Key was used for another request; use a new key for each")
    if standing is Asked.TOO_MANY:
        return Problem(
            "too-many-keys",
            f"this token used {MOST_KEYS:,} Idempotency-Keys in a day; send the request without one, or later",
            headers={"retry-after": "3600"},
        )
    if standing is Asked.UNDER_WAY:
        return Problem("under-way", "the same request is in progress; retry later", headers={"retry-after": "1"})
    return Problem(
        "outcome-unknown",
        "the same request started and has no answer; check whether it was done, then use a new key",
    )
