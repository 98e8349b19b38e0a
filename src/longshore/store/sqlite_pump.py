"""The pump of the SQLite store: finishes, submits and claims within one transaction.

The write lock is held from the first read to the commit, so what is read decides: there is nobody
to race with. Decisions are the core's (`judge`, `after_finish`), taken in Python; the reads and the
writes are one statement for many jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from uuid import UUID

from longshore.core.lifecycle import KEEPS_ERROR, after_finish, judge
from longshore.model.job import Finish, Finished, JobState, Outcome, Refused, Verdict
from longshore.ports import Batch, Pumped
from longshore.store.rows import clean, history_entry, later, pack_error
from longshore.store.sqlite_claim import claim, free_seats
from longshore.store.sqlite_sql import LARGEST_INT, NOTE, RUNNING, SUCCEED, Held, Row
from longshore.store.sqlite_submit import Accepted, accept
from longshore.store.sqlite_transaction import Transaction


def pump(tx: Transaction, dispatcher: UUID, batch: Batch, expiry_margin_s: float) -> Pumped:
    """Finishes first, then submits, then claims."""
    freed: set[int] = set()
    finished = record(tx, batch.finishes, freed) if batch.finishes else []
    submitted, ready, seated = _take(tx, dispatcher, batch, expiry_margin_s)
    freed |= ready
    # A claim must know the lanes of jobs that were submitted with it: their queue may be paused.
    tx.flush()
    claimed, taken, left = claim(tx, dispatcher, batch.wants, batch.max_bytes, expiry_margin_s)
    return Pumped(finished, submitted, seated + claimed, frozenset(freed), taken, frozenset(left))


def _take(tx: Transaction, dispatcher: UUID, batch: Batch, expiry_margin_s: float) -> Accepted:
    if not batch.submits:
        return [], set(), []
    if not batch.seats:
        return accept(tx, batch.submits)
    seats = free_seats(tx, dispatcher, batch.submits, batch.seats)
    return accept(tx, batch.submits, seats, expiry_margin_s)


def record(tx: Transaction, finishes: Sequence[Finish], freed: set[int]) -> list[Finished]:
    """Ends the attempts that still own their jobs, and commits their outboxes with them."""
    succeeded = _succeed(tx, finishes)
    rest = [finish for finish in finishes if finish.token not in succeeded]
    answers = iter(_record(tx, rest, freed) if rest else ())
    return [
        Finished(finish.job, finish.token, Verdict.RECORDED, JobState.SUCCEEDED)
        if finish.token in succeeded
        else next(answers)
        for finish in finishes
    ]


def _succeed(tx: Transaction, finishes: Sequence[Finish]) -> set[int]:
    """Records the successes that only have a result, if all of those count; answers their tokens.

    Nearly every attempt ends so. The others are looked at one by one.
    """
    plain = [finish for finish in finishes if _is_plain(finish)]
    tokens = {finish.token for finish in finishes}
    if not plain or len(tokens) < len(finishes):
        return set()
    attempts = [(place, end.job.bytes, end.token) for place, end in enumerate(plain)]
    running = RUNNING.find(tx.connection, attempts)
    if len(running) < len(plain):
        return set()
    now, state = tx.now, JobState.SUCCEEDED
    rows: list[Row] = []
    for place, number, _ in running:
        end = plain[place]
        rows.append((number, end.result, history_entry(state, now, end.by, end.info)))
    SUCCEED.run(tx.connection, rows, (now,))
    for lane, count in Counter(lane for _, _, lane in running).items():
        tx.count(lane, JobState.RUNNING, state, count)
    return {end.token for end in plain}


def _is_plain(finish: Finish) -> bool:
    """Whether it is a success, and nothing of the job's row must be known to record it."""
    return (
        finish.outcome is Outcome.SUCCEEDED
        and bool(finish.by)
        and 0 < finish.token <= LARGEST_INT
        and not (finish.outbox or finish.crash or finish.revoke or finish.worker)
    )


def _record(tx: Transaction, finishes: Sequence[Finish], freed: set[int]) -> list[Finished]:
    """Judges finishes one by one, and ends the attempts of those that count."""
    held = tx.held([finish.job for finish in finishes])
    answers = []
    for finish, row in zip(finishes, held, strict=True):
        verdict = Verdict.STALE if row is None else judge(row.state, row.token, row.owner, finish)
        if row is not None and verdict is Verdict.RECORDED:
            _end(tx, row, finish, freed)
        state = row.state if row is not None and verdict is not Verdict.STALE else None
        answers.append(Finished(finish.job, finish.token, verdict, state))
    tx.flush()
    sent = [
        (row, finish)
        for finish, row, answer in zip(finishes, held, answers, strict=True)
        if finish.outbox and row is not None and answer.state is JobState.SUCCEEDED
        if answer.verdict is Verdict.RECORDED
    ]
    if sent:
        _send(tx, sent, freed)
    return answers


def _end(tx: Transaction, row: Held, finish: Finish, freed: set[int]) -> None:
    """One attempt ends as its worker, or whoever revoked it, says."""
    outcome = finish.outcome
    state = after_finish(row.state, outcome)
    failed = outcome is Outcome.FAILED or outcome is Outcome.RETRIED
    if finish.crash:
        row.crashes += 1
    elif failed:
        row.failures += 1
    if finish.revoke or outcome is Outcome.RELEASED:
        row.token = tx.next_token()
    if state is JobState.READY:
        freed.add(row.lane)
    cancelled = state is JobState.CANCELLED
    tx.change(
        row,
        state,
        by=finish.by or str(UUID(hex=row.worker)),
        info=finish.info,
        run_at=later(tx.now, finish.delay_s) if state is JobState.DELAYED else None,
        result=finish.result if state is JobState.SUCCEEDED else None,
        error=pack_error(finish.error) if failed and not cancelled else None,
        keep_error=outcome in KEEPS_ERROR and not cancelled,
    )


def _send(tx: Transaction, sent: Sequence[tuple[Held, Finish]], freed: set[int]) -> None:
    """Submits what the successful attempts caused; what is not accepted is noted on its cause."""
    answers, ready, _ = accept(tx, [job for _, finish in sent for job in finish.outbox])
    freed |= ready
    left = iter(answers)
    for row, finish in sent:
        notes = [
            f"outbox item {index} refused: {answer.message}"
            for index, answer in enumerate(islice(left, len(finish.outbox)))
            if isinstance(answer, Refused)
        ]
        if notes:
            info = "; ".join(filter(None, [finish.info, *notes]))
            tx.connection.execute(NOTE, (row.number, clean(info)))
