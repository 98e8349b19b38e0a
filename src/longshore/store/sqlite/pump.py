"""The pump of the SQLite store: finishes, submits and claims within one transaction.

The pump holds the write lock from the first read to the commit, so nothing that it read can change.
It decides in Python, by the core (`core.effects`). A read or a write is one statement for many
jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from uuid import UUID

from longshore.core import effects
from longshore.core.growth import sent as sent_by
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Succeeded
from longshore.model.job import Ended, Finished, JobState, Refused, Verdict
from longshore.ports import Batch, BatchResult
from longshore.store.rows import LARGEST_INT, clean, earlier, history_entry
from longshore.store.sqlite.claim import claim, usable_slots
from longshore.store.sqlite.dependents import Starts
from longshore.store.sqlite.growth import Growth
from longshore.store.sqlite.results import with_results
from longshore.store.sqlite.settling import Settling
from longshore.store.sqlite.sql import NOTE, RUNNING, SUCCEED, Held, Row
from longshore.store.sqlite.submit import Accepted, accept
from longshore.store.sqlite.transaction import Transaction


def pump(tx: Transaction, dispatcher: UUID, batch: Batch, expiry_margin_s: float) -> BatchResult:
    """Finishes first, then submits, then claims."""
    growth = Growth(tx, batch.max_group_jobs)
    finishes = _Finishes(tx, growth)
    finished = finishes.record(batch.finishes) if batch.finishes else []
    starts = Starts(dispatcher, batch.for_dependents, expiry_margin_s, batch.max_bytes)
    settling = Settling(tx, starts)
    growth.begin(settling)
    if ended := tx.take_ended():
        settling.deliver(ended)
    by_ends = finishes.ready + settling.ready
    submitted, ready, started = _take(tx, dispatcher, batch, expiry_margin_s)
    # A claim must know the lanes of jobs that were submitted with it: their queue may be paused.
    tx.flush()
    room = batch.max_bytes - sum(len(one.args) for one in settling.started)
    claims = claim(tx, dispatcher, batch.claims, room, expiry_margin_s)
    claimed = _filled(tx, claims.claimed)
    return BatchResult(
        finished,
        submitted,
        started,
        claimed,
        claims.taken,
        by_ends + ready,
        by_ends,
        finishes.ended + settling.ended,
        frozenset(claims.left),
        frozenset(claims.barred),
        frozenset(settling.groups),
        _filled(tx, settling.started),
    )


def _filled(tx: Transaction, attempts: list[Attempt]) -> list[Attempt]:
    """The attempts with the results that their arguments refer to."""
    wanted = any(one.options.references for one in attempts)
    return with_results(tx, attempts) if wanted else attempts


def _take(tx: Transaction, dispatcher: UUID, batch: Batch, expiry_margin_s: float) -> Accepted:
    if not batch.submits:
        return [], Counter(), []
    if not batch.slots:
        return accept(tx, batch.submits)
    slots = usable_slots(tx, dispatcher, batch.submits, batch.slots)
    return accept(tx, batch.submits, slots, expiry_margin_s)


class _Finishes:
    """The finishes of one transaction: what became ready by them, and what ended."""

    def __init__(self, tx: Transaction, growth: Growth) -> None:
        self.ready: Counter[int] = Counter()
        self.ended: list[Ended] = []
        self._tx = tx
        self._growth = growth

    def record(self, ends: Sequence[End]) -> list[Finished]:
        """Ends the attempts that still own their jobs, and commits their outboxes with them."""
        succeeded = self._succeed(ends)
        rest = [end for end in ends if end.token not in succeeded]
        answers = iter(self._record(rest) if rest else ())
        return [
            Finished(end.job, end.token, Verdict.RECORDED, JobState.SUCCEEDED)
            if end.token in succeeded
            else next(answers)
            for end in ends
        ]

    def _succeed(self, ends: Sequence[End]) -> set[int]:
        """Records the successes that only have a result, if all of those count; their tokens.

        Nearly every attempt ends so. The others are looked at one by one.
        """
        plain = [end for end in ends if isinstance(end, Succeeded) and _is_plain(end)]
        tokens = {end.token for end in ends}
        if not plain or len(tokens) < len(ends):
            return set()
        tx = self._tx
        attempts = [(place, end.job.bytes, end.token) for place, end in enumerate(plain)]
        running = RUNNING.find(tx.connection, attempts)
        if len(running) < len(plain):
            return set()
        now, state = tx.now, JobState.SUCCEEDED
        rows: list[Row] = []
        for place, number, _, group, worker in running:
            end = plain[place]
            if group is not None:
                tx.ended(group, number, state)
            entry = history_entry(state, now, end.by or _name(worker), end.info)
            rows.append((number, end.result, entry, earlier(now, end.ran_s)))
        SUCCEED.run(tx.connection, rows, (now,))
        for lane, count in Counter(lane for _, _, lane, *_ in running).items():
            tx.count(lane, JobState.RUNNING, state, count)
        self.ended += [Ended(end.job, state, end.result) for end in plain]
        return {end.token for end in plain}

    def _record(self, ends: Sequence[End]) -> list[Finished]:
        """Judges ends one by one, and applies those that count."""
        held = self._tx.held([end.job for end in ends])
        answers = []
        sent: list[tuple[Held, Succeeded]] = []
        for end, row in zip(ends, held, strict=True):
            if row is None:
                answers.append(Finished(end.job, end.token, Verdict.STALE))
                continue
            verdict = effects.judge(row.state, row.token, row.owner, end)
            if verdict is Verdict.RECORDED:
                recorded = self._growth.add(row, end)
                self._apply(row, recorded)
                if isinstance(recorded, Succeeded) and sent_by(recorded):
                    sent.append((row, recorded))
            state = None if verdict is Verdict.STALE else row.state
            answers.append(Finished(end.job, end.token, verdict, state))
        self._tx.flush()
        if sent:
            self._send(sent)
        return answers

    def _apply(self, row: Held, end: End) -> None:
        change = effects.of_end(end)[row.state]
        outcome = effects.outcome(end.job, change, end)
        if change.ends:
            self.ended.append(outcome)
        elif change.state is JobState.READY:
            self.ready[row.lane] += 1
        by = end.by or _name(row.worker)
        self._tx.apply(row, change, by=by, result=outcome.result, ran_s=end.ran_s)

    def _send(self, sent: Sequence[tuple[Held, Succeeded]]) -> None:
        """Submits what successful attempts caused; what is not accepted is noted on its cause."""
        jobs = [item.job for _, end in sent for item in sent_by(end)]
        answers, ready, _ = accept(self._tx, jobs)
        self.ready += ready
        left = iter(answers)
        for row, end in sent:
            notes = [
                effects.refused_item(index, answer.message)
                for index, answer in enumerate(islice(left, len(sent_by(end))))
                if isinstance(answer, Refused)
            ]
            if notes:
                info = "; ".join(filter(None, [end.info, *notes]))
                self._tx.execute(NOTE, (row.number, clean(info)))


def _is_plain(end: Succeeded) -> bool:
    """Whether a success is recorded like most others: it sends nothing, and its owner sent it."""
    return 0 < end.token <= LARGEST_INT and not (end.outbox or end.worker)


@lru_cache(maxsize=1024)
def _name(worker: str) -> str:
    """Who ended an attempt that its owner ended."""
    return str(UUID(hex=worker))
