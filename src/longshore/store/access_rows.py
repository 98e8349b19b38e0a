"""Tokens and entries of the audit as columns, and back: the forms that every store uses."""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest
from typing import Final

import msgspec

from longshore.core.access import MAX_SUBJECT_CHARS
from longshore.errors import Conflict, TooLarge
from longshore.model.access import AuditEntry, NewToken, Scope
from longshore.model.job import Refused
from longshore.store.rows import clean

HINT_BYTES: Final = 8
"""By so many bytes of its hash a token is found. They tell nothing of the others."""
USED_EVERY_S: Final = 60.0
"""How late `last_used_at` may be."""

_scope = msgspec.msgpack.Decoder(Scope)


def pack_scope(scope: Scope) -> bytes:
    """A scope as it is stored."""
    return msgspec.msgpack.encode(scope)


def unpack_scope(data: bytes) -> Scope:
    """A stored scope."""
    return _scope.decode(data)


def hint_of(hash: bytes) -> bytes:
    """The part of a hash by which it is found."""
    return hash[:HINT_BYTES]


def place_of(hash: bytes, stored: Iterable[bytes]) -> int | None:
    """Which of some stored hashes this one is. A near miss takes as long as a far one."""
    found = None
    for place, one in enumerate(stored):
        if compare_digest(hash, one):
            found = place
    return found


def entry_texts(entry: AuditEntry) -> tuple[str, str, str, str]:
    """The principal, the action, the subject and the detail of an entry, as they are stored."""
    texts = (entry.principal, entry.action, entry.subject, entry.detail)
    principal, action, subject, detail = (clean(text)[:MAX_SUBJECT_CHARS] for text in texts)
    return principal, action, subject, detail


def other_token(new: NewToken) -> Refused:
    """The answer to a token whose id another one has."""
    message = (
        f"token {new.id} was made before, and its secret was shown then; revoke it, and make "
        "another with a new id"
    )
    return Refused(new.id, Conflict.code, message)


def name_taken(new: NewToken) -> Refused:
    """The answer to a token whose name another one has."""
    message = f"there is a token '{new.name}' already; revoke it first, or choose another name"
    return Refused(new.id, Conflict.code, message)


def too_many(new: NewToken, most: int) -> Refused:
    """The answer to a token past the limit."""
    message = f"there are {most:,} tokens that are not revoked (max_tokens); revoke some"
    return Refused(new.id, TooLarge.code, message)
