"""One plain success by itself on PostgreSQL, with the one job that it may let start.

Theory. `END_PLAIN` (see `plain_ends`) is made for many ends. For a single one, a step of a chain, a
third of its time goes to begin and end parts that sort, group and number what is one row. `END_ONE`
does the same, by the same rules and with the same order of locks, for one end that at most one job
depends on. It leaves alone what `END_PLAIN` leaves alone, and also the end of a job that more than
one other depends on: then it answers nothing, and `END_PLAIN` follows.

Jobs that end one by one are mostly alike. So after such an answer the pump tries no single end here
for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import asyncpg

from longshore.core.placement import slots_in_order
from longshore.model.attempt import Attempt
from longshore.model.ends import Succeeded
from longshore.model.group import GroupState
from longshore.model.worker import SessionKey
from longshore.store.postgres.cursors import ClaimCursors
from longshore.store.postgres.plain_ends import (
    IS_PLAIN,
    MAY_RUN,
    NOT_RUN_KINDS,
    EndedAlone,
)
from longshore.store.postgres.settling import Starts
from longshore.store.postgres.sql import (
    CAN_TAKE,
    LEFT_S,
    MOST_ENTRIES,
    started_or_ready,
    succeeded,
)
from longshore.store.postgres.start_rules import may_start
from longshore.store.postgres.states import GROUP_CODES, RUNNING, SUCCEEDED, WAITING
from longshore.store.rows import unpack_options

_HAS_ONE_CHILD: Final = """(SELECT count(*) FROM (
                SELECT FROM longshore.edge AS e WHERE e.parent = i.job LIMIT 2
            ) AS e) < 2"""
_CHILD: Final = "(SELECT e.child FROM longshore.edge AS e WHERE e.parent = j.id LIMIT 1) AS child"
_CAN_TAKE: Final = CAN_TAKE.format(
    worker="($7::uuid[])[m.place]", session="($8::bigint[])[m.place]", dispatcher="$9::uuid"
)

END_ONE: Final = f"""
WITH ended AS (
    {succeeded(f"{IS_PLAIN} AND {_HAS_ONE_CHILD}", f"j.id, j.lane, j.group_id, {_CHILD}", one=True)}
),
grouped AS MATERIALIZED (
    SELECT g.id, g.state = {GROUP_CODES[GroupState.RUNNING]} AND g.ctid = g.seen AS is_running,
        i.child
    FROM ended AS i
    CROSS JOIN LATERAL (
        SELECT r.id, r.state, r.ctid, (
            SELECT o.ctid FROM longshore.job_group AS o WHERE o.id = i.group_id
        ) AS seen
        FROM longshore.job_group AS r WHERE r.id = i.group_id FOR SHARE
    ) AS g
),
counted AS (
    UPDATE longshore.node AS n
    SET unmet = greatest(0, n.unmet - 1)
    WHERE n.job = (SELECT child FROM grouped WHERE is_running)
    RETURNING n.job, n.unmet, n.marks, n.condition, n.delay_s, n.expires_s
),
met AS MATERIALIZED (
    SELECT n.job, n.expires_s, l.*,
        ($6::integer[])[array_position($5::bigint[], l.lane)] AS place
    FROM counted AS n
    CROSS JOIN LATERAL (
        SELECT ctid AS tid, lane, queue, kind, history_length, concurrency_key FROM longshore.job
        WHERE id = n.job AND CASE WHEN state = {WAITING} AND kind NOT IN ({NOT_RUN_KINDS})
            THEN coalesce(run_at <= statement_timestamp(), n.delay_s IS NULL) END
        OFFSET 0
    ) AS l
    WHERE {MAY_RUN}
),
held AS MATERIALIZED (
    SELECT m.job, m.tid, m.history_length, m.expires_s, CASE
        WHEN w.id IS NOT NULL AND m.history_length < {MOST_ENTRIES - 1}
            AND m.concurrency_key IS NULL AND {may_start("m.queue", "m.kind")}
        THEN m.place END AS slot
    FROM met AS m
    LEFT JOIN LATERAL (
        SELECT w.id FROM longshore.worker AS w WHERE {_CAN_TAKE} FOR KEY SHARE SKIP LOCKED
    ) AS w ON true
),
woken AS (
    UPDATE longshore.job AS j
    SET {started_or_ready("h.slot", "h.expires_s", "$7", "$8", "$10")}
    FROM held AS h
    WHERE j.ctid = h.tid AND j.id = h.job AND j.state = {WAITING}
        AND j.history_length = h.history_length
    RETURNING h.slot, j.lane, j.state, ~j.priority AS urgency, j.rank, j.id, j.number, j.token,
        j.kind, CASE WHEN h.slot IS NOT NULL THEN j.args END AS args, j.options, j.attempt,
        j.failures, j.crashes, {LEFT_S} AS left_s, j.round
),
noted AS (
    INSERT INTO longshore.unsettled (job, is_early)
    SELECT e.id, g.is_running FROM ended AS e CROSS JOIN grouped AS g
    WHERE CASE WHEN g.is_running
        THEN EXISTS (SELECT FROM counted WHERE unmet = 0) AND NOT EXISTS (SELECT FROM woken)
        ELSE true END
    RETURNING job
),
summed AS (
    INSERT INTO longshore.group_count (group_id, ended, failed, cancelled)
    SELECT id, 1, 0, 0 FROM grouped
),
tallied AS (
    INSERT INTO longshore.tally (lane, state, delta)
    SELECT m.lane, s.state, s.sign
    FROM (
        SELECT lane, {RUNNING} AS was, {SUCCEEDED} AS state FROM ended
        UNION ALL
        SELECT lane, {WAITING}, state FROM woken
    ) AS m
    CROSS JOIN LATERAL (VALUES (m.was, -1), (m.state, 1)) AS s (state, sign)
)
SELECT e.group_id, e.child IS NULL AS is_last, EXISTS (SELECT FROM noted) AS is_noted,
    w.slot, w.lane, w.urgency, w.rank, w.id, w.number, w.token, w.kind, w.args, w.options,
    w.attempt, w.failures, w.crashes, w.left_s, w.round
