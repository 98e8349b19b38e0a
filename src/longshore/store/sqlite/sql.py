"""The SQL of the SQLite store's writer, and how a statement takes many rows at once.

Theory. The writer's thread gives up Python's global lock at every step of a statement, and may have
to wait for a busy event loop to get it back. So the number of steps counts: rows go in as one table
of values in the statement's text, and come back as one row of JSON (and one of bytes). That is also
faster than a statement for each row when no other thread wants the lock.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, repeat
from typing import Final, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from longshore.core.fairness import NEW
from longshore.core.lifecycle import HISTORY_FIRST, HISTORY_LAST
from longshore.model.job import JobState
from longshore.store.sqlite.states import LIVE_LIST, OWNED_LIST

Value = int | float | str | bytes | None
Row = tuple[Value, ...]
T = TypeVar("T")

_SIZES: Final = (1, 4, 16, 64, 128, 256, 512, 1024)
LARGEST: Final = _SIZES[-1]


class Bulk:
    """A statement over many rows at once.

    `{rows}` in its text stands for a table with the columns column1, column2 and so on. There are
    only a few sizes of that table, so that SQLite's prepared statements can be kept. The rows left
    over in it are NULL, and the statement must pass over them. Values that all rows share stand
    before `{rows}` as ?1, ?2 and so on, and cost nothing per row.
    """

    def __init__(self, text: str, width: int) -> None:
        self._text = text
        self._width = width
        self._sized = cache(self._of_size)

    def run(self, connection: sqlite3.Connection, rows: Sequence[Row], same: Row = ()) -> int:
        """Executes it over all rows, a piece at a time; answers how many rows it changed."""
        if not rows:
            return 0
        if len(rows) == 1:
            return connection.execute(self._sized(1), (*same, *rows[0])).rowcount
        pieces = self.pieces(rows, same)
        return sum([connection.execute(text, values).rowcount for text, values in pieces])

    def pieces(self, rows: Sequence[Row], same: Row = ()) -> Iterator[tuple[str, list[Value]]]:
        """The statements and values to execute, so that all rows are done."""
        for start in range(0, len(rows), LARGEST):
            piece = rows[start : start + LARGEST]
            size = _SIZES[bisect_left(_SIZES, len(piece))]
            padding = repeat(None, (size - len(piece)) * self._width)
            yield self._sized(size), [*same, *chain.from_iterable(piece), *padding]

    def _of_size(self, size: int) -> str:
        row = f"({', '.join('?' * self._width)})"
        return self._text.format(rows=f"(VALUES {', '.join([row] * size)})")


class Lookup(Bulk, Generic[T]):
    """A query over many keys at once, whose answer is one JSON array of `kind` for each piece."""

    def __init__(self, text: str, width: int, kind: type[T]) -> None:
        super().__init__(text, width)
        self._decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]

    def find(self, connection: sqlite3.Connection, keys: Sequence[Row]) -> list[T]:
        """The answers for all keys, in no order."""
        if len(keys) == 1:
            [(answer,)] = connection.execute(self._sized(1), keys[0])
            return self._decoder.decode(answer)
        found: list[T] = []
        for text, values in self.pieces(keys):
            found += self._decoder.decode(connection.execute(text, values).fetchone()[0])
        return found


class Held(Struct, array_like=True):
    """What a change of state must know of a job. `place` is its key's place in the question."""

    place: int
    number: int
    id: str
    lane: int
    state: JobState
    token: int
    worker: str
    failures: int
    crashes: int
    round: int
    group: int | None
    watched: int | None
    is_behind: int
    """Whether it waits behind a key."""

    @property
    def uuid(self) -> UUID:
        """The job's id."""
        return UUID(hex=self.id)

    @property
    def owner(self) -> UUID | None:
        """The worker that owns the job, or owned it last."""
        return UUID(hex=self.worker) if self.worker else None


