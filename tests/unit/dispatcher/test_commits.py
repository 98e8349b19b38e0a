"""The commit loop alone: what each transaction takes, and when a second one overlaps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random

from longshore.config import DispatcherSettings
from longshore.core.admission import FreeSlots, Patience
from longshore.core.scheduler import NO_INPUTS, Plan, Scheduler
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.environment import Environment
from longshore.errors import StoreUnavailable
from longshore.model.actor import Message, Sent
from longshore.model.ends import Succeeded
from longshore.model.job import Finished, JobState, Refused, Submission, Submitted, Verdict
from longshore.model.reports import OutboxJob
from longshore.model.worker import Claim, FileKey, SessionKey
from longshore.ports import Batch, BatchResult
from longshore.testing.builders import a_job, new_id
from longshore.testing.virtual import VirtualClock

UNHURRIED = Patience(60.0, 60.0)
WANT = Claim((1,), (SessionKey(new_id(), 1),))


class HeldStore:
    """Begins transactions, and ends each when it is told to."""

    def __init__(self, *, is_serial: bool = False) -> None:
        self.is_serial = is_serial
        self.begun: list[tuple[Batch, asyncio.Future[None]]] = []

    async def pump(self, dispatcher: object, batch: Batch) -> BatchResult:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun.append((batch, done))
        await done
        finished = [
            Finished(one.job, one.token, Verdict.RECORDED, JobState.SUCCEEDED)
            for one in batch.finishes
        ]
        submitted: list[Submitted | Refused] = [Submitted(job.id, 1) for job in batch.submits]
        return BatchResult(finished, submitted, sent=[Sent(one.id) for one in batch.sends])

    def sizes(self) -> list[tuple[int, int]]:
        """How many submits and finishes each transaction had."""
        return [(len(batch.submits), len(batch.finishes)) for batch, _ in self.begun]

    async def until(self, begun: int) -> Batch:
        """The last transaction, once so many were begun."""
        while len(self.begun) < begun:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return self.begun[-1][0]

    def commit(self, which: int) -> None:
        self.begun[which][1].set_result(None)

    def fail(self, which: int) -> None:
        self.begun[which][1].set_exception(StoreUnavailable("away"))


class Scripted(Scheduler):
    """A scheduler whose free slots and plans are as a test says."""

    def __init__(
        self,
        slots: Callable[[], FreeSlots],
        plan: Callable[[Sequence[Submission]], Plan],
        on_doubt: Callable[[Iterable[SessionKey]], None],
        patience: Patience,
    ) -> None:
        super().__init__(100, patience)
        self._scripted = slots, plan, on_doubt

    def free_slots(self) -> FreeSlots:
        return self._scripted[0]()

    def plan(
        self,
        submits: Sequence[Submission],
        *,
        has_ends: bool = False,
        now: float = 0.0,
        inputs: Mapping[int, Sequence[FileKey]] = NO_INPUTS,
    ) -> Plan:
        made = self._scripted[1](submits)
        if submits:
            self._admission.took(any_started=any(made.slots))
        return made

    def mark_uncertain(self, slots: Iterable[SessionKey]) -> None:
        self._scripted[2](slots)

    def answered(self, *_: object, **__: object) -> None:
        return None


@asynccontextmanager
async def pumping(
    store: HeldStore,
    overlap_from: int = 3,
    slots: Callable[[], FreeSlots] = lambda: FreeSlots(0, True),
    plan: Callable[[Sequence[Submission]], Plan] = lambda _submits: Plan([WANT], ()),
    on_doubt: Callable[[Iterable[SessionKey]], None] = lambda _slots: None,
    patience: Patience = UNHURRIED,
) -> AsyncIterator[Commits]:
    settings = DispatcherSettings(
        max_batch=100,
        max_batch_bytes=1000,
        overlap_from=overlap_from,
        slot_wait_s=patience.none_free_s,
    )
    pump = Commits(
        Environment(new_id(), store, settings, VirtualClock(), Random(1)),  # type: ignore[arg-type]
        Scripted(slots, plan, on_doubt, patience),
        give=lambda _slot, _attempts: None,
        tell=lambda _ended: None,
        groups_changed=lambda _groups: None,
        on_outage=lambda _error: None,
        tell_reply=lambda _reply: None,
        learn_lanes=lambda: None,
        tell_watchers=lambda: None,
    )
    task = asyncio.create_task(pump.run())
    try:
        yield pump
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    """Lets everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_little_that_comes_during_a_transaction_waits_for_its_end() -> None:
    store = HeldStore()
    async with pumping(store) as pump:
        pump.wake()
        await store.until(1)
        order = pump.submit([a_job(), a_job()])
        await settle()
        assert len(store.begun) == 1
        store.commit(0)
        batch = await store.until(2)
        assert (len(batch.submits), batch.claims) == (2, [WANT])
        store.commit(1)
        assert len(await order) == 2


