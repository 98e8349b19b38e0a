"""The fields that actors are listed by, on SQLite. A row is written when a value changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from longshore.store.rows import clean
from longshore.store.sqlite.sql import Bulk, Lookup, Row
from longshore.store.sqlite.transaction import Transaction

_OF: Final = Lookup(
    """SELECT json_group_array(json_array(f.actor, f.field, f.value))
    FROM {rows} AS v CROSS JOIN listed_field AS f ON f.actor = v.column1""",
    1,
    tuple[int, str, str],
)
_SET: Final = Bulk(
    """INSERT OR REPLACE INTO listed_field (actor, type, field, value, key)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL""",
    5,
)
_DROP: Final = Bulk(
    """DELETE FROM listed_field WHERE (actor, field) IN (
        SELECT column1, column2 FROM {rows} WHERE column1 IS NOT NULL)""",
    2,
)

Listed = tuple[int, tuple[str, str], Mapping[str, str]]
"""The number of an actor, its type and key, and its fields with their values."""


def keep_listed(tx: Transaction, actors: Sequence[Listed]) -> None:
    """Lists these actors by these fields, and by no others."""
    if not actors:
        return
    found = _OF.find(tx.connection, [(number,) for number, _, _ in actors])
    before = {(actor, field): value for actor, field, value in found}
    changed = list[Row]()
    for number, (type, key), fields in actors:
        for name, text in fields.items():
            field, value = clean(name), clean(text)
            if before.pop((number, field), None) != value:
                changed.append((number, type, field, value, key))
    _DROP.run(tx.connection, list(before))
    _SET.run(tx.connection, changed)