class Candidate(Struct, array_like=True, order=True):
    """A ready job. The first three fields are the order of claims."""

    urgency: int
    rank: int
    number: int
    lane: int
    kind: str
    attempt: int
    failures: int
    crashes: int
    payload_bytes: int
    deadline_at: int | None
    round: int
    ready_at: int | None
    """Since when it is ready, if that is known."""


def appended(entry: str, history: str = "history") -> str:
    """A history with one more entry; when it is full, the oldest of the late ones goes."""
    full = f"json_array_length({history}) >= {HISTORY_FIRST + HISTORY_LAST}"
    kept = f"CASE WHEN {full} THEN json_remove({history}, '$[{HISTORY_FIRST}]') ELSE {history} END"
    return f"json_insert({kept}, '$[#]', json({entry}))"


HELD: Final = f"""json_array({{place}}, job.number, hex(job.id), job.lane, job.state,
    job.token, hex(job.worker), job.failures, job.crashes, job.round, job.group_id, job.watched,
    job.blocked_on IS NOT NULL AND job.blocked_on <> '{NEW}')"""


def _held_by(key: str) -> Lookup[Held]:
    query = f"""SELECT json_group_array({HELD.format(place="v.column1")})
    FROM {{rows}} AS v CROSS JOIN job ON {key} = v.column2"""
    return Lookup(query, 2, Held)


HELD_BY_ID: Final = _held_by("job.id")
HELD_BY_NUMBER: Final = _held_by("job.number")
HELD_BY_WORKER: Final = f"""
    SELECT json_group_array({HELD.format(place="0")}) FROM job INDEXED BY job_owned
    WHERE state IN {OWNED_LIST} AND worker = ?"""
OWNED_KINDS: Final = f"""
    SELECT token, kind FROM job INDEXED BY job_owned WHERE state IN {OWNED_LIST} AND worker = ?"""
HELD_AND_DUE: Final = f"""
    SELECT json_group_array({HELD.format(place="0")}) FROM (
        SELECT number FROM job INDEXED BY job_due
        WHERE state = 'delayed' AND run_at <= ? AND (group_id IS NULL OR (
            SELECT g.state <> 'paused' FROM job_group AS g WHERE g.number = group_id))
        ORDER BY run_at, number LIMIT ?) AS due
    CROSS JOIN job ON job.number = due.number"""
PAST_DEADLINE: Final = """
    job INDEXED BY job_deadline
    WHERE state = 'ready' AND deadline_at IS NOT NULL AND deadline_at <= ?"""
HELD_PAST_DEADLINE: Final = f"""
    SELECT json_group_array({HELD.format(place="0")}) FROM (
        SELECT number FROM {PAST_DEADLINE} ORDER BY deadline_at, number LIMIT ?) AS past
    CROSS JOIN job ON job.number = past.number"""
ORPHANED: Final = f"""
    SELECT owner.worker, w.info FROM (
        SELECT DISTINCT worker FROM job INDEXED BY job_owned
        WHERE state IN {OWNED_LIST}) AS owner
    LEFT JOIN worker AS w ON w.id = owner.worker
    WHERE w.alive IS NOT 1"""
NEXT_DUE: Final = """
    SELECT run_at FROM job INDEXED BY job_due WHERE state = 'delayed' ORDER BY run_at LIMIT 1"""

# An attempt began after it was claimed, if its worker said for how long it ran.
_STARTED: Final = "coalesce(max(started_at, {began_at}), started_at)"

