"""What the PostgreSQL store kept of what attempts said."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from longshore.model.job import LogKind
from longshore.model.log import KeptEntry
from longshore.store.postgres.connections import ConnectionPool, Transaction

_LOGS: Final = """
SELECT token, seq, kind, at, data FROM longshore.log
WHERE job = {named} AND token BETWEEN $2 AND $3 AND (token, seq) > ($4, $5)
ORDER BY token, seq LIMIT $6
"""
_BY_ID: Final = _LOGS.format(named="$1::uuid")
_BY_NUMBER: Final = _LOGS.format(
    named="(SELECT n.id FROM longshore.job_number AS n WHERE n.number = $1::bigint)"
)
_MAX: Final = 2**63 - 1


class PostgresLogs:
    """The verb that reads logs."""

    _reading: ConnectionPool

    async def logs(
        self,
        ref: UUID | int,
        *,
        token: int | None = None,
        after: tuple[int, int] = (0, 0),
        most: int = 1000,
    ) -> list[KeptEntry]:
        """What a job's attempts said, in order."""
        values = (
            ref if isinstance(ref, UUID) else _within(ref),
            _within(after[0]) if token is None else _within(token),
            _MAX if token is None else _within(token),
            _within(after[0]),
            _within(after[1]),
            max(0, _within(most)),
        )
        statement = _BY_ID if isinstance(ref, UUID) else _BY_NUMBER

        async def fetch(tx: Transaction) -> list[KeptEntry]:
            return [
                KeptEntry(
                    row["token"], row["seq"], LogKind(row["kind"]), row["at"], bytes(row["data"])
                )
                for row in await tx.fetch(statement, *values)
            ]

        return await self._reading.run(fetch)


def _within(number: int) -> int:
    return max(-1, min(number, _MAX))
