"""Which versions of a fileset are old: more than so many are newer, and they have some age.

The newest version that is not partial always stays, as its name alone stands for it. What live jobs
and groups may need, stores keep whatever is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Known(NamedTuple):
    """A version of a fileset."""

    version: int
    is_partial: bool
    age_s: float


def old_versions(versions: Iterable[Known], keep: int, older_s: float) -> list[int]:
    """The versions that may go, newest first: all but `keep`, if they are so old."""
    newest = sorted(versions, key=lambda one: -one.version)
    whole = next((one.version for one in newest if not one.is_partial), None)
    return [
        one.version
        for one in newest[max(0, keep) :]
        if one.age_s >= older_s and one.version != whole
    ]
