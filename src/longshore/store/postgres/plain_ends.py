"""Plain successes as one statement on PostgreSQL, with the jobs that these let start.

Theory. The general way of a batch with ends of groups takes five round trips: BEGIN, the ends, the
nodes that they reach, what becomes of these, COMMIT. Nearly all ends are successes, and nearly all
that depends on them wants no more than that all succeed. For those there is nothing to decide (see
`core.dependencies`): a node that heard of nothing bad and waits for nothing more may run. So
`END_PLAIN` does all of it in a transaction of its own. It leaves every end alone that has more to
do, and the pump takes those the general way.

The order of locks is that of `groups_sql`: jobs that workers own, rows of groups, nodes, jobs that
wait, each kind by id. Each part reads all rows of the part before it through a sort, so it takes no
lock before the other has all of its own. What differs is that all parts see the database as it was
when the statement began, except for rows that they lock or update: of these they see the newest.
So

- counters change by the key of their node, relative to what they are at that moment;
- the group's row is locked, though shared: a pause or a cancel comes before that, and is seen, or
  after the commit, and then its sweep sees what started. If a group does not run any more, its ends
  are noted in `unsettled` instead;
- a client may have added jobs that depend on those that end here. Then the group's row is not the
  one that the statement saw when it began, and the ends are noted, too;
- a node that waits for nothing more, but whose job was not started, changed in between. Nobody else
  would look at it again: the group is swept. Two that ask for this at once wait for each other. The
  server ends one of them, and that one goes the general way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Final
from uuid import UUID

import asyncpg

from longshore.core.placement import slots_in_order
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Succeeded
from longshore.model.group import NOT_RUN, Condition, GroupState
from longshore.model.job import Ended, Finished, JobState, Verdict
from longshore.model.worker import OpenSlots, SessionKey
from longshore.store.postgres.cursors import ClaimCursors
from longshore.store.postgres.finish import finish_columns, outcomes
from longshore.store.postgres.settling import MOST_REACHED, Starts
from longshore.store.postgres.sql import (
    FINISH,
    LEFT_S,
    MAY_TAKE,
    MOST_ENTRIES,
    OF_TOKEN,
    started_or_ready,
)
from longshore.store.postgres.start_rules import may_start
from longshore.store.postgres.states import CONDITIONS, GROUP_CODES, RUNNING, STATES, WAITING
from longshore.store.rows import INT64, unpack_options

MOST_LANES: Final = 64
"""With more lanes than these the general way costs less than to send them all."""
MORE_SLOTS: Final = 64
"""How many more dependents than ends may start."""

_NOT_RUN: Final = ", ".join(f"'{kind}'" for kind in sorted(NOT_RUN))
_IS_PLAIN: Final = f"""CASE WHEN watched THEN false WHEN group_id IS NULL THEN true
            WHEN state = {RUNNING} THEN i.job <> ALL (ARRAY(SELECT parent FROM busy)) AND EXISTS (
                SELECT FROM longshore.node AS n
                WHERE n.job = i.job AND n.scope IS NULL AND n.open = 0
            )
            ELSE false END"""
"""SQL for whether an end has no more to do than to count down nodes and to start their jobs."""

_PLACE: Final = "($26::integer[])[($25::integer[])[m.offer] + m.turn]"
"""SQL for the session on whose slot a job would start."""

END_PLAIN: Final = f"""
WITH near AS MATERIALIZED (
    SELECT i.parent, l.child
    FROM unnest($1::uuid[]) AS i (parent)
    CROSS JOIN LATERAL (
        SELECT child FROM longshore.edge WHERE parent = i.parent LIMIT {MOST_REACHED + 1}
    ) AS l
),
odd AS MATERIALIZED (
    SELECT c.child
    FROM (SELECT DISTINCT child FROM near) AS c
    CROSS JOIN LATERAL (
        SELECT marks, condition, delay_s FROM longshore.node WHERE job = c.child OFFSET 0
    ) AS n
    CROSS JOIN LATERAL (
        SELECT state, run_at, kind FROM longshore.job WHERE id = c.child OFFSET 0
    ) AS j
    WHERE n.marks <> 0 OR n.condition <> {CONDITIONS[Condition.SUCCEEDED]}
        OR n.delay_s IS NOT NULL OR j.state <> {WAITING} OR j.run_at IS NOT NULL
        OR j.kind IN ({_NOT_RUN})
),
busy AS MATERIALIZED (
    SELECT parent FROM near WHERE child = ANY (ARRAY(SELECT child FROM odd))
    UNION ALL
    SELECT parent FROM near GROUP BY parent HAVING count(*) > {MOST_REACHED}
),
ended AS (
    {
    FINISH.replace(OF_TOKEN, f"{OF_TOKEN} AND {_IS_PLAIN}")
    .replace("RETURNING", "RETURNING j.id,")
    .strip()
}
),
reached AS MATERIALIZED (
    SELECT e.group_id, l.child, count(*)::integer AS ended
    FROM ended AS e
    CROSS JOIN LATERAL (
        SELECT child FROM longshore.edge WHERE parent = e.id AND e.group_id IS NOT NULL OFFSET 0
    ) AS l
    GROUP BY e.group_id, l.child
    ORDER BY l.child
),
grouped AS MATERIALIZED (
    SELECT g.id, g.state = {GROUP_CODES[GroupState.RUNNING]} AND g.ctid = g.seen AS is_running,
        i.ended
    FROM (
        SELECT group_id, count(*) AS ended FROM ended
        WHERE group_id IS NOT NULL GROUP BY group_id ORDER BY group_id
    ) AS i
    CROSS JOIN LATERAL (
        SELECT r.id, r.state, r.ctid, (
            SELECT o.ctid FROM longshore.job_group AS o WHERE o.id = i.group_id
        ) AS seen
        FROM longshore.job_group AS r WHERE r.id = i.group_id FOR SHARE
    ) AS g
),
counted AS (
    UPDATE longshore.node AS n
    SET unmet = greatest(0, n.unmet - c.ended)
    FROM (
        SELECT child, ended FROM reached
        WHERE group_id = ANY (ARRAY(SELECT id FROM grouped WHERE is_running))
        ORDER BY child OFFSET 0
    ) AS c
    WHERE n.job = c.child
    RETURNING n.job, n.unmet, n.marks, n.expires_s, n.group_id
),
may AS MATERIALIZED (
    SELECT {MAY_TAKE.format(workers="$27", sessions="$28", dispatcher="$29")} AS slots
),
met AS MATERIALIZED (
    SELECT m.*, row_number() OVER (PARTITION BY m.offer ORDER BY m.urgency, m.rank, m.number)
            AS turn,
        sum(m.size) OVER (
            ORDER BY m.urgency, m.rank, m.number ROWS UNBOUNDED PRECEDING
        ) - m.size AS before
    FROM (
        SELECT n.job, n.expires_s, l.*,
            ($24::integer[])[array_position($23::bigint[], l.lane)] AS offer
        FROM counted AS n
        CROSS JOIN LATERAL (
            SELECT lane, queue, ~priority AS urgency, rank, number, octet_length(args) AS size,
                history_length
            FROM longshore.job WHERE id = n.job OFFSET 0
        ) AS l
        WHERE n.unmet = 0 AND n.marks = 0
    ) AS m
),
held AS MATERIALIZED (
    SELECT m.job, m.expires_s, CASE
        WHEN m.turn <= ($25::integer[])[m.offer + 1] - ($25::integer[])[m.offer]
            AND m.before < $31 AND m.history_length < {MOST_ENTRIES - 1}
            AND (SELECT slots FROM may)[{_PLACE}] AND {may_start("m.queue")}
        THEN {_PLACE} END AS slot
    FROM met AS m
    ORDER BY m.job
),
woken AS (
    UPDATE longshore.job AS j
    SET {started_or_ready("h.slot", "h.expires_s", "$27", "$28", "$30")}
    FROM held AS h
    WHERE j.id = h.job AND CASE WHEN j.state = {WAITING} THEN true END
    RETURNING j.group_id, h.slot, j.lane, j.state, ~j.priority AS urgency, j.rank, j.id, j.number,
        j.token, j.kind, CASE WHEN h.slot IS NOT NULL THEN j.args END AS args, j.options,
        j.attempt, j.failures, j.crashes, {LEFT_S} AS left_s, j.round
),
asked AS (
    UPDATE longshore.job_group AS g SET sweep_from = 0, sweep_again = true
    WHERE g.id = ANY (ARRAY(
        SELECT group_id FROM counted
        WHERE unmet = 0 AND (SELECT count(*) FROM woken) < (
            SELECT count(*) FROM counted WHERE unmet = 0
        )
    ))
    RETURNING g.id
),
noted AS (
    INSERT INTO longshore.unsettled (job)
    SELECT id FROM ended
    WHERE group_id <> ALL (ARRAY(SELECT id FROM grouped WHERE is_running))
),
summed AS (
    INSERT INTO longshore.group_count (group_id, ended, failed, cancelled)
    SELECT id, ended, 0, 0 FROM grouped
),
tallied AS (
    INSERT INTO longshore.tally (lane, state, delta)
    SELECT lane, state, sum(delta) FROM (
        SELECT lane, was AS state, -1 AS delta FROM ended
        UNION ALL
        SELECT lane, state, 1 FROM ended
        UNION ALL
        SELECT lane, {WAITING}, -1 FROM woken
        UNION ALL
        SELECT lane, state, 1 FROM woken
    ) AS moved
    GROUP BY lane, state
)
SELECT e.place, e.group_id, CASE
        WHEN e.group_id = ANY (ARRAY(SELECT id FROM grouped WHERE is_running))
        THEN NOT EXISTS (SELECT FROM longshore.edge WHERE parent = e.id)
        ELSE e.group_id IS NOT NULL END AS has_more,
    e.was, e.state, {", ".join(["NULL"] * 15)}
