"""A store in memory: the plainest thing that keeps the port's contract.

Every decision is the pure core's; this file only remembers. The stores on real databases are
checked against it, and it serves fast tests of whatever needs a store. It lives in one process and
one event loop: nothing here awaits, so every verb is one transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nsmallest
from itertools import takewhile, zip_longest
from uuid import UUID

from msgspec import convert, structs

from longshore.core import effects
from longshore.core.leases import ANOTHERS, RESIGNED, is_anothers
from longshore.core.lifecycle import OWNED
from longshore.core.lookahead import before_barred, not_blamed
from longshore.core.placement import SlotOffers, Woken, first_bytes, maker_of_files
from longshore.core.publishing import published_bytes
from longshore.core.recovery import can_recover, of_lost_turn
from longshore.core.retention import Seen, Walk
from longshore.core.run_times import KEPT_S, merged
from longshore.core.same_body import is_body
from longshore.core.turns import last_worker
from longshore.model.attempt import Attempt
from longshore.model.ends import End, ReadDone, TurnTaken
from longshore.model.group import GroupState
from longshore.model.job import (
    CancelVerdict,
    Ended,
    Finished,
    Job,
    JobState,
    LogEntry,
    Refused,
    RetryVerdict,
    Submission,
    Submitted,
    Verdict,
)
from longshore.model.log import KeptEntry
from longshore.model.retention import Pruned, Retention
from longshore.model.run_time import RunTime
from longshore.model.worker import (
    Attended,
    Claim,
    DispatcherView,
    Gone,
    Late,
    SessionKey,
    Stats,
    WorkerInfo,
    WorkerView,
)
from longshore.ports import Batch, BatchResult, Harvested, Hint, Promoted
from longshore.store.rows import (
    body_or_why,
    clean,
    held_by_staging,
    in_conflict,
    micros,
    not_accepted,
)
from longshore.testing.memory_access import MemoryAccess
from longshore.testing.memory_actors import MemoryActors
from longshore.testing.memory_bulks import MemoryBulks
from longshore.testing.memory_checkpoints import MemoryCheckpoints
from longshore.testing.memory_crowds import MemoryCrowds
from longshore.testing.memory_log_archives import MemoryLogArchives
from longshore.testing.memory_peaks import MemoryPeaks
from longshore.testing.memory_rows import JobRow, new_row
from longshore.testing.memory_runs import MemoryNewRuns
from longshore.testing.memory_web import MemoryWebWorkers

MAX_SWEPT = 1000


class MemoryStore(
    MemoryAccess,
    MemoryActors,
    MemoryNewRuns,
    MemoryWebWorkers,
    MemoryCheckpoints,
    MemoryLogArchives,
    MemoryPeaks,
    MemoryCrowds,
    MemoryBulks,
):
    """The whole `Store` port, over one dictionary of jobs. A verb happens at one moment, `_now`."""

    is_serial = False
    """It could well be; but then nobody would try how transactions overlap."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def migrate(self) -> tuple[int, int]:
        return 1, 1

    # the pump

    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        self._now, self._max_group_jobs = self._utc(), batch.max_group_jobs
        ready, ended = Counter[int](), list[Ended]()
        noted = len(self._notices)
        self._begin_crowds()
        finished = [self._finish(end, ready, ended) for end in batch.finishes]
        self._made_bytes = published_bytes(batch.finishes)
        self._made = []
        sent, replies, by_sends = self._post(batch, finished, ready)
        offers = SlotOffers(batch.for_dependents, batch.max_bytes)
        turns = self._filled(self._start_turns(dispatcher, offers))
        ending, self._unsettled = self._unsettled, []
        self._woken = []
        groups = self._deliver(ending, ready) | self._to_expand() | self._sent_groups
        self._sent_groups = set()
        dependents = self._filled(self._start_dependents(dispatcher, offers, ready))
        if any(self._limits_of(end) for end in batch.finishes):
            ready += self._opened(self._now)[0]
        by_ends = Counter(ready)
        ready += by_sends
        started, submitted = list[Attempt](), []
        for job, slot in zip_longest(batch.submits, batch.slots):
            free = slot if slot and self._is_free_for(slot, dispatcher) else None
            submitted.append(self._submit(job, ready, free, started))
        room = batch.max_bytes - sum(len(one.args) for one in dependents)
        self._open_at, self._closed = None, set()
        claimed, left, barred = self._claim_all(dispatcher, batch, room)
        claimed = self._filled(claimed)
        self._hint(*[Hint.WORK] * bool(ready), *[Hint.ENDED] * bool(ended), *self._crowd_hints())
        taken = Counter(self._jobs[one.id].lane.hash for one in claimed)
        return BatchResult(
            finished,
            submitted,
            self._filled(started),
            claimed,
            taken,
            ready,
            by_ends,
            ended + self._ended_by_submits,
            left,
            barred,
            frozenset(groups),
            dependents,
            sent,
            replies,
            watched=len(self._notices) > noted,
            turns=turns,
            limits_open_s=self._seconds_to(self._open_at),
            stopping=self._stopping,
            closed=frozenset(self._closed),
        )

    def _start_turns(self, dispatcher: UUID, offers: SlotOffers) -> list[Attempt]:
        """Starts new turns of actors, on slots that are left over for them."""
        counted = {row.job.id: ready for row, ready in self._made}
        started = self._start_on(dispatcher, offers, [row for row, _ in self._made])
        for one in started:
            counted[one.id][self._jobs[one.id].lane.hash] -= 1
        return started

    def _start_dependents(
        self, dispatcher: UUID, offers: SlotOffers, ready: Counter[int]
    ) -> list[Attempt]:
        """Starts jobs that the batch's ends made ready, on slots that are left over for them."""
        started = self._start_on(dispatcher, offers, self._woken)
        ready.subtract(self._jobs[one.id].lane.hash for one in started)
        return started

    def _maker(self, row: JobRow) -> UUID | None:
        """The worker that has just made files of a job that this one waited for."""
        if row.node is None:
            return None
        jobs = self._groups[row.node.group].jobs
        maker = maker_of_files((jobs[at] for at in row.node.node.after), self._made_bytes)
        return None if maker is None else self._jobs[maker].job.worker

    def _start_on(
        self, dispatcher: UUID, offers: SlotOffers, woken: Sequence[JobRow]
    ) -> list[Attempt]:
        rows = [row for row in woken if not (self._held_back(row) or self._waits_for_claim(row))]
        jobs = [
            Woken(
                row.order,
                row.lane.hash,
                len(row.job.args),
                last_worker(row.job.options, row.job.args) or self._maker(row),
            )
            for row in rows
        ]
        started = []
        for place, slot in offers.take(jobs).items():
            if self._is_free_for(slot, dispatcher):
                started.append(self._start(rows[place], slot))
        return started

    def _finish(self, end: End, ready: Counter[int], ended: list[Ended]) -> Finished:
        row, verdict = self._jobs.get(end.job), Verdict.STALE
        if row is not None:
            verdict = effects.judge(row.state, row.job.token, row.job.worker, end)
        if row is not None and isinstance(end, TurnTaken) and not self._is_next_turn(row, end):
            verdict = Verdict.STALE
        if row is None or verdict is Verdict.STALE:
            return Finished(end.job, end.token, verdict)
        if verdict is Verdict.RECORDED:
            end, added = self._growth(row, self._with_versions(end))
            change, was_cancelling = effects.of_end(end)[row.state], row.is_cancelling
            self._count_added(row, added)
            if change.ends:
                ended.append(effects.outcome(end.job, change, end))
                row.job = structs.replace(row.job, result=ended[-1].result)
                self._publish_end(end, row.job.round)
            self._apply(row, change, end.by or str(row.job.worker), end.ran_s)
            self._add(row, added, ready, cancelled=was_cancelling)
            ready.update([row.lane.hash] * (row.state is JobState.READY))
            if isinstance(end, TurnTaken):
                self._take_turn(row, end)
            if isinstance(end, ReadDone):
                self._drop_job(row)
        return Finished(end.job, end.token, verdict, row.state)

    def _apply(
        self, row: JobRow, change: effects.Change, by: str = "", ran_s: float | None = None
    ) -> None:
        token = next(self._tokens) if change.new_token else row.job.token
        self._leave_key(row)
        row.apply(change, self._now, token, by, ran_s)
        if change.ends:
            self._note_watched(row)
        if row.node is not None:
            if change.ends:
                self._group_job_ended(row)
            elif change.state in (JobState.READY, JobState.DELAYED):
                group = self._groups[row.node.group]
                group.must_sweep |= group.state is GroupState.PAUSED

    def _submit(
        self, job: Submission, ready: Counter[int], slot: SessionKey | None, started: list[Attempt]
    ) -> Submitted | Refused:
        body = body_or_why(job, micros(self._now))
        if isinstance(body, str):
            return not_accepted(job.id, body)
        if (known := self._jobs.get(job.id)) is not None:
            same = is_body(job, body, known.body)
            return Submitted(job.id, known.job.number) if same else in_conflict(job.id)
        row = new_row(job, body, self._last_number + 1, self._now)
        if (holder := self._holder(row)) is not None:
            if (staging := self._staging_group(holder)) is not None:
                return held_by_staging(job, staging)
            return Submitted(holder.job.id, holder.job.number, existing=True)
        self._last_number += 1
        self._jobs[job.id] = row
        if row.state is JobState.READY:
            if slot is None or self._held_back(row) or self._is_limited(row):
                ready[row.lane.hash] += 1
            else:
                started.append(self._start(row, slot))
        self._settle_crowd(row, ready)
        self._go_behind_others(row)
        return Submitted(job.id, row.job.number)

    def _holder(self, row: JobRow) -> JobRow | None:
        """The live job that has this one's unique key."""
        alike = self._where(lambda one: one.holds_its_key and one.job.kind == row.job.kind)
        return next((one for one in alike if one.job.unique_key == row.job.unique_key), None)

    def _claim_all(
        self, dispatcher: UUID, batch: Batch, most_bytes: int
    ) -> tuple[list[Attempt], frozenset[int], frozenset[int]]:
        """Serves the claims. Answers also the lanes that it left because they have many bytes, and
        those of claims that met a job which may not be held ahead.
        """
        claimed = list[Attempt]()
        left, barred = frozenset[int](), frozenset[int]()
        for claim in batch.claims:
            room = most_bytes - sum(len(one.args) for one in claimed)
            some, is_barred = self._claim(dispatcher, claim, room)
            claimed += some
            if is_barred:
                barred |= {*claim.lanes}
            if most_bytes <= sum(len(one.args) for one in claimed):
                left |= {*claim.lanes}
        return claimed, left, barred

    def _claim(self, dispatcher: UUID, claim: Claim, room: int) -> tuple[list[Attempt], bool]:
        slots = [slot for slot in claim.slots if self._is_free_for(slot, dispatcher)]
        self._give_turns(claim.lanes)
        ready = self._where(
            lambda row: row.state is JobState.READY and not row.is_expired(self._now)
        )
        wanted = [row for row in ready if row.lane.hash in claim.lanes]
        servable = [row for row in wanted if not self._held_back(row)]
        if claim.ahead is None:
            first = self._startable(servable, len(slots))
        else:
            first = nsmallest(len(slots), servable, key=lambda row: row.order)
        free = before_barred(first, claim.ahead, lambda row: (row.lane.hash, row.job.crashes))
        if claim.ahead is not None:
            free = [*takewhile(lambda row: not self._is_limited(row), free)]
        best = first_bytes(free, lambda row: len(row.job.args), room)
        placed = self._kept(claim, best, slots)
        waits = [row.waited_s(self._now) for row in best]
        claimed = [
            structs.replace(self._start(row, slot), waited_s=waited_s)
            for row, slot, waited_s in zip(best, placed, waits, strict=False)
        ]
        return claimed, len(free) < len(first)

    def _is_free_for(self, slot: SessionKey, dispatcher: UUID) -> bool:
        worker = self._workers.get(slot.worker)
        if worker is None or not worker.alive or worker.draining:
            return False
        return (worker.session, worker.dispatcher) == (slot.session, dispatcher)

    def _start(self, row: JobRow, slot: SessionKey) -> Attempt:
        self._leave_key(row)
        return row.start(slot, next(self._tokens), self._now, self._expiry_margin_s)

    # the keeper

    async def renew(self, dispatcher: UUID, name: str) -> None:
        new = DispatcherView(id=dispatcher, name=name, renewed_no=0, started_at=self._utc())
        last = self._dispatchers.get(dispatcher, new)
        renewed = structs.replace(last, name=name, renewed_no=last.renewed_no + 1)
        self._dispatchers[dispatcher] = renewed

    async def retire(self, dispatcher: UUID) -> None:
        self._dispatchers.pop(dispatcher, None)

    async def forget_dispatcher(self, dispatcher: UUID) -> None:
        if not self._attended_by(dispatcher):
            self._dispatchers.pop(dispatcher, None)

    async def attend(
        self,
        dispatcher: UUID,
        info: WorkerInfo,
        *,
        draining: bool = False,
        session: int | None = None,
    ) -> Attended | Gone | Late:
        now, known = self._utc(), self._workers.get(info.id)
        if known is not None and not known.alive:
            return Gone(known.ended_why)
        if known is not None and is_anothers(known.info, info):
            return Gone(ANOTHERS)
        if info.service is not None and not self._is_registered(info.service, info.id):
            return Gone(RESIGNED)
        if known is not None and session is not None and session <= known.session:
            return Late(known.session)
        new = {"session": 0, "alive": True, "draining": False, "running": {}, "started_at": now}
        who = {"info": info, "dispatcher": dispatcher, "attended_at": now}
        row = known or convert({**new, **who}, WorkerView)
        session = row.session + 1 if session is None else session
        self._workers[info.id] = structs.replace(
            row,
            info=info,
            session=session,
            dispatcher=dispatcher,
            draining=row.draining or draining,
            attended_at=now,
            seen_at=now,
        )
        placed = self._owned_by(info.id)
        for job in placed:
            job.session = session
        return Attended(session, tuple(self._filled([job.claimed(now) for job in placed])))

    async def placed(self, slots: Sequence[SessionKey]) -> list[Attempt]:
        owned = [row.claimed(self._utc()) for row in self._where(lambda row: row.state in OWNED)]
        return self._filled([one for one in owned if SessionKey(one.worker, one.session) in slots])

    async def set_draining(self, worker: UUID, draining: bool) -> bool:
        row = self._workers.get(worker)
        if row is None or not row.alive:
            return False
        self._workers[worker] = structs.replace(row, draining=draining)
        self._hint(Hint.CANCEL)
        return True

    async def draining(self, dispatcher: UUID) -> list[UUID]:
        return [row.info.id for row in self._attended_by(dispatcher) if row.draining]

    async def beat(self, dispatcher: UUID, beats: Mapping[UUID, Stats]) -> None:
        for row in self._attended_by(dispatcher):
            if (stats := beats.get(row.info.id)) is not None:
                load = structs.asdict(stats)
                self._workers[row.info.id] = structs.replace(row, seen_at=self._utc(), **load)

    async def harvest(
        self,
        worker: UUID,
        session: int,
        why: str,
        *,
        crash: bool,
        crash_limit: int,
        undelivered: Collection[int] = (),
    ) -> Harvested:
        return self._harvest(worker, session, why, crash_limit if crash else None, undelivered)

    def _bury(self, worker: UUID, why: str, crash_limit: int | None = None) -> Harvested:
        row = self._workers.get(worker)
        return self._harvest(worker, row.session if row else 0, why, crash_limit)

    def _harvest(
        self,
        worker: UUID,
        session: int,
        why: str,
        crash_limit: int | None,
        undelivered: Collection[int] = (),
    ) -> Harvested:
        row = self._workers.get(worker)
        if row is None or not row.alive or row.session != session:
            return Harvested(False)
        self._now = now = self._utc()
        lost = structs.replace(row, alive=False, ended_at=now, ended_why=clean(why))
        self._workers[worker], owned = lost, self._owned_by(worker)
        self._let_go(worker)
        free = self._held_ahead(worker, owned).union(undelivered)
        limit = None if self._is_unattended(worker) else crash_limit
        return structs.replace(self._lose(owned, why, limit, free), lost=True)

    async def sweep(self, crash_limit: int) -> Harvested:
        self._now = self._utc()
        alive = {worker for worker, row in self._workers.items() if row.alive}
        orphans = self._where(lambda row: row.state in OWNED and row.job.worker not in alive)
        owned, free = list[JobRow](), set[int]()
        for worker in sorted({row.job.worker for row in orphans if row.job.worker is not None}):
            if len(owned) < MAX_SWEPT:
                owned += (some := self._owned_by(worker))
                free |= self._held_ahead(worker, some)
        return self._lose(owned, "its worker is not alive", crash_limit, free)

    def _held_ahead(self, worker: UUID, owned: Sequence[JobRow]) -> set[int]:
        row = self._workers.get(worker)
        kinds = [(one.job.token, one.job.kind) for one in owned]
        return not_blamed(row.info, kinds) if row is not None else set()

    def _loss(self, job: Job, limit: int | None, why: str) -> effects.Effect:
        worker = self._workers.get(job.worker) if job.worker is not None else None
        if job.options.turn and worker is not None and can_recover(worker.info, job.kind):
            counts = job.failures, job.crashes, job.options.retry.attempts
            return of_lost_turn(*counts, limit, why)
        return effects.of_loss(job.crashes, limit, why)

    def _lose(
        self, rows: list[JobRow], why: str, crash_limit: int | None, free: Collection[int] = ()
    ) -> Harvested:
        ended = []
        for row in rows:
            limit = None if row.job.token in free else crash_limit
            change = self._loss(row.job, limit, clean(why))[row.state]
            self._apply(row, change)
            if change.ends:
                ended.append(effects.outcome(row.job.id, change))
        requeued = [row.lane.hash for row in rows if row.state is JobState.READY]
        self._hint(Hint.WORK, Hint.ENDED)
        return Harvested(False, len(requeued), frozenset(requeued), tuple(ended))

    async def promote(self, most: int = 1000) -> Promoted:
        self._now = now = self._utc()
        delayed = self._where(lambda row: row.state is JobState.DELAYED and not self._is_held(row))
        by_time = sorted((row.job.run_at or now, row.job.number, row) for row in delayed)
        due = [row for run_at, _, row in by_time if run_at <= now][:most]
        for row in due:
            self._apply(row, effects.DUE[row.state])
        self._hint(*[Hint.WORK] * bool(due))
        left = by_time[len(due) :]
        next_s = max(0.0, (left[0][0] - now).total_seconds()) if left else None
        return Promoted(len(due), frozenset(row.lane.hash for row in due), next_s)

    def _is_held(self, row: JobRow) -> bool:
        """Whether the job's group is paused."""
        return row.node is not None and self._groups[row.node.group].state is GroupState.PAUSED

    async def expire(self, most: int = 1000) -> list[Ended]:
        self._now = now = self._utc()
        ended = []
        late = self._where(lambda row: row.is_expired(now))
        for row in nsmallest(most, late, key=lambda row: row.job.deadline_at or now):
            change = effects.of_expiry(row.job.options.expires_s, row.job.kind)[row.state]
            self._apply(row, change)
            ended.append(effects.outcome(row.job.id, change))
        self._hint(*[Hint.ENDED] * bool(ended))
        return ended

    async def overdue(self, most: int = 1000) -> list[Attempt]:
        now = self._utc()
        running = self._where(lambda row: row.state is JobState.RUNNING)
        late = [row for row in running if row.expires_at is not None and row.expires_at <= now]
        return [row.claimed(self._utc()) for row in late[:most]]

    async def cancel(
        self, refs: Sequence[UUID | int], by: str = ""
    ) -> list[tuple[UUID | None, CancelVerdict]]:
        self._now = self._utc()
        answers: list[tuple[UUID | None, CancelVerdict]] = []
        for row in map(self._find, refs):
            verdict = CancelVerdict.NOT_FOUND if row is None else effects.cancel_verdict(row.state)
            if row is not None and row.state in effects.CANCEL:
                self._apply(row, effects.CANCEL[row.state], by)
            answers.append((None if row is None else row.job.id, verdict))
        self._hint(Hint.CANCEL, Hint.ENDED)
        return answers

    async def cancelling(self, dispatcher: UUID) -> list[Attempt]:
        mine = {row.info.id for row in self._attended_by(dispatcher)}
        rows = self._where(lambda row: row.state is JobState.CANCELLING and row.job.worker in mine)
        return [row.claimed(self._utc()) for row in rows]

    async def retry(
        self, refs: Sequence[UUID | int], by: str = "", request: UUID | None = None
    ) -> list[tuple[UUID | None, RetryVerdict]]:
        self._now = self._utc()
        answers: list[tuple[UUID | None, RetryVerdict]] = []
        for row in map(self._find, refs):
            if row is None:
                answers.append((None, RetryVerdict.NOT_FOUND))
                continue
            verdict = effects.retry_verdict(
                row.state, key_is_taken=bool(self._holder(row)), in_group=row.node is not None
            )
            is_repeat = request is not None and request in row.opened_by
            if verdict is RetryVerdict.RETRIED and not is_repeat:
                expires_s = row.job.options.expires_s
                effect = effects.of_retry(row.job.round, by, request, expires_s)
                self._apply(row, effect[row.state], by)
            answers.append((row.job.id, RetryVerdict.RETRIED if is_repeat else verdict))
        self._hint(Hint.WORK)
        return answers

    async def log(self, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            row = self._jobs.get(entry.job)
            if row is not None and row.job.token == entry.token and abs(entry.seq) < 2**63:
                kept = KeptEntry(entry.token, entry.seq, entry.kind, self._utc(), entry.data)
                self._logs.setdefault((entry.job, entry.token, entry.seq), kept)

    # what is over

    async def note_runs(self, times: Sequence[RunTime]) -> None:
        self._now = self._utc()
        for one in times:
            known = self._run_times.get(one.kind)
            self._run_times[one.kind] = merged(known[0], one) if known else one, self._now
        oldest = self._now - timedelta(seconds=KEPT_S)
        self._run_times = {
            kind: (one, at) for kind, (one, at) in self._run_times.items() if at >= oldest
        }

    async def prune(
        self, kept: Retention, *, after: int = 0, most: int = 1000, dry_run: bool = False
    ) -> Pruned:
        now = self._utc()
        walk = Walk(kept, Counter(row.state for row in self._jobs.values()), after)
        later = self._where(lambda row: _is_alone(row) and row.job.number > after)
        looked_at = [] if walk.over else later[:most]
        places = walk.through([_seen(row.job, now) for row in looked_at])
        gone = [looked_at[place] for place in places]
        for row in [] if dry_run else gone:
            self._drop_job(row)
        removed = dict(Counter(row.state for row in gone))
        return Pruned(removed, walk.up_to, walk.over or len(later) <= most)

    async def forget_workers(self, older_than_s: float, most: int = 1000) -> int:
        since = self._utc() - timedelta(seconds=older_than_s)
        ended = [row for row in self._workers.values() if row.ended_at and row.ended_at <= since]
        gone = [row.info.id for row in ended if not self._owned_by(row.info.id)][:most]
        for worker in gone:
            del self._workers[worker]
        return len(gone)

    async def forget_lanes(self, most: int = 1000) -> int:
        used = {row.lane.hash for row in self._jobs.values()}
        gone = [hash for hash in self._emptied if hash not in used][:most]
        for hash in gone:
            del self._emptied[hash]
        now = micros(self._utc())
        self._even_at = {key: at for key, at in self._even_at.items() if at >= now}
        return len(gone)


def _is_alone(row: JobRow) -> bool:
    """Whether it is no part of a group or an actor, with which it would go."""
    return row.node is None and row.actor is None


def _seen(job: Job, now: datetime) -> Seen:
    ended_s = None if job.ended_at is None else (now - job.ended_at).total_seconds()
    return Seen(job.number, job.state, (now - job.created_at).total_seconds(), ended_s)
