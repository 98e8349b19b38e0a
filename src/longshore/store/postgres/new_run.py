"""New runs of groups on PostgreSQL: decided once, then copied in steps.

Each step is a transaction. It holds the row of the group that is run anew, so that nobody retries
or removes that group meanwhile, and then the row of the new one. It checks that the first group
still ended when it had ended as the decision was made. The new group is `staging` until the last
step: nobody runs any of it before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg
from msgspec import structs

from longshore.core.fairness import NEW
from longshore.core.new_run import Copy, run_plan, taken_over
from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.group import MOST_COPIED, GroupState, GroupSubmitted, RunPlan
from longshore.model.ids import derive_id
from longshore.model.job import JobState
from longshore.store.group_limits import keys_of_runs
from longshore.store.postgres import groups_sql
from longshore.store.postgres.connections import Again, ConnectionPool, Transaction
from longshore.store.postgres.group_retry import node_states
from longshore.store.postgres.known_sql import HOLDERS
from longshore.store.postgres.node_pages import parents_of_n, read_nodes
from longshore.store.postgres.states import CODES, GROUP_CODES, GROUP_STATES, WAITING
from longshore.store.rows import INT64, unique_key_taken
from longshore.store.run_steps import (
    ITEM_BYTES,
    PlannedCopy,
    changed_meanwhile,
    is_no_run,
    packed,
    unpacked,
)

_SUCCEEDED: Final = CODES[JobState.SUCCEEDED]
_SOURCE: Final = """
SELECT id, state, jobs, staged, ended_at FROM longshore.job_group
WHERE {key} = $1 AND NOT is_gone"""
_BY_ID: Final = _SOURCE.format(key="id")
_BY_NUMBER: Final = _SOURCE.format(key="number")
_RUN: Final = """
SELECT g.number, g.run_of, g.state, g.staged, r.source, r.source_ended_at, r.anew, r.taken_over,
    r.left_out, r.keys, octet_length(r.copies) AS size
