"""Where the server listens, and what it lets in."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from foliot.domain.policy import checked_public_url
from foliot.net import is_loopback
from foliot.net.guard import Network
from foliot.web.connections import LIMITS, Limits

HOST = "127.0.0.1"
PORT = 8300
MOST_BODY = 1 << 20
MOST_URL = 8 * 1024
MOST_HEADERS = 32 * 1024


@dataclass(frozen=True, slots=True)
class WebSettings:
    host: str = HOST
    port: int = PORT
    """0 picks one."""
    most_body: int = MOST_BODY
    """Bytes of a request."""
    public_url: str | None = None
    """What people type, where a proxy stands in front: the only host that is answered then, beside this one's own."""

    trusted_proxies: tuple[Network, ...] = ()
    """Proxies that append the address of their client to `X-Forwarded-For`."""
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        if self.public_url is not None:
            checked_public_url(self.public_url)

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can connect."""
        return is_loopback(self.host)

    @property
    def is_alone(self) -> bool:
        """Whether only this host can connect: it listens on a loopback address, and no setting names a proxy."""
        return self.is_loopback and self.public_url is None and not self.trusted_proxies

    @property
    def public_host(self) -> str | None:
        return None if self.public_url is None else urlsplit(self.public_url).netloc.lower()

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach it over TLS."""
        return self.public_url is not None and self.public_url.startswith("https:")


def is_local_name(host: str) -> bool:
    """Whether a Host header names this very host: whatever else a name resolves to here, somebody may have bent."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return is_loopback(name.removeprefix("[").removesuffix("]").lower())
