"""The claim for lanes of actors' turns: a turn goes to the worker that had its actor last.

It does so if that worker has one of the slots that are offered (`core.placement.kept_slots`). All
other jobs fill what is left, in the slots' order. Claims without such lanes use `CLAIM`.
"""

from __future__ import annotations

from typing import Final

from longshore.core.turns import KEPT_FROM, TURN_BYTES
from longshore.store.postgres.sql import CLAIM_FORM

_LAST: Final = f""",
            CASE WHEN j.actor_id IS NOT NULL AND octet_length(j.args) = {TURN_BYTES}
                THEN array_position(
                    $1::uuid[], encode(substr(j.args, {KEPT_FROM + 1}), 'hex')::uuid
                )
            END AS kept"""
_PLACED: Final = """
wish AS (
    SELECT w.turn, w.place, row_number() OVER (PARTITION BY w.place ORDER BY w.turn) AS nth
    FROM slot CROSS JOIN unnest(slot.places) WITH ORDINALITY AS w (place, turn)
),
kept AS (
    SELECT a.turn, w.turn AS wish, w.place
    FROM (
        SELECT k.turn, k.kept, row_number() OVER (PARTITION BY k.kept ORDER BY k.turn) AS nth
        FROM locked AS k WHERE k.kept IS NOT NULL
    ) AS a
    JOIN wish AS w ON w.place = a.kept AND w.nth = a.nth
),
others AS (
    SELECT j.turn, w.place
    FROM (
        SELECT turn, row_number() OVER (ORDER BY turn) AS nth FROM locked
        WHERE turn NOT IN (SELECT turn FROM kept)
    ) AS j
    JOIN (
        SELECT place, row_number() OVER (ORDER BY turn) AS nth FROM wish
        WHERE turn NOT IN (SELECT wish FROM kept)
    ) AS w ON w.nth = j.nth
),
placed AS (
    SELECT k.tid, k.turn, p.place FROM locked AS k
    JOIN (SELECT turn, place FROM kept UNION ALL SELECT turn, place FROM others) AS p
        ON p.turn = k.turn
),"""

CLAIM_KEEPING: Final = CLAIM_FORM.format(
    last=_LAST, also=", l.kept", placing=_PLACED, placed="placed", place="l.place"
)