# The columns are those of `transaction.Changed`. A run_at of NULL keeps what is there.
CHANGE: Final = Bulk(
    f"""UPDATE job SET
        state = v.column2,
        token = v.column3,
        worker = CASE WHEN v.column8 THEN worker END,
        session = CASE WHEN v.column8 THEN session END,
        failures = v.column4,
        crashes = v.column5,
        run_at = coalesce(v.column6, run_at),
        ended_at = v.column7,
        expires_at = NULL,
        result = v.column9,
        error = CASE WHEN v.column10 THEN error ELSE v.column11 END,
        history = CASE WHEN v.column13 THEN json_remove(history, '$[#-1]')
            ELSE {appended("v.column12")} END,
        attempt = attempt - v.column13,
        started_at = CASE WHEN NOT v.column13 THEN {_STARTED.format(began_at="v.column14")} END,
        deadline_at = CASE WHEN v.column15 THEN deadline_at ELSE v.column16 END
    FROM {{rows}} AS v WHERE job.number = v.column1""",
    16,
)
# Those jobs that still run under these tokens: their keys' places, numbers, lanes and groups.
RUNNING: Final = Lookup(
    """SELECT json_group_array(json_array(
        v.column1, job.number, job.lane, job.group_id, hex(job.worker), job.watched))
    FROM {rows} AS v CROSS JOIN job ON job.id = v.column2
    WHERE job.token = v.column3 AND job.state = 'running'""",
    3,
    tuple[int, int, int, int | None, str, int | None],
)
# What a success does to a job that runs, as `CHANGE` would, told in fewer columns.
SUCCEED: Final = Bulk(
    f"""UPDATE job SET
        state = 'succeeded',
        ended_at = ?1,
        expires_at = NULL,
        deadline_at = NULL,
        result = v.column2,
        error = NULL,
        history = {appended("v.column3")},
        started_at = {_STARTED.format(began_at="v.column4")}
    FROM {{rows}} AS v WHERE job.number = v.column1""",
    4,
)
# What a new round changes beyond what `CHANGE` does.
NEW_ROUND: Final = "UPDATE job SET round = round + 1, started_at = NULL WHERE number = ?"
NOTE: Final = """
    UPDATE job SET history = json_set(history, '$[#-1][3]', ?2) WHERE number = ?1"""

# Jobs that are stored under these ids: their keys' places, their numbers and body hashes.
KNOWN: Final = Lookup(
    """SELECT json_group_array(json_array(v.column1, job.number, job.body_hash))
    FROM {rows} AS v CROSS JOIN job ON job.id = v.column2""",
    2,
    tuple[int, int, int],
)
# Live jobs that hold these unique keys: the keys' places, the jobs' numbers and ids.
HOLDERS: Final = Lookup(
    f"""SELECT json_group_array(json_array(v.column1, job.number, hex(job.id), (
        SELECT hex(id) FROM job_group WHERE number = job.group_id AND state = 'staging'
    )))
    FROM {{rows}} AS v CROSS JOIN job INDEXED BY job_unique
    ON job.kind = v.column2 AND job.unique_key = v.column3
    WHERE job.unique_key IS NOT NULL
        AND job.state IN {LIVE_LIST}""",
    3,
    tuple[int, int, str, str | None],
)
# A new job: what it has alone, and what it has in common with others of its kind. Its rank is its
# number, so that what it adds to a group can come right after it.
_OWN: Final = "number, id, body_hash, args, history, token, worker, session"
_SHARED: Final = """lane, state, priority, created_at, run_at, timeout_s, kind, queue, target,
    unique_key, options, deadline_at, attempt, started_at, expires_at, watched"""
_OWN_WIDTH: Final = _OWN.count(",") + 1
_SHARED_WIDTH: Final = _SHARED.count(",") + 1

INSERT: Final = Bulk(
    f"""INSERT INTO job (rank, {_OWN}, {_SHARED}) SELECT column1, * FROM {{rows}}
    WHERE column1 IS NOT NULL ON CONFLICT (id) DO NOTHING""",
    _OWN_WIDTH + _SHARED_WIDTH,
)
INSERT_ALIKE: Final = Bulk(
    f"""INSERT INTO job (rank, {_OWN}, {_SHARED})
    SELECT column1, *, {", ".join(f"?{n + 1}" for n in range(_SHARED_WIDTH))} FROM {{rows}}
    WHERE column1 IS NOT NULL ON CONFLICT (id) DO NOTHING""",
    _OWN_WIDTH,
)
UNDO_INSERT: Final = "DELETE FROM job WHERE number > ?"

