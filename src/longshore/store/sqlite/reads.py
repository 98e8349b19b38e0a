"""What the SQLite store shows: jobs, logs, workers, queues, and why a job is where it is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import structs

from longshore.core.lanes import lane_of
from longshore.core.lifecycle import TERMINAL
from longshore.core.why import Facts
from longshore.model.attempt import Attempt
from longshore.model.job import Ended, Job, JobFilter, JobPage, JobState, LogKind
from longshore.model.log import KeptEntry
from longshore.model.worker import DispatcherView, Lane, QueueView, SessionKey, WorkerView
from longshore.store.listing import (
    NEAR,
    Contents,
    contents,
    last_number,
    most_looked_at,
    must_walk,
    narrow,
    old,
    page,
    page_size,
    probes,
    spread,
    young,
)
from longshore.store.rows import (
    LARGEST_INT,
    NOT_RUN_LIST,
    clean,
    log_bounds,
    micros,
    moment,
    queue_views,
    read_job,
    read_worker,
    unpack_error,
    unpack_options,
)
from longshore.store.sqlite.checkpoints import checkpoint
from longshore.store.sqlite.pauses import paused_since
from longshore.store.sqlite.queue_waits import queue_waits
from longshore.store.sqlite.sql import NEXT_DUE, ORPHANED, PAST_DEADLINE, Bulk, Value
from longshore.store.sqlite.start_rules import held_back
from longshore.store.sqlite.states import BEHIND_KEYS, ENDED_BADLY, INDEXES, OWNED_LIST
from longshore.store.sqlite.transaction import Snapshot
from longshore.store.waits import with_waits

_MAX_AHEAD: Final = 1000
_SHOWN_ENDED_WORKERS: Final = 20
_IDS: Final = frozenset({"id", "worker", "dispatcher", "group"})

_ATTEMPT: Final = """id, number, token, kind, args, options, worker, session, attempt, failures,
    crashes, state = 'cancelling' AS cancelling, priority, deadline_at AS begin_by,
    round"""
_SHOWN: Final = """id, number, kind, queue, target, priority, state, options, unique_key,
    created_at, run_at, started_at, ended_at, round, attempt, failures, crashes, token, worker,
    error, deadline_at,
    (SELECT g.id FROM job_group AS g WHERE g.number = group_id) AS "group\""""


def _newest(kind: LogKind) -> str:
    """SQL for the newest entry of this kind that the job's last attempt wrote."""
    return f"""(SELECT data FROM log INDEXED BY log_newest
        WHERE kind <> 0 AND log.job = job.number AND log.token = job.token AND kind = {kind:d}
        ORDER BY seq DESC LIMIT 1)"""


_PROGRESS: Final = _newest(LogKind.PROGRESS)
_STEP: Final = _newest(LogKind.STEP)
_OPEN: Final = f"""CASE WHEN kind IN ({NOT_RUN_LIST}) THEN
    coalesce((SELECT node.open FROM node WHERE node.job = job.number), 0) ELSE 0 END"""
_WHOLE: Final = f"""SELECT {_SHOWN}, args, result, history, {_PROGRESS} AS progress,
    {_STEP} AS step, {_OPEN} AS open, blocked_on, blocked_at, stays, (
        SELECT json_group_array(json_array(
            json(CASE is_group WHEN 1 THEN 'true' ELSE 'false' END), since, until))
        FROM pause WHERE (is_group = 0 AND name = job.queue)
            OR (is_group = 1 AND name = CAST(job.group_id AS TEXT))) AS pauses
    FROM job WHERE {{named}}"""
_LISTED: Final = f"""SELECT {_SHOWN},
    CASE WHEN state IN {OWNED_LIST} THEN {_PROGRESS} END AS progress,
    CASE WHEN state IN {OWNED_LIST} THEN {_STEP} END AS step,
    {_OPEN} AS open
    FROM job WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number DESC"""
_ARGS: Final = "SELECT number, args FROM job WHERE number IN (SELECT value FROM json_each(?))"
_AT_TIMES: Final = """SELECT place.value, (
        SELECT created_at FROM job WHERE number <= place.value ORDER BY number DESC LIMIT 1
    ) AS came FROM json_each(?) AS place WHERE came IS NOT NULL"""
