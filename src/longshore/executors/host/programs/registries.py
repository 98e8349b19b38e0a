"""Credentials for registries of images, from a file in the format of Docker's config.json.

Only its `auths` are read: programs that keep credentials (`credsStore`, `credHelpers`) would run
beside the worker. The file is read for each pull, so that a new password needs no restart.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from longshore.core.images import HUB
from longshore.errors import ConfigError

Credentials = dict[str, str]

_HUB_KEYS: Final = (HUB, "https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")


class _Auth(Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _Configuration(Struct, frozen=True):
    auths: dict[str, _Auth] = {}


def credentials_for(path: str, registry: str) -> Credentials | None:
    """What opens a registry, as an engine takes it; None if the file names none for it.

    Raises `ConfigError` if the file cannot be read.
    """
    if not path:
        return None
    auths = _read(path).auths
    keys = _HUB_KEYS if registry == HUB else (registry, f"https://{registry}", f"http://{registry}")
    auth = next((auths[key] for key in keys if key in auths), None)
    if auth is None:
        return None
    if auth.identitytoken:
        return {"identitytoken": auth.identitytoken, "serveraddress": registry}
    user, password = _user(auth, path, registry)
    return {"username": user, "password": password, "serveraddress": registry}


def check_registries(path: str) -> None:
    """Raises `ConfigError` if credentials cannot be read from this file."""
    if path:
        for registry in _read(path).auths:
            credentials_for(path, registry)


def _read(path: str) -> _Configuration:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_Configuration)
    except OSError as error:
        raise ConfigError(f"registries: {path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"registries: {path} is no config.json of Docker: {error}; it looks like "
            '{"auths": {"registry.example.com": {"auth": "…"}}}'
        ) from None


def _user(auth: _Auth, path: str, registry: str) -> tuple[str, str]:
    if auth.username:
        return auth.username, auth.password
    try:
        user, colon, password = base64.b64decode(auth.auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = colon = password = ""
    if not (user and colon):
        raise ConfigError(
            f"registries: {path} has no auth for {registry}: it is base64 of USER:PASSWORD, as "
            "`docker login` writes it; credsStore and credHelpers are not read"
        )
    return user, password.rstrip("\0")