# Workers that a dispatcher may give jobs to: their ids and sessions.
ATTENDED_NOW: Final = Lookup(
    """SELECT json_group_array(json_array(hex(w.id), w.session))
    FROM {rows} AS v CROSS JOIN worker AS w ON w.id = v.column1
    WHERE w.alive = 1 AND w.draining = 0 AND w.dispatcher = v.column2""",
    2,
    tuple[str, int],
)
LANE_TOP: Final = """
    SELECT json_group_array(json_array(-priority, rank, number, lane, kind, attempt, failures,
        crashes, payload_bytes, deadline_at, round, ready_at))
    FROM (
        SELECT priority, rank, number, lane, kind, attempt, failures, crashes,
            length(options) + length(args) AS payload_bytes, deadline_at, round,
            CASE WHEN attempt = 0 AND group_id IS NULL
                THEN max(created_at, coalesce(run_at, 0)) END AS ready_at
        FROM job INDEXED BY job_ready
        WHERE state = 'ready' AND blocked_on IS NULL AND lane = ?
            AND (deadline_at IS NULL OR deadline_at > ?)
        ORDER BY priority DESC, rank, number LIMIT ? OFFSET ?)"""
CLAIM: Final = Bulk(
    f"""UPDATE job SET
        state = 'running',
        token = v.column2,
        worker = v.column3,
        session = v.column4,
        attempt = attempt + 1,
        started_at = v.column5,
        expires_at = v.column6,
        history = {appended("v.column7")}
    FROM {{rows}} AS v WHERE job.number = v.column1""",
    7,
)
PAYLOADS: Final = Bulk(
    """SELECT json_group_array(json_array(job.number, length(job.options), length(job.args))),
        CAST(group_concat(CAST(job.id || job.options || job.args AS TEXT), '') AS BLOB)
    FROM {rows} AS v CROSS JOIN job ON job.number = v.column1""",
    1,
)

ADD_LANES: Final = Bulk(
    """INSERT INTO lane (hash, queue, kind, target)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING""",
    4,
)
TALLY: Final = Bulk(
    """INSERT INTO tally (lane, state, n) SELECT * FROM {rows} WHERE column1 IS NOT NULL
    ON CONFLICT (lane, state) DO UPDATE SET n = n + excluded.n""",
    3,
)
COUNT_ENDS: Final = Bulk(
    """UPDATE job_group SET ended = ended + v.column2, failed = failed + v.column3,
        cancelled = cancelled + v.column4
    FROM {rows} AS v WHERE job_group.number = v.column1""",
    4,
)
HOLD_AGAIN: Final = "UPDATE job_group SET sweep_from = 0 WHERE number = ? AND state = 'paused'"
# What was to be told early of a job is told with its end.
NOTE_ENDS: Final = Bulk(
    """INSERT INTO unsettled (job) SELECT column1 FROM {rows} WHERE column1 IS NOT NULL
    ON CONFLICT DO UPDATE SET after_child = -1, is_early = 0 WHERE is_early = 1""",
    1,
)
# The watchers of these jobs, which have ended, are to hear of it.
NOTE_WATCHED: Final = Bulk(
    """INSERT INTO notice (subject, is_group, round, state, options, error, result)
    SELECT job.id, 0, job.round, job.state, job.options, job.error, job.result
    FROM {rows} AS v CROSS JOIN job ON job.number = v.column1""",
    1,
)
LOG: Final = Bulk(
    """INSERT INTO log (job, token, seq, kind, at, data)
    SELECT job.number, v.column2, v.column3, v.column4, v.column5, v.column6
    FROM {rows} AS v CROSS JOIN job ON job.id = v.column1 AND job.token = v.column2
    WHERE true ON CONFLICT DO NOTHING""",
    6,
)

BEAT: Final = Bulk(
    """INSERT INTO heartbeat (worker, seen_at, cpu_percent, memory_percent)
    SELECT w.id, v.column3, v.column4, v.column5
    FROM {rows} AS v CROSS JOIN worker AS w ON w.id = v.column1
    WHERE w.alive = 1 AND w.dispatcher = v.column2
    ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at, cpu_percent = excluded.cpu_percent,
        memory_percent = excluded.memory_percent""",
    5,
)
