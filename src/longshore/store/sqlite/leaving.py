"""Jobs that leave the key behind which they waited: how long they did so is added up at once."""

from __future__ import annotations

import sqlite3
from typing import Final

from longshore.model.waited import MOST_STAYS

_THESE: Final = """number IN (SELECT value FROM json_each(?2)) AND blocked_on IS NOT NULL"""
_ADD_UP: Final = f"""INSERT INTO limit_key (key, even_at, waited_us, stays, waited_at)
    SELECT blocked_on, 0, sum(?1 - blocked_at), count(*), ?1 FROM job
    WHERE {_THESE} AND blocked_at IS NOT NULL GROUP BY blocked_on
    ON CONFLICT DO UPDATE SET waited_us = waited_us + excluded.waited_us,
        stays = stays + excluded.stays, waited_at = excluded.waited_at"""
_STAYS: Final = "coalesce(stays, '[]')"
_LEAVE: Final = f"""UPDATE job SET blocked_on = NULL, blocked_at = NULL,
    stays = CASE WHEN blocked_at IS NULL THEN stays ELSE json_insert(
        CASE WHEN json_array_length({_STAYS}) < {MOST_STAYS} THEN {_STAYS}
            ELSE json_remove(stays, '$[0]') END,
        '$[#]', json_array(blocked_on, blocked_at, ?1)) END
    WHERE {_THESE}"""


def leave_keys(connection: sqlite3.Connection, numbers: str, now: int) -> int:
    """Takes jobs, a JSON array of numbers, away from their keys; answers how many were behind one.

    Those that are not behind a key stay as they are: so a repeat adds nothing.
    """
    connection.execute(_ADD_UP, (now, numbers))
    return connection.execute(_LEAVE, (now, numbers)).rowcount
