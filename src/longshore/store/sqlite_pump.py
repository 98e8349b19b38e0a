"""The pump of the SQLite store: finishes, submits and claims within one transaction.

The write lock is held from the first read to the commit, so what is read decides: there is nobody
to race with. Decisions are the core's (`judge`, `after_finish`), taken in Python; the reads and the
writes are one statement for many jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from uuid import UUID

from longshore.core.lifecycle import KEEPS_ERROR, after_finish, judge
from longshore.errors import Conflict
from longshore.model.job import Finish, Finished, JobState, Outcome, Refused, Verdict
from longshore.ports import Batch, Pumped
from longshore.store.rows import clean, later, pack_error
from longshore.store.sqlite_claim import claim, free_seats
from longshore.store.sqlite_sql import NOTE, Held
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
    claimed, taken = claim(tx, dispatcher, batch.wants, expiry_margin_s)
    return Pumped(finished, submitted, seated + claimed, frozenset(freed), taken)


def _take(tx: Transaction, dispatcher: UUID, batch: Batch, expiry_margin_s: float) -> Accepted:
    if not batch.submits:
        return [], set(), []
    if not batch.seats:
        return accept(tx, batch.submits)
    seats = free_seats(tx, dispatcher, batch.submits, batch.seats)
    return accept(tx, batch.submits, seats, expiry_margin_s)


def record(tx: Transaction, finishes: Sequence[Finish], freed: set[int]) -> list[Finished]:
    """Ends the attempts that still own their jobs, and commits their outboxes with them."""
    held = tx.held([finish.job for finish in finishes])
    answers = []
    for finish, row in zip(finishes, held, strict=True):
        verdict = Verdict.STALE if row is None else judge(row.state, row.token, finish)
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
    by = finish.by or _named(row.worker)
    if outcome is Outcome.SUCCEEDED and not (finish.crash or finish.revoke):
        tx.succeed(row, finish.result, by, finish.info)
        return
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
        by=by,
        info=finish.info,
        run_at=later(tx.now, finish.delay_s) if state is JobState.DELAYED else None,
        result=finish.result if state is JobState.SUCCEEDED else None,
        error=pack_error(finish.error) if failed and not cancelled else None,
        keep_error=outcome in KEEPS_ERROR and not cancelled,
    )


@lru_cache(maxsize=1024)
def _named(worker: str) -> str:
    """A worker's id as it is shown, from the digits that were read."""
    return str(UUID(hex=worker))


def _send(tx: Transaction, sent: Sequence[tuple[Held, Finish]], freed: set[int]) -> None:
    """Submits what the successful attempts caused; what is not accepted is noted on its cause."""
    answers, ready, _ = accept(tx, [job for _, finish in sent for job in finish.outbox])
    freed |= ready
    left = iter(answers)
    for row, finish in sent:
        notes = [
            f"outbox item {index} refused: {answer.message}"
            for index, answer in enumerate(islice(left, len(finish.outbox)))
            if isinstance(answer, Refused) and answer.code != Conflict.code
        ]
        if notes:
            info = "; ".join(filter(None, [finish.info, *notes]))
            tx.connection.execute(NOTE, (row.number, clean(info)))
