"""Tokens on the side of those who make and use them: here alone is the secret known."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from uuid import UUID

from longshore.config import TOKEN_VARIABLE
from longshore.core.access import PREFIX_CHARS, TOKEN_PREFIX, hash_of, is_token
from longshore.errors import ConfigError
from longshore.model.access import NewToken, Role, Scope
from longshore.model.program import JOB_VARIABLE


def new_token(
    id: UUID, name: str, role: Role, scope: Scope, expires_s: float | None
) -> tuple[str, NewToken]:
    """A new secret, and the token to be kept for it."""
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = NewToken(
        id=id,
        name=name,
        prefix=secret[:PREFIX_CHARS],
        hash=hash_of(secret),
        role=role,
        scope=scope,
        expires_s=expires_s,
    )
    return secret, token


def own_secret(environ: Mapping[str, str] = os.environ) -> str | None:
    """The token in the environment of this process, if there is one.

    In a program that a job runs, a number there is that of its attempt, and no secret.
    """
    text = environ.get(TOKEN_VARIABLE, "").strip()
    if not text or (text.isdigit() and environ.get(JOB_VARIABLE)):
        return None
    if not is_token(text):
        raise ConfigError(f"{TOKEN_VARIABLE} is no token; `longshore token create` makes one")
    return text


def own_token(environ: Mapping[str, str] = os.environ) -> bytes | None:
    """The hash of that token."""
    secret = own_secret(environ)
    return None if secret is None else hash_of(secret)
