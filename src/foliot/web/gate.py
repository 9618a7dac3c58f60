"""What comes first, for every request: its size, the host it means, the site it comes from, and who it is.

Nothing behind it is reached by a stranger but what `access.OPEN` names. Whatever goes out tells browsers to trust
nothing beyond this host's own files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foliot.domain.access import LOCAL
from foliot.domain.access import Scope as Access
from foliot.net import is_loopback
from foliot.web.access import OPEN
from foliot.web.addresses import client_address, counted_as
from foliot.web.entrance import CSRF_HEADER, Entrance, Principal, is_csrf_right
from foliot.web.problems import Problem, problem_of
from foliot.web.protocol import CONNECTION
from foliot.web.settings import MOST_HEADERS, MOST_URL, WebSettings, is_local_name
from foliot.web.slots import Slots

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
PRINCIPAL = "foliot.principal"
"""Where, in the scope, it stands who asks."""
_COUNTED = "foliot.counted"
"""The slot of the request, in its scope."""

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

_PROXY_HEADER = re.compile(
    r"forwarded|(client|real|connecting|user|external|remote|original)[-_]?(ip|addr|address|host)\b"
    r"|^(via|cdn-loop|x-(envoy|amzn|azure|original)-.*)$"
)
"""Names of headers that proxies add. A request with one of them may come from any host."""


class Gate:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, settings: WebSettings, entrance: Entrance, files: Iterable[str]) -> None:
        self._app = app
        self._settings = settings
        self._entrance = entrance
        self._open = OPEN | {("GET", path) for path in files}
        limits = settings.limits
        self._requests = Slots(limits.requests, limits.requests_of_one, of="requests", owner="this address")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        # Ids hold any character, the slash too: whoever routes must see what was a slash, and what was written as %2F.
        raw = scope.get("raw_path") or scope["path"].encode()
        scope["path"] = raw.decode("latin-1")
        headers = Headers(scope=scope)
        guarded = _guarded(send, scope["path"])
        self._name_client(scope, headers)
        with ExitStack() as counted:
            scope[_COUNTED] = counted
            try:
                counted.enter_context(self._requests.slot(counted_as(_address(scope))))
                await self._admit(scope, headers)
                receive = _limited(receive, self._settings.most_body)
            except Problem as problem:
                await _turned_away(problem, scope, headers)(scope, receive, guarded)
                return
            except Exception as error:
                await problem_of(error).response(scope["path"])(scope, receive, guarded)
                return
            await self._app(scope, receive, guarded)

    def _name_client(self, scope: Scope, headers: Headers) -> None:
        """Replaces a trusted proxy by the client that it names, for all that follows: counts, logs and delays."""
        peer = _address(scope)
        client = client_address(peer, headers.getlist("x-forwarded-for"), self._settings.trusted_proxies)
        if client != peer:
            scope["client"] = (client, 0)

    async def _admit(self, scope: Scope, headers: Headers) -> None:
        """1. Sizes. 2. Host and origin. 3. Who it is, unless it does not matter. 4. A browser's own mark."""
        _check_sizes(scope, headers, self._settings.most_body)
        method, path = scope["method"], scope["path"]
        await self._check_host(headers)
        if method not in SAFE:
            _check_origin(headers, self._settings)
        scope[PRINCIPAL] = None
        if (method, path) in self._open:
            return
        principal = await self._principal(scope, headers)
        if principal is None:
            raise Problem(
                "no-credential",
                "no token: send Authorization: Bearer foliot_...; create one with foliot tokens create",
                headers={"www-authenticate": 'Bearer realm="foliot"'},
            )
        if method not in SAFE and path.startswith("/api/"):
            _check_csrf(principal, headers)
        scope[PRINCIPAL] = principal

    async def _check_host(self, headers: Headers) -> None:
        """A page of another site can have its name resolve to this address: where nobody has to say who they are, the
        name is what tells. Where they have to, a foreign name has no credential of ours."""
        host = headers.get("host", "").lower()
        known = self._settings.public_host
        if is_local_name(host) and self._settings.is_loopback:
            return
        if (known is not None and host != known) or (known is None and await self._entrance.is_open()):
            raise Problem(
                "wrong-host", f"Host {host!r:.80} is not a name of this server; use localhost, or set --public-url"
            )

    async def _principal(self, scope: Scope, headers: Headers) -> Principal | None:
        is_local = _is_local(scope, headers, self._settings)
        if is_local and scope["path"] == "/metrics":
            return Principal("metrics", Access.READ, None, LOCAL, "")
        principal = await self._entrance.principal(headers, _address(scope))
        if principal is not None and principal.credential == LOCAL and not is_local:
            raise Problem(
                "no-credential",
                "a proxy or another host sent this request, so it needs a token; create one with foliot tokens create",
            )
        return principal


