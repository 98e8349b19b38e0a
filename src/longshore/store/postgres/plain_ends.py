"""Plain successes as one statement on PostgreSQL, with the jobs that these let start.

Theory. The general way of a batch with ends of groups takes five round trips: BEGIN, the ends, the
nodes that they reach, what becomes of these, COMMIT. Nearly all ends are successes that bring only
a result, and a success only ever counts a node down (see `core.dependencies`). There is something
to decide when a node waits for nothing more, and nearly always it may run. So `END_PLAIN` ends the
jobs, counts nodes down and starts their jobs in a transaction of its own. What else there may be to
do, it leaves to others:

- the end of a job in a scope, or with an open one, or that an actor watches, it leaves alone. The
  pump takes that one the general way;
- a job with more than `MOST_REACHED` dependents it notes in `unsettled`, as others do that end a
  job without telling anybody;
- if a node waits for nothing more and its job did not start (it is delayed, or a map, it heard of a
  skip, it wants a failure, or its job changed a moment ago), the statement notes a job that the
  node depended on, as early: `settle` looks at all that depends on that job once more, and counts
  nothing down.

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
- a job that changed in between does not start, and the node is looked at once more, as above.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Final
from uuid import UUID

import asyncpg

from longshore.core.placement import workers_in_order
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Succeeded
from longshore.model.group import NOT_RUN, Condition, GroupState
from longshore.model.job import Ended, Finished, JobState, Verdict
from longshore.model.worker import OpenSlots, SessionKey
from longshore.store.postgres.cursors import ClaimCursors
from longshore.store.postgres.finish import only_results, outcomes, success_columns
from longshore.store.postgres.settling import MOST_REACHED, Starts
from longshore.store.postgres.sql import (
    LEFT_S,
    MAY_TAKE,
    MOST_ENTRIES,
    started_or_ready,
    succeeded,
)
from longshore.store.postgres.start_rules import may_start
from longshore.store.postgres.states import CONDITIONS, GROUP_CODES, RUNNING, SUCCEEDED, WAITING
from longshore.store.rows import INT64, unpack_options

MOST_LANES: Final = 64
"""With more lanes than these the general way costs less than to send them all."""
MORE_SLOTS: Final = 64
"""How many more dependents than ends may start, at least."""
MOST_OWED: Final = 1_000
"""How many more may start at most, because of earlier ends."""

NOT_RUN_KINDS: Final = ", ".join(f"'{kind}'" for kind in sorted(NOT_RUN))
"""SQL for the kinds of jobs that no worker runs."""
IS_PLAIN: Final = """watched IS NULL AND (group_id IS NULL OR EXISTS (
                SELECT FROM longshore.node AS n
                WHERE n.job = i.job AND n.scope IS NULL AND n.open = 0
            ))"""
"""SQL for whether an end may be plain, of i.job and the row of the job."""
_CHILDREN: Final = f"""CASE WHEN j.group_id IS NOT NULL THEN ARRAY(
        SELECT e.child FROM longshore.edge AS e WHERE e.parent = j.id
        ORDER BY e.child LIMIT {MOST_REACHED + 1}
    ) END AS children"""
MAY_RUN: Final = f"""n.unmet = 0 AND CASE n.condition
            WHEN {CONDITIONS[Condition.SUCCEEDED]} THEN n.marks = 0
            WHEN {CONDITIONS[Condition.ENDED]} THEN true
        END"""
"""SQL for whether a node lets its job run, as `core.dependencies.decide` says it."""

_PLACE: Final = "($9::integer[])[($8::integer[])[m.offer] + m.turn]"
"""SQL for the session on whose slot a job would start."""

END_PLAIN: Final = f"""
WITH ended AS (
    {succeeded(IS_PLAIN, f"n.place, j.id, j.lane, j.group_id, {_CHILDREN}")}
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
        SELECT l.child, count(*)::integer AS ended
        FROM (
            SELECT unnest(children) AS child FROM ended
            WHERE group_id = ANY (ARRAY(SELECT id FROM grouped WHERE is_running))
                AND cardinality(children) <= {MOST_REACHED}
        ) AS l
        GROUP BY l.child ORDER BY l.child OFFSET 0
    ) AS c
    WHERE n.job = c.child
    RETURNING n.job, n.unmet, n.marks, n.condition, n.delay_s, n.expires_s
),
may AS MATERIALIZED (
    SELECT {MAY_TAKE.format(workers="$10", sessions="$11", dispatcher="$12")} AS slots
),
met AS MATERIALIZED (
    SELECT m.*, row_number() OVER (PARTITION BY m.offer ORDER BY m.urgency, m.rank, m.number)
            AS turn,
        sum(m.size) OVER (
            ORDER BY m.urgency, m.rank, m.number ROWS UNBOUNDED PRECEDING
        ) - m.size AS before
    FROM (
        SELECT n.job, n.expires_s, l.*,
            ($7::integer[])[array_position($6::bigint[], l.lane)] AS offer
        FROM counted AS n
        CROSS JOIN LATERAL (
            SELECT ctid AS tid, lane, queue, kind, ~priority AS urgency, rank, number,
                octet_length(args) AS size, history_length, concurrency_key
            FROM longshore.job
            WHERE id = n.job AND CASE WHEN state = {WAITING} AND kind NOT IN ({NOT_RUN_KINDS})
                THEN coalesce(run_at <= statement_timestamp(), n.delay_s IS NULL) END
            OFFSET 0
        ) AS l
        WHERE {MAY_RUN}
    ) AS m
),
held AS MATERIALIZED (
    SELECT m.job, m.tid, m.history_length, m.expires_s, CASE
        WHEN m.turn <= ($8::integer[])[m.offer + 1] - ($8::integer[])[m.offer]
            AND m.concurrency_key IS NULL AND m.before < $14
            AND m.history_length < {MOST_ENTRIES - 1}
            AND (SELECT slots FROM may)[{_PLACE}] AND {may_start("m.queue", "m.kind")}
        THEN {_PLACE} END AS slot
    FROM met AS m
    ORDER BY m.job
),
woken AS (
    UPDATE longshore.job AS j
    SET {started_or_ready("h.slot", "h.expires_s", "$10", "$11", "$13")}
    FROM held AS h
    WHERE j.ctid = h.tid AND j.id = h.job AND j.state = {WAITING}
        AND j.history_length = h.history_length
    RETURNING h.slot, j.lane, j.state, ~j.priority AS urgency, j.rank, j.id, j.number, j.token,
        j.kind, CASE WHEN h.slot IS NOT NULL THEN j.args END AS args, j.options, j.attempt,
        j.failures, j.crashes, {LEFT_S} AS left_s, j.round
),
missed AS MATERIALIZED (
    SELECT ARRAY(
        SELECT job FROM counted WHERE unmet = 0 EXCEPT SELECT id FROM woken
    ) AS jobs
    WHERE (SELECT count(*) FROM woken) < (SELECT count(*) FROM counted WHERE unmet = 0)
),
noted AS (
    INSERT INTO longshore.unsettled (job, is_early)
    SELECT id, was_told FROM (
        SELECT id, children, cardinality(children) <= {MOST_REACHED}
            AND group_id = ANY (ARRAY(SELECT id FROM grouped WHERE is_running)) AS was_told
        FROM ended WHERE group_id IS NOT NULL
    ) AS e
    WHERE NOT was_told OR children && (SELECT jobs FROM missed)
    RETURNING job
),
summed AS (
    INSERT INTO longshore.group_count (group_id, ended, failed, cancelled)
    SELECT id, ended, 0, 0 FROM grouped
),
tallied AS (
    INSERT INTO longshore.tally (lane, state, delta)
    SELECT m.lane, s.state, s.sign * m.jobs
    FROM (
        SELECT lane, {RUNNING} AS was, {SUCCEEDED} AS state, count(*) AS jobs
        FROM ended GROUP BY lane
        UNION ALL
        SELECT lane, {WAITING}, state, count(*) FROM woken GROUP BY lane, state
    ) AS m
    CROSS JOIN LATERAL (VALUES (m.was, -1), (m.state, 1)) AS s (state, sign)
)
SELECT group_id, array_agg(place) AS places,
    count(*) FILTER (WHERE cardinality(children) = 0) AS last,
    (SELECT count(*) FROM noted) AS noted, {", ".join(["NULL"] * 15)}