FROM ended AS e LEFT JOIN woken AS w ON true
"""
"""Ends a job, counts the one that depends on it down, and starts that if it waits for nothing more.

Its parameters are the id, the token, the result and how long it ran; lanes, and for each the place
of the session that has a slot for it; workers and sessions, the dispatcher, and the margin of an
attempt's expiry. It answers one row, or none if it did nothing.
"""


class PlainEnd:
    """An end for `END_ONE`, with slots for what depends on it."""

    def __init__(self, end: Succeeded, starts: Starts) -> None:
        self._end = end
        self._starts = starts
        self._sessions: list[SessionKey] = []

    def columns(self) -> list[object]:
        """The parameters of the statement."""
        end, starts, sessions = self._end, self._starts, self._sessions
        places: dict[int, int] = {}
        for some in starts.offered if starts.max_bytes > 0 else ():
            if slots := slots_in_order(some.workers, 1):
                sessions += slots
                for lane in some.lanes:
                    places.setdefault(lane, len(sessions))
        return [
            *(end.job, end.token, end.result, end.ran_s),
            list(places),
            list(places.values()),
            [slot.worker for slot in sessions],
            [slot.session for slot in sessions],
            starts.dispatcher,
            starts.expiry_margin_s,
        ]

    def read(self, rows: Sequence[asyncpg.Record], cursors: ClaimCursors) -> EndedAlone:
        """What the row of the statement says."""
        [row] = rows
        done = EndedAlone()
        done.succeed(0, self._end)
        group, is_last, is_noted, place, lane, urgency, rank, id, number, token, *more = row
        if group is not None:
            done.ended_groups, done.noted = True, int(is_noted)
            done.awaited = int(not is_last)
            if is_last or is_noted:
                done.groups.add(group)
        if id is None:
            return done
        if place is None:
            done.ready[lane] += 1
            cursors.put_back(lane, urgency, (rank, number))
            return done
        kind, args, options, begun, failures, crashes, left_s, round = more
        tried = begun, failures, crashes, False, ~urgency, left_s, round
        job = id, number, token, kind, args, unpack_options(options)
        slot = self._sessions[place - 1]
        done.dependents.append(Attempt(*job, slot.worker, slot.session, *tried))
        return done
