"""What the SQLite store shows: jobs, workers, queues, and why a job is where it is."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from heapq import nlargest
from typing import Any, Final
from uuid import UUID

import msgspec

from longshore.core.lanes import lane_of
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.model.attempt import Attempt
from longshore.model.job import Ended, Job, JobFilter, JobPage, JobState, LogKind
from longshore.model.worker import DispatcherView, Facts, Lane, QueueView, Slot, WorkerView
from longshore.store.listing import (
    most_looked_at,
    must_walk,
    old,
    packed_labels,
    page,
    page_size,
    probes,
)
from longshore.store.rows import (
    clean,
    micros,
    moment,
    read_history,
    unpack_error,
    unpack_info,
    unpack_options,
    unpack_progress,
    unpack_step,
)
from longshore.store.sqlite.sql import NEXT_DUE, ORPHANED, Bulk
from longshore.store.sqlite.states import OWNED_LIST

_MAX_AHEAD: Final = 1000
_SHOWN_ENDED_WORKERS: Final = 20
_MAX: Final = 2**63 - 1

_CLAIMED: Final = """id, number, token, kind, args, options, worker, session, attempt, failures,
    crashes, state = 'cancelling'"""
_SHOWN: Final = """id, number, kind, queue, target, priority, state, options, unique_key,
    created_at, run_at, started_at, ended_at, round, attempt, failures, crashes, token, worker,
    error"""

# Which index lists the jobs of a state, with the condition that it is made with. Jobs that went
# well are in none: they are found by going back from the newest.
_OWNED: Final = f"INDEXED BY job_owned WHERE state IN {OWNED_LIST}"
_BAD: Final = "INDEXED BY job_ended_badly WHERE"
_BY_STATE: Final = {
    JobState.WAITING: "INDEXED BY job_waiting WHERE state = 'waiting'",
    JobState.DELAYED: "INDEXED BY job_due WHERE state = 'delayed'",
    JobState.READY: "INDEXED BY job_ready WHERE state = 'ready'",
    JobState.RUNNING: f"{_OWNED} AND state = 'running'",
    JobState.CANCELLING: f"{_OWNED} AND state = 'cancelling'",
    JobState.FAILED: f"{_BAD} state = 'failed'",
    JobState.DEPENDENCY_FAILED: f"{_BAD} state = 'dependency_failed'",
    JobState.SKIPPED: f"{_BAD} state = 'skipped'",
    JobState.CANCELLED: f"{_BAD} state = 'cancelled'",
}


_WALK: Final = "NOT INDEXED WHERE true"
_IN_ORDER: Final = {
    _WALK,
    *(source for source in _BY_STATE.values() if source.startswith(_BAD)),
}
"""Ways on which jobs are met in the order of their numbers."""


# attempts


def placed(connection: sqlite3.Connection, slots: Sequence[Slot]) -> list[Attempt]:
    """The attempts these sessions own."""
    wanted = set(slots)
    owned = (
        one for worker in {slot.worker for slot in slots} for one in claimed_by(connection, worker)
    )
    return sorted(
        (one for one in owned if Slot(one.worker, one.session) in wanted),
        key=lambda one: one.number,
    )


def claimed_by(connection: sqlite3.Connection, worker: UUID) -> list[Attempt]:
    """The attempts a worker owns, in the order of their jobs' numbers."""
    query = f"""SELECT {_CLAIMED} FROM job INDEXED BY job_owned
        WHERE state IN {OWNED_LIST} AND worker = ? ORDER BY number"""
    return [_claimed(row) for row in connection.execute(query, (worker.bytes,))]


def overdue(connection: sqlite3.Connection, now: int, most: int) -> list[Attempt]:
    """Running attempts whose expiry has passed."""
    query = f"""SELECT {_CLAIMED} FROM job INDEXED BY job_expiring
        WHERE state = 'running' AND expires_at IS NOT NULL AND expires_at <= ?
        ORDER BY expires_at LIMIT ?"""
    return [_claimed(row) for row in connection.execute(query, (now, most))]


def cancelling(connection: sqlite3.Connection, dispatcher: UUID) -> list[Attempt]:
    """Attempts being cancelled on a dispatcher's live workers."""
    query = f"""SELECT {_CLAIMED} FROM job INDEXED BY job_cancelling
        WHERE state = 'cancelling' AND worker IN (
            SELECT id FROM worker WHERE alive = 1 AND dispatcher = ?)
        ORDER BY number"""
    return [_claimed(row) for row in connection.execute(query, (dispatcher.bytes,))]


