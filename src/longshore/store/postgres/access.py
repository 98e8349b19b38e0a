"""Tokens and the audit in the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from uuid import UUID

import asyncpg

from longshore.model.access import Audited, AuditFilter, NewToken, Role, Token
from longshore.model.job import Refused
from longshore.store.access_rows import (
    USED_EVERY_S,
    hint_of,
    name_taken,
    other_token,
    pack_scope,
    place_of,
    too_many,
    unpack_scope,
)
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.rows import INT64, clean

FARTHEST_S: Final = 1e9
"""Longer than that no time is kept."""

_COLUMNS: Final = """id, name, prefix, role, scope, created_at, created_by, expires_at, revoked_at,
    last_used_at, hash"""
_TOKEN: Final = f"SELECT {_COLUMNS} FROM longshore.access_token"
_LOCK: Final = "LOCK TABLE longshore.access_token IN SHARE ROW EXCLUSIVE MODE"
"""Tokens are made one after the other: so the limit and the names hold."""
_COUNT: Final = """
SELECT count(*) AS count, coalesce(bool_or(name = $1), false) AS is_taken
FROM longshore.access_token WHERE revoked_at IS NULL
"""
_CREATE: Final = f"""
INSERT INTO longshore.access_token
    (id, name, prefix, hint, hash, role, scope, created_by, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now(), now() + make_interval(secs => $9))
RETURNING {_COLUMNS}
"""
_REVOKE: Final = f"""
UPDATE longshore.access_token SET revoked_at = coalesce(revoked_at, now()) WHERE id = $1
RETURNING {_COLUMNS}
"""
_LIVE: Final = f"""
{_TOKEN}
WHERE hint = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
"""
_USED: Final = f"""
UPDATE longshore.access_token SET last_used_at = now() WHERE id = ANY (ARRAY(
    SELECT id FROM longshore.access_token WHERE id = ANY ($1::uuid[])
        AND (last_used_at IS NULL OR last_used_at <= now() - make_interval(secs => {USED_EVERY_S}))
    ORDER BY id FOR UPDATE SKIP LOCKED
))
"""
_LIST: Final = """
SELECT number, at, request, principal, action, subject, fingerprint, detail FROM longshore.audit
WHERE ($1::text IS NULL OR principal = $1) AND ($2::text IS NULL OR action = $2)
    AND ($3::text IS NULL OR strpos(subject, $3) > 0) AND ($4::timestamptz IS NULL OR at >= $4)
    AND ($5::bigint IS NULL OR number < $5)
ORDER BY number DESC LIMIT $6
"""
_FORGET: Final = """
DELETE FROM longshore.audit WHERE number = ANY (ARRAY(
    SELECT number FROM longshore.audit WHERE at < now() - make_interval(secs => $1)
    ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING number
"""
_FORGET_TOKENS: Final = """
DELETE FROM longshore.access_token WHERE id = ANY (ARRAY(
    SELECT id FROM longshore.access_token
    WHERE least(revoked_at, expires_at) < now() - make_interval(secs => $1)
    LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING id
"""
_GROUP_LANES: Final = """
SELECT DISTINCT j.queue, j.kind FROM longshore.node AS n
CROSS JOIN LATERAL (SELECT queue, kind FROM longshore.job WHERE id = n.job OFFSET 0) AS j
WHERE n.group_id = $1 ORDER BY j.queue, j.kind
"""


class PostgresAccess:
    """The verbs about tokens and the audit."""

    _keeping: ConnectionPool
    _reading: ConnectionPool

    async def create_token(self, new: NewToken, by: str, *, most: int) -> Token | Refused:
        """Keeps a new token, unless it is there."""

        async def work(tx: Transaction) -> Token | Refused:
            await tx.fetch(_LOCK)
            for known in await tx.fetch(f"{_TOKEN} WHERE id = $1", new.id):
                is_same = place_of(new.hash, [known["hash"]]) == 0
                return _token(known) if is_same else other_token(new)
            return await _create(tx, new, by, most)

        return await self._keeping.run(work)

    async def revoke_token(self, id: UUID) -> Token | None:
        """Makes a token worthless."""
        rows = await self._keeping.fetch(_REVOKE, id)
        return _token(rows[0]) if rows else None

    async def tokens(self) -> list[Token]:
        """All tokens, the oldest first."""
        return [*map(_token, await self._reading.fetch(f"{_TOKEN} ORDER BY created_at, id"))]

    async def token(self, hash: bytes) -> Token | None:
        """The token with this hash, if it is worth something."""
        rows = await self._reading.fetch(_LIVE, hint_of(hash))
        place = place_of(hash, [row["hash"] for row in rows])
        return None if place is None else _token(rows[place])

    async def tokens_used(self, ids: Collection[UUID]) -> None:
        """Notes that these tokens were used."""
        await self._keeping.fetch(_USED, list(ids))

    async def audit(self, wanted: AuditFilter) -> list[Audited]:
        """Entries of the audit, newest first."""
        if wanted.before is not None and wanted.before not in INT64:
            return []
        texts = [None if one is None else clean(one) for one in _texts(wanted)]
        more = (wanted.since, wanted.before, max(0, wanted.limit))
        return [Audited(**row) for row in await self._reading.fetch(_LIST, *texts, *more)]

    async def forget_audit(self, older_than_s: float, most: int = 1000) -> int:
        """Removes old entries, and tokens that have long been worthless."""
        entries = await self._keeping.fetch(_FORGET, min(older_than_s, FARTHEST_S), most)
        worthless = await self._keeping.fetch(_FORGET_TOKENS, min(older_than_s, FARTHEST_S), most)
        return len(entries) + len(worthless)

    async def group_lanes(self, group: UUID) -> list[tuple[str, str]]:
        """The queue and kind of the jobs of a group, each pair once."""
        rows = await self._reading.fetch(_GROUP_LANES, group)
        return [(row["queue"], row["kind"]) for row in rows]


async def _create(tx: Transaction, new: NewToken, by: str, most: int) -> Token | Refused:
    name = clean(new.name)
    [there] = await tx.fetch(_COUNT, name)
    if there["is_taken"]:
        return name_taken(new)
    if there["count"] >= most:
        return too_many(new, most)
    expires_s = None if new.expires_s is None else min(new.expires_s, FARTHEST_S)
    hashes = (hint_of(new.hash), new.hash)
    values = (new.id, name, clean(new.prefix), *hashes, new.role.value, pack_scope(new.scope))
    [made] = await tx.fetch(_CREATE, *values, clean(by), expires_s)
    return _token(made)


def _token(row: asyncpg.Record) -> Token:
    columns = {name: value for name, value in row.items() if name != "hash"}
    columns |= {"role": Role(row["role"]), "scope": unpack_scope(row["scope"])}
    return Token(**columns)


def _texts(wanted: AuditFilter) -> tuple[str | None, str | None, str | None]:
    return wanted.by, wanted.action, wanted.subject
