"""The claim for lanes of actors' turns: a turn goes to the worker that had its actor last.

It does so if that worker has one of the slots that are offered (`core.placement.kept_slots`). All
other jobs fill what is left, in the slots' order. Claims without such lanes use `CLAIM`.

An idle fleet offers thousands of slots for a few turns. So the slots are read once for each step,
and never for each turn: as the inner side of a join each step would be run again and again.
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
PLACED: Final = """
wish AS MATERIALIZED (
    SELECT w.place, array_agg(w.turn ORDER BY w.turn) AS turns
    FROM slot CROSS JOIN unnest(slot.places) WITH ORDINALITY AS w (place, turn)
    GROUP BY w.place
),
kept AS MATERIALIZED (
    SELECT a.turn, w.turns[a.nth] AS wish, w.place
    FROM (
        SELECT k.turn, k.kept, row_number() OVER (PARTITION BY k.kept ORDER BY k.turn) AS nth
        FROM locked AS k WHERE k.kept IS NOT NULL
    ) AS a
    JOIN wish AS w ON w.place = a.kept
    WHERE a.nth <= cardinality(w.turns)
),
spare AS MATERIALIZED (
    SELECT array_agg(s.place ORDER BY s.turn) AS places
    FROM (
        SELECT w.place, w.turn
        FROM slot CROSS JOIN unnest(slot.places) WITH ORDINALITY AS w (place, turn)
        WHERE w.turn NOT IN (SELECT wish FROM kept)
        ORDER BY w.turn
        LIMIT (SELECT count(*) FROM locked)
    ) AS s
),
placed AS MATERIALIZED (
    SELECT array_agg(p.place ORDER BY p.turn) AS places
    FROM (
        SELECT turn, place FROM kept
        UNION ALL
        SELECT turn, (SELECT places FROM spare)[row_number() OVER (ORDER BY turn)] FROM locked
        WHERE turn NOT IN (SELECT turn FROM kept)
    ) AS p
),"""

CLAIM_KEEPING: Final = CLAIM_FORM.format(
    last=_LAST, also=", l.kept", placing=PLACED, place="(SELECT places FROM placed)[l.turn]"
)
