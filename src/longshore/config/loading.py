"""How settings are read: a flag beats a variable beats `longshore.toml` beats the default.

A key has one name everywhere: `lease_s` in the file, `LONGSHORE_LEASE_S` in the environment,
`--set lease_s=1` on the command line. Every field of `Config`, `DispatcherSettings`,
`WorkerSettings`, `GatewaySettings` and `FileSettings` is a key: to add one, add a field.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct, structs

from longshore.config.file_settings import FileSettings
from longshore.config.gateway_settings import GatewaySettings
from longshore.config.settings import (
    BACKEND_PORT,
    FRONTEND_PORT,
    HTTP_OFF,
    HTTP_PORT,
    LOST_VARIABLES,
    METRICS_PORT,
    PREFIX,
    Config,
    DispatcherSettings,
    WorkerSettings,
)
from longshore.core.limits import MAX_DURATION_S
from longshore.core.stalls import Policy
from longshore.core.urls import redacted
from longshore.errors import ConfigError
from longshore.model.program import DEVICE_PREFIX, PROGRAM_VARIABLES
from longshore.model.worker import POOLS
from longshore.wire.portions import LARGEST_VALUE_BYTES

FILE_NAME: Final = "longshore.toml"
FILE_VARIABLE: Final = "LONGSHORE_CONFIG"
TOKEN_VARIABLE: Final = "LONGSHORE_TOKEN"
"""The token that a client shows to gateways. It is no setting, so that it never stands on a command
line, where anybody could read it."""

_NESTED: Final[dict[str, type[Struct]]] = {
    "dispatcher": DispatcherSettings,
    "worker": WorkerSettings,
    "gateway": GatewaySettings,
    "filesets": FileSettings,
}
_KINDS: Final[tuple[type[Struct], ...]] = (Config, *_NESTED.values())
_AT_MOST: Final = {
    "max_value_bytes": LARGEST_VALUE_BYTES,
    "max_batch_bytes": 256 * 1024 * 1024,
    "bulk_page_jobs": 1000,
}
_MAY_BE_ZERO: Final = frozenset(
    {
        "workers",
        "keep_succeeded_s",
        "keep_failed_s",
        "keep_most",
        "keep_workers_s",
        "keep_audit_s",
        "zeromq_heartbeat_s",
        *(pool.slots for pool in POOLS.values()),
        "lookahead_s",
        "group_stall_s",
        "max_jobs_per_process",
        "max_process_mb",
        "cancel_grace_s",
        "max_wait_s",
        "abort_before_s",
        "kill_before_s",
        "abort_grace_s",
        "drain_s",
        "http_drain_s",
        "transfer_bytes_per_s",
        "archive_logs_s",
        "versions_keep",
        "versions_older_s",
    }
)
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "log_format": ("text", "json"),
    "log_level": ("debug", "info", "warning", "error"),
    "stalled_groups": tuple(Policy),
    "http_auth": ("auto", "required"),
}
_DEFAULT_PORTS: Final = {
    "http": HTTP_PORT,
    "metrics": METRICS_PORT,
    "backend": BACKEND_PORT,
    "frontend": FRONTEND_PORT,
    "connect": FRONTEND_PORT,
    "worker_connect": BACKEND_PORT,
}
_FLAGS: Final = {"worker_connect": "--connect"}
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}
_DURATION: Final = re.compile(r"([+-]?[0-9_]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(ms|s|m|h|d|)")
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_NOT_SETTINGS: Final = frozenset(
    {FILE_VARIABLE, TOKEN_VARIABLE, *LOST_VARIABLES, *PROGRAM_VARIABLES}
)
# A Kubernetes service named `longshore` puts these into every container beside it.
_SERVICE_LINK: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)\w*)?)$")


KEYS: Final[Mapping[str, Any]] = {
    field.name: field.type
    for kind in _KINDS
    for field in structs.fields(kind)
    if field.name not in {"file", *_NESTED}
}
"""Every key and its type."""


class _Given(Struct, frozen=True):
    """One value that the user gave. `where` names its place: a flag, a variable, a line."""

    key: str
    value: object
    where: str
    is_text: bool


def value_of(config: Config, key: str) -> Any:
    """The value that a key has."""
    holders = (config, *(getattr(config, name) for name in _NESTED))
    return next(getattr(holder, key) for holder in holders if hasattr(holder, key))


def as_text(value: object) -> str:
    """A key's value as text for a variable or `--set`."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def load(
    flags: Mapping[str, object] | None = None,
    overrides: Sequence[str] = (),
    *,
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Config:
    """The settings from the flags, the environment and the file together.

    `flags` are by key, None where not given; `overrides` are `key=value` texts, and win. A `file`
    that is given, here or in the environment, must exist; `longshore.toml` in `folder` need not.
    """
    environ = os.environ if environ is None else environ
    path = _find_file(file or environ.get(FILE_VARIABLE) or None, folder or Path())
    chosen: dict[str, object] = {"file": None if path is None else str(path)}
    for source in (
        _from_file(path),
        _from_environment(environ),
        _from_flags(flags or {}),
        _from_overrides(overrides),
    ):
        chosen.update((given.key, _convert(given)) for given in source)
    return _build(chosen)


