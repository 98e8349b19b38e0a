"""The reading half of the PostgreSQL store. Reads have connections of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

import asyncpg
import msgspec

from longshore.model.attempt import Attempt
from longshore.model.job import Ended, HistoryEntry, Job, JobFilter, JobPage, Progress
from longshore.model.worker import DispatcherView, Facts, Lane, QueueView, WorkerView
from longshore.store.listing import last_number, old, page, probes
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.listing import FLOOR, LAST, LISTED, listings
from longshore.store.postgres.states import CANCELLING, ENDED, OWNED, OWNED_CODES, READY, STATES
from longshore.store.rows import (
    read_history,
    unpack_error,
    unpack_info,
    unpack_options,
    unpack_progress,
    unpack_step,
)

MOST_AHEAD: Final = 1000
SHOWN_ENDED_WORKERS: Final = 20
_INT64: Final = range(-(2**63), 2**63)

CLAIMED_COLUMNS: Final = """
    j.id, j.number, j.token, j.kind, j.args, j.options, j.worker, j.session,
    j.attempt, j.failures, j.crashes, j.state
"""

_WHOLE: Final = f"""
SELECT {LISTED}, j.args, j.result, j.history, (
    SELECT data FROM longshore.log AS l
    WHERE l.job = j.id AND l.token = j.token AND l.kind = 2 ORDER BY l.seq DESC LIMIT 1
) AS progress, (
    SELECT data FROM longshore.log AS l
    WHERE l.job = j.id AND l.token = j.token AND l.kind = 1 ORDER BY l.seq DESC LIMIT 1
) AS step
FROM longshore.job AS j
"""
_SAID: Final = """
SELECT i.job, p.data AS progress, s.data AS step
FROM unnest($1::uuid[], $2::bigint[]) AS i (job, token)
LEFT JOIN LATERAL (
    SELECT data FROM longshore.log AS l
    WHERE l.job = i.job AND l.token = i.token AND l.kind = 2 ORDER BY l.seq DESC LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT data FROM longshore.log AS l
    WHERE l.job = i.job AND l.token = i.token AND l.kind = 1 ORDER BY l.seq DESC LIMIT 1
) AS s ON true
"""
_BY_ID: Final = f"{_WHOLE} WHERE j.id = $1"
_BY_NUMBER: Final = (
    f"{_WHOLE} WHERE j.id = (SELECT n.id FROM longshore.job_number AS n WHERE n.number = $1)"
)

_ENDED: Final = f"""
SELECT i.id, l.state, l.result, l.error
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT state, result, error FROM longshore.job WHERE id = i.id AND state >= {ENDED} OFFSET 0
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
SELECT w.*, (
    SELECT coalesce(json_object_agg(kind, n), '{{{{}}}}')::text FROM (
        SELECT kind, count(*) AS n FROM longshore.job AS j
        WHERE j.worker = w.id AND j.state IN ({OWNED}) GROUP BY kind
    ) AS k
) AS running, greatest(w.attended_at, h.seen_at) AS seen_at, h.cpu_percent, h.memory_percent
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
    coalesce((SELECT paused FROM longshore.queue WHERE name = $2), false) AS queue_paused,
    (
        SELECT count(*) FROM longshore.job AS own
        CROSS JOIN LATERAL (
            SELECT FROM longshore.job AS a
            WHERE a.state = {READY} AND a.lane = own.lane
                AND (~a.priority, a.rank, a.number) < (~own.priority, own.rank, own.number)
            LIMIT {MOST_AHEAD}
        ) AS before
        WHERE own.id = $1
    ) AS ahead