async def test_much_goes_into_a_second_transaction_that_claims_nothing() -> None:
    store = HeldStore()
    async with pumping(store) as pump:
        pump.wake()
        await store.until(1)
        order = pump.submit([a_job() for _ in range(3)])
        batch = await store.until(2)
        assert (len(batch.submits), batch.claims) == (3, [])
        pump.submit([a_job() for _ in range(50)])
        await settle()
        assert len(store.begun) == 2
        store.commit(1)
        assert len(await order) == 3
        assert len((await store.until(3)).submits) == 50


async def test_a_store_that_commits_one_after_the_other_is_given_one_at_a_time() -> None:
    store = HeldStore(is_serial=True)
    async with pumping(store) as pump:
        pump.wake()
        await store.until(1)
        order = pump.submit([a_job() for _ in range(50)])
        await settle()
        assert len(store.begun) == 1
        store.commit(0)
        batch = await store.until(2)
        assert (len(batch.submits), batch.claims) == (50, [WANT])
        store.commit(1)
        assert len(await order) == 50


async def test_a_claim_that_became_possible_meanwhile_is_not_forgotten() -> None:
    store = HeldStore()
    async with pumping(store) as pump:
        pump.wake()
        await store.until(1)
        pump.wake()
        await settle()
        store.commit(0)
        assert (await store.until(2)).claims == [WANT]


async def test_what_two_failed_transactions_held_is_committed_once() -> None:
    store = HeldStore()
    ended: list[Finished] = []
    async with pumping(store) as pump:
        orders = [pump.submit([a_job()])]
        await store.until(1)
        ends = [Succeeded(new_id(), 1) for _ in range(4)]
        for end in ends:
            pump.finish([end], lambda _ends, done: ended.extend(done))
        assert len((await store.until(2)).finishes) == 4
        store.fail(0)
        store.fail(1)
        for turn in range(2, 5):
            if not (pump.queued_submits or len(ended) < 4):
                break
            await store.until(turn + 1)
            store.commit(turn)
            await settle()
        assert [len(await order) for order in orders] == [1]
        assert sorted(one.job for one in ended) == sorted(one.job for one in ends)


SLOT = SessionKey(new_id(), 1)


def all_started(submits: Sequence[Submission]) -> Plan:
    return Plan([], [SLOT] * len(submits))


async def test_while_slot_come_free_as_many_submits_are_taken_as_there_are() -> None:
    store, free = HeldStore(), [2]
    async with pumping(store, slots=lambda: FreeSlots(free[0], False), plan=all_started) as pump:
        order = pump.submit([a_job() for _ in range(5)])
        assert len((await store.until(1)).submits) == 2
        free[0] = 0
        store.commit(0)
        await settle()
        assert store.sizes() == [(2, 0)]
        free[0] = 3
        pump.finish([Succeeded(new_id(), 1)], lambda _ends, _done: None)
        await store.until(2)
        assert store.sizes()[1] == (3, 1)
        store.commit(1)
        assert len(await order) == 5


async def test_submits_do_not_wait_for_slot_that_they_cannot_have() -> None:
    """The free slots are of other workers, or the jobs are delayed."""
    store, free = HeldStore(), [2]
    slots = lambda: FreeSlots(free[0], False)  # noqa: E731
    plan = lambda jobs: Plan([], [None] * len(jobs))  # noqa: E731
    async with pumping(store, slots=slots, plan=plan) as pump:
        order = pump.submit([a_job() for _ in range(150)])
        for turn, size in enumerate([2, 100, 48]):
            assert len((await store.until(turn + 1)).submits) == size
            store.commit(turn)
        assert len(await order) == 150


async def test_a_submit_that_finds_no_slot_in_time_is_stored_all_the_same() -> None:
    store, free = HeldStore(), [1]
    patience = Patience(0.01, 60.0)
    slots = lambda: FreeSlots(free[0], False)  # noqa: E731
    async with pumping(store, slots=slots, plan=all_started, patience=patience) as pump:
        pump.submit([a_job()])
        await store.until(1)
        free[0] = 0
        order = pump.submit([a_job(), a_job()])
        store.commit(0)
        assert len((await store.until(2)).submits) == 2
        store.commit(1)
        assert len(await order) == 2


async def test_answers_of_one_request_in_two_transactions_stay_in_order() -> None:
    store = HeldStore()
    jobs = [a_job() for _ in range(130)]
    async with pumping(store) as pump:
        order = pump.submit(jobs)
        await store.until(1)
        pump.wake()
        await store.until(2)
        assert store.sizes() == [(100, 0), (30, 0)]
        store.commit(1)
        await settle()
        store.commit(0)
        assert [answer.id for answer in await order] == [job.id for job in jobs]