FROM (
    SELECT id, number, run_of, state, staged FROM longshore.job_group WHERE id = $1 FOR UPDATE
) AS g
LEFT JOIN longshore.group_run AS r ON r.group_id = g.id
"""
_ADD_GROUP: Final = """
INSERT INTO longshore.job_group (id, jobs, state, fail_fast, name, labels, run_of, own_limit)
SELECT $1, jobs, $2, fail_fast, name, labels, number, own_limit
FROM longshore.job_group WHERE id = $3
"""
_ADD_RUN: Final = """
INSERT INTO longshore.group_run VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_NEXT: Final = """
SELECT substring(copies FROM $2 FOR $3) AS copies FROM longshore.group_run WHERE group_id = $1
"""
_ORIGINALS: Final = f"""
SELECT n.place, n.job, s.place AS scope, j.number, j.kind, j.unique_key, j.lane,
    {parents_of_n("place")} AS after
FROM (
    SELECT job, place, scope FROM longshore.node
    WHERE group_id = $1 AND place BETWEEN $2 AND $3
) AS n
LEFT JOIN LATERAL (SELECT place FROM longshore.node WHERE job = n.scope OFFSET 0) AS s ON true
CROSS JOIN LATERAL (
    SELECT number, kind, unique_key, lane FROM longshore.job WHERE id = n.job OFFSET 0
) AS j
"""
_AT: Final = "(SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint::text)"
_HEX: Final = "encode(convert_to({}::text, 'UTF8'), 'hex')"
_COPY: Final = f"""
WITH copied AS (
    INSERT INTO longshore.job (
        id, body_hash, args, unique_key, lane, priority, kind, queue, target, options, timeout_s,
        created_at, group_id, state, ended_at, result, history, concurrency_key,
        fair, blocked_on
    )
    SELECT
        i.id, j.body_hash, j.args, j.unique_key, j.lane, j.priority, j.kind, j.queue, j.target,
        CASE WHEN strpos(j.concurrency_key, $10) > 0 THEN decode(
            replace(encode(j.options, 'hex'), {_HEX.format("$10")}, {_HEX.format("$11")}), 'hex'
        ) ELSE j.options END,
        j.timeout_s, statement_timestamp(), $1::uuid,
        CASE WHEN i.info IS NULL THEN {WAITING} ELSE {_SUCCEEDED} END,
        CASE WHEN i.info IS NOT NULL THEN statement_timestamp() END,
        CASE WHEN i.info IS NOT NULL THEN j.result END,
        CASE WHEN i.info IS NULL THEN '["{JobState.WAITING}",' ELSE '["{JobState.SUCCEEDED}",' END
            || {_AT} || ',"","' || coalesce(i.info, '') || '"]',
        replace(coalesce(
            j.concurrency_key, CASE WHEN j.fair IS NOT NULL THEN '' END
        ), $10, $11),
        j.fair, CASE WHEN j.fair IS NOT NULL THEN '{NEW}' END
    FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::integer[]) AS i (job, id, info, place)
    CROSS JOIN LATERAL (
        SELECT body_hash, args, unique_key, lane, priority, kind, queue, target, options,
            timeout_s, result, concurrency_key, fair
        FROM longshore.job WHERE id = i.job OFFSET 0
    ) AS j
    ORDER BY i.place
    ON CONFLICT DO NOTHING
    RETURNING id, number
),
numbered AS (
    INSERT INTO longshore.job_number (number, id) SELECT number, id FROM copied
),
nodes AS (
    INSERT INTO longshore.node (
        job, group_id, body_hash, delay_s, expires_s, place, unmet, condition, key, scope, open,
        has_ended, expanded, taken_from
    )
    SELECT i.id, $1::uuid, n.body_hash, n.delay_s, n.expires_s, i.place, i.unmet, n.condition,
        n.key, i.scope, i.open, i.taken_from IS NOT NULL AND i.open > 0,
        CASE WHEN i.taken_from IS NULL THEN 0 ELSE n.expanded END, i.taken_from
    FROM unnest(
        $2::uuid[], $3::uuid[], $5::integer[], $6::integer[], $7::integer[], $8::uuid[],
        $9::bigint[]
    ) AS i (job, id, place, unmet, open, scope, taken_from)
    CROSS JOIN LATERAL (
        SELECT body_hash, delay_s, expires_s, condition, key, expanded
        FROM longshore.node WHERE job = i.job OFFSET 0
    ) AS n
)
SELECT count(*) AS n FROM copied
"""
_STAGED: Final = """
UPDATE longshore.job_group
SET staged = staged + $2, staged_at = statement_timestamp(), state = $3, sweep_again = false,
    sweep_from = CASE WHEN $4 THEN (
        SELECT min(place) FROM longshore.node WHERE group_id = $1 AND taken_from IS NULL
    ) END
WHERE id = $1
"""
_DONE: Final = "UPDATE longshore.group_run SET copies = '' WHERE group_id = $1"

_UniqueKey = tuple[str, str]
"""A kind and a unique key."""