"""

_NEWS: Final = "SELECT last_value FROM longshore.tally_number"


class PostgresReads:
    """The verbs that change nothing."""

    _reading: ConnectionPool

    async def job(self, ref: UUID | int) -> Job | None:
        """One job, whole."""
        if isinstance(ref, int) and ref not in _INT64:
            return None
        rows = await self._read(_BY_NUMBER if isinstance(ref, int) else _BY_ID, ref)
        return _whole(rows[0]) if rows else None

    async def jobs(self, wanted: JobFilter) -> JobPage:
        """Jobs, newest first, without their arguments, results, history and logs."""
        rows: list[asyncpg.Record] = []
        stopped_at: int | None = None
        for listing in listings(wanted, await self._floor(wanted)):
            rows = await self._read(listing.sql, *listing.values)
            is_full = len(rows) >= wanted.limit
            if listing.stopped is not None and (listing.merged or not is_full):
                stopped_at = await self._number(listing.stopped, *listing.values[:2])
            if is_full:
                break
        said = await self._said([row for row in rows if row["state"] in OWNED_CODES])
        return page([_listed(row, said.get(row["id"])) for row in rows], wanted, stopped_at)

    async def _floor(self, wanted: JobFilter) -> int:
        """A number below which, and at which, no job came since the time that is wanted."""
        if wanted.since is None:
            return 0
        last = await self._number(LAST, last_number(wanted))
        if last is None:
            return 0
        return await self._number(FLOOR, probes(last), old(wanted.since)) or 0

    async def _number(self, sql: str, *values: object) -> int | None:
        rows = await self._read(sql, *values)
        number: int | None = rows[0]["number"] if rows else None
        return number

    async def _said(self, running: Sequence[asyncpg.Record]) -> dict[UUID, asyncpg.Record]:
        """The newest progress and step of these attempts, by job."""
        if not running:
            return {}
        jobs, tokens = [row["id"] for row in running], [row["token"] for row in running]
        return {row["job"]: row for row in await self._read(_SAID, jobs, tokens)}

    async def ended(self, ids: Sequence[UUID]) -> list[Ended]:
        """The outcomes of those of these jobs that have one."""
        rows = await self._read(_ENDED, ids) if ids else []
        return [
            Ended(row["id"], STATES[row["state"]], row["result"], unpack_error(row["error"]))
            for row in rows
        ]

    async def lanes(self, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        """Every lane that held a job and was not forgotten."""
        return [Lane(*row) for row in await self._read(_LANES)]

    async def queues(self) -> list[QueueView]:
        """Every queue that ever held a job or was paused."""
        counts: dict[str, dict[str, int]] = {}
        for row in await self._read(_COUNTS):
            states = counts.setdefault(row["queue"], {})
            if row["n"]:
                states[STATES[row["state"]].value] = row["n"]
        paused = {row["name"]: row["paused"] for row in await self._read(_QUEUES)}
        return [
            QueueView(name, paused.get(name, False), counts.get(name, {}))
            for name in sorted(counts.keys() | paused.keys())
        ]

    async def workers(self) -> list[WorkerView]:
        """Live workers, and those that ended lately."""
        return [_worker(row) for row in await self._read(_SHOWN_WORKERS)]

    async def dispatchers(self) -> list[DispatcherView]:
        """Every dispatcher that has not retired."""
        return [DispatcherView(**row) for row in await self._read(_DISPATCHERS)]

    async def explain(self, job: Job) -> Facts:
        """What keeps a job where it is: its queue, the workers, the jobs ahead of it."""
        [facts] = await self._read(_FACTS, job.id, job.queue)
        workers = await self._read(_ALIVE_WORKERS)
        return Facts(workers=tuple(map(_worker, workers)), **facts)

    async def _news(self) -> int:
        """A number that changes whenever a job does."""
        [row] = await self._read(_NEWS)
        news: int = row["last_value"]
        return news

    async def _read(self, sql: str, *values: object) -> list[asyncpg.Record]:
        async def fetch(tx: Transaction) -> list[asyncpg.Record]:
            return await tx.fetch(sql, *values)

        return await self._reading.run(fetch)


def claimed(row: asyncpg.Record) -> Attempt:
    """An attempt under way, from `CLAIMED_COLUMNS`."""
    id, number, token, kind, args, options, worker, session, *counts, state = row[:12]
    cancelling = state == CANCELLING
    attempt, failures, crashes = counts
    return Attempt(
        id,
        number,
        token,
        kind,
        args,
        unpack_options(options),
        worker,
        session,
        attempt,
        failures,
        crashes,
        cancelling,
    )


def _listed(row: asyncpg.Record, said: asyncpg.Record | None) -> Job:
    if said is None:
        return _shown(row, b"", None)
    return _shown(
        row, b"", None, progress=unpack_progress(said["progress"]), step=unpack_step(said["step"])
    )


def _whole(row: asyncpg.Record) -> Job:
    return _shown(
        row,
        row["args"],
        row["result"],
        history=read_history(f"[{row['history']}]"),
        progress=unpack_progress(row["progress"]),
        step=unpack_step(row["step"]),
    )


def _shown(
    row: asyncpg.Record,
    args: bytes,
    result: bytes | None,
    *,
    history: tuple[HistoryEntry, ...] = (),
    progress: Progress | None = None,
    step: str | None = None,
) -> Job:
    return Job(
        id=row["id"],
        number=row["number"],
        kind=row["kind"],
        queue=row["queue"],
        target=row["target"],
        priority=row["priority"],
        state=STATES[row["state"]],
        args=args,
        options=unpack_options(row["options"]),
        unique_key=row["unique_key"],
        created_at=row["created_at"],
        run_at=row["run_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        round=row["round"],
        attempt=row["attempt"],
        failures=row["failures"],
        crashes=row["crashes"],
        token=row["token"],
        worker=row["worker"],
        result=result,
        error=unpack_error(row["error"]),
        history=history,
        progress=progress,
        step=step,
    )


def _worker(row: asyncpg.Record) -> WorkerView:
    return WorkerView(
        info=unpack_info(row["info"]),
        session=row["session"],
        dispatcher=row["dispatcher"],
        alive=row["alive"],
        draining=row["draining"],
        running=msgspec.json.decode(row["running"]),
        started_at=row["started_at"],
        attended_at=row["attended_at"],
        ended_at=row["ended_at"],
        ended_why=row["ended_why"],
        seen_at=row["seen_at"],
        cpu_percent=row["cpu_percent"],
        memory_percent=row["memory_percent"],
    )