async def test_slot_of_a_transaction_whose_answer_got_lost_are_doubted() -> None:
    store, doubted = HeldStore(), list[SessionKey]()
    async with pumping(
        store, slots=lambda: FreeSlots(5, False), plan=all_started, on_doubt=doubted.extend
    ) as pump:
        order = pump.submit([a_job()])
        await store.until(1)
        store.fail(0)
        await store.until(2)
        assert doubted == [SLOT]
        store.commit(1)
        assert len(await order) == 1


async def test_whoever_still_waits_for_a_slot_is_stored_when_the_pump_is_drained() -> None:
    store, free = HeldStore(), [1]
    async with pumping(store, slots=lambda: FreeSlots(free[0], False), plan=all_started) as pump:
        order = pump.submit([a_job(), a_job()])
        await store.until(1)
        free[0] = 0
        store.commit(0)
        await settle()
        draining = asyncio.create_task(pump.drain())
        assert (await store.until(2)).slots == ()
        store.commit(1)
        await draining
        assert len(await order) == 2


async def test_a_transaction_takes_submits_up_to_the_one_that_fills_it_with_bytes() -> None:
    store = HeldStore(is_serial=True)
    async with pumping(store) as pump:
        order = pump.submit([a_job(args=bytes(400)) for _ in range(7)])
        for which in range(3):
            await store.until(which + 1)
            store.commit(which)
        assert len(await order) == 7
        assert store.sizes() == [(3, 0), (3, 0), (1, 0)]


async def test_a_transaction_takes_ends_up_to_the_one_that_fills_it_with_bytes() -> None:
    store, ends = HeldStore(is_serial=True), []
    async with pumping(store) as pump:
        sent = a_job(args=bytes(400))
        all_ends = [Succeeded(new_id(), 1, bytes(400), (OutboxJob(sent),)) for _ in range(3)]
        pump.finish(all_ends, lambda some, done: ends.append((some, len(done))))
        for which in range(2):
            await store.until(which + 1)
            store.commit(which)
        await settle()
        assert ends == [(all_ends[:2], 2), (all_ends[2:], 1)]
        assert store.sizes()[:2] == [(0, 2), (0, 1)]


def some_mail(count: int) -> list[Message]:
    return [Message(new_id(), "Account", "ann", "add") for _ in range(count)]


def mail_of(batch: Batch) -> list[Message]:
    return [*batch.sends]


async def test_messages_wait_for_those_before_them_even_if_ends_do_not() -> None:
    store = HeldStore()
    first, second = some_mail(2), some_mail(2)
    async with pumping(store) as pump:
        pump.send(first)
        await store.until(1)
        pump.send(second)
        for _ in range(5):
            pump.finish([Succeeded(new_id(), 1)], lambda *_: None)
        overlapping = await store.until(2)
        assert (len(overlapping.finishes), mail_of(overlapping)) == (5, [])
        store.commit(1)
        await settle()
        assert len(store.begun) == 2
        store.commit(0)
        assert mail_of(await store.until(3)) == second


async def test_messages_that_wait_for_those_in_an_overlapping_transaction_let_it_end() -> None:
    """The loop that claims had asked again and again, and nothing else ran any more."""
    store = HeldStore()
    first, second = some_mail(1), some_mail(1)
    plans = iter([Plan([WANT], ())])
    async with pumping(store, plan=lambda _submits: next(plans, Plan([], ()))) as pump:
        pump.wake()
        await store.until(1)
        pump.send(first)
        pump.finish([Succeeded(new_id(), 1) for _ in range(5)], lambda *_: None)
        assert mail_of(await store.until(2)) == first
        pump.send(second)
        store.commit(0)
        await settle()
        assert len(store.begun) == 2
        store.commit(1)
        assert mail_of(await store.until(3)) == second


async def test_the_messages_of_one_request_are_stored_together() -> None:
    store = HeldStore()
    first, second = some_mail(60), some_mail(60)
    async with pumping(store) as pump:
        pump.wake()
        await store.until(1)
        pump.send(first)
        pump.send(second)
        store.commit(0)
        assert mail_of(await store.until(2)) == first
        store.commit(1)
        assert mail_of(await store.until(3)) == second


async def test_messages_of_a_transaction_that_failed_come_before_later_ones() -> None:
    store = HeldStore()
    first, second = some_mail(2), some_mail(2)
    async with pumping(store) as pump:
        pump.send(first)
        await store.until(1)
        pump.send(second)
        store.fail(0)
        assert mail_of(await store.until(2)) == [*first, *second]
