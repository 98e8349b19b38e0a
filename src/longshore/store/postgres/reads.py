"""The reading half of the PostgreSQL store. Reads have connections of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import structs

from longshore.core.lifecycle import TERMINAL
from longshore.core.why import Facts, HeldBack
from longshore.model.attempt import Attempt
from longshore.model.depth import LaneDepth
from longshore.model.group import ENDED_GROUPS
from longshore.model.job import Ended, Job, JobFilter, JobPage, JobState, LogKind
from longshore.model.log import KeptEntry
from longshore.model.worker import DispatcherView, Lane, QueueView, WorkerView
from longshore.store.listing import (
    NEAR,
    last_number,
    narrow,
    old,
    page,
    probes,
    spread,
    young,
)
from longshore.store.postgres.checkpoints import CHECKPOINT_OF, read_checkpoint
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.depths import depths
from longshore.store.postgres.listing import AT_TIMES, FLOOR, LAST, LISTED, listings
from longshore.store.postgres.pauses import PAUSED_QUEUES, PAUSES_OF_JOB
from longshore.store.postgres.queue_waits import QUEUE_WAITS
from longshore.store.postgres.sql import LEFT_S
from longshore.store.postgres.start_rules import held_back
from longshore.store.postgres.states import (
    CANCELLING,
    CODES,
    ENDED,
    GROUP_CODES,
    OWNED,
    READY,
    STATES,
)
from longshore.store.rows import (
    INT64,
    NOT_RUN_LIST,
    log_bounds,
    queue_views,
    read_job,
    read_worker,
    unpack_error,
    unpack_options,
)
from longshore.store.waits import with_waits

MOST_AHEAD: Final = 1000
SHOWN_ENDED_WORKERS: Final = 20

CLAIMED_COLUMNS: Final = f"""
    j.id, j.number, j.token, j.kind, j.args, j.options, j.worker, j.session,
    j.attempt, j.failures, j.crashes, j.state = {CANCELLING}, j.priority, {LEFT_S},
    j.round
"""


def _newest(kind: LogKind) -> str:
    """SQL for the newest entry of this kind that the last attempt of job j wrote."""
    return f"""(
    SELECT data FROM longshore.log AS l
    WHERE l.job = j.id AND l.token = j.token AND l.kind = {kind:d} ORDER BY l.seq DESC LIMIT 1
)"""


_PROGRESS: Final = _newest(LogKind.PROGRESS)
_STEP: Final = _newest(LogKind.STEP)
_OPEN: Final = f"""CASE WHEN j.kind IN ({NOT_RUN_LIST}) THEN
    coalesce((SELECT n.open FROM longshore.node AS n WHERE n.job = j.id), 0) ELSE 0 END"""
_WHOLE: Final = f"""
SELECT {LISTED}, j.args, j.result, '[' || j.history || ']' AS history,
    {_PROGRESS} AS progress, {_STEP} AS step, {_OPEN} AS open,
    j.blocked_on, j.blocked_at, j.stays::text AS stays, ({PAUSES_OF_JOB}) AS pauses,
    statement_timestamp() AS now
FROM longshore.job AS j
"""
_WITH_WORDS: Final = f"""
SELECT j.*, CASE WHEN j.state IN ({OWNED}) THEN {_PROGRESS} END AS progress,
    CASE WHEN j.state IN ({OWNED}) THEN {_STEP} END AS step,
    {_OPEN} AS open
