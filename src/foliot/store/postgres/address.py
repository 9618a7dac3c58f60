"""Where the server is: a PostgreSQL URL, with a few words of our own in its query.

postgresql://user@db-1,db-2/app?pooler=transaction&listen=postgresql%3A%2F%2Fuser%40db-1%2Fapp&migrate=never
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import parse_qsl, urlencode, urlsplit

from foliot.errors import InvalidInput

_OURS = {"pooler": ("none", "transaction"), "migrate": ("auto", "never"), "listen": None, "connections": None}
_FROM_LIBPQ = "target_session_attrs"
_LIBPQ = frozenset(
    "host port dbname database user password passfile service servicefile sslmode sslcert sslkey sslrootcert sslcrl "
    "sslpassword sslnegotiation ssl_min_protocol_version ssl_max_protocol_version krbsrvname gsslib "
    "target_session_attrs application_name search_path options statement_timeout lock_timeout timezone".split()
)
"""What the driver knows, and settings of the server that are often given. Other words are settings of the server, which
refuses those that it does not know."""


@dataclass(frozen=True, slots=True)
class Address:
    """What the driver is given, and how we use the connection."""

    dsn: str
    """For the driver: without the words that are ours."""
    pooler: bool = False
    """A pooler in transaction mode stands between: nothing may be expected of the session."""
    listen: str | None = None
    """Where to listen for wake-ups; None where one cannot, and has to look more often instead."""
    migrates: bool = True
    connections: int = 10
    """Most connections of one event loop."""
    session: str = "read-write"
    """Which of several hosts will do."""

    @property
    def shown(self) -> str:
        """Without the password."""
        parts = urlsplit(self.dsn)
        user, at, host = parts.netloc.rpartition("@")
        return f"postgresql://{user.partition(':')[0]}{at}{host}{parts.path}"


def address(url: str) -> Address:
    parts = urlsplit(url)
    words = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {word: words.pop(word) for word in list(words) if word in _OURS}
    for word, value in ours.items():
        allowed = _OURS[word]
        if allowed is not None and value not in allowed:
            raise InvalidInput(f"{word}={value!r} in the store's URL: give one of {', '.join(allowed)}")
    most = ours.get("connections", "10")
    if not most.isdigit() or not 2 <= int(most) <= 100:
        raise InvalidInput(f"connections={most!r} in the store's URL: give a number from 2 to 100")
    for word in words:
        if word not in _LIBPQ and (near := get_close_matches(word, [*_OURS, *_LIBPQ], 1, 0.8)):
            raise InvalidInput(f"{word}= in the store's URL is not known; did you mean {near[0]}=?")
    session = words.pop(_FROM_LIBPQ, "read-write")
    # Written out: without a host, the library would leave its slashes away.
    dsn = f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(words)}" if words else "")
    pooler = ours.get("pooler") == "transaction"
    listen = ours.get("listen") or (None if pooler else dsn)
    return Address(dsn, pooler, listen, ours.get("migrate") != "never", int(most), session)
