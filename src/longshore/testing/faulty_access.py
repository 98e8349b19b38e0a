"""The verbs of `FaultyStore` about tokens and the audit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from copy import copy
from typing import TypeVar
from uuid import UUID

from longshore.model.access import Audited, AuditEntry, AuditFilter, NewToken, Token
from longshore.model.job import Refused
from longshore.ports import Store

Answer = TypeVar("Answer")
Self = TypeVar("Self", bound="FaultyAccess")


class FaultyAccess:
    """Calls the store, with faults."""

    store: Store

    @abstractmethod
    async def _call(self, verb: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to one call of a verb, or the fault in its place."""

    def audited(self: Self, entry: AuditEntry) -> Self:
        """The same faults, on a store whose changes leave this entry."""
        faulty = copy(self)
        faulty.store = self.store.audited(entry)
        return faulty

    async def create_token(self, new: NewToken, by: str, *, most: int) -> Token | Refused:
        return await self._call("create_token", lambda: self.store.create_token(new, by, most=most))

    async def revoke_token(self, id: UUID) -> Token | None:
        return await self._call("revoke_token", lambda: self.store.revoke_token(id))

    async def tokens(self) -> list[Token]:
        return await self._call("tokens", self.store.tokens)

    async def token(self, hash: bytes) -> Token | None:
        return await self._call("token", lambda: self.store.token(hash))

    async def tokens_used(self, ids: Collection[UUID]) -> None:
        await self._call("tokens_used", lambda: self.store.tokens_used(ids))

    async def audit(self, wanted: AuditFilter) -> list[Audited]:
        return await self._call("audit", lambda: self.store.audit(wanted))

    async def forget_audit(self, older_than_s: float, most: int = 1000) -> int:
        return await self._call("forget_audit", lambda: self.store.forget_audit(older_than_s, most))

    async def group_lanes(self, group: UUID) -> Sequence[tuple[str, str]]:
        return await self._call("group_lanes", lambda: self.store.group_lanes(group))