def _claimed(row: Sequence[Any]) -> Attempt:
    id, number, token, kind, args, options, worker, session, attempt, failures, crashes, state = (
        row[:12]
    )
    return Attempt(
        UUID(bytes=id),
        number,
        token,
        kind,
        args,
        unpack_options(options),
        UUID(bytes=worker),
        session,
        attempt,
        failures,
        crashes,
        bool(state),
    )


def next_due_s(connection: sqlite3.Connection, now: int) -> float | None:
    """In how many seconds the next delayed job comes due; None if there is none."""
    row = connection.execute(NEXT_DUE).fetchone()
    return None if row is None else max(0.0, (row[0] - now) / 1e6)


def has_orphans(connection: sqlite3.Connection) -> bool:
    """Whether any job is owned by a worker that is not alive."""
    return connection.execute(ORPHANED).fetchone() is not None


# jobs


def job(connection: sqlite3.Connection, ref: UUID | int) -> Job | None:
    """One job, whole, with the newest that its last attempt said."""
    query = f"SELECT {_SHOWN}, args, result, history FROM job WHERE {_named(ref)}"
    row = connection.execute(query, (_key(ref),)).fetchone()
    if row is None:
        return None
    return _with_its_words(connection, _shown(row, *row[-3:]))


def _with_its_words(connection: sqlite3.Connection, job: Job) -> Job:
    """A job with the newest progress and step of its last attempt."""
    return msgspec.structs.replace(
        job,
        progress=unpack_progress(_newest(connection, job, LogKind.PROGRESS)),
        step=unpack_step(_newest(connection, job, LogKind.STEP)),
    )


def _named(ref: UUID | int) -> str:
    return "id = ?" if isinstance(ref, UUID) else "number = ?"


def _key(ref: UUID | int) -> bytes | int:
    if isinstance(ref, UUID):
        return ref.bytes
    return ref if 0 < ref <= _MAX else 0


def _newest(connection: sqlite3.Connection, job: Job, kind: LogKind) -> bytes | None:
    query = """SELECT data FROM log INDEXED BY log_newest
        WHERE kind <> 0 AND job = ? AND token = ? AND kind = ? ORDER BY seq DESC LIMIT 1"""
    row = connection.execute(query, (job.number, job.token, kind)).fetchone()
    return None if row is None else bytes(row[0])


def jobs(connection: sqlite3.Connection, wanted: JobFilter) -> JobPage:
    """Jobs, newest first, without what may be large."""
    numbers, stopped_at = _newest_numbers(connection, wanted)
    query = f"""SELECT {_SHOWN} FROM job
        WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number DESC"""
    rows = connection.execute(query, (msgspec.json.encode(numbers).decode(),))
    found = [_shown(row, b"", None, "[]") for row in rows]
    shown = [_with_its_words(connection, job) if job.state in OWNED else job for job in found]
    return page(shown, wanted, stopped_at)


def _newest_numbers(
    connection: sqlite3.Connection, wanted: JobFilter
) -> tuple[list[int], int | None]:
    """The numbers of the newest jobs that match, and where it had to stop looking for them."""
    labels = packed_labels(wanted)
    if labels is None:
        return [], None
    also, values = _conditions(wanted, labels)
    values["floor"] = _floor(connection, wanted, values)
    found: list[int] = []
    stopped_at: int | None = None
    for source, in_state in _sources(wanted):
        stretch = f"{source} AND number < :before AND number > :floor"
        lowest = None
        if (also or in_state) and source in _IN_ORDER:
            lowest = _number_at(connection, stretch, most_looked_at(wanted), values)
        query = f"""SELECT number FROM job {stretch} AND number >= :lowest{in_state}{also}
            ORDER BY number DESC LIMIT :limit"""
        found += (row[0] for row in connection.execute(query, {**values, "lowest": lowest or 0}))
        stopped_at = max(filter(None, (stopped_at, lowest)), default=None)
    return nlargest(page_size(wanted), found), stopped_at


def _sources(wanted: JobFilter) -> list[tuple[str, str]]:
    """Where to look, and which states to look for there: by one walk, or each by its index."""
    states = list(dict.fromkeys(wanted.states))
    if not must_walk(wanted):
        return [(_BY_STATE[state], "") for state in states]
    names = ", ".join(f"'{state.value}'" for state in states)
    return [(_WALK, f" AND state IN ({names})" if states else "")]


