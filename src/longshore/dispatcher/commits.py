"""The commit loop: sends ends, submits and claims to the store, one transaction after the other.

Theory. Ends and submits queue here. Each batch takes those that came during the transaction before
it. So a busy store gets few large transactions, and an idle store gets a single job at once.

Only one batch at a time gives jobs to workers, by claiming them or by starting them as they are
submitted (see `core.scheduler`): two would fill the same slots. But if much has piled up behind
that batch, a second, *overlapping* one takes finishes, and submits that must wait for slots anyway.
So the store and this process do not wait for each other. A store that commits one transaction at a
time would gain nothing from it.

When the answer to a batch gets lost, the dispatcher does not know whether the store committed. It
sends the batch again: the store knows submits by their id and finishes by their token, and does
nothing twice. But it may have given jobs to workers. So their sessions are *uncertain*, and
`duties/read_back.py` reads what the store has placed on them. That must wait until the repeated
submits are answered. Until then the first transaction may still be running, and start them; later
it cannot, because it finds their ids taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from longshore.core.placement import first_bytes
from longshore.core.scheduler import Plan, Scheduler
from longshore.dispatcher.environment import Environment
from longshore.errors import StoreLost, StoreUnavailable, Unavailable
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Succeeded
from longshore.model.job import Ended, Finished, Refused, Submission, Submitted
from longshore.model.worker import SessionKey
from longshore.ports import Batch, BatchResult, Harvested

OnFinished = Callable[[End, Finished], None]
Give = Callable[[SessionKey, Sequence[Attempt]], None]
Answer = Submitted | Refused


class SubmitRequest:
    """The jobs of one submit request, and a future for the answers."""

    def __init__(self, jobs: Sequence[Submission]) -> None:
        self.jobs = jobs
        self._answers: dict[int, Answer] = {}
        loop = asyncio.get_running_loop()
        self.at = loop.time()
        self.done: asyncio.Future[list[Answer]] = loop.create_future()

    def take(self, start: int, answers: Sequence[Answer]) -> None:
        """The store answered some of the jobs, from index `start` on."""
        self._answers.update(enumerate(answers, start))
        if len(self._answers) == len(self.jobs) and not self.done.done():
            self.done.set_result([self._answers[place] for place in range(len(self.jobs))])

    def fail(self, error: StoreLost) -> None:
        """The store is lost: the jobs without an answer never get one."""
        if not self.done.done():
            self.done.set_exception(error)

    def lacks(self, start: int, end: int) -> bool:
        """Whether some of these jobs have no answer yet."""
        return not all(place in self._answers for place in range(start, end))


Part = tuple[SubmitRequest, int, int]
"""Some jobs of a request: from one index up to another."""

NO_PLAN: Final = Plan([], ())


class Commits:
    """The commit loop of one dispatcher."""

    def __init__(
        self,
        environment: Environment,
        scheduler: Scheduler,
        give: Give,
        tell: Callable[[Ended], None],
        groups_changed: Callable[[Collection[UUID]], None],
        on_outage: Callable[[StoreUnavailable], None],
    ) -> None:
        self._dispatcher, self._store, settings, _, self._random = environment
        self._max_batch = settings.max_batch
        self._max_bytes = settings.max_batch_bytes
        self._max_group_jobs = settings.max_group_jobs
        self._overlap_from = settings.overlap_from
        self._slot_wait_s = settings.slot_wait_s
        self._max_queued_submits = settings.max_queued_submits
        self._max_queued_bytes = settings.max_queued_bytes
        self._scheduler = scheduler
        self._give = give
        self._tell = tell
        self._groups_changed = groups_changed
        self._on_outage = on_outage
        self._submits: deque[Part] = deque()
        self._finishes: deque[tuple[End, OnFinished]] = deque()
        self._wake = asyncio.Event()
        self._is_claiming = False
        self._is_overlapping = False
        self._missed = False
        self._starts_dependents = False
        self._outages = 0
        self._uncertain: set[Part] = set()
        self._admission_timer: asyncio.TimerHandle | None = None
        self.queued_submits = 0
        self.queued_bytes = 0

    def check_room(self, jobs: int, size: int) -> None:
        """Raises `Unavailable` if the queue has no room for so many submits, of so many bytes."""
        most, most_bytes = self._max_queued_submits, self._max_queued_bytes
        if self.queued_submits + jobs > most:
            raise Unavailable(
                f"{most:,} submits are waiting for the store (max_queued_submits); try again"
            )
        if self.queued_bytes and self.queued_bytes + size > most_bytes:
            raise Unavailable(
                f"submits of {self.queued_bytes:,} bytes are waiting for the store "
                f"(max_queued_bytes: {most_bytes:,}); try again"
            )

    def submit(self, jobs: Sequence[Submission]) -> asyncio.Future[list[Answer]]:
        """Queues submits; the future has their answers once they are committed."""
        request = SubmitRequest(jobs)
        for start in range(0, len(jobs), self._max_batch):
            self._submits.append((request, start, min(start + self._max_batch, len(jobs))))
        self._queued(jobs)
        self._wake.set()
        return request.done

    def _queued(self, jobs: Sequence[Submission], sign: int = 1) -> None:
        self.queued_submits += sign * len(jobs)
        self.queued_bytes += sign * _bytes_of(jobs)

    @contextmanager
    def storing(self, jobs: Sequence[Submission]) -> Iterator[None]:
        """While these jobs are being stored elsewhere than here, they take room in the queue."""
        self._queued(jobs)
        try:
            yield
        finally:
            self._queued(jobs, -1)

    def finish(self, finish: End, on_finished: OnFinished) -> None:
        """Queues the end of an attempt; the callback comes once it is committed."""
        self._finishes.append((finish, on_finished))
        self._wake.set()

    def ended_elsewhere(self, ended: Sequence[Ended]) -> None:
        """Jobs ended outside of a batch: tells the waiters, and what depends on them in groups."""
        for one in ended:
            self._tell(one)
        if ended:
            self._groups_changed(())

    def harvested(self, answer: Harvested) -> None:
        """A loss made jobs ready, or ended them: tells the scheduler and the waiters."""
        self.ended_elsewhere(answer.ended)
        if answer.lanes:
            self._scheduler.lanes.mark_ready(answer.lanes)
            self._wake.set()

    def wake(self) -> None:
        """There may be something to claim."""
        self._wake.set()

    async def run(self) -> None:
        """Commits batches until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if not self._is_overlapping and self._has_much():
                    self._is_overlapping = True
                    tasks.create_task(self._overlapping_commit())
                if not self._is_claiming:
                    self._is_claiming = True
                    tasks.create_task(self._claim_loop())
                else:
                    self._missed = True

    def _has_much(self) -> bool:
        """Whether an overlapping transaction is worth it."""
        # An overlapping transaction has no slots for jobs of groups that its ends would start.
        if self._store.is_serial or self._starts_dependents:
            return False
        much, most = len(self._finishes), len(self._finishes) + self.queued_submits
        if much < self._overlap_from <= most and self._is_claiming and self._submits:
            much = most if self._scheduler.free_slots().are_taken else much
        return much >= self._overlap_from

    async def _claim_loop(self) -> None:
        while True:
            self._missed = False
            await self._commit_with_backoff(may_claim=True)
            if not self._has_more():
                break
        self._is_claiming = False

    async def _overlapping_commit(self) -> None:
        await self._commit_with_backoff(may_claim=False)
        self._is_overlapping = False
        if self._has_more():
            self._wake.set()

    async def _commit_with_backoff(self, *, may_claim: bool) -> None:
        if await self._commit_batch(may_claim, self._room(may_claim)):
            self._outages = 0
            return
        self._outages += 1
        longest_s = min(0.05 * 2**self._outages, 1.0)
        await asyncio.sleep(longest_s * self._random.uniform(0.5, 1.0))
        self._missed = True

    def _has_more(self) -> bool:
        return bool(
            self._missed or self._finishes or (self._submits and self._admission_timer is None)
        )

    @property
    def is_certain(self) -> bool:
        """Whether every submit whose answer got lost has an answer by now."""
        return not self._uncertain

    async def drain(self) -> None:
        """Commits what is queued, without claiming anything more."""
        while self._submits or self._finishes:
            if not await self._commit_batch(may_claim=False, room=self._max_batch):
                return

    async def _commit_batch(self, may_claim: bool, room: int) -> bool:
        """One transaction with so many submits; False if the store was away."""
        requests = self._take_submits(room)
        finishes = self._take_finishes()
        submits = [job for request, start, end in requests for job in request.jobs[start:end]]
        claims, slots, unused = self._scheduler.plan(submits) if may_claim else NO_PLAN
        ends = [finish for finish, _ in finishes]
        left = unused if ends else ()
        most = (self._max_bytes, self._max_group_jobs)
        batch = Batch(ends, submits, claims, slots, *most, left)
        if not (batch.finishes or batch.submits or batch.claims):
            return True
        self._queued(submits, -1)
        try:
            result = await self._store.pump(self._dispatcher, batch)
        except StoreUnavailable as error:
            self._finishes.extendleft(reversed(finishes))
            if isinstance(error, StoreLost):
                # The store does not come back: the submitters hear of it.
                for request, _, _ in requests:
                    request.fail(error)
            else:
                self._queued(submits)
                self._submits.extendleft(reversed(requests))
                self._uncertain.update(requests)
                wanted = [slot for claim in claims for slot in claim.slots]
                wanted += [one.slot for some in left for one in some.workers]
                self._scheduler.mark_uncertain([*wanted, *filter(None, slots)])
            self._on_outage(error)
            return False
        self._deliver(batch, result, requests, finishes)
        if submits and not may_claim:
            self._scheduler.submitted(submits)
            self._wake.set()
        return True

    def _deliver(
        self,
        batch: Batch,
        result: BatchResult,
        requests: list[Part],
        finishes: list[tuple[End, OnFinished]],
    ) -> None:
        if batch.finishes:
            self._starts_dependents = bool(result.dependents)
        begun = [*result.started, *result.dependents, *result.claimed]
        for slot, attempts in by_session(begun).items():
            self._give(slot, attempts)
        for ended in result.ended:
            self._tell(ended)
        if result.groups:
            self._groups_changed(result.groups)
        self._plan_again(batch, result)
        answered = 0
        for request, start, end in requests:
            request.take(start, result.submitted[answered : answered + end - start])
            answered += end - start
        if self._uncertain:
            self._uncertain = {one for one in self._uncertain if one[0].lacks(*one[1:])}
        for (finish, on_finished), finished in zip(finishes, result.finished, strict=True):
            on_finished(finish, finished)

    def _plan_again(self, batch: Batch, result: BatchResult) -> None:
        again_s = self._scheduler.answered(batch, result)
        if again_s:
            asyncio.get_running_loop().call_later(again_s, self._wake.set)
        elif again_s is not None:
            self._wake.set()

    def _room(self, may_claim: bool) -> int:
        """How many submits to take. If they wait for slots, that is 0, and a timer asks again."""
        if not self._submits or not (may_claim or self._scheduler.free_slots().are_taken):
            return 0
        loop = asyncio.get_running_loop()
        found = self._scheduler.admit(loop.time(), self._submits[0][0].at)
        if not found and self._admission_timer is None:
            self._admission_timer = loop.call_later(self._slot_wait_s, self._ask_again)
        return found

    def _ask_again(self) -> None:
        self._admission_timer = None
        self._wake.set()

    def _take_submits(self, room: int) -> list[Part]:
        taken: list[Part] = []
        room_bytes = self._max_bytes
        while self._submits and room > 0 and room_bytes > 0:
            request, start, end = self._submits.popleft()
            jobs = request.jobs[start : min(end, start + room)]
            if (size := _bytes_of(jobs)) > room_bytes:
                jobs = first_bytes(jobs, _job_bytes, room_bytes)
            middle = start + len(jobs)
            taken.append((request, start, middle))
            room -= len(jobs)
            room_bytes -= size
            if middle < end:
                self._submits.appendleft((request, middle, end))
        return taken

    def _take_finishes(self) -> list[tuple[End, OnFinished]]:
        taken: list[tuple[End, OnFinished]] = []
        room_bytes = self._max_bytes
        while self._finishes and len(taken) < self._max_batch and room_bytes > 0:
            taken.append(self._finishes.popleft())
            room_bytes -= _finish_bytes(taken[-1][0])
        return taken


def _job_bytes(job: Submission) -> int:
    return len(job.args)


def _bytes_of(jobs: Sequence[Submission]) -> int:
    return sum([len(job.args) for job in jobs])


def _finish_bytes(finish: End) -> int:
    if not isinstance(finish, Succeeded):
        return 0
    size = 0 if finish.result is None else len(finish.result)
    return size + sum([len(item.job.args) for item in finish.outbox]) if finish.outbox else size


def by_session(claimed: Sequence[Attempt]) -> dict[SessionKey, list[Attempt]]:
    """Claimed attempts, by the session they are placed on."""
    # By the worker's number: to hash a UUID takes longer.
    placed: dict[tuple[int, int], list[Attempt]] = {}
    for one in claimed:
        placed.setdefault((one.worker.int, one.session), []).append(one)
    return {SessionKey(some[0].worker, some[0].session): some for some in placed.values()}
