"""Which addresses a request may go to."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.errors import InvalidInput
from foliot.net.guard import EVERYWHERE, AddressGuard, is_loopback, literal, networks

GUARD = AddressGuard()
PUBLIC = ["1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.0", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::808:808"]
REFUSED = {
    "0.0.0.0": "an address of this host",
    "0.1.2.3": "an address of this host",
    "127.0.0.1": "an address of this host",
    "127.255.255.254": "an address of this host",
    "::": "an address of this host",
    "::1": "an address of this host",
    "169.254.169.254": "a cloud metadata service",
    "fd00:ec2::254": "a cloud metadata service",
    "168.63.129.16": "a cloud metadata service",
    "169.254.0.1": "a link-local address",
    "fe80::1%eth0": "a link-local address",
    "10.0.0.1": "a private address",
    "172.16.0.1": "a private address",
    "172.31.255.255": "a private address",
    "192.168.1.1": "a private address",
    "100.100.100.200": "a private address",
    "fc00::1": "a private address",
    "fdff::1": "a private address",
    "224.0.0.1": "a multicast address",
    "ff02::1": "a multicast address",
    "255.255.255.255": "a reserved address",
    "192.0.0.192": "a reserved address",
    "198.18.0.1": "a reserved address",
    "2001::1": "a reserved address",
    "2001:db8::1": "a reserved address",
    "2002:7f00:1::": "a reserved address",
    "fec0::1": "a reserved address",
    "::127.0.0.1": "a reserved address",
    "::ffff:0:127.0.0.1": "a reserved address",
    "64:ff9b:1::7f00:1": "a reserved address",
    "::ffff:127.0.0.1": "an address of this host",
    "::ffff:169.254.169.254": "a cloud metadata service",
    "64:ff9b::7f00:1": "an address of this host",
    "64:ff9b::a9fe:a9fe": "a cloud metadata service",
}


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    assert GUARD.refusal(ip_address(address)) is None


@pytest.mark.parametrize("address", REFUSED)
def test_every_other_address_is_refused_with_its_kind(address: str) -> None:
    assert GUARD.refusal(ip_address(address)) == REFUSED[address]
    assert EVERYWHERE.refusal(ip_address(address)) is None


@given(st.ip_addresses())
def test_no_allowed_address_is_private_in_the_opinion_of_the_standard_library(address: object) -> None:
    known = ip_address(str(address))
    if GUARD.refusal(known) is None:
        if isinstance(known, IPv6Address):
            known = known.ipv4_mapped or known
        assert known.is_global
        assert not known.is_multicast


def test_the_owner_of_the_process_allows_networks_also_where_an_ipv6_address_stands_for_them() -> None:
    guard = AddressGuard(networks("10.20.0.0/16, 192.168.1.7 fd12::/64"))
    for address in ("10.20.3.4", "192.168.1.7", "fd12::5", "::ffff:10.20.0.1", "64:ff9b::a14:1"):
        assert guard.refusal(ip_address(address)) is None
    for address in ("10.21.0.1", "192.168.1.8", "fd13::5", "127.0.0.1"):
        assert guard.refusal(ip_address(address)) is not None
    assert networks("") == ()


@pytest.mark.parametrize("text", ["10.0.0.0/33", "intranet", "10.20.0.5/16"])
def test_a_setting_that_is_no_network_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^FOLIOT_PRIVATE_NETWORKS: '{text}' is not a network .*such as 10\.20"):
        networks(f"127.0.0.1 {text}")


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001"),
        *("localhost", "LocalHost.", "a.localhost", "127.0.0.1.", "①②⑦.0.0.1", "127。0。0。1", "１２７.1"),  # noqa: RUF001
    ],
)
def test_an_address_is_read_in_each_spelling_that_resolvers_accept(host: str) -> None:
    assert str(literal(host)) == "127.0.0.1"


@pytest.mark.parametrize("host", ["hc-ping.com", "localhost.example", "1.2.3.4.5", "256.1.1.1", "", "0x", "dead.beef"])
def test_a_name_is_no_address(host: str) -> None:
    assert literal(host) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8300/secret",
        "http://169.254.169.254/latest/secret",
        "http://0x7f.1/secret",
        "http://[::1]/secret",
        "http://[::ffff:10.0.0.1]:80/secret",
        "https://hc-ping.com@10.0.0.1/secret",
        "http://localhost/secret",
    ],
)
def test_a_url_with_a_literal_private_address_is_refused_without_its_path(url: str) -> None:
    with pytest.raises(InvalidInput, match="or allow it with FOLIOT_PRIVATE") as refused:
        GUARD.check_literal("ping", url)
    assert str(refused.value).startswith("ping: ")
    assert "secret" not in str(refused.value)
    EVERYWHERE.check_literal("ping", url)


def test_a_url_whose_host_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidInput, match="ping: this URL has no valid host"):
        GUARD.check_literal("ping", "http://[::1/x")


@pytest.mark.parametrize("value", ["https://hc-ping.com/x", "https://1.1.1.1/x", None, 5])
def test_names_public_addresses_and_values_of_other_types_pass_the_literal_check(value: object) -> None:
    GUARD.check_literal("ping", value)


def test_loopback_is_known_by_its_usual_spellings_alone() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1")))
    assert not any(map(is_loopback, ("localhost.example", "10.0.0.1", "0.0.0.0", "")))