def leave_counts(scope: Scope) -> None:
    """Ends the count of a request that has become a live stream: its own limits count it from now on."""
    if _COUNTED in scope:
        scope[_COUNTED].close()
    connection = scope.get("state", {}).get(CONNECTION)
    if connection is not None:
        connection.become_stream()


def _is_local(scope: Scope, headers: Headers, settings: WebSettings) -> bool:
    """Whether a program on this host sent the request directly: only such a request may come without a token.

    A proxy on this host connects from a loopback address too, and may write a local Host header. Not every proxy adds
    a header, so a server that has a public URL treats no request as local.
    """
    return (
        settings.is_alone
        and is_loopback(_address(scope))
        and is_local_name(headers.get("host", ""))
        and not any(_PROXY_HEADER.search(name) for name in headers)
    )


def _check_sizes(scope: Scope, headers: Headers, most_body: int) -> None:
    if len(scope["path"]) + len(scope["query_string"]) > MOST_URL:
        raise Problem("url-too-long", f"URL too long: at most {MOST_URL:,} bytes")
    if sum(len(name) + len(value) for name, value in headers.raw) > MOST_HEADERS:
        raise Problem("headers-too-large", f"headers too large: at most {MOST_HEADERS:,} bytes")
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or len(length) > 15:
        raise Problem("unreadable", "Content-Length is not a number")
    if int(length) > most_body:
        raise _too_large(most_body)


def _too_large(most: int) -> Problem:
    return Problem("too-large", f"request too large: at most {most:,} bytes")


def _limited(receive: Receive, most: int) -> Receive:
    """Also where the length was not said."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise _too_large(most)
        return message

    return limited


def _check_origin(headers: Headers, settings: WebSettings) -> None:
    """Browsers say which site a request comes from. Programs do not, and need not."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    host = headers.get("host", "").lower()
    own = {host} if settings.public_host is None else {host, settings.public_host}
    if origin is not None and _site(origin) not in own:
        raise Problem("from-elsewhere", f"cross-site request from {origin!r:.80} refused")
    if site not in (None, "same-origin", "none"):
        raise Problem("from-elsewhere", "cross-site request refused")


def _site(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # such as half of an IPv6 address
        return None


def _check_csrf(principal: Principal, headers: Headers) -> None:
    """Forms of pages are checked by the pages; see `foliot.web.pages`."""
    if principal.session is not None and not is_csrf_right(principal, headers.get(CSRF_HEADER)):
        raise Problem("from-elsewhere", f"a logged-in browser must send {CSRF_HEADER} with each change")


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "somewhere"


def _turned_away(problem: Problem, scope: Scope, headers: Headers) -> Response:
    """A person at a browser is shown the door that opens."""
    wants_page = "text/html" in headers.get("accept", "") and not scope["path"].startswith("/api/")
    if problem.kind == "no-credential" and wants_page and scope["method"] == "GET":
        return RedirectResponse("/login", 303)
    return problem.response(scope["path"])


def _guarded(send: Send, path: str) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if not path.startswith("/static/"):
                headers.setdefault("cache-control", "no-store")
        await send(message)

    return guarded
