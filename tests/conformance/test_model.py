"""The same operations on a store and on the plain model in memory: the same answers, always.

Ids are drawn from a few, so that jobs, keys, workers and sessions meet. Numbers and tokens come
from each store's own sequences: they are compared by what they name and how they grow. Times are
compared by being there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from msgspec import Struct, msgpack, structs

from longshore.core.lifecycle import TERMINAL
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Succeeded
from longshore.model.job import (
    Ended,
    Finished,
    Job,
    JobFilter,
    JobState,
    LogEntry,
    LogKind,
    Options,
    Progress,
    Refused,
    Submission,
    Submitted,
    Verdict,
)
from longshore.model.retention import Retention
from longshore.model.worker import (
    Attended,
    Claim,
    KindInfo,
    QueueView,
    SessionKey,
    WorkerInfo,
    WorkerView,
)
from longshore.ports import Batch, BatchResult, Harvested, Store
from longshore.testing.backends import Backend, MemoryBackend
from longshore.testing.builders import ENDS, done, lane

from .machines import play

T = TypeVar("T")

REQUESTS = [None, UUID(int=901), UUID(int=902)]
JOBS = [UUID(int=number) for number in range(1, 41)]
DISPATCHERS = [UUID(int=number) for number in range(201, 203)]
LANES = [lane(queue, kind) for queue in ("default", "q") for kind in ("a", "b")]
LONG_S = 1000.0

submissions = st.builds(
    Submission,
    id=st.sampled_from(JOBS),
    kind=st.sampled_from(["a"] * 6 + ["b"] * 3 + ["\0"]),
    args=st.just(b"x"),
    queue=st.sampled_from(["default", "q"]),
    priority=st.integers(-1, 1),
    delay_s=st.sampled_from([None, None, None, 0, LONG_S]),
    unique_key=st.sampled_from([None, None, "u", "v"]),
    options=st.sampled_from(
        [Options(), Options(), Options(timeout_s=100), Options(expires_s=LONG_S)]
    ),
)


class Ending(Struct, frozen=True):
    """A finish of an attempt that is not known before the machine runs."""

    attempt: int
    outcome: type[End]
    delay_s: float
    forced: bool
    told: bool
    outbox: tuple[Submission, ...]


class Place(Struct, frozen=True):
    """A slot of a worker's session, or of the one before it; workers are counted back."""

    worker: int
    late: bool


ends = st.builds(
    Ending,
    attempt=st.integers(0, 5),
    outcome=st.sampled_from([Succeeded] * 3 + list(ENDS)),
    delay_s=st.sampled_from([0.0, LONG_S]),
    forced=st.sampled_from([False, False, True]),
    told=st.booleans(),
    outbox=st.lists(submissions, max_size=1).map(tuple),
)
places = st.builds(Place, worker=st.integers(0, 3), late=st.sampled_from([False] * 7 + [True]))
wishes = st.tuples(st.lists(st.sampled_from(LANES), max_size=4), st.lists(places, max_size=5))
choice = st.integers(0, 15)
ended_states = st.sampled_from(sorted(TERMINAL))
retentions = st.builds(
    Retention,
    # Time passes in halves of LONG_S: no age is just at a bound.
    seconds=st.dictionaries(ended_states, st.sampled_from([0.0, LONG_S * 0.75])),
    most=st.dictionaries(ended_states, st.integers(0, 3)),
)


