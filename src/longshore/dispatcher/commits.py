"""The commit loop: sends ends, submits and claims to the store, one transaction after the other.

Theory. Ends, submits and messages to actors queue here. Each batch takes those that came during the
transaction before it. So a busy store gets few large transactions, and an idle store gets a single
job at once.

Only one batch at a time gives jobs to workers, by claiming them or by starting them as they are
submitted (see `core.scheduler`): two would fill the same slots. But if much has piled up behind
that batch, a second, *overlapping* one takes finishes, and submits that must wait for slots anyway.
So the store and this process do not wait for each other. A store that commits one transaction at a
time would gain nothing from it.

When the answer to a batch gets lost, the dispatcher does not know whether the store committed. It
sends the batch again: the store knows submits and messages by their id and finishes by their token,
and does nothing twice. But it may have given jobs to workers. So their sessions are *uncertain*,
and `duties/read_back.py` reads what the store has placed on them. That must wait until the repeated
submits are answered. Until then the first transaction may still be running, and start them; later
it cannot, because it finds their ids taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, TypeVar
from uuid import UUID

from longshore.core.gathering import Gathering
from longshore.core.placement import first_bytes
from longshore.core.scheduler import Plan, Scheduler
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.file_hints import FileHints
from longshore.dispatcher.meter import Meter
from longshore.errors import StoreLost, StoreUnavailable, Unavailable
from longshore.model.actor import Message, Reply, Sent
from longshore.model.attempt import Attempt
from longshore.model.ends import End, ReadDone, Succeeded, TurnTaken
from longshore.model.job import Ended, Finished, Refused, Submission, Submitted
from longshore.model.reports import OutboxMessage, OutboxReply
from longshore.model.worker import SessionKey
from longshore.ports import Batch, BatchResult, Harvested, Settled
from longshore.wire.reports import outbox_bytes, turn_bytes

OnFinished = Callable[[Sequence[End], Sequence[Finished]], None]
"""Hears what became of ends that were queued together, or of some of them."""
FinishPart = tuple[Sequence[End], OnFinished]
Give = Callable[[SessionKey, Sequence[Attempt]], None]
Answer = Submitted | Refused
SendAnswer = Sent | Refused

Item = TypeVar("Item", bound=Submission | Message)
A = TypeVar("A")


class QueuedRequest(Generic[Item, A]):
    """The jobs, or the messages, of one request, and a future for the answers."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self._answers: dict[int, A] = {}
        loop = asyncio.get_running_loop()
        self.at = loop.time()
        self.done: asyncio.Future[list[A]] = loop.create_future()

    def take(self, start: int, answers: Sequence[A]) -> None:
        """The store answered some of the items, from index `start` on."""
        self._answers.update(enumerate(answers, start))
        if len(self._answers) == len(self.items) and not self.done.done():
            self.done.set_result([self._answers[place] for place in range(len(self.items))])

    def fail(self, error: StoreLost) -> None:
        """The store is lost: the items without an answer never get one."""
        if not self.done.done():
            self.done.set_exception(error)

    def lacks(self, start: int, end: int) -> bool:
        """Whether some of these items have no answer yet."""
        return not all(place in self._answers for place in range(start, end))


