"""Tokens and the audit in `MemoryStore`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any, Final, cast
from uuid import UUID

from msgspec import structs

from longshore.model.access import Audited, AuditEntry, AuditFilter, NewToken, Token
from longshore.model.job import Refused
from longshore.ports import Store
from longshore.store.access_rows import (
    USED_EVERY_S,
    entry_texts,
    name_taken,
    other_token,
    place_of,
    too_many,
)
from longshore.store.rows import clean, later, micros, moment
from longshore.testing.memory_reads import MemoryReads

AUDITED: Final = frozenset(
    {
        "cancel",
        "retry",
        "set_paused",
        "set_limit",
        "remove_limit",
        "set_draining",
        "prune",
        "prune_groups",
    }
    | {"submit_group", "add_to_group", "cancel_group", "pause_group", "retry_group"}
    | {"rerun_group", "open_gate", "start_actors", "pause_actor", "stop_actor", "edit_actor"}
    | {"sort_mail", "sort_undelivered", "create_token", "revoke_token"}
    | {"put_bulk", "stop_bulk"}
    | {"put_schedule", "remove_schedule", "pause_schedule", "record_fires"}
    | {"remove_versions", "publish", "forget_manifests", "doom_blobs"}
)
"""The verbs by which a request changes something."""


class MemoryAccess(MemoryReads):
    """The verbs about who may ask for what, and who asked."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bearers: dict[UUID, tuple[Token, bytes]] = {}
        self._audit: dict[tuple[UUID, str, bytes], Audited] = {}
        self._audit_number = 0

    def audited(self, entry: AuditEntry) -> Store:
        return cast(Store, _AuditedStore(self, entry))

    def _write_entry(self, entry: AuditEntry) -> None:
        principal, action, subject, detail = entry_texts(entry)
        key = (entry.request, principal, entry.fingerprint)
        if key not in self._audit:
            self._audit_number += 1
            self._audit[key] = Audited(
                number=self._audit_number,
                at=self._utc(),
                request=entry.request,
                principal=principal,
                action=action,
                subject=subject,
                fingerprint=entry.fingerprint,
                detail=detail,
            )

    # tokens

    async def create_token(self, new: NewToken, by: str, *, most: int) -> Token | Refused:
        if new.id in self._bearers:
            known, hash = self._bearers[new.id]
            return known if place_of(new.hash, [hash]) == 0 else other_token(new)
        valid = [token for token, _ in self._bearers.values() if token.revoked_at is None]
        if clean(new.name) in [token.name for token in valid]:
            return name_taken(new)
        if len(valid) >= most:
            return too_many(new, most)
        now, expires_at = self._utc(), None
        if new.expires_s is not None:
            expires_at = moment(later(micros(now), new.expires_s))
        made = Token(
            id=new.id,
            name=clean(new.name),
            prefix=clean(new.prefix),
            role=new.role,
            scope=new.scope,
            created_at=now,
            created_by=clean(by),
            expires_at=expires_at,
        )
        self._bearers[new.id] = made, new.hash
        return made

    async def revoke_token(self, id: UUID) -> Token | None:
        if id not in self._bearers:
            return None
        token, hash = self._bearers[id]
        if token.revoked_at is None:
            token = structs.replace(token, revoked_at=self._utc())
        self._bearers[id] = token, hash
        return token

    async def tokens(self) -> list[Token]:
        found = [token for token, _ in self._bearers.values()]
        return sorted(found, key=lambda token: (token.created_at, token.id))

    async def token(self, hash: bytes) -> Token | None:
        valid = [
            (token, one)
            for token, one in self._bearers.values()
            if token.revoked_at is None
            and (token.expires_at is None or token.expires_at > self._utc())
        ]
        place = place_of(hash, [one for _, one in valid])
        return None if place is None else valid[place][0]

    async def tokens_used(self, ids: Collection[UUID]) -> None:
        now = self._utc()
        for id in ids:
            if id in self._bearers:
                token, hash = self._bearers[id]
                used_at = token.last_used_at
                if used_at is None or used_at <= now - timedelta(seconds=USED_EVERY_S):
                    self._bearers[id] = structs.replace(token, last_used_at=now), hash

    # the audit

    async def audit(self, wanted: AuditFilter) -> list[Audited]:
        found = [
            one
            for one in reversed(self._audit.values())
            if wanted.by in (None, one.principal)
            and wanted.action in (None, one.action)
            and (wanted.subject is None or wanted.subject in one.subject)
            and (wanted.since is None or one.at >= wanted.since)
            and (wanted.before is None or one.number < wanted.before)
        ]
        return found[: max(0, wanted.limit)]

    async def forget_audit(self, older_than_s: float, most: int = 1000) -> int:
        now = micros(self._utc())
        before = moment(now - (later(now, older_than_s) - now))
        entries = [key for key, one in self._audit.items() if one.at < before][:most]
        for key in entries:
            del self._audit[key]
        tokens = [token for token, _ in self._bearers.values()]
        ends = {token.id: (token.revoked_at, token.expires_at) for token in tokens}
        worthless = [id for id, ats in ends.items() if any(at and at < before for at in ats)][:most]
        for id in worthless:
            del self._bearers[id]
        return len(entries) + len(worthless)

    async def group_lanes(self, group: UUID) -> list[tuple[str, str]]:
        jobs = [row.job for row in self._jobs.values() if row.node and row.node.group == group]
        return sorted({(job.queue, job.kind) for job in jobs})


class _AuditedStore:
    """A store in memory, of which each change leaves an entry of the audit."""

    def __init__(self, store: MemoryAccess, entry: AuditEntry) -> None:
        self._store = store
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        verb: Callable[..., Awaitable[Any]] = getattr(self._store, name)
        if name not in AUDITED:
            return verb

        async def audited(*args: Any, **kwargs: Any) -> Any:
            # Nothing awaits in a verb: both happen at one moment.
            answer = await verb(*args, **kwargs)
            self._store._write_entry(self._entry)
            return answer

        return audited