FROM ({{listed}}) AS j
ORDER BY j.number DESC
"""
_NUMBERED: Final = "(SELECT n.id FROM longshore.job_number AS n WHERE n.number = $1::bigint)"
_BY_ID: Final = f"{_WHOLE} WHERE j.id = $1"
_BY_NUMBER: Final = f"{_WHOLE} WHERE j.id = {_NUMBERED}"

_LOGS: Final = """
SELECT token, seq, kind, at, data FROM longshore.log
WHERE job = {named} AND token BETWEEN $2 AND $3 AND (token, seq) > ($4, $5)
ORDER BY token, seq LIMIT $6
"""

_OF_GROUP: Final = " ".join(
    f"WHEN {GROUP_CODES[state]} THEN {CODES[JobState(state.value)]}" for state in ENDED_GROUPS
)
"""SQL for how groups end, in the codes of jobs."""

_ENDED: Final = f"""
SELECT i.id, l.state, l.result, l.error
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT state, result, error FROM longshore.job WHERE id = i.id AND state >= {ENDED}
    UNION ALL
    SELECT CASE state {_OF_GROUP} END, NULL, NULL FROM longshore.job_group
    WHERE id = i.id AND ended_at IS NOT NULL AND NOT is_gone
    OFFSET 0
) AS l
"""

NUMBERS: Final = """
SELECT i.number, l.id
FROM unnest($1::bigint[]) AS i (number)
CROSS JOIN LATERAL (SELECT id FROM longshore.job_number WHERE number = i.number OFFSET 0) AS l
"""
_LANES: Final = "SELECT hash, queue, kind, target FROM longshore.lane"

_COUNTS: Final = """
SELECT l.queue, t.state, sum(t.n)::bigint AS n
FROM longshore.lane AS l
LEFT JOIN (
    SELECT lane, state, sum(delta) AS n FROM longshore.tally GROUP BY lane, state
) AS t ON t.lane = l.hash
GROUP BY l.queue, t.state
"""
_QUEUES: Final = "SELECT name, paused FROM longshore.queue"

_WORKERS: Final = f"""
SELECT w.info, w.session, w.dispatcher, w.alive, w.draining, w.started_at, w.attended_at,
    w.ended_at, w.ended_why, (
    SELECT coalesce(json_object_agg(kind, n), '{{{{}}}}')::text FROM (
        SELECT kind, count(*) AS n FROM longshore.job AS j
        WHERE j.worker = w.id AND j.state IN ({OWNED}) GROUP BY kind
    ) AS k
) AS running, (
    SELECT coalesce(json_object_agg(target, n), '{{{{}}}}')::text FROM (
        SELECT target, count(*) AS n FROM longshore.job AS j
        WHERE j.worker = w.id AND j.state IN ({OWNED}) AND strpos(target, ';') > 0 GROUP BY target
    ) AS k
) AS shapes, greatest(w.attended_at, h.seen_at) AS seen_at, h.cpu_percent, h.memory_percent
FROM ({{which}}) AS w
LEFT JOIN longshore.heartbeat AS h ON h.worker = w.id
"""
_ALIVE: Final = "SELECT * FROM longshore.worker WHERE alive"
_ENDED_LATELY: Final = f"""
    SELECT * FROM longshore.worker WHERE NOT alive
    ORDER BY ended_at DESC LIMIT {SHOWN_ENDED_WORKERS}
"""
_ALIVE_WORKERS: Final = _WORKERS.format(which=_ALIVE)
_SHOWN_WORKERS: Final = _WORKERS.format(which=f"{_ALIVE} UNION ALL ({_ENDED_LATELY})")

_DISPATCHERS: Final = "SELECT id, name, renewed_no, started_at FROM longshore.dispatcher"

_FACTS: Final = f"""
SELECT
    now() AS now,
    {held_back("$2")} AS held_back,
    (
        SELECT count(*) FROM longshore.job AS own
        CROSS JOIN LATERAL (
            SELECT FROM longshore.job AS a
            WHERE a.state = {READY} AND a.blocked_on IS NULL AND a.lane = own.lane
                AND (~a.priority, a.rank, a.number) < (~own.priority, own.rank, own.number)
            LIMIT {MOST_AHEAD}
        ) AS before
        WHERE own.id = $1
    ) AS ahead