FROM ended GROUP BY group_id
UNION ALL
SELECT NULL, NULL, NULL, NULL, slot, lane, urgency, rank, id, number, token, kind, args, options,
    attempt, failures, crashes, left_s, round
FROM woken
"""
"""Ends jobs, counts their dependents down, and starts those that wait for nothing more.

After the columns of `succeeded`: lanes and for each the offer that it has slots of; for each offer
the place before its first slot, and the place of the last; for each slot the place of its session;
workers and sessions, the dispatcher, the margin of an attempt's expiry, and how many bytes may
start. For each group it answers the places of the ends, on how many of these nothing depends, and
how many ends `settle` has to take up; then it answers the jobs that it started or made ready.
"""


def may_be_plain(ends: Sequence[End], offered: Sequence[OpenSlots]) -> list[Succeeded] | None:
    """The ends, if they and slots for what depends on them are worth the statement."""
    if sum(len(some.lanes) for some in offered) > MOST_LANES:
        return None
    return only_results(ends) if all(end.token in INT64 for end in ends) else None


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
        self.ended_groups = False
        """Whether some of the ended jobs are of groups."""
        self.awaited = 0
        """How many of the ended jobs others depend on."""
        self.noted = 0
        """How many ends have more to do than to start what depends on them."""

    def left_owed(self, owed: int) -> int:
        """How many ends have let nothing start by now, as far as later ends may still do it.

        Before this statement so many were `owed`.
        """
        if not self.ended_groups:
            return 0
        return max(0, min(MOST_OWED, owed + self.awaited - len(self.dependents)))

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
    """Ends for `END_PLAIN`, with slots for what depends on them.

    So many earlier ends as are `owed` have let nothing start yet. With these ends they may.
    """

    def __init__(self, ends: Sequence[Succeeded], starts: Starts, owed: int = 0) -> None:
        self._ends = ends
        self._starts = starts
        self._owed = owed
        self._sessions: dict[SessionKey, int] = {}

    def columns(self) -> list[object]:
        """The parameters of the statement."""
        starts, known = self._starts, self._sessions
        most = len(self._ends) + MORE_SLOTS + self._owed
        offers: dict[int, int] = {}
        bounds, places = [0], list[int]()
        for number, some in enumerate(starts.offered, 1):
            for lane in some.lanes:
                offers.setdefault(lane, number)
            order = workers_in_order(some.workers, most)
            # Of the few workers, not of the many slots: to hash a session takes long.
            at = {
                index: known.setdefault(some.workers[index].slot, len(known) + 1)
                for index in dict.fromkeys(order)
            }
            places += map(at.__getitem__, order)
            bounds.append(len(places))
        return [
            *success_columns(self._ends),
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
            if (places := row["places"]) is None:
                woken.append(row)
                continue
            for place in places:
                done.succeed(place - 1, self._ends[place - 1])
            if (group := row["group_id"]) is not None:
                done.ended_groups, done.noted = True, row["noted"]
                done.awaited += len(places) - row["last"]
                if row["last"] or done.noted:
                    done.groups.add(group)
        self._wake(sorted(woken, key=_order), done, cursors)
        return done

    def _wake(
        self, rows: Sequence[asyncpg.Record], done: EndedAlone, cursors: ClaimCursors
    ) -> None:
        sessions = list(self._sessions)
        for row in rows:
            _, _, _, _, place, lane, urgency, rank, id, number, token, *more = row
            if place is None:
                done.ready[lane] += 1
                cursors.put_back(lane, urgency, (rank, number))
                continue
            kind, args, options, begun, failures, crashes, left_s, round = more
            tried = begun, failures, crashes, False, ~urgency, left_s, round
            job = id, number, token, kind, args, unpack_options(options)
            slot = sessions[place - 1]
            done.dependents.append(Attempt(*job, slot.worker, slot.session, *tried))


_order = itemgetter(6, 7, 9)
"""The urgency, rank and number of a job in such a row."""