def _number_at(
    connection: sqlite3.Connection, stretch: str, most: int, values: dict[str, int | str | bytes]
) -> int | None:
    """The number of the last of so many jobs; None if there are not so many."""
    query = f"SELECT number FROM job {stretch} ORDER BY number DESC LIMIT 1 OFFSET :skipped"
    row = connection.execute(query, {**values, "skipped": most - 1}).fetchone()
    return None if row is None else int(row[0])


def _floor(
    connection: sqlite3.Connection, wanted: JobFilter, values: dict[str, int | str | bytes]
) -> int:
    """A number below which, and at which, no job came since the time that is wanted."""
    if wanted.since is None:
        return 0
    [last] = connection.execute("SELECT max(number) FROM job WHERE number < :before", values)
    places = msgspec.json.encode(probes(last[0] or 0)).decode()
    query = """SELECT max(near.number) FROM (
            SELECT (SELECT max(number) FROM job WHERE number <= place.value) AS number
            FROM json_each(?) AS place) AS near
        CROSS JOIN job ON job.number = near.number WHERE created_at < ?"""
    [floor] = connection.execute(query, (places, micros(old(wanted.since))))
    return floor[0] or 0


def _conditions(
    wanted: JobFilter, labels: Sequence[bytes]
) -> tuple[str, dict[str, int | str | bytes]]:
    """What is asked for besides states, as SQL. Kind and queue are those of the lane."""
    also = ""
    values: dict[str, int | str | bytes] = {"limit": page_size(wanted)}
    values["before"] = _MAX if wanted.before is None else max(min(wanted.before, _MAX), -_MAX)
    for place, label in enumerate(labels):
        also += f" AND instr(options, :label{place}) > 0"
        values[f"label{place}"] = label
    if wanted.since is not None:
        also += " AND created_at >= :since"
        values["since"] = micros(wanted.since)
    if wanted.worker is not None:
        also += " AND worker = :worker"
        values["worker"] = wanted.worker.bytes
    for name, text in (("kind", wanted.kind), ("queue", wanted.queue)):
        if text is not None:
            also += f" AND lane IN (SELECT hash FROM lane WHERE lane.{name} = :{name})"
            values[name] = clean(text)
    return also, values


def _shown(row: Sequence[Any], args: bytes, result: bytes | None, history: str) -> Job:
    return Job(
        id=UUID(bytes=row[0]),
        number=row[1],
        kind=row[2],
        queue=row[3],
        target=row[4],
        priority=row[5],
        state=JobState(row[6]),
        args=args,
        options=unpack_options(row[7]),
        unique_key=row[8],
        created_at=moment(row[9]),
        run_at=None if row[10] is None else moment(row[10]),
        started_at=None if row[11] is None else moment(row[11]),
        ended_at=None if row[12] is None else moment(row[12]),
        round=row[13],
        attempt=row[14],
        failures=row[15],
        crashes=row[16],
        token=row[17],
        worker=None if row[18] is None else UUID(bytes=row[18]),
        result=result,
        error=unpack_error(row[19]),
        history=read_history(history),
    )


def ended(connection: sqlite3.Connection, ids: Sequence[UUID]) -> list[Ended]:
    """The outcomes of those of these jobs that have one, in the order given."""
    found: dict[UUID, Ended] = {}
    for text, values in _OUTCOMES.pieces([(id.bytes,) for id in ids]):
        for key, state, result, error in connection.execute(text, values):
            if state in TERMINAL:
                id = UUID(bytes=key)
                found[id] = Ended(id, JobState(state), result, unpack_error(error))
    return [found[id] for id in ids if id in found]


_OUTCOMES: Final = Bulk(
    """SELECT job.id, state, result, error FROM {rows} AS v
    CROSS JOIN job ON job.id = v.column1""",
    1,
)


# lanes, queues, workers, dispatchers


def lanes(connection: sqlite3.Connection) -> list[Lane]:
    """Every lane that ever held a job."""
    return [Lane(*row) for row in connection.execute("SELECT hash, queue, kind, target FROM lane")]


def queues(connection: sqlite3.Connection) -> list[QueueView]:
    """Every queue that ever held a job or was paused, by name."""
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    paused = dict(connection.execute("SELECT name, paused FROM queue"))
    for (name,) in connection.execute("SELECT DISTINCT queue FROM lane"):
        counts[name] = {}
    sums = """SELECT lane.queue, tally.state, sum(tally.n) AS total FROM tally
        CROSS JOIN lane ON lane.hash = tally.lane GROUP BY 1, 2 HAVING total <> 0"""
    for name, state, total in connection.execute(sums):
        counts[name][state] = total
    names = sorted({*counts, *paused})
    return [QueueView(name, bool(paused.get(name)), counts[name]) for name in names]


