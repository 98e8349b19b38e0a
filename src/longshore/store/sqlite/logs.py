"""What the SQLite store kept of what attempts said."""

from __future__ import annotations

import sqlite3
from typing import Final
from uuid import UUID

from longshore.model.job import LogKind
from longshore.model.log import KeptEntry
from longshore.store.rows import moment

_LOGS: Final = """SELECT token, seq, kind, at, data FROM log
    WHERE job = (SELECT number FROM job WHERE {named})
        AND token BETWEEN :least AND :most_token AND (token, seq) > (:token, :seq)
    ORDER BY token, seq LIMIT :most"""
_BY_ID: Final = _LOGS.format(named="id = :ref")
_BY_NUMBER: Final = _LOGS.format(named="number = :ref")
_MAX: Final = 2**63 - 1


def logs(
    connection: sqlite3.Connection,
    ref: UUID | int,
    token: int | None,
    after: tuple[int, int],
    most: int,
) -> list[KeptEntry]:
    """The entries of a job behind a place, in the order of tokens and numbers."""
    values = {
        "ref": ref.bytes if isinstance(ref, UUID) else _within(ref),
        "least": _within(after[0]) if token is None else _within(token),
        "most_token": _MAX if token is None else _within(token),
        "token": _within(after[0]),
        "seq": _within(after[1]),
        "most": max(0, _within(most)),
    }
    rows = connection.execute(_BY_ID if isinstance(ref, UUID) else _BY_NUMBER, values)
    return [
        KeptEntry(token, seq, LogKind(kind), moment(at), bytes(data))
        for token, seq, kind, at, data in rows
    ]


def _within(number: int) -> int:
    return max(-1, min(number, _MAX))
