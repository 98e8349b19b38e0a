"""What the engine needs of a store for tokens and the audit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from longshore.model.access import Audited, AuditEntry, AuditFilter, NewToken, Token
from longshore.model.job import Refused

if TYPE_CHECKING:
    from longshore.ports.store import Store


class AccessStore(Protocol):
    """The verbs of a store about who may ask for what, and who asked."""

    def audited(self, entry: AuditEntry) -> Store:
        """This store, of which each change leaves the entry, in the transaction that makes it.

        The entry is kept once, however many verbs and repeats the request takes. `pump` leaves
        none: who submitted a job is in its options.
        """

    async def create_token(self, new: NewToken, by: str, *, most: int) -> Token | Refused:
        """Keeps a new token. A repeat changes nothing.

        Refused if the id has another hash, a token that is not revoked has the name, or there are
        `most` that are not revoked.
        """

    async def revoke_token(self, id: UUID) -> Token | None:
        """Makes a token worthless; None if there is none. Revoked again, it stays as it was."""

    async def tokens(self) -> list[Token]:
        """All tokens, the oldest first; those too that are worth nothing any more."""

    async def token(self, hash: bytes) -> Token | None:
        """The token with this hash, if it is neither revoked nor expired.

        The store finds it by the beginning of the hash, and compares all of it in constant time.
        """

    async def tokens_used(self, ids: Collection[UUID]) -> None:
        """Notes that these tokens were used; once a minute for each."""

    async def audit(self, wanted: AuditFilter) -> list[Audited]:
        """Entries of the audit, newest first."""

    async def forget_audit(self, older_than_s: float, most: int = 1000) -> int:
        """Removes entries as old as that, and tokens worthless for so long; answers how many."""

    async def group_lanes(self, group: UUID) -> Sequence[tuple[str, str]]:
        """The queue and kind of the jobs of a group, each pair once. It looks at all of them."""