class PostgresNewRuns:
    """The verb that runs groups anew."""

    _keeping: ConnectionPool

    async def rerun_group(
        self,
        ref: UUID | int,
        run: UUID,
        *,
        keys: Sequence[str] = (),
        dry_run: bool = False,
        most: int = MOST_COPIED,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> RunPlan | None:
        """Takes a step towards a new run of an ended group, of at most so many jobs."""
        if isinstance(ref, int) and ref not in INT64:
            return None
        if dry_run:
            decision = await self._decide(ref, keys, max_group_jobs)
            return decision and decision.plan
        request = _Request(ref, run, most)
        step = await self._keeping.run(request.take_next_step)
        if not isinstance(step, _NotBegun):
            return step
        decision = await self._decide(ref, keys, max_group_jobs)
        if decision is None or decision.plan.refused:
            return decision and decision.plan
        return await self._keeping.run(partial(request.take_first_step, decision=decision))

    async def _decide(
        self, ref: UUID | int, keys: Sequence[str], max_jobs: int
    ) -> _Decision | None:
        """What a new run of a group does, as far as nobody changes the group meanwhile.

        It reads a large group in pieces, each in a short transaction.
        """
        found = await self._keeping.fetch(_source(ref), ref)
        if not found:
            return None
        [source] = found
        state, is_whole = GROUP_STATES[source["state"]], source["staged"] >= source["jobs"]
        is_over = source["ended_at"] is not None and is_whole
        rows = await read_nodes(self._keeping, source["id"]) if is_over else []

        def decide() -> tuple[RunPlan, list[Copy]]:
            states = node_states(rows, source["jobs"])
            return run_plan(source["id"], state, states, keys, is_whole=is_whole, max_jobs=max_jobs)

        # Python's own work: a large group would stop the event loop for a second.
        plan, copies = await asyncio.to_thread(decide)
        anew = [rows[one.at] for one in copies if not one.is_taken]
        places = [row["place"] for row in rows]
        return _Decision(plan, source["ended_at"], packed(copies, places), _unique_keys(anew))


def _source(ref: UUID | int) -> str:
    return _BY_NUMBER if isinstance(ref, int) else _BY_ID


def _unique_keys(rows: Sequence[asyncpg.Record]) -> list[_UniqueKey]:
    return [(row["kind"], row["unique_key"]) for row in rows if row["unique_key"] is not None]


class _NotBegun:
    """The answer of a step if there is nothing of the new run."""


class _Decision(NamedTuple):
    """What a new run of a group that ended at this time does."""

    plan: RunPlan
    ended_at: datetime | None
    copies: bytes
    unique_keys: Sequence[_UniqueKey]
    """Those of the jobs that run anew."""


class _Run(NamedTuple):
    """A new run that is being made, or was."""

    id: UUID
    number: int
    source: int
    state: GroupState
    staged: int
    jobs: int
    ended_at: datetime
    plan: RunPlan

    def answer(self, state: GroupState, staged: int) -> RunPlan:
        run = GroupSubmitted(self.id, self.number, state, staged)
        return structs.replace(self.plan, run=run)


class _Request(NamedTuple):
    """What a user asked for."""

    ref: UUID | int
    run: UUID
    most: int

    async def take_next_step(self, tx: Transaction) -> RunPlan | _NotBegun:
        """Copies the next jobs. With the last of them the new group runs."""
        source = await self._hold_source(tx)
        run = await self._known(tx)
        if run is None:
            return _NotBegun()
        if run.state is not GroupState.STAGING:
            tx.rest_on_found()
            return run.answer(run.state, run.staged)
        if source is None or source["ended_at"] != run.ended_at:
            return changed_meanwhile(run.plan.group)
        return await _copy(tx, run, await _next(tx, run, self.most))

    async def take_first_step(self, tx: Transaction, decision: _Decision) -> RunPlan | None:
        """Stores the new group, unless it is there, and copies the first jobs."""
        source = await self._hold_source(tx)
        is_new = await self._known(tx) is None
        if is_new and (refused := await self._begin(tx, decision, source)):
            return refused
        step = await self.take_next_step(tx)
        return None if isinstance(step, _NotBegun) else step

    async def _hold_source(self, tx: Transaction) -> asyncpg.Record | None:
        rows = await tx.fetch(f"{_source(self.ref)} FOR SHARE", self.ref)
        return rows[0] if rows else None

    async def _known(self, tx: Transaction) -> _Run | None:
        """The new run, if it is there; raises `Conflict` if the group with its id is another."""
        rows = await tx.fetch(_RUN, self.run)
        if not rows:
            return None
        [row] = rows
        if row["run_of"] is None or self.ref not in (row["run_of"], row["source"]):
            raise is_no_run(self.run, self.ref)
        counts = (row["anew"], row["taken_over"], row["left_out"])
        plan = RunPlan(row["source"], *counts, tuple(row["keys"]))
        state, jobs = GROUP_STATES[row["state"]], row["size"] // ITEM_BYTES
        where = (row["run_of"], state, row["staged"], jobs, row["source_ended_at"])
        return _Run(self.run, row["number"], *where, plan)

    async def _begin(
        self, tx: Transaction, decision: _Decision, source: asyncpg.Record | None
    ) -> RunPlan | None:
        """Stores the new group, of which nothing is copied yet; or says why it cannot be."""
        plan = decision.plan
        if source is None or source["ended_at"] != decision.ended_at:
            return changed_meanwhile(plan.group)
        if (key := await _key_taken(tx, decision.unique_keys)) is not None:
            return RunPlan(plan.group, refused=unique_key_taken(key))
        await tx.fetch(_ADD_GROUP, self.run, GROUP_CODES[GroupState.STAGING], source["id"])
        told = (source["ended_at"], plan.anew, plan.taken_over, plan.left_out, list(plan.keys))
        await tx.fetch(_ADD_RUN, self.run, source["id"], *told, decision.copies)
        return None


async def _key_taken(tx: Transaction, keys: Sequence[_UniqueKey]) -> str | None:
    """A key that two of these jobs have, or a live job; None if there is none."""
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        return twice[0][1]
    held = await tx.fetch(HOLDERS, *zip(*keys, strict=True)) if keys else []
    return held[0]["unique_key"] if held else None


async def _next(tx: Transaction, run: _Run, most: int) -> list[PlannedCopy]:
    first, size = 1 + run.staged * ITEM_BYTES, most * ITEM_BYTES
    [row] = await tx.fetch(_NEXT, run.id, first, size)
    return unpacked(row["copies"])


async def _copy(tx: Transaction, run: _Run, copies: Sequence[PlannedCopy]) -> RunPlan:
    """Stores these nodes of the new run; with the last of them it runs."""
    first, last = copies[0].place, copies[-1].place
    rows = await tx.fetch(_ORIGINALS, run.plan.group, first, last)
    originals = {row["place"]: row for row in rows}
    anew = [originals[one.place] for one in copies if not one.is_taken]
    if (key := await _key_taken(tx, _unique_keys(anew))) is not None:
        return RunPlan(run.plan.group, refused=unique_key_taken(key))
    await _store(tx, run, copies, originals)
    staged, state = run.staged + len(copies), GroupState.STAGING
    if staged == run.jobs:
        state = GroupState.RUNNING
        await tx.fetch(_DONE, run.id)
    is_whole = state is GroupState.RUNNING
    await tx.fetch(_STAGED, run.id, len(copies), GROUP_CODES[state], is_whole)
    return run.answer(state, staged)


async def _store(
    tx: Transaction,
    run: _Run,
    copies: Sequence[PlannedCopy],
    originals: dict[int, asyncpg.Record],
) -> None:
    rows = [originals[one.place] for one in copies]
    ids = {one.place: derive_id(run.id, one.place) for one in copies}
    named = {at for row in rows for at in (*row["after"], row["scope"]) if at is not None}
    ids.update((at, derive_id(run.id, at)) for at in named.difference(ids))
    taken = [row["number"] if one.is_taken else None for one, row in zip(copies, rows, strict=True)]
    stored = await tx.fetch(
        _COPY,
        run.id,
        [row["job"] for row in rows],
        [ids[one.place] for one in copies],
        [None if job is None else taken_over(job, run.source) for job in taken],
        [one.place for one in copies],
        [one.unmet for one in copies],
        [one.open for one in copies],
        [None if row["scope"] is None else ids[row["scope"]] for row in rows],
        taken,
        *keys_of_runs(run.plan.group, run.id),
    )
    if stored[0]["n"] < len(copies):
        raise Again("a unique key was taken just now")
    edges = [(ids[at], ids[row["place"]]) for row in rows for at in row["after"]]
    if edges:
        await tx.fetch(groups_sql.ADD_EDGES, *zip(*edges, strict=True))
    for one, row in zip(copies, rows, strict=True):
        tx.count(row["lane"], None, _SUCCEEDED if one.is_taken else WAITING)
        if one.is_taken:
            tx.ended(run.id, ids[one.place], _SUCCEEDED, settled=True)