def _build(chosen: Mapping[str, Any]) -> Config:
    def of(kind: type[Struct]) -> dict[str, Any]:
        return {name: chosen[name] for name in kind.__struct_fields__ if name in chosen}

    nested: dict[str, Any] = {name: kind(**of(kind)) for name, kind in _NESTED.items()}
    return Config(**of(Config), **nested)


# sources


def _find_file(file: str | None, folder: Path) -> Path | None:
    if file is not None:
        return folder / file
    default = folder / FILE_NAME
    return default if default.is_file() else None


def _from_file(path: Path | None) -> Iterator[_Given]:
    for key, value in (_read_toml(path) if path is not None else {}).items():
        if isinstance(value, dict):
            raise ConfigError(
                f"{path} has a table [{key}]; keys are not in tables: write them at the top"
            )
        yield _given(key, value, f"{key} in {path}", is_text=False)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; is this the right file?"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deep; settings have no levels") from None


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or variable in _NOT_SETTINGS or not value:
            continue
        if variable.startswith(DEVICE_PREFIX):
            continue
        key = variable.removeprefix(PREFIX).lower()
        if key in KEYS or not _SERVICE_LINK.search(variable):
            yield _given(key, value, variable, is_text=True)


def _from_flags(flags: Mapping[str, object]) -> Iterator[_Given]:
    for key, value in flags.items():
        if value is not None:
            flag = _FLAGS.get(key, f"--{key.replace('_', '-')}")
            yield _given(key, value, flag, is_text=isinstance(value, str))


def _from_overrides(overrides: Sequence[str]) -> Iterator[_Given]:
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set takes key=value, like lease_s=30; got '{redacted(text)}'")
        key = key.strip().replace("-", "_").lower()
        yield _given(key, value.strip(), f"--set {key}", is_text=True)


def _given(key: str, value: object, where: str, *, is_text: bool) -> _Given:
    if key in KEYS:
        return _Given(key, value, where, is_text)
    near = get_close_matches(key, KEYS, n=1)
    advice = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(sorted(KEYS))}"
    raise ConfigError(f"{where}: there is no setting {key}; {advice}")


# values


def _convert(given: _Given) -> object:
    """The value in its key's type; the error says what it must be."""
    kind = KEYS[given.key]
    if kind is bool:
        return _boolean(given)
    if kind is int:
        return _bounded(given, _whole_number(given))
    if kind is float:
        return _bounded(given, _seconds(given))
    if kind == tuple[str, ...]:
        return tuple(_address(given, part) for part in _texts(given))
    if given.key == "app":
        return ",".join(_texts(given)) or None
    if given.key in _CHOICES:
        return _choice(given, _CHOICES[given.key])
    return _address(given, _text(given))


