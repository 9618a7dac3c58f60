"""Decides which address a request comes from, and which addresses count as one. Pure.

The peer of a connection is the client, unless it is a trusted proxy. A trusted proxy appends the address of its own
peer to `X-Forwarded-For`, so that the last entry that is no trusted proxy is the client. Entries before it are what the
client wrote, and mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from foliot.net.guard import Address, Network

_CUSTOMER_BITS = 64
"""A customer of a provider has at least a /64 of IPv6, so that its addresses count as one."""


def is_trusted(address: str, trusted: tuple[Network, ...]) -> bool:
    read = _read(address)
    return read is not None and any(read in network for network in trusted)


def client_address(peer: str, forwarded_for: Iterable[str], trusted: tuple[Network, ...]) -> str:
    """The client of a request. The peer itself when the proxy named no address that can be read."""
    client = peer
    if not is_trusted(peer, trusted):
        return peer
    for entry in reversed([entry for line in forwarded_for for entry in line.split(",")]):
        address = _read(_without_port(entry.strip()))
        if address is None:
            return client
        client = str(address)
        if not is_trusted(client, trusted):
            return client
    return client


def counted_as(address: str) -> str:
    """The name under which limits count an address."""
    read = _read(address)
    if isinstance(read, IPv6Address):
        return str(ip_network((read, _CUSTOMER_BITS), strict=False))
    return address if read is None else str(read)


def _read(text: str) -> Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return IPv4Address(address.ipv4_mapped)
    return address


def _without_port(entry: str) -> str:
    """Some proxies append the port: `192.0.2.7:4711`, `[2001:db8::7]:4711`."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry
