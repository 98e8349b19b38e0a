"""Starts jobs of groups on SQLite, in the transaction that ends the last job they waited for.

Such a job goes from waiting to running in one write. A job without a usable slot, of a paused
queue or with limits is left to the caller, which makes it ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from longshore.core.placement import SlotOffers, Woken
from longshore.model.attempt import Attempt
from longshore.model.job import JobState
from longshore.model.worker import SessionKey
from longshore.store.rows import history_entry, later
from longshore.store.sqlite.claim import attending, payloads
from longshore.store.sqlite.sql import Bulk, Candidate, Lookup, Row, appended
from longshore.store.sqlite.start_rules import may_start
from longshore.store.sqlite.transaction import Transaction


class Starts(NamedTuple):
    """Slots on which jobs may start as soon as they are ready, and who gives them.

    An attempt expires `expiry_margin_s` after its timeout.
    """

    dispatcher: UUID
    offers: SlotOffers
    expiry_margin_s: float
    made: Mapping[UUID, int] = {}
    """How many bytes of files jobs have made that end in this transaction."""


class Dependent(Candidate):
    """A job of a group that nothing keeps waiting any more."""

    queue: str


DEPENDENTS: Final = Lookup(
    """SELECT json_group_array(json_array(-job.priority, job.rank, job.number, job.lane, job.kind,
        job.attempt, job.failures, job.crashes, length(job.options) + length(job.args),
        job.deadline_at, job.round, NULL, job.queue))
    FROM {rows} AS v CROSS JOIN job ON job.number = v.column1
    WHERE job.state = 'waiting' AND job.concurrency_key IS NULL""",
    1,
    Dependent,
)
START: Final = Bulk(
    f"""UPDATE job SET
        state = 'running',
        token = v.column2,
        worker = v.column3,
        session = v.column4,
        attempt = attempt + 1,
        started_at = ?1,
        expires_at = v.column5,
        deadline_at = v.column6,
        history = {appended("v.column7", appended("?2"))}
    FROM {{rows}} AS v WHERE job.number = v.column1""",
    7,
)


def start(
    tx: Transaction,
    starts: Starts,
    jobs: Mapping[int, float | None],
    makers: Mapping[int, UUID] = {},
) -> list[Attempt]:
    """Starts as many of these jobs as can; each has so many seconds to begin, or any number.

    Some go to the worker of another job, a maker of their files, if that can take them.
    """
    rows = DEPENDENTS.find(tx.connection, [(number,) for number in jobs])
    rows = [row for row, may in zip(rows, may_start(tx, rows), strict=True) if may]
    order = [
        Woken((row.urgency, row.rank, row.number), row.lane, row.payload_bytes) for row in rows
    ]
    if makers:
        order = [job._replace(last=_worker_of(tx, makers.get(job.order[2]))) for job in order]
    slots = starts.offers.take(order)
    sessions = attending(tx, starts.dispatcher, list(slots.values()))
    usable = [
        (rows[at], slot)
        for at, slot in slots.items()
        if sessions.get(slot.worker.int) == slot.session
    ]
    return _started(tx, usable, jobs, starts.expiry_margin_s) if usable else []


def _worker_of(tx: Transaction, job: UUID | None) -> UUID | None:
    if job is None:
        return None
    found = tx.execute("SELECT worker FROM job WHERE id = ?", (job.bytes,)).fetchone()
    return UUID(bytes=found[0]) if found is not None and found[0] is not None else None


def _started(
    tx: Transaction,
    placed: Sequence[tuple[Dependent, SessionKey]],
    within_s: Mapping[int, float | None],
    expiry_margin_s: float,
) -> list[Attempt]:
    found = payloads(tx, [job for job, _ in placed])
    attempts: list[Attempt] = []
    writes: list[Row] = []
    for job, slot in placed:
        id, options, args = found[job.number]
        token, left_s = tx.next_token(), within_s[job.number]
        of_job = id, job.number, token, job.kind, args, options
        tries = job.attempt + 1, job.failures, job.crashes
        owner = slot.worker, slot.session
        attempts.append(Attempt(*of_job, *owner, *tries, False, -job.urgency, left_s, job.round))
        worker, entry = tx.owner(slot.worker)
        expires_at = tx.expires_at(options.timeout_s, expiry_margin_s)
        deadline_at = None if left_s is None else later(tx.now, left_s)
        writes.append((job.number, token, worker, slot.session, expires_at, deadline_at, entry))
    START.run(tx.connection, writes, (tx.now, history_entry(JobState.READY, tx.now)))
    for lane, number in Counter(job.lane for job, _ in placed).items():
        tx.count(lane, JobState.WAITING, JobState.RUNNING, number)
    return attempts