class SameAnswers(RuleBasedStateMachine):
    """Two stores side by side: the model first, the one under test second."""

    def __init__(self, backend: Backend, runner: asyncio.Runner) -> None:
        super().__init__()
        self.runner = runner
        self.backends = (MemoryBackend(), backend)
        runner.run(backend.clear())
        self.stores = tuple(one.connect() for one in self.backends)
        for store in self.stores:
            runner.run(store.open())
        self.agreed = False
        self.attempts: list[tuple[Attempt, Attempt]] = []
        self.submissions: list[Submission] = []
        self.sessions: dict[UUID, int] = {}
        self.numbers: dict[UUID, tuple[int, int]] = {}
        self.tokens: dict[UUID, dict[int, int]] = {}

    def teardown(self) -> None:
        try:
            if self.agreed:
                self.every_job_is_the_same()
        finally:
            for store in self.stores:
                self.runner.run(store.close())

    # the operations

    @initialize(jobs=st.lists(submissions, min_size=4, max_size=8))
    def begin(self, jobs: list[Submission]) -> None:
        for _ in range(3):
            self.arrive(DISPATCHERS[0])
        self.submit(jobs)

    @precondition(lambda self: self.submissions)
    @rule(which=choice)
    def submit_again(self, which: int) -> None:
        self.pump(DISPATCHERS[0], [], [pick(self.submissions, which)], [])

    @rule(jobs=st.lists(submissions, min_size=1, max_size=4))
    def submit(self, jobs: list[Submission]) -> None:
        self.pump(DISPATCHERS[0], [], jobs, [])

    @rule(
        dispatcher=st.sampled_from([DISPATCHERS[0], *DISPATCHERS]),
        started=st.lists(st.tuples(submissions, st.none() | places), min_size=1, max_size=4),
        again=st.none() | choice,
    )
    def submit_started(
        self,
        dispatcher: UUID,
        started: list[tuple[Submission, Place | None]],
        again: int | None,
    ) -> None:
        if again is not None and self.submissions:
            started = [*started, (pick(self.submissions, again), started[0][1])]
        submits, slots = self.attending(started)
        self.pump(dispatcher, [], submits, [], slots)

    @rule(
        dispatcher=st.sampled_from([DISPATCHERS[0], *DISPATCHERS]),
        some=st.lists(places, min_size=2, max_size=5),
    )
    def claim(self, dispatcher: UUID, some: list[Place]) -> None:
        self.pump(dispatcher, [], [], [Claim(tuple(LANES), self.slots(some))])

    @precondition(lambda self: self.attempts)
    @rule(finishing=st.lists(ends, min_size=1, max_size=3))
    def finish(self, finishing: list[Ending]) -> None:
        self.pump(DISPATCHERS[0], finishing, [], [])

    @rule(finishing=st.lists(ends, min_size=1, max_size=3), some=st.lists(places, min_size=3))
    def finish_and_claim(self, finishing: list[Ending], some: list[Place]) -> None:
        self.pump(DISPATCHERS[0], finishing, [], [Claim(tuple(LANES), self.slots(some))])

    @rule(
        dispatcher=st.sampled_from(DISPATCHERS),
        finishing=st.lists(ends, max_size=2),
        started=st.lists(st.tuples(submissions, st.none() | places), max_size=2),
        wishing=st.lists(wishes, max_size=2),
    )
    def do_all_at_once(
        self,
        dispatcher: UUID,
        finishing: list[Ending],
        started: list[tuple[Submission, Place | None]],
        wishing: list[tuple[list[int], list[Place]]],
    ) -> None:
        claims = [Claim(tuple(lanes), self.slots(some)) for lanes, some in wishing]
        submits, slots = self.attending(started)
        self.pump(dispatcher, finishing, submits, claims, slots)

    def attending(
        self, started: list[tuple[Submission, Place | None]]
    ) -> tuple[list[Submission], list[SessionKey | None]]:
        jobs = [job for job, _ in started]
        return jobs, [None if place is None else self.slots([place])[0] for _, place in started]

    def pump(
        self,
        dispatcher: UUID,
        finishing: list[Ending],
        submits: list[Submission],
        claims: list[Claim],
        slots: Sequence[SessionKey | None] = (),
    ) -> None:
        model, real = (
            self.run(
                store.pump(
                    dispatcher, Batch(self.finishes(finishing, side), submits, claims, slots)
                )
            )
            for side, store in enumerate(self.stores)
        )
        self.submissions += submits
        self.same_finished(model.finished, real.finished)
        self.same_submitted(model, real)
        for one, other in ((model.started, real.started), (model.claimed, real.claimed)):
            self.same_attempts(one, other)
            self.attempts[:0] = zip(one, other, strict=True)
        assert (real.ready, real.ready_by_ends) == (model.ready, model.ready_by_ends)
        assert real.taken == model.taken
        assert outcomes(real.ended) == outcomes(model.ended)

    def arrive(self, dispatcher: UUID) -> None:
        self.attend(dispatcher, UUID(int=1000 + len(self.sessions)), False)

    @rule(
        dispatcher=st.sampled_from(DISPATCHERS),
        place=places,
        draining=st.sampled_from([False] * 4 + [True]),
        ahead=st.sampled_from([None, None, 1, 3, 0, -1]),
    )
    def adopt(self, dispatcher: UUID, place: Place, draining: bool, ahead: int | None) -> None:
        [slot] = self.slots([place])
        session = None if ahead is None else slot.session + ahead
        self.attend(dispatcher, slot.worker, draining, session)

    def attend(
        self, dispatcher: UUID, worker: UUID, draining: bool, session: int | None = None
    ) -> None:
        info = WorkerInfo(id=worker, kinds={"a": KindInfo(), "b": KindInfo()})
        model, real = self.both(
            lambda store: store.attend(dispatcher, info, draining=draining, session=session)
        )
        if not isinstance(model, Attended):
            assert real == model
            return
        assert isinstance(real, Attended)
        assert real.session == model.session
        self.same_attempts(by_id(model.placed), by_id(real.placed))
        self.sessions[worker] = model.session

    @rule(
        place=places,
        crash=st.booleans(),
        crash_limit=st.integers(1, 3),
        undelivered=st.sets(choice),
    )
    def lose_a_worker(
        self, place: Place, crash: bool, crash_limit: int, undelivered: set[int]
    ) -> None:
        [slot] = self.slots([place])
        attempts = [pair for place, pair in enumerate(self.attempts) if place in undelivered]
        model, real = (
            self.run(
                store.harvest(
                    slot.worker,
                    slot.session,
                    "lost",
                    crash=crash,
                    crash_limit=crash_limit,
                    undelivered=[pair[side].token for pair in attempts],
                )
            )
            for side, store in enumerate(self.stores)
        )
        assert freed(real) == freed(model)
        self.arrive(DISPATCHERS[0])

    @rule(place=places, crash_limit=st.integers(1, 3))
    def sweep_after_a_harvest_died(self, place: Place, crash_limit: int) -> None:
        [slot] = self.slots([place])
        for backend in self.backends:
            self.run(backend.half_harvest(slot.worker))
        model, real = self.both(lambda store: store.sweep(crash_limit))
        assert freed(real)[1:] == freed(model)[1:]
        self.arrive(DISPATCHERS[0])

    @rule(seconds=st.sampled_from([LONG_S / 2, LONG_S * 1.5]))
    def pass_time(self, seconds: float) -> None:
        for backend in self.backends:
            self.run(backend.pass_time(seconds))

    @rule()
    def promote(self) -> None:
        model, real = self.both(lambda store: store.promote())
        assert (real.count, real.lanes) == (model.count, model.lanes)
        assert (real.next_s is None) == (model.next_s is None)
        assert abs((real.next_s or 0) - (model.next_s or 0)) < LONG_S / 10

    @rule()
    def expire(self) -> None:
        model, real = self.both(lambda store: store.expire())
        assert outcomes(real) == outcomes(model)

    @precondition(lambda self: self.numbers)
    @rule(which=st.lists(choice, max_size=4, unique=True), by_number=st.booleans())
    def cancel(self, which: list[int], by_number: bool) -> None:
        model, real = (
            self.run(store.cancel(self.refs(which, by_number, side), "ann"))
            for side, store in enumerate(self.stores)
        )
        assert real == model

    @precondition(lambda self: self.numbers)
    @rule(
        which=st.lists(choice, max_size=4, unique=True),
        by_number=st.booleans(),
        request=st.sampled_from(REQUESTS),
    )
    def retry(self, which: list[int], by_number: bool, request: UUID | None) -> None:
        model, real = (
            self.run(store.retry(self.refs(which, by_number, side), "ann", request))
            for side, store in enumerate(self.stores)
        )
        assert real == model

    @precondition(lambda self: self.attempts)
    @rule(which=choice, seq=st.integers(1, 5), text=st.sampled_from(["one", "two"]))
    def log(self, which: int, seq: int, text: str) -> None:
        said = (
            (LogKind.STEP, text.encode(), seq * 2),
            (LogKind.PROGRESS, msgpack.encode(Progress(seq)), seq * 2 + 1),
        )
        for store, attempt in zip(self.stores, pick(self.attempts, which), strict=True):
            entries = [
                LogEntry(attempt.id, attempt.token, number, kind, data)
                for kind, data, number in said
            ]
            self.run(store.log(entries))

    @rule(held=st.sampled_from(["default", "q"]) | places, holding=st.booleans())
    def hold(self, held: str | Place, holding: bool) -> None:
        if isinstance(held, str):
            self.same(lambda store: store.set_paused(held, holding))
        else:
            [slot] = self.slots([held])
            self.same(lambda store: store.set_draining(slot.worker, holding))

    @precondition(lambda self: self.numbers)
    @rule(which=choice, dispatcher=st.sampled_from(DISPATCHERS), some=st.lists(places, max_size=3))
    def look(self, which: int, dispatcher: UUID, some: list[Place]) -> None:
        late, found = self.both(lambda store: store.overdue())
        self.same_attempts(by_id(late), by_id(found))
        placed, started = self.both(lambda store: store.placed(self.slots(some)))
        self.same_attempts(by_id(placed), by_id(started))
        drained, told = self.both(lambda store: store.draining(dispatcher))
        assert sorted(told) == sorted(drained)
        asked, known = self.both(lambda store: store.cancelling(dispatcher))
        self.same_attempts(by_id(asked), by_id(known))
        self.explain(self.look_at(pick(sorted(self.numbers), which)))

    @rule(kept=retentions, most=st.sampled_from([1, 3, 1000]), dry_run=st.booleans())
    def prune(self, kept: Retention, most: int, dry_run: bool) -> None:
        self.same(lambda store: prune_all(store, kept, most, dry_run))
        left = {job.id for job in self.run(self.stores[0].jobs(JobFilter(limit=1000))).jobs}
        self.numbers = {id: pair for id, pair in self.numbers.items() if id in left}

    # what must hold after each of them

    @invariant()
    def every_list_is_the_same(self) -> None:
        everything = JobFilter(limit=1000)
        model, real = self.both(lambda store: store.jobs(everything))
        assert [job.id for job in real.jobs] == [job.id for job in model.jobs]
        for one, other in zip(model.jobs, real.jobs, strict=True):
            self.same_job(one, other)
        queues, seen = self.both(lambda store: store.queues())
        assert [untimed(one) for one in seen] == [untimed(one) for one in queues]
        self.agreed = True

    def every_job_is_the_same(self) -> None:
        for id in self.numbers:
            self.look_at(id)
        ended, found = self.both(lambda store: store.ended(sorted(self.numbers)))
        assert {one.id: one for one in found} == {one.id: one for one in ended}
        lanes, known = self.both(lambda store: store.lanes())
        assert sorted(one.hash for one in known) == sorted(one.hash for one in lanes)
        workers, shown = self.both(lambda store: store.workers())
        assert sorted(map(worker_of, shown)) == sorted(map(worker_of, workers))

    # both stores at once

    def run(self, call: Awaitable[T]) -> T:
        async def answer() -> T:
            return await call

        self.agreed = False

        return self.runner.run(answer())

    def both(self, call: Callable[[Store], Awaitable[T]]) -> tuple[T, T]:
        model, real = (self.run(call(store)) for store in self.stores)
        return model, real

    def same(self, call: Callable[[Store], Awaitable[object]]) -> None:
        model, real = self.both(call)
        assert real == model

    def finishes(self, finishing: list[Ending], side: int) -> list[End]:
        """The finishes as one of the stores must be told them."""
        if not self.attempts:
            return []
        return [
            finish_of(pick(self.attempts, end.attempt)[side], end, index)
            for index, end in enumerate(finishing)
        ]

    def slots(self, some: Iterable[Place]) -> tuple[SessionKey, ...]:
        newest_first = sorted(self.sessions.items(), reverse=True)
        chosen = ((pick(newest_first, place.worker), place.late) for place in some)
        return tuple(SessionKey(worker, session - late) for (worker, session), late in chosen)

    def refs(self, which: list[int], by_number: bool, side: int) -> list[UUID | int]:
        ids = dict.fromkeys(pick(sorted(self.numbers), one) for one in which)
        return [self.numbers[id][side] if by_number else id for id in ids]

    def look_at(self, id: UUID) -> tuple[Job, Job]:
        model, real = self.both(lambda store: store.job(id))
        assert model is not None
        assert real is not None
        self.same_job(model, real)
        return model, real

    def explain(self, jobs: tuple[Job, Job]) -> None:
        model, real = (
            self.run(store.explain(job)) for store, job in zip(self.stores, jobs, strict=True)
        )
        assert real.held_back is model.held_back
        assert real.ahead == model.ahead or jobs[0].state is not JobState.READY

    # comparing

    def same_finished(self, model: list[Finished], real: list[Finished]) -> None:
        told: set[UUID] = set()
        for one, other in zip(model, real, strict=True):
            if one.job in told:
                # Within a batch a store may answer `already_recorded` where it is stale by now.
                recorded = Verdict.RECORDED
                assert (other.verdict is recorded) == (one.verdict is recorded)
            else:
                assert other.verdict is one.verdict
            if one.verdict is Verdict.RECORDED:
                assert other.state is one.state
            told.add(one.job)

    def same_submitted(self, model: BatchResult, real: BatchResult) -> None:
        for one, other in zip(model.submitted, real.submitted, strict=True):
            assert other.id == one.id
            if isinstance(one, Refused):
                assert isinstance(other, Refused)
                assert other.code == one.code
            else:
                assert isinstance(other, Submitted)
                assert other.existing == one.existing

    def same_attempts(self, model: list[Attempt], real: list[Attempt]) -> None:
        for one, other in zip(model, real, strict=True):
            self.same_token(one.id, one.token, other.token)
            left_s, same_left_s = one.begin_within_s, other.begin_within_s
            assert (left_s is None) == (same_left_s is None)
            assert abs((left_s or 0) - (same_left_s or 0)) < LONG_S / 10
            assert (one.waited_s is None) == (other.waited_s is None)
            own = {"token": one.token, "number": one.number, "begin_within_s": left_s}
            assert structs.replace(other, **own, waited_s=one.waited_s) == one

    def same_job(self, model: Job, real: Job) -> None:
        self.numbers.setdefault(model.id, (model.number, real.number))
        assert self.numbers[model.id] == (model.number, real.number)
        self.same_token(model.id, model.token, real.token)
        assert shown(real) == shown(model)

    def same_token(self, job: UUID, model: int, real: int) -> None:
        """Both stores give a job a new token at the same moments, and later ones are larger."""
        known = self.tokens.setdefault(job, {0: 0})
        assert known.setdefault(model, real) == real
        pairs = sorted(known.items())
        assert [token for _, token in pairs] == sorted({token for _, token in pairs})