def _wrong(given: _Given, wanted: str) -> ConfigError:
    shown = f"'{redacted(given.value)}'" if isinstance(given.value, str) else repr(given.value)
    return ConfigError(f"{given.where} is {shown}; it must be {wanted}")


def _boolean(given: _Given) -> bool:
    if isinstance(given.value, bool):
        return given.value
    if given.is_text and (text := str(given.value).strip().lower()) in _BOOLEANS:
        return _BOOLEANS[text]
    raise _wrong(given, "true or false")


def _whole_number(given: _Given) -> int:
    value = given.value
    if given.is_text:
        try:
            return int(str(value))
        except ValueError:
            raise _wrong(given, "a whole number, like 8") from None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _wrong(given, "a whole number, like 8")


def _seconds(given: _Given) -> float:
    value = given.value
    if isinstance(value, str):
        seconds = parse_seconds(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) < sys.float_info.max else None
    else:
        seconds = None
    if seconds is None or not isfinite(seconds):
        raise _wrong(given, 'seconds, like 1.5, or a text like "500ms", "2s", "5m", "1h"')
    if seconds > MAX_DURATION_S:
        raise _wrong(given, f"{MAX_DURATION_S:,.0f} or less (100 years)")
    return seconds


def parse_seconds(text: str) -> float | None:
    """The seconds in a text like 1.5, 500ms, 2s, 5m, 1h or 7d; None if it is no such text."""
    match = _DURATION.fullmatch(text.strip().lower())
    return float(match[1]) * _UNITS_S[match[2]] if match else None


def _bounded(given: _Given, number: int | float) -> int | float:
    most = _AT_MOST.get(given.key)
    if most is not None and number > most:
        raise _wrong(given, f"at most {most:,}")
    if number < 0 or (number == 0 and given.key not in _MAY_BE_ZERO):
        raise _wrong(given, "0 or more" if given.key in _MAY_BE_ZERO else "more than 0")
    return number


def _text(given: _Given) -> str:
    if not isinstance(given.value, str):
        raise _wrong(given, "text")
    return given.value


def _choice(given: _Given, choices: Sequence[str]) -> str:
    word = _text(given).strip().lower()
    if word not in choices:
        raise _wrong(given, f"one of {', '.join(choices)}")
    return word


def _texts(given: _Given) -> list[str]:
    value = given.value
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        raise _wrong(given, 'texts: a list like ["a", "b"], or "a,b"')
    return [part.strip() for part in value if part.strip()]


# addresses


def _address(given: _Given, text: str) -> str:
    """The text of an address in its one form; of any other key, unchanged."""
    if given.key == "files_url":
        return _url(given, text if "://" in text else f"http://{text}:{HTTP_PORT}")
    default_port = _DEFAULT_PORTS.get(given.key)
    if default_port is None:
        return text
    if given.key == "http" and text.lower() == HTTP_OFF:
        return HTTP_OFF
    if given.key == "metrics" and text.lower() in ("", HTTP_OFF):
        return ""
    if given.key == "connect" and text.startswith(("http://", "https://")):
        return _url(given, text)
    host, port = _split_address(given, text.removeprefix("tcp://"), default_port)
    bind = given.key in ("http", "metrics", "backend", "frontend")
    if bind or port > 0:
        return f"{host}:{port}" if bind else f"tcp://{host}:{port}"
    raise _wrong(given, "an address with a port to connect to, like tcp://127.0.0.1:7702")


def _url(given: _Given, text: str) -> str:
    """The URL of a gateway, which may have a path in front of those of the API."""
    parts = urlsplit(text)
    is_http = parts.scheme in ("http", "https")
    if not is_http or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise _wrong(given, "the URL of a gateway, like http://127.0.0.1:7700")
    return text.rstrip("/")


def _split_address(given: _Given, text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    is_port = port.isascii() and port.isdigit() and int(port) < 65_536
    if not host or not is_port or "/" in host or (":" in host and not host.startswith("[")):
        raise _wrong(given, f"HOST:PORT, like 127.0.0.1:{default_port}")
    return host, int(port)
