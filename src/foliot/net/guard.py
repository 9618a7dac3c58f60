"""Decides which addresses a request may go to. Pure: resolving names is the caller's part.

A tenant, an operator or a remote worker can name the address of a request, and the request is sent by a process that
may reach much more than they do: its own host, the private network, the credentials service of a cloud. So requests go
to public addresses only. The owner of the process can allow further networks.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import inet_aton
from urllib.parse import urlsplit

from foliot.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

SETTING = "FOLIOT_PRIVATE_NETWORKS"

_KINDS: dict[str, tuple[str, ...]] = {
    "an address of this host": ("0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128"),
    "a cloud metadata service": ("168.63.129.16/32", "169.254.169.254/32", "fd00:ec2::254/128"),
    "a link-local address": ("169.254.0.0/16", "fe80::/10"),
    "a private address": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    "a multicast address": ("224.0.0.0/4", "ff00::/8"),
    # Protocol assignments, documentation, benchmarks, future use. From the special-purpose registries of IANA.
    "a reserved address": (
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20"),
        "2002::/16",  # 6to4, which leads to any IPv4 address
    ),
}
_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), kind) for kind, listed in _KINDS.items() for network in listed
)
"""The first network that holds an address says its kind."""
_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""No address outside of it is public."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""Its last 32 bits are the IPv4 address that a translator connects to."""
_LOCAL_NAME = "localhost"


class AddressRefused(OSError):
    """A request was not sent, because its address is not public and its process does not allow it."""


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Allows public addresses, and the networks that the owner of the process allows."""

    allowed: tuple[Network, ...] = ()

    def refusal(self, address: Address) -> str | None:
        """Says which kind of address it is, if no request may go there."""
        target = _target(address)
        is_allowed = any(target in network or address in network for network in self.allowed)
        return None if is_allowed else _special_kind(target)

    def check_literal(self, field: str, url: object) -> None:
        """Raises InvalidInput for a URL whose host is a refused address. A name is checked when it is resolved."""
        if not isinstance(url, str):
            return  # the reader of the field refuses it
        try:
            host = urlsplit(url).hostname or ""
        except ValueError:
            raise InvalidInput(f"{field}: this URL has no valid host; give scheme, host and path") from None
        address = literal(host)
        kind = None if address is None else self.refusal(address)
        if kind is not None:
            raise InvalidInput(
                f"{field}: {host:.80} is {kind}, and requests go only to public addresses; give a public address, "
                f"or allow it with {SETTING}"
            )


EVERYWHERE = AddressGuard((IPv4Network("0.0.0.0/0"), IPv6Network("::/0")))
"""For URLs that the owner of the process gave."""


def networks(text: str, setting: str = SETTING) -> tuple[Network, ...]:
    """Reads networks and addresses, separated by commas or spaces. An error names the setting."""
    found: list[Network] = []
    for word in text.replace(",", " ").split():
        try:
            found.append(ip_network(word))
        except ValueError as error:
            raise InvalidInput(
                f"{setting}: {word!r:.80} is not a network ({error}); give networks such as 10.20.0.0/16 or addresses "
                f"such as 10.20.0.5, separated by commas"
            ) from None
    return tuple(found)


def literal(host: str) -> Address | None:
    """Reads a host that is an address in any spelling that resolvers accept (127.1, 0x7f.1, 2130706433, localhost)."""
    name = unicodedata.normalize("NFKC", host).replace("\N{IDEOGRAPHIC FULL STOP}", ".").rstrip(".").lower()
    if name == _LOCAL_NAME or name.endswith(f".{_LOCAL_NAME}"):
        return IPv4Address("127.0.0.1")
    try:
        return ip_address(name)
    except ValueError:
        pass
    try:
        return IPv4Address(inet_aton(name))
    except (OSError, ValueError):
        return None


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` or a loopback address in its usual spelling, or as `::ffff:127.0.0.1`."""
    if host == _LOCAL_NAME:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _target(address: Address) -> Address:
    """The address that a connection reaches in the end."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _special_kind(address: Address) -> str | None:
    for network, kind in _SPECIAL:
        if address in network:
            return kind
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "a reserved address"
    return None