"""

_ARGS: Final = "SELECT id, args FROM longshore.job WHERE id = ANY ($1::uuid[])"
_NEWS: Final = "SELECT last_value AS number FROM longshore.tally_number"


class PostgresReads:
    """The verbs that change nothing."""

    _reading: ConnectionPool

    async def job(self, ref: UUID | int) -> Job | None:
        """One job, whole."""
        if isinstance(ref, int) and ref not in INT64:
            return None
        rows = await self._reading.fetch(_BY_NUMBER if isinstance(ref, int) else _BY_ID, ref)
        found = next(map(_whole_job, rows), None)
        if found is None or not found.attempt or found.state in TERMINAL:
            return found
        saved = await self._reading.fetch(CHECKPOINT_OF, found.id)
        return structs.replace(found, checkpoint=read_checkpoint(saved[0]).view) if saved else found

    async def jobs(self, wanted: JobFilter) -> JobPage:
        """Jobs, newest first, without their arguments, results, history and logs."""
        rows: list[asyncpg.Record] = []
        stopped_at: int | None = None
        last = await self._last(wanted)
        for listing in listings(wanted, last, await self._floor(wanted, last)):
            query = _WITH_WORDS.format(listed=listing.sql)
            rows = await self._reading.fetch(query, *listing.values)
            is_full = len(rows) >= wanted.limit
            if listing.stopped is not None and (listing.merged or not is_full):
                stopped_at = await self._number(listing.stopped, *listing.values[:2])
            if is_full:
                break
        args = await self._args([row["id"] for row in rows]) if wanted.args else {}
        return page([_job(row, args.get(row["id"], b"")) for row in rows], wanted, stopped_at)

    async def _args(self, ids: Sequence[UUID]) -> dict[UUID, bytes]:
        """The arguments of these jobs."""
        return {row["id"]: row["args"] for row in await self._reading.fetch(_ARGS, ids)}

    async def logs(
        self,
        ref: UUID | int,
        *,
        token: int | None = None,
        after: tuple[int, int] = (0, 0),
        most: int = 1000,
    ) -> list[KeptEntry]:
        """What a job's attempts said after a place, in the order of tokens and entries."""
        if isinstance(ref, int) and ref not in INT64:
            return []
        query = _LOGS.format(named=_NUMBERED if isinstance(ref, int) else "$1::uuid")
        rows = await self._reading.fetch(query, ref, *log_bounds(token, after, most))
        return [
            KeptEntry(token, seq, LogKind(kind), at, bytes(data))
            for token, seq, kind, at, data in rows
        ]

    async def _last(self, wanted: JobFilter) -> int:
        """A number past which no wanted job is."""
        last = last_number(wanted)
        if wanted.until is None:
            return last
        low, high, after = 0, await self._number(LAST, last) or 0, young(wanted.until)
        while high - low > NEAR:
            numbers = spread(low, high)
            rows = await self._reading.fetch(AT_TIMES, numbers)
            came = {row["number"]: row["created_at"] for row in rows}
            low, high = narrow(numbers, came, high, after)
        return high

    async def _floor(self, wanted: JobFilter, last: int) -> int:
        """A number up to which no job came since the wanted time."""
        if wanted.since is None:
            return 0
        newest = await self._number(LAST, last)
        if newest is None:
            return 0
        return await self._number(FLOOR, probes(newest), old(wanted.since)) or 0

    async def _number(self, sql: str, *values: object) -> int | None:
        rows = await self._reading.fetch(sql, *values)
        number: int | None = rows[0]["number"] if rows else None
        return number

    async def ended(self, ids: Sequence[UUID]) -> list[Ended]:
        """The outcomes of those of these jobs that have one."""
        rows = await self._reading.fetch(_ENDED, ids) if ids else []
        return [
            Ended(row["id"], STATES[row["state"]], row["result"], unpack_error(row["error"]))
            for row in rows
        ]

    async def lanes(self, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        """Every lane that held a job and was not forgotten."""
        return [Lane(*row) for row in await self._reading.fetch(_LANES)]

    async def queues(self) -> list[QueueView]:
        """Every queue that ever held a job or was paused."""
        totals = [
            (queue, None if state is None else STATES[state].value, total)
            for queue, state, total in await self._reading.fetch(_COUNTS)
        ]
        paused = {row["name"]: row["paused"] for row in await self._reading.fetch(_QUEUES)}
        since = {row["name"]: row["since"] for row in await self._reading.fetch(PAUSED_QUEUES)}
        waits = [(*row,) for row in await self._reading.fetch(QUEUE_WAITS)]
        return queue_views(totals, paused, waits, since)

    async def depths(self) -> list[LaneDepth]:
        """Every lane that holds jobs: how many in each state, and how long the oldest waits."""
        return await depths(self._reading)

    async def workers(self) -> list[WorkerView]:
        """Live workers, and those that ended lately."""
        return [read_worker(**row) for row in await self._reading.fetch(_SHOWN_WORKERS)]

    async def dispatchers(self) -> list[DispatcherView]:
        """Every dispatcher that has not retired."""
        return [DispatcherView(**row) for row in await self._reading.fetch(_DISPATCHERS)]

    async def explain(self, job: Job) -> Facts:
        """What keeps a job where it is: its queue, the workers, the jobs ahead of it."""
        [(now, held, ahead)] = await self._reading.fetch(_FACTS, job.id, job.queue)
        workers = await self._reading.fetch(_ALIVE_WORKERS)
        return Facts(
            held_back=None if held is None else HeldBack(held),
            workers=tuple(read_worker(**row) for row in workers),
            ahead=ahead,
            now=now,
        )

    async def _news(self) -> int:
        """A number that changes whenever a job does."""
        return await self._number(_NEWS) or 0


async def listed_among(tx: Transaction, wanted: JobFilter) -> list[Job]:
    """The jobs with the wanted ids that match, as this transaction sees them, newest first."""
    found: list[Job] = []
    for listing in listings(wanted, last_number(wanted)):
        rows = await tx.fetch(_WITH_WORDS.format(listed=listing.sql), *listing.values)
        ids = [row["id"] for row in rows]
        args = dict(map(tuple, await tx.fetch(_ARGS, ids))) if wanted.args else {}
        found += page([_job(row, args.get(row["id"], b"")) for row in rows], wanted, None).jobs
    return found


def _job(row: asyncpg.Record | dict[str, Any], args: bytes | None = None) -> Job:
    columns = dict(row) if args is None else {**row, "args": args}
    group = columns.pop("group_id")
    return read_job(STATES[row["state"]], **columns, group=group)


def _whole_job(row: asyncpg.Record) -> Job:
    columns = dict(row)
    return with_waits(columns, _job, columns.pop("now"))


def claimed(row: asyncpg.Record) -> Attempt:
    """An attempt under way, from `CLAIMED_COLUMNS`."""
    id, number, token, kind, args, options, *owner_and_counts = row
    return Attempt(id, number, token, kind, args, unpack_options(options), *owner_and_counts)
