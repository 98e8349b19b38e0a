"""From settings to keys: which keys a process needs, and what to do if some are missing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from longshore.config import Config, is_loopback
from longshore.errors import ConfigError
from longshore.links.curve import calling
from longshore.links.keys import Keys, public_key, read_secret
from longshore.links.zeromq import Secure


def own_keys(config: Config) -> Keys | None:
    """This process's key pair, if CURVE is on."""
    return None if config.curve_secret is None else read_secret(Path(config.curve_secret))


def calling_with(config: Config) -> Secure | None:
    """How a worker or a client connects; None without encryption."""
    keys = own_keys(config)
    if keys is None and config.curve_server_key is None:
        return None
    if keys is None:
        raise ConfigError(
            "curve_server_key is set and curve_secret is not: dispatchers take only known keys; "
            "make one with `longshore keys new`"
        )
    if config.curve_server_key is None:
        raise ConfigError(
            "curve_secret is set and curve_server_key is not: set it to the dispatchers' public "
            "key, or to the file that holds it"
        )
    return calling(keys, public_key(config.curve_server_key))


def dispatcher_keys(config: Config) -> Keys | None:
    """A dispatcher's key pair, if CURVE is on; raises if it would let in nobody, or anybody."""
    keys = own_keys(config)
    lists = {
        "curve_workers": config.curve_workers,
        "curve_clients": config.curve_clients,
        "curve_gateways": config.curve_gateways,
    }
    for name, sources in lists.items():
        if keys is None and sources:
            raise ConfigError(
                f"{name} is set and curve_secret is not, so no key would be asked for"
            )
        if keys is not None and not sources and name != "curve_gateways":
            raise ConfigError(
                f"curve_secret is set and {name} is not: set it to the folder with the public keys "
                "that may connect"
            )
        for source in sources:
            if not Path(source).exists():
                raise ConfigError(f"{name}: there is no {source}; make the folder, or correct it")
    return keys


def key_advice(secure: Secure | None, addresses: Iterable[str], role: str) -> str:
    """What to check if a worker or client gets no answer: a failed handshake is silent."""
    if secure is not None:
        return (
            "; or the keys do not fit: check that curve_server_key is the dispatchers' public key, "
            f"and that this {role}'s public key is among their curve_{role}s"
        )
    if not all(map(is_loopback, addresses)):
        return (
            f"; dispatchers that other machines can reach take only {role}s with keys: set "
            "curve_secret and curve_server_key"
        )
    return ""
