"""The schema's history: numbered steps forward, one folder of SQL files for each kind of store.

A file is named `0001_initial.sql`: its number is the version that the schema has after it. A step
that was released never changes: add a new one.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from longshore.errors import SchemaMismatch


@cache
def steps(dialect: str) -> list[tuple[int, str]]:
    """Every step of a dialect ("sqlite" or "postgres"), in order: its version and its SQL."""
    folder = files(__name__) / dialect
    found = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted((int(file.name.split("_", 1)[0]), file.read_text("utf-8")) for file in found)


def latest(dialect: str) -> int:
    """The version that this Longshore works with."""
    return steps(dialect)[-1][0]


def check(found: int | None, dialect: str, where: str) -> None:
    """Raises unless a store's schema is this version's; `found` is None if there is no schema."""
    wanted = latest(dialect)
    if found is None:
        raise SchemaMismatch(f"{where} holds no Longshore schema; run `longshore migrate` first")
    if found < wanted:
        raise SchemaMismatch(
            f"{where} has schema version {found}, this Longshore works with {wanted}; "
            "run `longshore migrate`"
        )
    refuse_newer(found, dialect, where)


def refuse_newer(found: int, dialect: str, where: str) -> None:
    """Raises if a store's schema is newer than this version's: there is no way back."""
    wanted = latest(dialect)
    if found > wanted:
        raise SchemaMismatch(
            f"{where} has schema version {found}, made by a newer Longshore; this one works with "
            f"{wanted}: upgrade it"
        )
