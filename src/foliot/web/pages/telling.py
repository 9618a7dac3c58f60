"""What is told after an action: it travels in the address, marked, so that nobody else can have us say it."""

from __future__ import annotations

import hmac
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request

from foliot.web.entrance import Principal

_MOST = 600


class Told(NamedTuple):
    text: str
    refused: bool


def told_in(request: Request, principal: Principal) -> Told | None:
    text, mark = request.query_params.get("told", ""), request.query_params.get("mark", "")
    if not text or not hmac.compare_digest(mark.encode(), _mark(principal, text).encode()):
        return None
    return Told(text.removeprefix("!"), text.startswith("!"))


def address_telling(back: str, principal: Principal, text: str, *, refused: bool = False) -> str:
    """Where somebody goes after an action, and what is told there."""
    path = safe_back(back)
    said = ("!" if refused else "") + text[:_MOST]
    join = "&" if "?" in path else "?"
    return f"{path}{join}{urlencode({'told': said, 'mark': _mark(principal, said)})}"


def safe_back(back: str) -> str:
    """A page of ours, without what was told there before; the first one otherwise."""
    try:
        parts = urlsplit(back)
    except ValueError:  # such as half of an IPv6 address
        return "/"
    is_path = back.startswith("/") and not back.startswith(("//", "/\\"))
    if parts.scheme or parts.netloc or not is_path or not back.isprintable():
        return "/"
    kept = [part for part in parts.query.split("&") if part and not part.startswith(("told=", "mark="))]
    return parts.path + ("?" + "&".join(kept) if kept else "")


def _mark(principal: Principal, text: str) -> str:
    return hmac.digest(principal.csrf.encode() or b"nobody", text.encode(), "sha256").hex()[:32]