def untimed(queue: QueueView) -> tuple[QueueView, bool]:
    """Of a time only whether it is told: each store has a clock of its own."""
    return structs.replace(queue, paused_at=None), queue.paused_at is None


def freed(answer: Harvested) -> tuple[object, ...]:
    """What a loss did; a store ends jobs in the order it likes."""
    return answer.lost, answer.requeued, answer.lanes, outcomes(answer.ended)


def outcomes(ended: Iterable[Ended]) -> dict[UUID, Ended]:
    return {one.id: one for one in ended}


def finish_of(attempt: Attempt, end: Ending, index: int) -> End:
    return done(
        attempt,
        end.outcome,
        result=b"result",
        delay_s=end.delay_s,
        forced=end.forced,
        by=None if end.told else "",
        info=f"finish {index}",
        outbox=end.outbox,
    )


async def prune_all(store: Store, kept: Retention, most: int, dry_run: bool) -> Counter[JobState]:
    """What a pruning removes that goes on from where it came to, until it is done."""
    removed: Counter[JobState] = Counter()
    up_to, done = 0, False
    while not done:
        step = await store.prune(kept, after=up_to, most=most, dry_run=dry_run)
        removed.update(step.removed)
        up_to, done = step.up_to, step.done
    return removed


def pick(values: Sequence[T], which: int) -> T:
    """One of the values, however many there are."""
    return values[which % len(values)]


