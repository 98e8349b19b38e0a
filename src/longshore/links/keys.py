"""CURVE keys: how to make, write and read them, and which of them may enter.

A key pair is two small TOML files. `NAME.public.toml` may be given to anybody; `NAME.secret.toml`
holds both halves: anyone who can read it can pose as its owner. Keys are Z85 text, 40 characters
each.
"""

from __future__ import annotations

import os
import re
import struct
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import zmq
from msgspec import Struct
from zmq.utils import z85

from longshore.errors import ConfigError

PUBLIC_SUFFIX: Final = ".public.toml"
SECRET_SUFFIX: Final = ".secret.toml"
LOOK_AGAIN_S: Final = 0.25
_KEY: Final = re.compile(r"[0-9A-Za-z.:+=^!/*?&<>()\[\]{}@%$#-]{40}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OTHERS: Final = 0o007


class Keys(Struct, frozen=True):
    """A key pair, or the public half of one."""

    name: str
    public: str
    secret: str = ""


# files


def make_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Makes a new key pair; the paths of its public and its secret file. Overwrites nothing."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"'{name}' cannot name a key; use letters, digits, dots and dashes")
    public, secret = (key.decode() for key in zmq.curve_keypair())
    public_path, secret_path = folder / (name + PUBLIC_SUFFIX), folder / (name + SECRET_SUFFIX)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(secret_path, 0o600, f'name = "{name}"\npublic = "{public}"\nsecret = "{secret}"\n')
        _write(public_path, 0o644, f'name = "{name}"\npublic = "{public}"\n')
    except FileExistsError as error:
        raise ConfigError(
            f"{error.filename} is there already; give another --name, or move it away"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot write keys to {folder}: {error.strerror}") from None
    return public_path, secret_path


def _write(path: Path, mode: int, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w", encoding="ascii") as file:
        os.fchmod(descriptor, mode)
        file.write(text)


def read_keys(path: Path) -> Keys:
    """The keys in a file; raises `ConfigError` if there are none that fit together."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read the key file {path}: {error.strerror}; `longshore keys new` makes one"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a key file: {error}") from None
    name, public, secret = (str(values.get(word, "")) for word in ("name", "public", "secret"))
    if not is_key(public) or (secret and not _is_pair(public, secret)):
        raise ConfigError(f"{path} holds no sound key; `longshore keys new` makes them")
    return Keys(name, public, secret)


def read_secret(path: Path) -> Keys:
    """The key pair in a secret file, which others must not be able to read."""
    keys = read_keys(path)
    if not keys.secret:
        raise ConfigError(
            f"{path} holds only a public key; give the file that ends in .secret.toml"
        )
    if path.stat().st_mode & _OTHERS:
        raise ConfigError(
            f"{path} can be read by every user of this machine; run: chmod 600 {path}"
        )
    return keys


def public_key(text: str) -> str:
    """The public key that a text is, or that the file it names holds."""
    return text if is_key(text) and not Path(text).exists() else read_keys(Path(text)).public


def is_key(text: str) -> bool:
    """Whether a text is a key."""
    if not _KEY.fullmatch(text):
        return False
    try:
        return len(z85.decode(text.encode())) == 32
    except (ValueError, KeyError, struct.error):
        return False


def _is_pair(public: str, secret: str) -> bool:
    return is_key(secret) and zmq.curve_public(secret.encode()).decode() == public


# who is let in


class KeyRing:
    """The public keys in some files and folders, and the owner's.

    It sees changes there after `LOOK_AGAIN_S` at the latest. A file that cannot be read lets nobody
    in; `on_fault` is told of it, once for each change.
    """

    def __init__(
        self,
        sources: Sequence[str],
        own: Keys,
        *,
        now: Callable[[], float],
        on_fault: Callable[[str], None],
    ) -> None:
        self._sources = [Path(source) for source in sources]
        self._own = own
        self._now = now
        self._on_fault = on_fault
        self._texts: list[tuple[Path, bytes]] | None = None
        self._names: dict[str, str] = {}
        self._looked_at = float("-inf")

    def __contains__(self, key: object) -> bool:
        self._look_again()
        return key == self._own.public or key in self._names

    def name_of(self, key: str) -> str | None:
        """The name that the file of a key gives it; None if the ring does not hold the key."""
        self._look_again()
        return self._own.name if key == self._own.public else self._names.get(key)

    def _look_again(self) -> None:
        if self._now() - self._looked_at >= LOOK_AGAIN_S:
            self._looked_at = self._now()
            self._look()

    def _look(self) -> None:
        # What is written there, not when: a file may be rewritten in place, with its old time.
        texts = [(path, _text(path)) for path in self._files()]
        if texts != self._texts:
            self._texts = texts
            self._names = {keys.public: keys.name for keys in self._read()}

    def _files(self) -> Iterator[Path]:
        for source in self._sources:
            if source.is_dir():
                yield from sorted(source.glob(f"*{PUBLIC_SUFFIX}"))
            else:
                yield source

    def _read(self) -> Iterator[Keys]:
        for path in self._files():
            try:
                yield read_keys(path)
            except ConfigError as error:
                self._on_fault(str(error))


class ClientKeys:
    """Who may ask a dispatcher: clients, and gateways, which may ask for others too."""

    def __init__(self, clients: KeyRing, gateways: KeyRing) -> None:
        self._clients = clients
        self._gateways = gateways

    def __contains__(self, key: object) -> bool:
        return key in self._clients or key in self._gateways

    def name_of(self, key: str) -> str:
        """The name of a key; its beginning, if its file was removed since it was let in."""
        return self._gateways.name_of(key) or self._clients.name_of(key) or key[:8]

    def may_speak_for_others(self, key: str) -> bool:
        """Whether this is the key of a gateway."""
        return key in self._gateways


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        return repr(error).encode()
