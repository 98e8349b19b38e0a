"""Where a gateway may listen, and whom it asks for a token."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest
from msgspec import structs

from longshore.config import Config, GatewaySettings
from longshore.errors import ConfigError
from longshore.run.gateway import _allowed, _guarded
from longshore.run.http import (
    bind,
    is_for_this_machine,
    needs_token,
    own_host,
    refuse_exposure,
    url_of,
)

PLAIN = GatewaySettings()
REQUIRED = GatewaySettings(http_auth="required")
INSECURE = GatewaySettings(http_insecure=True)
TLS = GatewaySettings(http_tls_cert="dock.pem", http_tls_key="dock.key")
WIDE = ("0.0.0.0:7700", "[::]:7700", "192.0.2.7:7700", "dock.example:7700", "*:7700")


@pytest.mark.parametrize("address", ["127.0.0.1:7700", "localhost:7700", "[::1]:7700"])
def test_this_machine_needs_nothing(address: str) -> None:
    for settings in (PLAIN, REQUIRED, TLS, INSECURE):
        refuse_exposure(settings, address)


@pytest.mark.parametrize("address", WIDE)
def test_others_need_a_certificate_or_an_explicit_word(address: str) -> None:
    for settings in (PLAIN, REQUIRED):
        with pytest.raises(ConfigError, match=r"--tls-cert.*--tls-key.*--insecure"):
            refuse_exposure(settings, address)
        with pytest.raises(ConfigError):
            bind(address, settings)
    refuse_exposure(TLS, address)
    refuse_exposure(INSECURE, address)


def test_a_name_that_leads_nowhere_is_told_as_such() -> None:
    with pytest.raises(ConfigError, match=r"no address is known for 'bogus\.invalid'"):
        bind("bogus.invalid:7700", INSECURE)


def test_a_key_without_its_certificate_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="--tls-cert"):
        refuse_exposure(GatewaySettings(http_tls_key="dock.key"), "127.0.0.1:7700")


def test_everybody_needs_a_token_where_others_can_reach_the_gateway() -> None:
    with closing(bind("127.0.0.1:0", PLAIN)) as here, closing(socket.socket()) as wide:
        wide.bind(("0.0.0.0", 0))
        assert not needs_token(PLAIN, here)
        assert not needs_token(TLS, here)
        assert needs_token(REQUIRED, here)
        assert needs_token(TLS, wide)
        assert not needs_token(INSECURE, wide)
        both = GatewaySettings(http_insecure=True, http_auth="required")
        assert needs_token(both, wide)
        assert own_host(here) == "127.0.0.1"
        assert own_host(wide) == ""
        assert url_of(here, PLAIN).startswith("http://127.0.0.1:")
        assert url_of(here, TLS).startswith("https://127.0.0.1:")


def test_a_gateway_that_asks_for_tokens_is_not_for_this_machine_alone() -> None:
    """Behind a proxy it listens on loopback, and others than this machine ask it."""
    with closing(bind("127.0.0.1:0", PLAIN)) as here, closing(socket.socket()) as wide:
        wide.bind(("0.0.0.0", 0))
        assert is_for_this_machine(PLAIN, here)
        assert not is_for_this_machine(REQUIRED, here)
        assert not is_for_this_machine(PLAIN, wide)
        assert not is_for_this_machine(INSECURE, wide)
        config = Config(gateway=REQUIRED)
        assert _guarded(config, here).gateway.web_signatures
        assert _allowed(config, here).refusal("127.0.0.1") is not None
        assert _allowed(Config(http_allow=("127.0.0.1",)), wide).refusal("127.0.0.1") is None
        opened = structs.replace(config, http_allow=("127.0.0.1",))
        assert _allowed(opened, here).refusal("127.0.0.1") is None
        assert not _guarded(Config(), here).gateway.web_signatures
        assert _allowed(Config(), here).refusal("127.0.0.1") is None
