"""New runs of groups on SQLite: decided once, then copied in steps.

What is decided is read without the write lock, so that a large group stops nobody. The first step
checks that the group did not change since, and so does each later one. The new group is `staging`
until the last step: nobody runs any of it before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from longshore.core.new_run import run_plan, taken_over
from longshore.model.group import GroupState, GroupSubmitted, RunPlan
from longshore.model.ids import derive_id
from longshore.model.job import JobState
from longshore.store.group_limits import keys_of_runs
from longshore.store.rows import LARGEST_INT, history_entry, unique_key_taken
from longshore.store.run_steps import (
    ITEM_BYTES,
    PlannedCopy,
    changed_meanwhile,
    is_no_run,
    packed,
    unpacked,
)
from longshore.store.sqlite.reopening import node_rows
from longshore.store.sqlite.sql import HOLDERS, Bulk, Row
from longshore.store.sqlite.transaction import Snapshot, Transaction

_SOURCE: Final = """SELECT id, number, state, jobs, staged, ended_at FROM job_group
    WHERE is_gone = 0 AND {key} = ?"""
_RUN: Final = """
    SELECT g.number, g.run_of, g.state, g.staged, r.source, r.source_ended_at, r.anew,
        r.taken_over, r.left_out, r.keys, length(r.copies)
    FROM job_group AS g LEFT JOIN group_run AS r ON r.group_id = g.number WHERE g.id = ?"""
_ADD_GROUP: Final = """
    INSERT INTO job_group (number, id, state, jobs, fail_fast, created_at, staged_at, name, labels,
        run_of, own_limit)
    SELECT ?1, ?2, 'staging', jobs, fail_fast, ?3, ?3, name, labels, number, own_limit
    FROM job_group WHERE number = ?4"""
_ADD_RUN: Final = "INSERT INTO group_run VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_UNIQUE_KEYS: Final = """
    SELECT node.place, job.kind, job.unique_key FROM node CROSS JOIN job ON job.number = node.job
    WHERE node.group_id = ? AND node.place BETWEEN ? AND ? AND job.unique_key IS NOT NULL"""
_ORIGINALS: Final = """
    SELECT node.place, job.number, job.lane FROM node CROSS JOIN job ON job.number = node.job
    WHERE node.group_id = ? AND node.place BETWEEN ? AND ?"""
_COPY_JOBS: Final = Bulk(
    """INSERT INTO job (number, rank, id, history, state, ended_at, created_at, group_id, body_hash,
        args, lane, priority, timeout_s, kind, queue, target, unique_key, options, result,
        concurrency_key, fair, blocked_on)
    SELECT v.column1, v.column1, v.column2, v.column3, v.column4, v.column5, ?1, ?2,
        job.body_hash, job.args, job.lane, job.priority, job.timeout_s, job.kind, job.queue,
        job.target, job.unique_key,
        CASE WHEN instr(job.concurrency_key, ?3) > 0
            THEN CAST(replace(CAST(job.options AS TEXT), ?3, ?4) AS BLOB) ELSE job.options END,
        CASE WHEN v.column5 IS NOT NULL THEN job.result END,
        replace(CASE WHEN job.fair IS NULL THEN job.concurrency_key
            ELSE coalesce(job.concurrency_key, '') END, ?3, ?4),
        job.fair, CASE WHEN job.fair IS NOT NULL THEN 'fair' END
    FROM {rows} AS v CROSS JOIN job ON job.number = v.column6""",
    6,
)
_COPY_NODES: Final = Bulk(
    """INSERT INTO node (group_id, place, job, unmet, open, taken_from, expanded, body_hash,
        condition, delay_s, expires_s, key, scope)
    SELECT ?1, node.place, v.column2, v.column3, v.column4, v.column5,
        CASE WHEN v.column5 IS NULL THEN 0 ELSE node.expanded END, node.body_hash, node.condition,
        node.delay_s, node.expires_s, node.key, node.scope
    FROM (SELECT ?2 AS source) AS g CROSS JOIN {rows} AS v
    CROSS JOIN node ON node.group_id = g.source AND node.place = v.column1""",
    5,
)
_COPY_EDGES: Final = Bulk(
    """INSERT INTO edge (group_id, parent, child) SELECT ?1, edge.parent, edge.child
    FROM (SELECT ?2 AS source) AS g CROSS JOIN {rows} AS v CROSS JOIN edge INDEXED BY edge_child
    ON edge.group_id = g.source AND edge.child = v.column1""",
    1,
)
_STAGED: Final = """
    UPDATE job_group SET staged = staged + ?2, ended = ended + ?3, staged_at = ?4, state = ?5,
        sweep_from = CASE WHEN ?5 = 'running' THEN (
            SELECT min(place) FROM node WHERE group_id = ?1 AND taken_from IS NULL) END
    WHERE number = ?1"""
_words = msgspec.json.Decoder(tuple[str, ...])


class Decision(NamedTuple):
    """What a new run of a group, in this state of it, does."""

    plan: RunPlan
    source: int
    ended_at: int
    copies: bytes


class _Run(NamedTuple):
    """A new run that is being made, or was."""

    id: UUID
    number: int
    source: int
    state: GroupState
    staged: int
    jobs: int
    ended_at: int
    plan: RunPlan

    def answer(self, state: GroupState, staged: int) -> RunPlan:
        run = GroupSubmitted(self.id, self.number, state, staged)
        return msgspec.structs.replace(self.plan, run=run)


def decide(
    tx: Snapshot, ref: UUID | int, run: UUID, keys: Sequence[str], *, dry_run: bool, max_jobs: int
) -> Decision | None:
    """What a new run of a group does; None if there is no such group, or the run is there."""
    source = _source(tx, ref)
    if source is None or (not dry_run and _known(tx, ref, run) is not None):
        return None
    id, number, state, jobs, staged, ended_at = source
    is_over = ended_at is not None and staged >= jobs
    nodes = node_rows(tx, number) if is_over else None
    plan, copies = run_plan(
        UUID(bytes=id),
        GroupState(state),
        nodes.states if nodes else (),
        keys,
        is_whole=staged >= jobs,
        max_jobs=max_jobs,
    )
    return Decision(plan, number, ended_at or 0, packed(copies, nodes.places if nodes else ()))


def _source(tx: Snapshot, ref: UUID | int) -> tuple[bytes, int, str, int, int, int | None] | None:
    if isinstance(ref, UUID):
        row = tx.execute(_SOURCE.format(key="id"), (ref.bytes,)).fetchone()
    elif 0 < ref <= LARGEST_INT:
        row = tx.execute(_SOURCE.format(key="number"), (ref,)).fetchone()
    else:
        row = None
    return row  # type: ignore[no-any-return]


def _known(tx: Snapshot, ref: UUID | int, run: UUID) -> _Run | None:
    """The new run with this id; raises `Conflict` if the group with it is another."""
    row = tx.execute(_RUN, (run.bytes,)).fetchone()
    if row is None:
        return None
    number, run_of, state, staged, source, ended_at, anew, taken, left_out, keys, size = row
    if run_of is None or ref not in (run_of, UUID(bytes=source)):
        raise is_no_run(run, ref)
    plan = RunPlan(UUID(bytes=source), anew, taken, left_out, _words.decode(keys))
    jobs = size // ITEM_BYTES
    return _Run(run, number, run_of, GroupState(state), staged, jobs, ended_at, plan)


def take_step(
    tx: Transaction, ref: UUID | int, run: UUID, decision: Decision | None, most: int
) -> RunPlan | None:
    """Copies the next jobs of a group into its new run. With the last of them it runs."""
    known = _known(tx, ref, run)
    if known is None:
        if decision is None:
            return None
        if refused := _refusal(tx, decision):
            return refused
        known = _begin(tx, run, decision)
    if known.state is not GroupState.STAGING:
        return known.answer(known.state, known.staged)
    if not _is_unchanged(tx, known.source, known.ended_at):
        return changed_meanwhile(known.plan.group)
    copies = _next(tx, known, most)
    if (key := _key_taken(tx, known.source, copies)) is not None:
        return RunPlan(known.plan.group, refused=unique_key_taken(key))
    return _copy(tx, known, copies)


def _refusal(tx: Transaction, decision: Decision) -> RunPlan | None:
    """Why there is no new run, although it was decided what it does."""
    plan = decision.plan
    if plan.refused:
        return plan
    if not _is_unchanged(tx, decision.source, decision.ended_at):
        return changed_meanwhile(plan.group)
    if (key := _key_taken(tx, decision.source, unpacked(decision.copies))) is not None:
        return RunPlan(plan.group, refused=unique_key_taken(key))
    return None


def _is_unchanged(tx: Snapshot, source: int, ended_at: int) -> bool:
    query = "SELECT ended_at FROM job_group WHERE number = ? AND is_gone = 0"
    row: tuple[int | None] | None = tx.execute(query, (source,)).fetchone()
    return row == (ended_at,)


def _key_taken(tx: Snapshot, source: int, copies: Sequence[PlannedCopy]) -> str | None:
    """A unique key that two jobs that run anew have, or a live one; None if there is none."""
    anew = {one.place for one in copies if not one.is_taken}
    if not anew:
        return None
    rows = tx.connection.execute(_UNIQUE_KEYS, (source, min(anew), max(anew))).fetchall()
    keys: list[tuple[str, str]] = [row[1:] for row in rows if row[0] in anew]
    wanted: list[Row] = [(place, *key) for place, key in enumerate(keys)]
    held = {keys[place] for place, *_ in HOLDERS.find(tx.connection, wanted)}
    held |= {key for key, count in Counter(keys).items() if count > 1}
    return next((key[1] for key in keys if key in held), None)


def _begin(tx: Transaction, run: UUID, decision: Decision) -> _Run:
    number, plan = tx.next_number(), decision.plan
    tx.execute(_ADD_GROUP, (number, run.bytes, tx.now, decision.source))
    keys = msgspec.json.encode(plan.keys).decode()
    told = (plan.group.bytes, decision.ended_at, plan.anew, plan.taken_over, plan.left_out, keys)
    tx.execute(_ADD_RUN, (number, *told, decision.copies))
    jobs = len(decision.copies) // ITEM_BYTES
    source, ended_at = decision.source, decision.ended_at
    return _Run(run, number, source, GroupState.STAGING, 0, jobs, ended_at, plan)


def _next(tx: Transaction, run: _Run, most: int) -> list[PlannedCopy]:
    query = "SELECT substr(copies, ?, ?) FROM group_run WHERE group_id = ?"
    piece = (1 + run.staged * ITEM_BYTES, most * ITEM_BYTES, run.number)
    [data] = tx.execute(query, piece).fetchone()
    return unpacked(data)


def _copy(tx: Transaction, run: _Run, copies: Sequence[PlannedCopy]) -> RunPlan:
    """Stores these nodes of the new run; with the last of them it runs."""
    _copy_nodes(tx, run, copies)
    staged, state = run.staged + len(copies), GroupState.STAGING
    if staged == run.jobs:
        state = GroupState.RUNNING
        tx.execute("UPDATE group_run SET copies = x'' WHERE group_id = ?", (run.number,))
    taken = sum(one.is_taken for one in copies)
    tx.execute(_STAGED, (run.number, len(copies), taken, tx.now, state))
    return run.answer(state, staged)


def _copy_nodes(tx: Transaction, run: _Run, copies: Sequence[PlannedCopy]) -> None:
    bounds = (run.source, copies[0].place, copies[-1].place)
    originals = {
        place: (number, lane)
        for place, number, lane in tx.connection.execute(_ORIGINALS, bounds).fetchall()
    }
    jobs: list[Row] = []
    nodes: list[Row] = []
    for one in copies:
        original, lane = originals[one.place]
        number, id = tx.next_number(), derive_id(run.id, one.place).bytes
        state = JobState.SUCCEEDED if one.is_taken else JobState.WAITING
        info = taken_over(original, run.source) if one.is_taken else ""
        history = f"[{history_entry(state, tx.now, info=info)}]"
        jobs.append((number, id, history, state, tx.now if one.is_taken else None, original))
        taken_from = original if one.is_taken else None
        nodes.append((one.place, number, one.unmet, one.open, taken_from))
        tx.count(lane, None, state)
    keys = keys_of_runs(run.plan.group, run.id)
    _COPY_JOBS.run(tx.connection, jobs, (tx.now, run.number, *keys))
    _COPY_NODES.run(tx.connection, nodes, (run.number, run.source))
    _COPY_EDGES.run(tx.connection, [(one.place,) for one in copies], (run.number, run.source))
