"""The token with which commands can be submitted over HTTP where no tokens are required."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from longshore.client.ids import fresh_id
from longshore.client.tokens import new_token
from longshore.core.access import hash_of, is_token
from longshore.errors import ConfigError, from_code
from longshore.model.access import Role, Scope
from longshore.model.job import Refused
from longshore.ports import Store

TOKEN_FILE: Final = Path(".longshore/token")


async def write_own_token(store: Store, most: int, path: Path = TOKEN_FILE) -> None:
    """Has the store keep a token whose secret only the user of this process can read.

    One that is there and still good stays.
    """
    if (known := _read(path)) and await store.token(hash_of(known)) is not None:
        return
    id = fresh_id()
    secret, token = new_token(id, f"up-{id.hex[-12:]}", Role.ADMIN, Scope(), None)
    made = await store.create_token(token, "longshore up", most=most)
    if isinstance(made, Refused):
        raise from_code(made.code, made.message)
    _write(path, secret)


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = path.read_text().strip()
        return text if is_token(text) else ""
    return ""


def _write(path: Path, secret: str) -> None:
    """Writes it under another name first: nobody ever reads a part of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}-{os.getpid()}")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secret}\n")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(
            f"the token for commands over HTTP cannot be written to {path}: {error.strerror}; "
            "start it in a folder that this user may write to"
        ) from None
