"""The pump of the SQLite store: finishes, submits and claims within one transaction.

The pump holds the write lock from the first read to the commit, so nothing that it read can change.
It decides in Python, by the core (`core.effects`). A read or a write is one statement for many
jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from longshore.core import effects
from longshore.core.growth import added, refused, why_not
from longshore.core.lifecycle import TERMINAL
from longshore.core.placement import SlotOffers
from longshore.core.publishing import published, published_bytes
from longshore.model.actor import Message
from longshore.model.attempt import Attempt
from longshore.model.ends import End, PutAside, ReadDone, Succeeded, TurnTaken
from longshore.model.job import Ended, Finished, JobState, Refused, Submission, Verdict
from longshore.model.reports import OutboxGroup, OutboxJob
from longshore.ports import Batch, BatchResult
from longshore.store.actor_rows import undelivered_group, undelivered_job
from longshore.store.rows import LARGEST_INT, clean, earlier, history_entry
from longshore.store.sqlite.claim import NO_CLAIMS, claim, usable_slots
from longshore.store.sqlite.dependents import Starts
from longshore.store.sqlite.filling import filled
from longshore.store.sqlite.groups import submit_group
from longshore.store.sqlite.growth import Growth
from longshore.store.sqlite.limits import free_ended
from longshore.store.sqlite.publishing import checked_versions, publish_versions
from longshore.store.sqlite.settling import Settling
from longshore.store.sqlite.sql import NOTE, RUNNING, SUCCEED, Held, Row
from longshore.store.sqlite.submit import Accepted, accept
from longshore.store.sqlite.transaction import Transaction
from longshore.store.sqlite.turns import NOTHING_POSTED, Posted, Sender, Turns, has_mail
from longshore.store.sqlite.waking import TurnSlots


def pump(tx: Transaction, dispatcher: UUID, batch: Batch, expiry_margin_s: float) -> BatchResult:
    """Finishes first, then submits, then claims."""
    has_ends = batch.finishes or batch.sends
    ends = _finish(tx, dispatcher, batch, expiry_margin_s) if has_ends else _NO_ENDS
    submitted, ready, started = _take(tx, dispatcher, batch, expiry_margin_s)
    opened = free_ended(tx) if batch.finishes else Counter[int]()
    claims = NO_CLAIMS
    if batch.claims:
        # They must know the lanes of jobs that were submitted with them: a queue may be paused.
        tx.flush()
        room = batch.max_bytes - sum(len(one.args) for one in ends.dependents)
        claims = claim(tx, dispatcher, batch.claims, room, expiry_margin_s)
    return BatchResult(
        ends.finished,
        submitted,
        filled(tx, started),
        filled(tx, claims.claimed),
        claims.taken,
        ends.ready + ready + ends.posted.by_sends + opened if has_ends else ready,
        ends.ready + opened if opened else ends.ready,
        ends.ended + tx.ended_by_submits if tx.ended_by_submits else ends.ended,
        frozenset(claims.left),
        frozenset(claims.barred),
        ends.groups,
        filled(tx, ends.dependents),
        ends.posted.sent,
        ends.posted.replies,
        tx.has_watched_ends,
        filled(tx, ends.posted.started) if ends.posted.started else [],
        tx.seconds_to(min(claims.open_at)) if claims.open_at else None,
        tx.stopping,
        frozenset(claims.closed),
    )


class _Ends(NamedTuple):
    """What the finishes and the sends of a batch did: see `BatchResult`."""

    finished: list[Finished]
    ready: Counter[int]
    ended: list[Ended]
    groups: frozenset[UUID]
    dependents: list[Attempt]
    posted: Posted


_NO_ENDS: Final = _Ends([], Counter(), [], frozenset(), [], NOTHING_POSTED)


def _finish(tx: Transaction, dispatcher: UUID, batch: Batch, expiry_margin_s: float) -> _Ends:
    growth = Growth(tx, batch.max_group_jobs)
    finishes = _Finishes(tx, growth)
    finished = finishes.record(batch.finishes) if batch.finishes else []
    offers = SlotOffers(batch.for_dependents, batch.max_bytes)
    starts = Starts(dispatcher, offers, expiry_margin_s, published_bytes(batch.finishes))
    settling = Settling(tx, starts)
    posted = finishes.post(batch, settling, TurnSlots(dispatcher, offers, expiry_margin_s))
    growth.begin(settling)
    if ended := tx.take_ended():
        settling.deliver(ended)
    ready = finishes.ready + settling.ready + posted.by_ends
    return _Ends(
        finished,
        ready,
        finishes.ended + settling.ended,
        frozenset(settling.groups),
        settling.started,
        posted,
    )


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
        self._turns = Turns(tx)
        self._senders: list[Sender] = []
        self._put_aside: list[int] = []

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
        for place, number, _, group, worker, watched in running:
            end = plain[place]
            if watched:
                tx.watched_end(number)
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
        ends = [_sound(end) for end in ends]
        turns = [end for end in ends if isinstance(end, TurnTaken)]
        took, turn_senders = self._turns.record(turns) if turns else ([], [])
        self.ended += self._turns.ended
        of_turns = iter(zip(took, turn_senders, strict=True))
        of_jobs = iter(self._record_jobs([end for end in ends if not isinstance(end, TurnTaken)]))
        answers = []
        for end in ends:
            answer, sender = next(of_turns if isinstance(end, TurnTaken) else of_jobs)
            answers.append(answer)
            if sender is not None:
                self._senders.append(sender)
        self._tx.flush()
        self._turns.drop_read()
        if self._put_aside:
            self._turns.put_aside(self._put_aside)
        return answers

    def _record_jobs(self, ends: Sequence[End]) -> Iterator[tuple[Finished, Sender | None]]:
        """Ends of jobs that are no turns, and of turns that were not taken."""
        held = self._tx.held([end.job for end in ends])
        for end, row in zip(ends, held, strict=True):
            sender = None
            if row is None:
                yield Finished(end.job, end.token, Verdict.STALE), None
                continue
            verdict = effects.judge(row.state, row.token, row.owner, end)
            if verdict is Verdict.RECORDED:
                recorded = self._growth.add(row, checked_versions(self._tx, end))
                self._apply(row, recorded)
                if published(recorded) and row.state in TERMINAL:
                    publish_versions(self._tx, recorded)
                if isinstance(recorded, Succeeded) and recorded.outbox:
                    sender = Sender(recorded, row.number)
                if isinstance(recorded, PutAside):
                    self._put_aside.append(row.number)
                if isinstance(recorded, ReadDone):
                    self._turns.read_done(row.number, row.lane, recorded.reply)
            state = None if verdict is Verdict.STALE else row.state
            yield Finished(end.job, end.token, verdict, state), sender

    def _apply(self, row: Held, end: End) -> None:
        change = effects.of_end(end)[row.state]
        outcome = effects.outcome(end.job, change, end)
        if change.ends:
            self.ended.append(outcome)
        elif change.state is JobState.READY:
            self.ready[row.lane] += 1
        by = end.by or _name(row.worker)
        self._tx.apply(row, change, by=by, result=outcome.result, ran_s=end.ran_s)

    def post(self, batch: Batch, settling: Settling, slots: TurnSlots) -> Posted:
        """Submits and sends what the recorded ends caused, and takes in what comes from outside."""
        dropped = self._submit()
        lost_groups = self._submit_groups(settling)
        mail = [sender for sender in self._senders if has_mail(sender.end)]
        if not (mail or batch.sends or self._turns.has_work):
            posted = NOTHING_POSTED
        else:
            lost = [
                (sender, undelivered_job(job, why))
                for sender, _, job, why in dropped
                if sender.actor is not None
            ]
            posted = self._turns.post(batch, mail, [*lost, *lost_groups], slots)
        notes = [(sender, index, why) for sender, index, _, why in dropped]
        self._note([*notes, *posted.notes])
        return posted

    def _submit(self) -> list[tuple[Sender, int, Submission, str]]:
        """Submits the jobs of outboxes; answers which were not accepted, and why."""
        jobs = [
            (sender, index, item.job)
            for sender in self._senders
            for index, item in enumerate(sender.end.outbox)
            if isinstance(item, OutboxJob)
        ]
        if not jobs:
            return []
        answers, ready, _ = accept(self._tx, [job for _, _, job in jobs])
        self.ready += ready
        return [
            (*item, answer.message)
            for item, answer in zip(jobs, answers, strict=True)
            if isinstance(answer, Refused)
        ]

    def _submit_groups(self, settling: Settling) -> list[tuple[Sender, Message]]:
        """Submits the groups of turns; answers what these hear of groups that were refused."""
        lost = []
        for sender in self._senders:
            for item in sender.end.outbox:
                if isinstance(item, OutboxGroup) and sender.actor is not None:
                    answer = submit_group(self._tx, item.part, settling)
                    settling.groups.add(item.part.head.id)
                    if isinstance(answer, Refused):
                        lost.append((sender, undelivered_group(item.part.head, answer.message)))
        return lost

    def _note(self, notes: Sequence[tuple[Sender, int, str]]) -> None:
        """Notes what was not accepted with the end of the job that sent it."""
        by_job: dict[int, list[str]] = {}
        for sender, index, why in sorted(notes, key=lambda note: note[1]):
            if sender.actor is None:
                info = by_job.setdefault(sender.job, [sender.end.info])
                info.append(effects.refused_item(index, why))
        for number, words in by_job.items():
            self._tx.execute(NOTE, (number, clean("; ".join(filter(None, words)))))


def _sound(end: End) -> End:
    """The end, or the failure of a turn that adds jobs to a group: it is in none."""
    if isinstance(end, TurnTaken) and (nodes := added(end)):
        return refused(end, why_not(None, nodes, 0, 0))
    return end


def _is_plain(end: Succeeded) -> bool:
    """Whether a success is recorded like most others: it sends nothing, and its owner sent it."""
    return 0 < end.token <= LARGEST_INT and not (end.outbox or end.worker or end.versions)


@lru_cache(maxsize=1024)
def _name(worker: str) -> str:
    """Who ended an attempt that its owner ended."""
    return str(UUID(hex=worker))
