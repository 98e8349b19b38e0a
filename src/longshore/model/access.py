"""Who may ask for what, and who asked: tokens of HTTP clients, and entries of the audit."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class Role(StrEnum):
    """What the holder of a token may ask for; `core.access` says what each allows."""

    ADMIN = "admin"
    SUBMIT = "submit"
    WORKER = "worker"
    READ = "read"


class Scope(Struct, frozen=True, omit_defaults=True):
    """To which jobs a token reaches: all, or those of some queues and kinds.

    Without `payloads`, its holder sees no arguments, results, logs and states.
    """

    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    payloads: bool = True


class NewToken(Struct, frozen=True, kw_only=True):
    """A token to be made. Its secret stays with who made it: the store gets the hash."""

    id: UUID
    name: str
    prefix: str
    hash: bytes
    role: Role
    scope: Scope = Scope()
    expires_s: float | None = None


class Token(Struct, frozen=True, kw_only=True):
    """A token as it is shown: all but its hash. `last_used_at` is a minute late at most."""

    id: UUID
    name: str
    prefix: str
    """The beginning of its secret, by which people tell tokens apart."""
    role: Role
    scope: Scope
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


class AskerView(Struct, frozen=True):
    """Who asks, as a dispatcher knows it."""

    name: str
    role: Role
    scope: Scope


class AuditEntry(Struct, frozen=True, kw_only=True):
    """Who asks for which change. A repeated request has the same entry, and is kept once."""

    request: UUID
    principal: str
    action: str
    subject: str
    fingerprint: bytes
    """A hash of all that was asked for: it tells a repeat from another request with its id."""
    detail: str = ""


class Audited(Struct, frozen=True, kw_only=True):
    """An entry of the audit as it is shown. Entries are numbered in the order of their writing."""

    number: int
    at: datetime
    request: UUID
    principal: str
    action: str
    subject: str
    fingerprint: bytes
    detail: str = ""


class AuditFilter(Struct, frozen=True, omit_defaults=True):
    """Which entries to list, newest first; `subject` is a part of theirs."""

    by: str | None = None
    action: str | None = None
    subject: str | None = None
    since: datetime | None = None
    before: int | None = None
    limit: int = 50