def by_id(attempts: Iterable[Attempt]) -> list[Attempt]:
    return sorted(attempts, key=lambda attempt: attempt.id)


def shown(job: Job) -> dict[str, object]:
    """A job without what each store may choose for itself."""
    parts = structs.asdict(job)
    for name in ("created_at", "run_at", "started_at", "ended_at", "deadline_at"):
        parts[name] = parts[name] is not None
    # How long it waited for what is a matter of times; what it waits for now is not.
    parts["waited"] = [(one.cause, one.key) for one in job.waited if one.since is not None]
    parts["history"] = [(entry.state, entry.by, entry.info) for entry in job.history]
    del parts["number"], parts["token"]
    return parts


def worker_of(view: WorkerView) -> tuple[object, ...]:
    return (view.info.id, view.session, view.dispatcher, view.alive, view.draining, view.running)


EXAMPLES = {"memory": 5, "sqlite": 30, "postgres": 12, "pgbouncer": 6}


@pytest.mark.timeout(600)  # a failure takes a while to be made small
def test_store_gives_the_answers_of_the_model(
    backend: Backend, request: pytest.FixtureRequest
) -> None:
    """G2, G3: whatever is asked in whatever order, the store decides as the pure core does."""
    play(SameAnswers, backend, request, EXAMPLES, steps=50)