_LOGS: Final = """SELECT token, seq, kind, at, data FROM log
    WHERE job = (SELECT number FROM job WHERE {named})
        AND token BETWEEN ? AND ? AND (token, seq) > (?, ?)
    ORDER BY token, seq LIMIT ?"""

_WORKER: Final = f"""SELECT info, session, dispatcher, alive, draining,
    (SELECT json_group_object(kind, n) FROM (
        SELECT kind, count(*) AS n FROM job INDEXED BY job_owned
        WHERE job.state IN {OWNED_LIST} AND job.worker = worker.id GROUP BY kind)) AS running,
    (SELECT json_group_object(target, n) FROM (
        SELECT target, count(*) AS n FROM job INDEXED BY job_owned
        WHERE job.state IN {OWNED_LIST} AND job.worker = worker.id AND instr(target, ';')
        GROUP BY target)) AS shapes,
    started_at, attended_at, ended_at, ended_why,
    max(attended_at, coalesce(h.seen_at, 0)) AS seen_at, h.cpu_percent, h.memory_percent
    FROM worker INDEXED BY {{index}} LEFT JOIN heartbeat AS h ON h.worker = worker.id"""
_ALIVE: Final = _WORKER.format(index="worker_alive") + " WHERE alive = 1 ORDER BY started_at, id"
_ENDED: Final = (
    _WORKER.format(index="worker_ended") + " WHERE alive = 0 ORDER BY ended_at DESC LIMIT ?"
)

_OUTCOMES: Final = Bulk(
    """SELECT job.id, state, result, error FROM {rows} AS v
    CROSS JOIN job ON job.id = v.column1""",
    1,
)

_GROUP_ENDS: Final = Bulk(
    """SELECT g.id, g.state FROM {rows} AS v CROSS JOIN job_group AS g ON g.id = v.column1
    WHERE g.ended_at IS NOT NULL AND g.is_gone = 0""",
    1,
)

_OF_GROUP: Final = """WHERE number IN (
    SELECT node.job FROM job_group AS g CROSS JOIN node ON node.group_id = g.number
    WHERE g.id = :group)"""
_OF_IDS: Final = "WHERE id IN ({ids})"
_WALK: Final = "NOT INDEXED WHERE true"
_IN_ORDER: Final = {
    _WALK,
    *(source for source in INDEXES.values() if source.startswith(ENDED_BADLY)),
}
"""The sources that give jobs in the order of their numbers."""


def _rows(
    tx: Snapshot, query: str, values: Sequence[Value] | Mapping[str, Value] = ()
) -> Iterator[dict[str, Any]]:
    """The rows of a query by the names of their columns; ids and times as Python has them."""
    cursor = tx.execute(query, values)
    names = [name for name, *_ in cursor.description]
    for row in cursor:
        yield {name: _read(name, value) for name, value in zip(names, row, strict=True)}


