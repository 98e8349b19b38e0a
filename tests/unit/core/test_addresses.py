"""Which addresses may be called: public ones, and what an operator allows."""

from __future__ import annotations

import pytest

from longshore.core.addresses import Allowed, allowed, checked_url
from longshore.errors import ConfigError, InvalidInput

NOTHING = Allowed()

HOSTILE = [
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("::1", "loopback"),
    ("::ffff:127.0.0.1", "loopback"),
    ("::ffff:7f00:1", "loopback"),
    ("64:ff9b::7f00:1", "loopback"),
    ("2002:7f00:1::", "loopback"),
    ("::127.0.0.1", "loopback"),
    ("0.0.0.0", "unspecified"),
    ("::", "unspecified"),
    ("::ffff:0.0.0.0", "unspecified"),
    ("0.1.2.3", "private"),
    ("10.0.0.1", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.168.1.1", "private"),
    ("::ffff:192.168.1.1", "private"),
    ("64:ff9b::a00:1", "private"),
    ("fc00::1", "private"),
    ("fd12:3456::1", "private"),
    ("fec0::1", "private"),
    ("192.0.2.1", "private"),
    ("198.18.0.1", "private"),
    ("100.64.0.1", "reserved"),
    ("169.254.169.254", "link-local"),
    ("::ffff:169.254.169.254", "link-local"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "link-local"),
    ("224.0.0.1", "multicast"),
    ("ff02::1", "multicast"),
    ("255.255.255.255", "private"),
    ("240.0.0.1", "private"),
    ("2001:db8::1", "private"),
    ("not an address", "not an address"),
]


@pytest.mark.parametrize(("address", "what"), HOSTILE)
def test_an_address_that_is_not_public_is_refused_and_named(address: str, what: str) -> None:
    refusal = NOTHING.refusal(address, "innocent.example")
    assert refusal is not None
    assert what in refusal


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8"])
def test_a_public_address_is_free(address: str) -> None:
    assert NOTHING.refusal(address) is None


def test_a_network_that_is_allowed_is_free_also_inside_an_ipv6_address() -> None:
    some = allowed(["10.1.0.0/16", "192.168.1.7", "fd00::/8"], loopback=False)
    assert some.refusal("10.1.2.3") is None
    assert some.refusal("::ffff:10.1.2.3") is None
    assert some.refusal("192.168.1.7") is None
    assert some.refusal("fd00::1") is None
    assert some.refusal("10.2.0.1") is not None
    assert some.refusal("192.168.1.8") is not None


def test_a_name_allows_private_addresses_but_no_link_local_ones() -> None:
    some = allowed(["*.Example.internal", "hooks"], loopback=False)
    assert some.refusal("10.0.0.1", "a.example.internal") is None
    assert some.refusal("127.0.0.1", "HOOKS.") is None
    assert some.refusal("10.0.0.1", "example.internal") is not None
    assert some.refusal("10.0.0.1", "a.example.internal.evil.example") is not None
    assert some.refusal("169.254.169.254", "hooks") is not None


def test_loopback_is_allowed_where_it_is_said_to_be() -> None:
    some = allowed([], loopback=True)
    assert some.refusal("127.0.0.1") is None
    assert some.refusal("::1") is None
    assert some.refusal("::ffff:127.0.0.1") is None
    assert some.refusal("10.0.0.1") is not None


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0", "http://x", "a b", "", "300.1.1.1"])
def test_an_entry_that_is_no_network_and_no_name_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="http_allow"):
        allowed([entry], loopback=False)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/hook",
        "ftp://example.com",
        "file:///etc/passwd",
        "http://",
        "http:///path",
        "http://user@example.com",
        "http://user:word@example.com",
        "http://example.com:0",
        "http://example.com:99999",
        "http://example.com:x",
        "http://[::1",
        "http://[::1]x/",
        "http://[::1]x:80/",
        "http://x[::1]/",
        "http://[v1.x]/",
        "http://xn--a/",
        "http://xn--/",
        "http://hooks.XN--A.example/",
        "http://example.com/a b",
        "http://example.com/\r\nHost: evil",
        "http://example.com\\@evil.example",
        "http://exämple.com",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://017700000001/",
        "http://127.1/",
        "http://127.0.0.01/",
        "http://127.0.0.1./",
        "http://example.com/#part",
        "https://example.com/" + "x" * 2_000,
        7,
        None,
    ],
)
def test_what_is_no_url_to_call_is_refused(url: object) -> None:
    with pytest.raises(InvalidInput, match="the callback"):
        checked_url("the callback", url)


def test_a_url_with_a_port_a_path_and_a_query_is_fine() -> None:
    assert checked_url("the callback", "https://[::1]:8443/hook?a=b").port == 8443


@pytest.mark.parametrize("host", ["xn--mnchen-3ya.de", "xn--fa-hia.de", "a_b", "hooks.internal."])
def test_a_host_that_decodes_is_fine(host: str) -> None:
    assert checked_url("the callback", f"http://{host}/").hostname == host