def workers(connection: sqlite3.Connection) -> list[WorkerView]:
    """Live workers, and those that ended last."""
    ended = connection.execute(
        _WORKER.format(source="worker INDEXED BY worker_ended")
        + " WHERE alive = 0 ORDER BY ended_at DESC LIMIT ?",
        (_SHOWN_ENDED_WORKERS,),
    )
    return [*_alive(connection), *(_worker(row) for row in ended)]


_WORKER: Final = f"""SELECT info, session, dispatcher, alive, draining,
    (SELECT json_group_object(kind, n) FROM (
        SELECT kind, count(*) AS n FROM job INDEXED BY job_owned
        WHERE job.state IN {OWNED_LIST} AND job.worker = worker.id GROUP BY kind)),
    started_at, attended_at, ended_at, ended_why,
    max(attended_at, coalesce(h.seen_at, 0)), h.cpu_percent, h.memory_percent
    FROM {{source}} LEFT JOIN heartbeat AS h ON h.worker = worker.id"""


def _alive(connection: sqlite3.Connection) -> list[WorkerView]:
    source = "worker INDEXED BY worker_alive"
    query = f"{_WORKER.format(source=source)} WHERE alive = 1 ORDER BY started_at, id"
    return [_worker(row) for row in connection.execute(query)]


def _worker(row: Sequence[Any]) -> WorkerView:
    info, session, dispatcher, alive, draining, running, started_at, attended_at = row[:8]
    ended_at, ended_why, seen_at, cpu_percent, memory_percent = row[8:]
    return WorkerView(
        info=unpack_info(info),
        session=session,
        dispatcher=UUID(bytes=dispatcher),
        alive=bool(alive),
        draining=bool(draining),
        running=msgspec.json.decode(running),
        started_at=moment(started_at),
        attended_at=moment(attended_at),
        ended_at=None if ended_at is None else moment(ended_at),
        ended_why=ended_why,
        seen_at=moment(seen_at),
        cpu_percent=cpu_percent,
        memory_percent=memory_percent,
    )


def draining(connection: sqlite3.Connection, dispatcher: UUID) -> list[UUID]:
    """The live workers of a dispatcher that are to be given nothing more."""
    query = """SELECT id FROM worker INDEXED BY worker_alive
        WHERE alive = 1 AND dispatcher = ? AND draining = 1"""
    return [UUID(bytes=id) for (id,) in connection.execute(query, (dispatcher.bytes,))]


def dispatchers(connection: sqlite3.Connection) -> list[DispatcherView]:
    """Every dispatcher that has not retired."""
    query = "SELECT id, name, renewed_no, started_at FROM dispatcher ORDER BY started_at, id"
    return [
        DispatcherView(
            id=UUID(bytes=id), name=name, renewed_no=renewed_no, started_at=moment(started_at)
        )
        for id, name, renewed_no, started_at in connection.execute(query)
    ]


def explain(connection: sqlite3.Connection, now: int, job: Job) -> Facts:
    """What keeps a job where it is."""
    query = "SELECT paused FROM queue WHERE name = ?"
    [paused] = connection.execute(query, (job.queue,)).fetchone() or [0]
    return Facts(
        queue_paused=bool(paused),
        workers=tuple(_alive(connection)),
        ahead=_ahead(connection, job),
        now=moment(now),
    )


def _ahead(connection: sqlite3.Connection, job: Job) -> int:
    """How many ready jobs of its lane come before a job, up to a bound."""
    [rank] = connection.execute(
        "SELECT rank FROM job WHERE number = ?", (job.number,)
    ).fetchone() or [0]
    lane = lane_of(job.queue, job.kind, job.target).hash
    query = """SELECT count(*) FROM (
            SELECT -priority AS urgency, rank, number FROM job INDEXED BY job_ready
            WHERE state = 'ready' AND lane = ? ORDER BY priority DESC, rank, number LIMIT ?)
        WHERE (urgency, rank, number) < (?, ?, ?)"""
    values = (lane, _MAX_AHEAD, -job.priority, rank, job.number)
    count: int = connection.execute(query, values).fetchone()[0]
    return count
