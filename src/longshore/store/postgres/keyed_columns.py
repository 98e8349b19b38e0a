"""What jobs with limits or fair keys have beside, in the statement that inserts jobs."""

from __future__ import annotations

from typing import Final

from longshore.core.fairness import NEW
from longshore.store.postgres.states import READY

KEYED: Final = {
    "keys": ("concurrency_key", "text"),
    "behind": ("blocked_on", "text"),
    "crowd": ("crowd", "text"),
    "fair": ("fair", "text"),
}
"""The parameters of such jobs: their columns and types."""
_RANKED: Final = KEYED | {"rank": ("rank", "bigint")}
_BEHIND: Final = f"""CASE WHEN n.state = {READY} OR n.behind = '{NEW}' THEN n.behind END,
        CASE WHEN n.state = {READY} AND n.behind <> '{NEW}' THEN statement_timestamp() END"""
"""SQL for the key behind which a new job, n, goes, and since when it is there.

A job that has no turn among fair keys yet may be behind that mark before it is ready.
"""

Parts = tuple[str, str, str, str]
"""The parameters, their names, the columns beyond the usual ones, and what goes into these."""


def with_keys(parts: Parts, first: int, *, ranked: bool) -> Parts:
    """The same parts with what is `KEYED`, whose parameters begin with number `first`."""
    own, names, columns, values = parts
    given = _RANKED if ranked else KEYED
    for number, (name, (column, of)) in enumerate(given.items(), first):
        is_behind = name == "behind"
        own, names = f"{own}, ${number}::{of}[]", f"{names}, {name}"
        columns = f"{columns}, {column}{', blocked_at' * is_behind}"
        values = f"{values}, {_BEHIND if is_behind else f'n.{name}'}"
    return own, names, columns, values