FROM ended AS e
UNION ALL
SELECT NULL, w.group_id, NULL, NULL, w.state, w.slot, w.lane, w.urgency, w.rank, w.id, w.number,
    w.token, w.kind, w.args, w.options, w.attempt, w.failures, w.crashes, w.left_s, w.round
FROM woken AS w
UNION ALL
SELECT NULL, id, true, {", ".join(["NULL"] * 17)} FROM asked
"""
"""Ends jobs, counts their dependents down, and starts those that wait for nothing more.

After the columns of `FINISH`: lanes and for each the offer that it has slots of; for each offer the
place before its first slot, and the place of the last; for each slot the place of its session;
workers and sessions, the dispatcher, the margin of an attempt's expiry, and how many bytes may
start. It answers each end with its group, if that may be over or has more to settle, then the jobs
that it started or made ready, then the groups to sweep.
"""


def may_be_plain(ends: Sequence[End], offered: Sequence[OpenSlots]) -> bool:
    """Whether these ends, with slots for what depends on them, are worth the statement."""
    lanes = sum(len(some.lanes) for some in offered)
    return lanes <= MOST_LANES and all(map(_is_plain, ends))


def _is_plain(end: End) -> bool:
    return isinstance(end, Succeeded) and not end.outbox and end.token in INT64


class EndedAlone:
    """What a statement did that ends attempts in a transaction of its own."""

    def __init__(self) -> None:
        self.answers: dict[int, Finished] = {}
        """By the place of the end in the batch."""
        self.ended: list[Ended] = []
        self.ready: Counter[int] = Counter()
        self.dependents: list[Attempt] = []
        self.groups: set[UUID] = set()
        """The groups that may be over, or have more to settle."""

    def end(self, place: int, end: End, was: int, state: JobState) -> None:
        """The end in this place was recorded."""
        self.ended += outcomes(end, was, state)
        self.answers[place] = Finished(end.job, end.token, Verdict.RECORDED, state)

    def succeed(self, place: int, end: Succeeded) -> None:
        """The success in this place was recorded."""
        state = JobState.SUCCEEDED
        self.ended.append(Ended(end.job, state, end.result))
        self.answers[place] = Finished(end.job, end.token, Verdict.RECORDED, state)


class PlainEnds:
    """Ends for `END_PLAIN`, with slots for what depends on them."""

    def __init__(self, ends: Sequence[End], starts: Starts) -> None:
        self.ended_groups = False
        """Whether some of the ended jobs are of groups."""
        self._ends = ends
        self._starts = starts
        self._sessions: dict[SessionKey, int] = {}

    def columns(self) -> list[object]:
        """The parameters of the statement."""
        starts, known = self._starts, self._sessions
        offers: dict[int, int] = {}
        bounds, places = [0], list[int]()
        for number, some in enumerate(starts.offered, 1):
            for lane in some.lanes:
                offers.setdefault(lane, number)
            slots = slots_in_order(some.workers, len(self._ends) + MORE_SLOTS)
            places += [known.setdefault(slot, len(known) + 1) for slot in slots]
            bounds.append(len(places))
        return [
            *finish_columns(self._ends, isolate_bad_items=False),
            list(offers),
            list(offers.values()),
            bounds,
            places,
            [slot.worker for slot in known],
            [slot.session for slot in known],
            starts.dispatcher,
            starts.expiry_margin_s,
            starts.max_bytes,
        ]

    def read(self, rows: Sequence[asyncpg.Record], cursors: ClaimCursors) -> EndedAlone:
        """What the rows of the statement say."""
        done = EndedAlone()
        woken = []
        for row in rows:
            place, group, has_more, was, state, *_ = row
            if place is not None:
                done.end(place - 1, self._ends[place - 1], was, STATES[state])
                self.ended_groups = self.ended_groups or group is not None
            elif state is not None:
                woken.append(row)
            if has_more:
                done.groups.add(group)
        self._wake(sorted(woken, key=_order), done, cursors)
        return done

    def _wake(
        self, rows: Sequence[asyncpg.Record], done: EndedAlone, cursors: ClaimCursors
    ) -> None:
        sessions = list(self._sessions)
        for row in rows:
            _, _, _, _, _, place, lane, urgency, rank, id, number, token, *more = row
            if place is None:
                done.ready[lane] += 1
                cursors.put_back(lane, urgency, (rank, number))
                continue
            kind, args, options, begun, failures, crashes, left_s, round = more
            tried = begun, failures, crashes, False, ~urgency, left_s, round
            job = id, number, token, kind, args, unpack_options(options)
            slot = sessions[place - 1]
            done.dependents.append(Attempt(*job, slot.worker, slot.session, *tried))


_order = itemgetter(7, 8, 10)
"""The urgency, rank and number of a job in such a row."""