def _read(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _IDS:
        return UUID(bytes=value)
    return moment(value) if name.endswith("_at") else value


# attempts


def placed(tx: Snapshot, slots: Sequence[SessionKey]) -> list[Attempt]:
    """The attempts these sessions own, whether or not anybody told the workers."""
    wanted = set(slots)
    owned = (one for worker in {slot.worker for slot in slots} for one in claimed_by(tx, worker))
    return sorted(
        (one for one in owned if SessionKey(one.worker, one.session) in wanted),
        key=lambda one: one.number,
    )


def claimed_by(tx: Snapshot, worker: UUID) -> list[Attempt]:
    """The attempts a worker owns, in the order of their jobs' numbers."""
    query = f"""SELECT {_ATTEMPT} FROM job INDEXED BY job_owned
        WHERE state IN {OWNED_LIST} AND worker = ? ORDER BY number"""
    return _attempts(tx, query, (worker.bytes,))


def overdue(tx: Snapshot, most: int = 1000) -> list[Attempt]:
    """Running attempts past their timeout and the backstop's margin after it."""
    query = f"""SELECT {_ATTEMPT} FROM job INDEXED BY job_expiring
        WHERE state = 'running' AND expires_at IS NOT NULL AND expires_at <= ?
        ORDER BY expires_at LIMIT ?"""
    return _attempts(tx, query, (tx.now, most))


def cancelling(tx: Snapshot, dispatcher: UUID) -> list[Attempt]:
    """Attempts being cancelled on this dispatcher's live workers."""
    query = f"""SELECT {_ATTEMPT} FROM job INDEXED BY job_cancelling
        WHERE state = 'cancelling' AND worker IN (
            SELECT id FROM worker WHERE alive = 1 AND dispatcher = ?)
        ORDER BY number"""
    return _attempts(tx, query, (dispatcher.bytes,))


def _attempts(tx: Snapshot, query: str, values: Sequence[Value]) -> list[Attempt]:
    found = []
    for row in _rows(tx, query, values):
        row["begin_within_s"] = tx.seconds_to(row.pop("begin_by"))
        row["options"] = unpack_options(row["options"])
        row["cancelling"] = bool(row["cancelling"])
        found.append(Attempt(**row))
    return found


def next_due_s(tx: Snapshot) -> float | None:
    """In how many seconds the next delayed job comes due; None if there is none."""
    row = tx.execute(NEXT_DUE).fetchone()
    return None if row is None else max(0.0, (row[0] - tx.now) / 1e6)


def has_expired(tx: Snapshot) -> bool:
    """Whether any ready job is past its deadline."""
    return tx.execute(f"SELECT 1 FROM {PAST_DEADLINE} LIMIT 1", (tx.now,)).fetchone() is not None


def has_orphans(tx: Snapshot) -> bool:
    """Whether any job is owned by a worker that is not alive."""
    return tx.execute(ORPHANED).fetchone() is not None


# jobs


def job(tx: Snapshot, ref: UUID | int) -> Job | None:
    """One job, whole, with the newest progress and step of its last attempt."""
    rows = _rows(tx, _WHOLE.format(named=_named(ref)), (_key(ref),))
    now = moment(tx.now)
    found = next((with_waits(row, _read_job, now) for row in rows), None)
    saved = None if found is None or not found.attempt else checkpoint(tx, found.id)
    return (
        found if found is None or saved is None else structs.replace(found, checkpoint=saved.view)
    )


def _read_job(row: dict[str, Any]) -> Job:
    return read_job(JobState(row["state"]), **row)


def _named(ref: UUID | int) -> str:
    return "id = ?" if isinstance(ref, UUID) else "number = ?"


def _key(ref: UUID | int) -> bytes | int:
    if isinstance(ref, UUID):
        return ref.bytes
    return ref if 0 < ref <= LARGEST_INT else 0


def logs(
    tx: Snapshot,
    ref: UUID | int,
    *,
    token: int | None = None,
    after: tuple[int, int] = (0, 0),
    most: int = 1000,
) -> list[KeptEntry]:
    """What a job's attempts said after a place, in the order of tokens and entries."""
    values = (_key(ref), *log_bounds(token, after, most))
    rows = tx.execute(_LOGS.format(named=_named(ref)), values)
    return [
        KeptEntry(token, seq, LogKind(kind), moment(at), bytes(data))
        for token, seq, kind, at, data in rows
    ]


def jobs(tx: Snapshot, wanted: JobFilter) -> JobPage:
    """Jobs, newest first, without their arguments, results, history and logs."""
    numbers, stopped_at = _newest_numbers(tx, wanted)
    listed = (msgspec.json.encode(numbers).decode(),)
    rows = _rows(tx, _LISTED, listed)
    args = dict(tx.execute(_ARGS, listed)) if wanted.args else {}
    found = [
        read_job(JobState(row["state"]), **row, args=args.get(row["number"], b"")) for row in rows
    ]
    return page(found, wanted, stopped_at)


def _newest_numbers(tx: Snapshot, wanted: JobFilter) -> tuple[list[int], int | None]:
    """The numbers of the newest jobs that match, and where the search had to stop."""
    inside = contents(wanted)
    if inside is None:
        return [], None
    also, values = _conditions(wanted, inside, tx.now)
    values["last"] = _last(tx, wanted)
    values["floor"] = _floor(tx, wanted, values)
    found: list[int] = []
    stopped_at: int | None = None
    for source, in_state in _sources(wanted):
        stretch = f"{source} AND number <= :last AND number > :floor"
        lowest = None
        if (also or in_state) and source in _IN_ORDER:
            lowest = _number_at(tx, stretch, most_looked_at(wanted), values)
        query = f"""SELECT number FROM job {stretch} AND number >= :lowest{in_state}{also}
            ORDER BY number DESC LIMIT :limit"""
        found += (row[0] for row in tx.execute(query, {**values, "lowest": lowest or 0}))
        stopped_at = max(filter(None, (stopped_at, lowest)), default=None)
    return nlargest(page_size(wanted), found), stopped_at


def _sources(wanted: JobFilter) -> list[tuple[str, str]]:
    """Where to look, and which states to look for there: by one walk, or each by its index."""
    states = list(dict.fromkeys(wanted.states))
    names = ", ".join(f"'{state.value}'" for state in states)
    in_state = f" AND state IN ({names})" if states else ""
    if wanted.ids:
        ids = ", ".join(f"x'{id.hex}'" for id in wanted.ids)
        of_group = _OF_GROUP.replace("WHERE", " AND", 1) if wanted.group is not None else ""
        return [(_OF_IDS.format(ids=ids) + of_group, in_state)]
    if wanted.group is not None:
        return [(_OF_GROUP, in_state)]
    if not must_walk(wanted):
        behind = [(BEHIND_KEYS, "")] if JobState.READY in states else []
        return [*((INDEXES[state], "") for state in states), *behind]
    return [(_WALK, in_state)]


def _number_at(tx: Snapshot, stretch: str, most: int, values: dict[str, Value]) -> int | None:
    """The number of the last of so many jobs; None if there are not so many."""
    query = f"SELECT number FROM job {stretch} ORDER BY number DESC LIMIT 1 OFFSET :skipped"
    row = tx.execute(query, {**values, "skipped": most - 1}).fetchone()
    return None if row is None else int(row[0])


def _last(tx: Snapshot, wanted: JobFilter) -> int:
    """A number past which no wanted job is."""
    last = last_number(wanted)
    if wanted.until is None:
        return last
    [found] = tx.execute("SELECT max(number) FROM job WHERE number <= ?", (last,)).fetchone()
    low, high, after = 0, found or 0, young(wanted.until)
    while high - low > NEAR:
        numbers = spread(low, high)
        places = msgspec.json.encode(numbers).decode()
        came = {number: moment(at) for number, at in tx.execute(_AT_TIMES, (places,))}
        low, high = narrow(numbers, came, high, after)
    return high


def _floor(tx: Snapshot, wanted: JobFilter, values: dict[str, Value]) -> int:
    """A number up to which no job came since the wanted time."""
    if wanted.since is None:
        return 0
    [last] = tx.execute("SELECT max(number) FROM job WHERE number <= :last", values)
    places = msgspec.json.encode(probes(last[0] or 0)).decode()
    query = """SELECT max(near.number) FROM (
            SELECT (SELECT max(number) FROM job WHERE number <= place.value) AS number
            FROM json_each(?) AS place) AS near
        CROSS JOIN job ON job.number = near.number WHERE created_at < ?"""
    [floor] = tx.execute(query, (places, micros(old(wanted.since))))
    return floor[0] or 0


def _contained(inside: Contents) -> tuple[str, dict[str, Value]]:
    """SQL for the bytes that columns contain."""
    values: dict[str, Value] = {}

    def contains(column: str, wanted: bytes) -> str:
        name = f"inside{len(values)}"
        values[name] = wanted
        return f"instr({column}, :{name}) > 0"

    found = [contains("options", label) for label in inside.labels]
    found += [] if inside.error is None else [contains("error", inside.error)]
    found += [contains("args", key) for key in inside.keys]
    found += [f"({' OR '.join(contains('args', one) for one in forms)})" for forms in inside.values]
    return "".join(f" AND {one}" for one in found), values


def _conditions(wanted: JobFilter, inside: Contents, now: int) -> tuple[str, dict[str, Value]]:
    """SQL for the conditions besides states. Kind and queue are those of the lane."""
    also, values = _contained(inside)
    values["limit"] = page_size(wanted)
    if wanted.since is not None:
        also += " AND created_at >= :since"
        values["since"] = micros(wanted.since)
    if wanted.until is not None:
        also += " AND created_at < :until"
        values["until"] = micros(wanted.until)
    if wanted.slower_s is not None:
        also += " AND coalesce(ended_at, :now) - started_at >= :slower"
        values |= {"now": now, "slower": wanted.slower_s * 1e6}
    if wanted.worker is not None:
        also += " AND worker = :worker"
        values["worker"] = wanted.worker.bytes
    if wanted.group is not None:
        values["group"] = wanted.group.bytes
    for name, text in (("kind", wanted.kind), ("queue", wanted.queue)):
        if text is not None:
            also += f" AND lane IN (SELECT hash FROM lane WHERE lane.{name} = :{name})"
            values[name] = clean(text)
    return also, values


def ended(tx: Snapshot, ids: Sequence[UUID]) -> list[Ended]:
    """The outcomes of those of these jobs that have one, in the order given."""
    found: dict[UUID, Ended] = {}
    for text, values in _OUTCOMES.pieces([(id.bytes,) for id in ids]):
        for key, state, result, error in tx.execute(text, values):
            if state in TERMINAL:
                id = UUID(bytes=key)
                found[id] = Ended(id, JobState(state), result, unpack_error(error))
    if len(found) < len(ids):
        for text, values in _GROUP_ENDS.pieces([(id.bytes,) for id in ids if id not in found]):
            for key, state in tx.execute(text, values):
                found[UUID(bytes=key)] = Ended(UUID(bytes=key), JobState(state))
    return [found[id] for id in ids if id in found]


# lanes, queues, workers, dispatchers


def lanes(tx: Snapshot, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
    """Every lane that held a job and was not forgotten."""
    return [Lane(*row) for row in tx.execute("SELECT hash, queue, kind, target FROM lane")]


def queues(tx: Snapshot) -> list[QueueView]:
    """Every queue that ever held a job or was paused, by name."""
    totals = tx.execute(
        """SELECT lane.queue, tally.state, sum(tally.n) FROM lane
        LEFT JOIN tally ON tally.lane = lane.hash GROUP BY 1, 2"""
    )
    paused = dict(tx.execute("SELECT name, paused FROM queue"))
    return queue_views(totals, paused, queue_waits(tx), paused_since(tx))


def workers(tx: Snapshot) -> list[WorkerView]:
    """Live workers, and those that ended lately."""
    rows = [*_rows(tx, _ALIVE), *_rows(tx, _ENDED, (_SHOWN_ENDED_WORKERS,))]
    return [read_worker(**row) for row in rows]


def draining(tx: Snapshot, dispatcher: UUID) -> list[UUID]:
    """The live workers of this dispatcher that are to be given nothing more."""
    query = """SELECT id FROM worker INDEXED BY worker_alive
        WHERE alive = 1 AND dispatcher = ? AND draining = 1"""
    return [row["id"] for row in _rows(tx, query, (dispatcher.bytes,))]


def dispatchers(tx: Snapshot) -> list[DispatcherView]:
    """Every dispatcher that has not retired."""
    query = "SELECT id, name, renewed_no, started_at FROM dispatcher ORDER BY started_at, id"
    return [DispatcherView(**row) for row in _rows(tx, query)]


def explain(tx: Snapshot, job: Job) -> Facts:
    """What keeps a job where it is: its queue, the workers, the jobs ahead of it."""
    return Facts(
        held_back=held_back(tx, job),
        workers=tuple(read_worker(**row) for row in _rows(tx, _ALIVE)),
        ahead=_ahead(tx, job),
        now=moment(tx.now),
    )


def _ahead(tx: Snapshot, job: Job) -> int:
    """How many ready jobs of its lane come before a job, up to a bound."""
    [rank] = tx.execute("SELECT rank FROM job WHERE number = ?", (job.number,)).fetchone() or [0]
    lane = lane_of(job.queue, job.kind, job.target).hash
    query = """SELECT count(*) FROM (
            SELECT -priority AS urgency, rank, number FROM job INDEXED BY job_ready
            WHERE state = 'ready' AND blocked_on IS NULL AND lane = ?
            ORDER BY priority DESC, rank, number LIMIT ?)
        WHERE (urgency, rank, number) < (?, ?, ?)"""
    values = (lane, _MAX_AHEAD, -job.priority, rank, job.number)
    count: int = tx.execute(query, values).fetchone()[0]
    return count
