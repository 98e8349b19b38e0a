"""Tokens and the audit in the SQLite store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from longshore.model.access import Audited, AuditEntry, AuditFilter, NewToken, Role, Token
from longshore.model.job import Refused
from longshore.store.access_rows import (
    USED_EVERY_S,
    entry_texts,
    hint_of,
    name_taken,
    other_token,
    pack_scope,
    place_of,
    too_many,
    unpack_scope,
)
from longshore.store.rows import INT64, clean, later, micros, moment
from longshore.store.sqlite.transaction import Snapshot, Transaction

_TOKEN: Final = """SELECT id, name, prefix, role, scope, created_at, created_by, expires_at,
    revoked_at, last_used_at, hash FROM access_token"""
_WORTHLESS: Final = "(revoked_at < :before OR expires_at < :before)"


def write_entry(tx: Transaction, entry: AuditEntry) -> None:
    """Keeps an entry of the audit, unless it is there."""
    principal, action, subject, detail = entry_texts(entry)
    tx.execute(
        """INSERT INTO audit (at, request, principal, fingerprint, action, subject, detail)
        VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
        (tx.now, entry.request.bytes, principal, entry.fingerprint, action, subject, detail),
    )


# tokens


def create_token(tx: Transaction, new: NewToken, by: str, *, most: int) -> Token | Refused:
    """Keeps a new token, unless it is there."""
    known = tx.execute(f"{_TOKEN} WHERE id = ?", (new.id.bytes,)).fetchone()
    if known is not None:
        return _token(known) if place_of(new.hash, [known[-1]]) == 0 else other_token(new)
    name = clean(new.name)
    if tx.execute(
        "SELECT 1 FROM access_token WHERE name = ? AND revoked_at IS NULL", (name,)
    ).fetchone():
        return name_taken(new)
    [count] = tx.execute("SELECT count(*) FROM access_token WHERE revoked_at IS NULL").fetchone()
    if count >= most:
        return too_many(new, most)
    expires_at = None if new.expires_s is None else later(tx.now, new.expires_s)
    tx.execute(
        """INSERT INTO access_token (id, name, prefix, hint, hash, role, scope, created_at,
            created_by, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            new.id.bytes,
            name,
            clean(new.prefix),
            hint_of(new.hash),
            new.hash,
            new.role.value,
            pack_scope(new.scope),
            tx.now,
            clean(by),
            expires_at,
        ),
    )
    return _token(tx.execute(f"{_TOKEN} WHERE id = ?", (new.id.bytes,)).fetchone())


def revoke_token(tx: Transaction, id: UUID) -> Token | None:
    """Makes a token worthless."""
    tx.execute(
        "UPDATE access_token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
        (tx.now, id.bytes),
    )
    row = tx.execute(f"{_TOKEN} WHERE id = ?", (id.bytes,)).fetchone()
    return None if row is None else _token(row)


def tokens(tx: Snapshot) -> list[Token]:
    """All tokens, the oldest first."""
    return [_token(row) for row in tx.execute(f"{_TOKEN} ORDER BY created_at, id").fetchall()]


def token(tx: Snapshot, hash: bytes) -> Token | None:
    """The token with this hash, if it is worth something."""
    rows = tx.execute(
        f"""{_TOKEN} WHERE hint = ? AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > ?)""",
        (hint_of(hash), tx.now),
    ).fetchall()
    place = place_of(hash, [row[-1] for row in rows])
    return None if place is None else _token(rows[place])


def tokens_used(tx: Transaction, ids: Collection[UUID]) -> None:
    """Notes that these tokens were used."""
    for id in sorted(ids):
        tx.execute(
            """UPDATE access_token SET last_used_at = ?1
            WHERE id = ?2 AND (last_used_at IS NULL OR last_used_at <= ?3)""",
            (tx.now, id.bytes, tx.now - round(USED_EVERY_S * 1e6)),
        )


def _token(row: tuple[Any, ...]) -> Token:
    id, name, prefix, role, scope, created_at, created_by, *times = row[:-1]
    expires_at, revoked_at, last_used_at = (None if at is None else moment(at) for at in times)
    return Token(
        id=UUID(bytes=id),
        name=name,
        prefix=prefix,
        role=Role(role),
        scope=unpack_scope(scope),
        created_at=moment(created_at),
        created_by=created_by,
        expires_at=expires_at,
        revoked_at=revoked_at,
        last_used_at=last_used_at,
    )


# the audit


def audit(tx: Snapshot, wanted: AuditFilter) -> list[Audited]:
    """Entries of the audit, newest first."""
    since = None if wanted.since is None else micros(wanted.since)
    if wanted.before is not None and wanted.before not in INT64:
        return []
    rows = tx.execute(
        """SELECT number, at, request, principal, action, subject, fingerprint, detail FROM audit
        WHERE (?1 IS NULL OR principal = ?1) AND (?2 IS NULL OR action = ?2)
            AND (?3 IS NULL OR instr(subject, ?3)) AND (?4 IS NULL OR at >= ?4)
            AND (?5 IS NULL OR number < ?5)
        ORDER BY number DESC LIMIT ?6""",
        (wanted.by, wanted.action, wanted.subject, since, wanted.before, max(0, wanted.limit)),
    ).fetchall()
    return [
        Audited(
            number=number,
            at=moment(at),
            request=UUID(bytes=request),
            principal=principal,
            action=action,
            subject=subject,
            fingerprint=fingerprint,
            detail=detail,
        )
        for number, at, request, principal, action, subject, fingerprint, detail in rows
    ]


def has_old(tx: Snapshot, older_than_s: float) -> bool:
    """Whether there is anything that `forget_audit` removes."""
    found = tx.execute(
        f"""SELECT EXISTS (SELECT 1 FROM audit WHERE at < :before)
            OR EXISTS (SELECT 1 FROM access_token WHERE {_WORTHLESS})""",
        {"before": _before(tx, older_than_s)},
    ).fetchone()
    return bool(found[0])


def forget_audit(tx: Transaction, older_than_s: float, most: int = 1000) -> int:
    """Removes old entries, and tokens that have long been worthless."""
    values = {"before": _before(tx, older_than_s), "most": most}
    entries = tx.execute(
        """DELETE FROM audit WHERE number IN
            (SELECT number FROM audit WHERE at < :before ORDER BY at LIMIT :most)""",
        values,
    ).rowcount
    worthless = tx.execute(
        f"""DELETE FROM access_token WHERE id IN
            (SELECT id FROM access_token WHERE {_WORTHLESS} LIMIT :most)""",
        values,
    ).rowcount
    return entries + worthless


def _before(tx: Snapshot, older_than_s: float) -> int:
    return tx.now - (later(tx.now, older_than_s) - tx.now)


def group_lanes(tx: Snapshot, group: UUID) -> list[tuple[str, str]]:
    """The queue and kind of the jobs of a group, each pair once."""
    rows = tx.execute(
        """SELECT DISTINCT j.queue, j.kind FROM job_group AS g
        CROSS JOIN node AS n ON n.group_id = g.number CROSS JOIN job AS j ON j.number = n.job
        WHERE g.id = ? ORDER BY j.queue, j.kind""",
        (group.bytes,),
    ).fetchall()
    return [(queue, kind) for queue, kind in rows]