SubmitRequest = QueuedRequest[Submission, Answer]
SendRequest = QueuedRequest[Message, SendAnswer]
Part = tuple[SubmitRequest, int, int]
"""Some jobs of a request: from one index up to another."""
SendPart = tuple[SendRequest, int, int]
"""Some messages of a request, likewise."""

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
        tell_reply: Callable[[Reply], None],
        learn_lanes: Callable[[], None],
        tell_watchers: Callable[[], None],
        meter: Meter | None = None,
        open_limits_in: Callable[[float], None] = lambda seconds: None,
        heed_cancels: Callable[[], None] = lambda: None,
    ) -> None:
        self._meter = meter
        self._open_limits_in = open_limits_in
        self._heed_cancels = heed_cancels
        self._tell_reply = tell_reply
        self._tell_watchers = tell_watchers
        self._learn_lanes = learn_lanes
        self._dispatcher, self._store, settings, _, self._random = environment
        self._max_batch = settings.max_batch
        self._max_bytes = settings.max_batch_bytes
        self._max_group_jobs = settings.max_group_jobs
        self._overlaps = not self._store.is_serial
        self._max_mailbox = settings.max_mailbox
        self._overlap_from = settings.overlap_from
        self._slot_wait_s = settings.slot_wait_s
        self._max_queued_submits = settings.max_queued_submits
        self._max_queued_bytes = settings.max_queued_bytes
        self._scheduler = scheduler
        self._file_hints = FileHints(scheduler)
        self._give = give
        self._tell = tell
        self._groups_changed = groups_changed
        self._on_outage = on_outage
        self._submits: deque[Part] = deque()
        self._sends: deque[SendPart] = deque()
        self._finishes: deque[FinishPart] = deque()
        self._queued_ends = 0
        self._may_claim = asyncio.Event()
        """There is something to commit, or perhaps to claim."""
        self._may_overlap = asyncio.Event()
        """The same, for the loop that looks whether another transaction is worth it."""
        self._is_claiming = False
        self._is_sending = False
        """A transaction with messages is under way: what came after them must wait for it."""
        self._starts_dependents = False
        self._gathering = Gathering()
        self._gathering_timer: asyncio.TimerHandle | None = None
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
        self.wake()
        return request.done

    def send(self, messages: Sequence[Message]) -> asyncio.Future[list[SendAnswer]]:
        """Queues messages to actors; the future has the answers once they are committed."""
        request = SendRequest(messages)
        self._sends.append((request, 0, len(messages)))
        self._queued(messages)
        self.wake()
        return request.done

    def _queued(self, jobs: Sequence[Submission | Message], sign: int = 1) -> None:
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

    def finish(self, ends: Sequence[End], on_finished: OnFinished) -> None:
        """Queues the ends of attempts; the callback comes once they are committed.

        It comes once for each batch that has some of them.
        """
        self._finishes.append((ends, on_finished))
        self._queued_ends += len(ends)
        gathering = self._gathering
        if gathering.is_awaiting:
            for end in ends:
                if gathering.awaits(end.token) and gathering.came(end.token):
                    gathering.waits_from(asyncio.get_running_loop().time())
        self.wake()

    def ended_elsewhere(self, ended: Sequence[Ended]) -> None:
        """Jobs ended outside of a batch: tells the waiters, and what depends on them in groups."""
        if self._meter is not None:
            self._meter.ended_elsewhere(ended)
        for one in ended:
            self._tell(one)
        if ended:
            self._groups_changed(())
            self._tell_watchers()

    def cancelled(self, jobs: int) -> None:
        """Jobs that did not run were cancelled: the meter counts them."""
        if self._meter is not None:
            self._meter.cancelled(jobs)

    def settled(self, answer: Settled) -> None:
        """The upkeep of groups ended jobs: the meter counts them, but not the groups."""
        if self._meter is not None:
            self._meter.ended_elsewhere(answer.ended[: len(answer.ended) - answer.closed])

    def harvested(self, answer: Harvested) -> None:
        """A loss made jobs ready, or ended them: tells the scheduler and the waiters."""
        self.ended_elsewhere(answer.ended)
        if answer.lost or answer.lanes:
            self._open_limits_in(0)
        if answer.lanes:
            self._scheduler.lanes.mark_ready(answer.lanes)
            self.wake()

    def wake(self) -> None:
        """There may be something to claim."""
        self._may_claim.set()
        if self._overlaps and self._queued_ends + self.queued_submits >= self._overlap_from:
            self._may_overlap.set()

    async def run(self) -> None:
        """Commits batches until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claim_loop())
            tasks.create_task(self._overlap_loop())

    def _has_much(self) -> bool:
        """Whether an overlapping transaction is worth it."""
        # An overlapping transaction has no slots for jobs of groups that its ends would start.
        if self._starts_dependents:
            return False
        much, most = self._queued_ends, self._queued_ends + self.queued_submits
        if much < self._overlap_from <= most and self._is_claiming and self._submits:
            much = most if self._scheduler.free_slots().are_taken else much
        return much >= self._overlap_from

    async def _claim_loop(self) -> None:
        while True:
            await self._may_claim.wait()
            self._may_claim.clear()
            if self._waits_for_more():
                continue
            self._is_claiming = True
            await self._commit_with_backoff(may_claim=True)
            self._is_claiming = False

    def _waits_for_more(self) -> bool:
        """Whether ends wait for those of other jobs that started with theirs; a timer asks again.

        Nothing else waits with them.
        """
        loop = asyncio.get_running_loop()
        wait_s = self._gathering.wait_s(loop.time())
        if not wait_s or self._submits or self._sends or not self._finishes:
            return False
        if self._gathering_timer is None:
            self._gathering_timer = loop.call_later(wait_s, self._gathered)
        return True

    def _gathered(self) -> None:
        self._gathering_timer = None
        self.wake()

    async def _overlap_loop(self) -> None:
        while True:
            await self._may_overlap.wait()
            self._may_overlap.clear()
            if self._has_much():
                await self._commit_with_backoff(may_claim=False)

    async def _commit_with_backoff(self, *, may_claim: bool) -> None:
        if await self._commit_batch(may_claim, self._room(may_claim)):
            self._outages = 0
            waits = self._submits and self._admission_timer is None
            # Messages that wait for those under way: whoever has these asks again.
            is_next = self._sends and not self._is_sending
            if self._finishes or is_next or waits:
                self.wake()
            return
        self._outages += 1
        longest_s = min(0.05 * 2**self._outages, 1.0)
        await asyncio.sleep(longest_s * self._random.uniform(0.5, 1.0))
        self.wake()

    @property
    def is_away(self) -> bool:
        """Whether the store did not answer the last batch."""
        return self._outages > 0

    @property
    def queued(self) -> dict[str, int]:
        """How much waits for the store, by what it is."""
        sends = sum(end - start for _, start, end in self._sends)
        return {
            "submit": self.queued_submits - sends,
            "message": sends,
            "finish": self._queued_ends,
        }

    @property
    def is_certain(self) -> bool:
        """Whether every submit whose answer got lost has an answer by now."""
        return not self._uncertain

    async def drain(self) -> None:
        """Commits what is queued, without claiming anything more."""
        while self._submits or self._finishes or self._sends:
            if not await self._commit_batch(may_claim=False, room=self._max_batch):
                return

    async def _commit_batch(self, may_claim: bool, room: int) -> bool:
        """One transaction with so many submits; False if the store was away."""
        sends = self._take_sends()
        if not sends:
            return await self._commit(may_claim, room, [])
        self._is_sending = True
        try:
            return await self._commit(may_claim, room, sends)
        finally:
            self._is_sending = False

    async def _commit(self, may_claim: bool, room: int, sends: list[SendPart]) -> bool:
        requests = self._take_submits(room)
        finishes = self._take_finishes()
        submits = _items(requests)
        messages = _items(sends)
        ends = [end for some, _ in finishes for end in some]
        causes = bool(ends or messages)
        now = asyncio.get_running_loop().time()
        plan = NO_PLAN
        if may_claim:
            inputs = self._file_hints.inputs(submits)
            plan = self._scheduler.plan(submits, has_ends=causes, now=now, inputs=inputs)
        claims, slots, left = plan
        most = (self._max_bytes, self._max_group_jobs)
        batch = Batch(ends, submits, claims, slots, *most, left, messages, self._max_mailbox)
        if not (ends or submits or claims or messages):
            return True
        self._queued(submits, -1)
        self._queued(messages, -1)
        try:
            result = await self._store.pump(self._dispatcher, batch)
        except StoreUnavailable as error:
            self._finishes.extendleft(reversed(finishes))
            self._queued_ends += len(ends)
            if isinstance(error, StoreLost):
                # The store does not come back: the submitters hear of it.
                for request, _, _ in requests:
                    request.fail(error)
                for sent, _, _ in sends:
                    sent.fail(error)
            else:
                self._queued(submits)
                self._queued(messages)
                self._submits.extendleft(reversed(requests))
                self._sends.extendleft(reversed(sends))
                self._uncertain.update(requests)
                wanted = [slot for claim in claims for slot in claim.slots]
                wanted += [one.slot for some in left for one in some.workers]
                self._scheduler.mark_uncertain([*wanted, *filter(None, slots)])
            if self._meter is not None:
                self._meter.unanswered(batch)
            self._on_outage(error)
            return False
        if self._meter is not None:
            self._meter.committed(batch, result)
        self._deliver(batch, result, requests, finishes, sends)
        if submits and not may_claim:
            self._scheduler.submitted(submits)
            self.wake()
        return True

    def _deliver(
        self,
        batch: Batch,
        result: BatchResult,
        requests: list[Part],
        finishes: list[FinishPart],
        sends: list[SendPart],
    ) -> None:
        if batch.finishes:
            self._starts_dependents = bool(result.dependents)
            self._gathering.recorded(any_started=self._starts_dependents)
        if result.dependents:
            now = asyncio.get_running_loop().time()
            self._gathering.started([one.token for one in result.dependents], now)
        begun = [*result.started, *result.dependents, *result.turns, *result.claimed]
        for slot, attempts in by_session(begun).items():
            self._file_hints.gave(slot.worker, attempts)
            self._give(slot, attempts)
        for ended in result.ended:
            self._tell(ended)
        for reply in result.replies:
            self._tell_reply(reply)
        if result.groups:
            self._groups_changed(result.groups)
        if result.watched:
            self._tell_watchers()
        if result.limits_open_s is not None:
            self._open_limits_in(result.limits_open_s)
        if result.stopping:
            self._heed_cancels()
        self._plan_again(batch, result)
        _answer(requests, result.submitted)
        _answer(sends, result.sent)
        if self._uncertain:
            self._uncertain = {one for one in self._uncertain if one[0].lacks(*one[1:])}
        answered = 0
        for ends, on_finished in finishes:
            on_finished(ends, result.finished[answered : answered + len(ends)])
            answered += len(ends)

    def _plan_again(self, batch: Batch, result: BatchResult) -> None:
        again_s = self._scheduler.answered(batch, result)
        if result.ready and _may_wake_actors(batch):
            # Their lanes may be new to this dispatcher: others have started these actors.
            known = self._scheduler.lanes.known(result.ready)
            if len(known) < len(result.ready):
                self._learn_lanes()
        if again_s:
            asyncio.get_running_loop().call_later(again_s, self.wake)
        elif again_s is not None:
            self.wake()

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
        self.wake()

    def _take_submits(self, room: int) -> list[Part]:
        return _take(self._submits, room, self._max_bytes)

    def _take_sends(self) -> list[SendPart]:
        """Whole requests, and none while others are being stored.

        So messages to an actor are stored in the order in which they came, and those of one request
        together.
        """
        if self._is_sending:
            return []
        taken: list[SendPart] = []
        room, room_bytes = self._max_batch, self._max_bytes
        while self._sends and room > 0 and room_bytes > 0:
            request, _, count = self._sends[0]
            if taken and count > room:
                break
            taken.append(self._sends.popleft())
            room -= count
            room_bytes -= _bytes_of(request.items)
        return taken

    def _take_finishes(self) -> list[FinishPart]:
        taken: list[FinishPart] = []
        room, room_bytes = self._max_batch, self._max_bytes
        self._gathering.taken()
        while self._finishes and room > 0 and room_bytes > 0:
            ends, on_finished = self._finishes.popleft()
            some = ends[:room]
            if (size := sum(map(_finish_bytes, some))) > room_bytes:
                some = first_bytes(some, _finish_bytes, room_bytes)
            taken.append((some, on_finished))
            room -= len(some)
            room_bytes -= size
            self._queued_ends -= len(some)
            if len(some) < len(ends):
                self._finishes.appendleft((ends[len(some) :], on_finished))
        return taken


def _take(
    queue: deque[tuple[QueuedRequest[Item, A], int, int]], room: int, room_bytes: int
) -> list[tuple[QueuedRequest[Item, A], int, int]]:
    """Takes so many items from a queue, of so many bytes; the last may exceed these."""
    taken: list[tuple[QueuedRequest[Item, A], int, int]] = []
    while queue and room > 0 and room_bytes > 0:
        request, start, end = queue.popleft()
        items = request.items[start : min(end, start + room)]
        if (size := _bytes_of(items)) > room_bytes:
            items = first_bytes(items, _item_bytes, room_bytes)
        middle = start + len(items)
        taken.append((request, start, middle))
        room -= len(items)
        room_bytes -= size
        if middle < end:
            queue.appendleft((request, middle, end))
    return taken


def _items(parts: Sequence[tuple[QueuedRequest[Item, A], int, int]]) -> list[Item]:
    return [item for request, start, end in parts for item in request.items[start:end]]


def _answer(parts: Sequence[tuple[QueuedRequest[Item, A], int, int]], answers: Sequence[A]) -> None:
    answered = 0
    for request, start, end in parts:
        request.take(start, answers[answered : answered + end - start])
        answered += end - start


def _may_wake_actors(batch: Batch) -> bool:
    """Whether a batch has turns, or messages to actors, those in outboxes too."""
    if batch.sends or any(isinstance(end, TurnTaken) for end in batch.finishes):
        return True
    with_outbox = (end for end in batch.finishes if isinstance(end, Succeeded) and end.outbox)
    return any(
        isinstance(item, OutboxMessage | OutboxReply) for end in with_outbox for item in end.outbox
    )


def _item_bytes(item: Submission | Message) -> int:
    return len(item.args)


def _bytes_of(items: Sequence[Submission | Message]) -> int:
    return sum([len(item.args) for item in items])


def _finish_bytes(finish: End) -> int:
    if isinstance(finish, Succeeded):
        size = 0 if finish.result is None else len(finish.result)
        return size + outbox_bytes(finish.outbox) if finish.outbox else size
    if isinstance(finish, TurnTaken):
        return turn_bytes(finish.turn) + outbox_bytes(finish.outbox)
    return len(finish.reply.result or b"") if isinstance(finish, ReadDone) else 0


def by_session(claimed: Sequence[Attempt]) -> dict[SessionKey, list[Attempt]]:
    """Claimed attempts, by the session they are placed on."""
    # By the worker's number: to hash a UUID takes longer.
    placed: dict[tuple[int, int], list[Attempt]] = {}
    for one in claimed:
        placed.setdefault((one.worker.int, one.session), []).append(one)
    return {SessionKey(some[0].worker, some[0].session): some for some in placed.values()}
