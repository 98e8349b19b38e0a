"""The same operations on actors in a store and in the plain model: the same answers, always.

Ids and keys are drawn from a few, so that starts, sends and stops meet. Every key has a type of its
own, and so a lane: claims need no common order. Times are compared by being there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import pairwise
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
from msgspec import Struct, structs

from longshore.core.turns import turn_kind
from longshore.model.actor import (
    Actor,
    ActorFilter,
    MailAction,
    Message,
    Reply,
    ReplyTo,
    Timer,
    TurnInput,
)
from longshore.model.attempt import Attempt
from longshore.model.ends import Cancelled, End, Failed, NotBegun, PutAside, Released, Retried
from longshore.model.job import Refused
from longshore.model.reports import OutboxItem
from longshore.model.worker import Attended, SessionKey
from longshore.ports import Batch, BatchResult, Store
from longshore.testing.actor_builders import an_actor, answered, given, taken
from longshore.testing.backends import Backend, MemoryBackend
from longshore.testing.builders import a_claim, a_worker, done, lane

from .machines import play

T = TypeVar("T")
Named = TypeVar("Named", Attempt, Reply)

KEYS = ["a", "b", "c"]
ACTORS = [UUID(int=number) for number in range(1, 6)]
MESSAGES = [UUID(int=number) for number in range(101, 113)]
DISPATCHER = UUID(int=201)
LONG_S = 1000.0
HOWS = (Failed, Retried, Released, NotBegun, PutAside, Cancelled)

keys = st.sampled_from(KEYS)


def type_of(key: str) -> str:
    """Every key has a type of its own."""
    return f"t{key}"


LANES = tuple(lane(kind=turn_kind(type_of(key), version)) for key in KEYS for version in (1, 2))


def a_letter(id: UUID, key: str, name: str, delay_s: float | None, asker: str | None) -> Message:
    """A message; `asker` is the key of an actor that asks, or empty for one from outside."""
    to = None
    if asker is not None:
        to = ReplyTo(type_of(asker), asker, "answer", b"\x0b") if asker else ReplyTo()
    return Message(id, type_of(key), key, name, b"", delay_s, to)


letters = st.builds(
    a_letter,
    st.sampled_from(MESSAGES),
    keys,
    st.sampled_from(["x", "y"]),
    st.sampled_from([None, None, None, LONG_S]),
    st.sampled_from([None, None, "", *KEYS]),
)
from_outside = letters.map(
    lambda one: structs.replace(one, reply_to=ReplyTo() if one.reply_to else None)
)
timers = st.lists(
    st.builds(
        Timer,
        st.sampled_from(["t", "u"]),
        after_s=st.sampled_from([0.0, LONG_S]),
        every_s=st.sampled_from([None, LONG_S]),
    ),
    max_size=2,
    unique_by=lambda timer: timer.name,
)


class Ending(Struct, frozen=True):
    """The end of a turn that is not known before the machine runs; without `how` it is taken."""

    attempt: int
    how: type[End] | None
    first: int | None
    version: int
    timers: list[Timer] | None
    outbox: list[Message]
    replies: bool
    pauses: bool
    stops: bool


rarely = st.sampled_from([False] * 9 + [True])
ends = st.builds(
    Ending,
    attempt=st.integers(0, 3),
    how=st.sampled_from([None] * 8 + list(HOWS)),
    first=st.sampled_from([None, None, 1]),
    version=st.sampled_from([1, 1, 2]),
    timers=st.none() | timers,
    outbox=st.lists(letters, max_size=2),
    replies=st.booleans(),
    pauses=rarely,
    stops=rarely,
)


class SameActors(RuleBasedStateMachine):
    """Two stores side by side: the model first, the one under test second."""

    def __init__(self, backend: Backend, runner: asyncio.Runner) -> None:
        super().__init__()
        self.runner = runner
        self.backends = (MemoryBackend(), backend)
        runner.run(backend.clear())
        self.stores = tuple(one.connect() for one in self.backends)
        for store in self.stores:
            runner.run(store.open())
        self.attempts: list[tuple[Attempt, Attempt]] = []
        self.workers = 0

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())

    def both(self, act: Callable[[Store], Awaitable[T]]) -> tuple[T, T]:
        first, second = [self._run(act(store)) for store in self.stores]
        return first, second

    def _run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    def same(self, act: Callable[[Store], Awaitable[object]]) -> None:
        first, second = self.both(act)
        assert first == second

    @initialize()
    def begin(self) -> None:
        self.arrive()
        new = [
            an_actor(key, type=type_of(key), id=id) for key, id in zip(KEYS, ACTORS, strict=False)
        ]
        self.same(lambda store: store.start_actors(new))

    def arrive(self) -> None:
        """A new worker takes the turns from now on."""
        self.workers += 1
        info = a_worker(id=UUID(int=300 + self.workers))
        answers = self.both(lambda store: store.attend(DISPATCHER, info))
        assert all(isinstance(one, Attended) for one in answers)
        self.slot = SessionKey(info.id, 1)

    # the operations

    @rule(key=keys, id=st.sampled_from(ACTORS), reuse=st.booleans())
    def start(self, key: str, id: UUID, reuse: bool) -> None:
        new = an_actor(key, type=type_of(key), id=id)
        first, second = self.both(lambda store: store.start_actors([new], reuse=reuse))
        assert plain(first) == plain(second)

    @rule(messages=st.lists(from_outside, min_size=1, max_size=4), most=st.sampled_from([3, 1000]))
    def send(self, messages: list[Message], most: int) -> None:
        self.pump([], messages, most)

    @rule()
    def claim(self) -> None:
        batch = Batch(claims=[a_claim([self.slot] * 9, *LANES)])
        first, second = self.both(lambda store: store.pump(DISPATCHER, batch))
        pairs = zip(by_id(first.claimed), by_id(second.claimed), strict=True)
        for one, other in pairs:
            assert seen_by_worker(one) == seen_by_worker(other)
            self.attempts.insert(0, (one, other))

    @precondition(lambda self: self.attempts)
    @rule(
        finishing=st.lists(ends, min_size=1, max_size=3),
        messages=st.lists(from_outside, max_size=2),
    )
    def finish(self, finishing: list[Ending], messages: list[Message]) -> None:
        self.pump(finishing, messages, 1000)

    def pump(self, finishing: list[Ending], messages: list[Message], most: int) -> None:
        """One batch, with one end of an attempt at most."""
        ends = {one.attempt % len(self.attempts): one for one in finishing}
        answers = [
            self._run(
                store.pump(
                    DISPATCHER,
                    Batch(
                        [ended(self.attempts[at][side], one) for at, one in ends.items()],
                        sends=messages,
                        max_mailbox=most,
                    ),
                )
            )
            for side, store in enumerate(self.stores)
        ]
        first, second = map(answered_by, answers)
        assert first == second

    @rule(key=keys, paused=st.booleans())
    def pause(self, key: str, paused: bool) -> None:
        self.same(lambda store: store.pause_actor(type_of(key), key, paused))

    @rule(key=keys, really=rarely)
    def stop(self, key: str, really: bool) -> None:
        if really:
            self.same(lambda store: store.stop_actor(type_of(key), key))

    @rule(key=keys, turn=st.none() | st.integers(0, 4), version=st.integers(1, 2), restart=rarely)
    def edit(self, key: str, turn: int | None, version: int, restart: bool) -> None:
        self.same(
            lambda store: store.edit_actor(
                type_of(key), key, b"\x07", version, turn=turn, restart=restart
            )
        )

    @rule(key=keys, number=st.integers(1, 6), action=st.sampled_from(MailAction))
    def sort_mail(self, key: str, number: int, action: MailAction) -> None:
        self.same(lambda store: store.sort_mail(type_of(key), key, number, action))

    @rule()
    def tend(self) -> None:
        first, second = self.both(lambda store: store.tend_actors())
        assert first.more == second.more
        assert by_id(first.replies) == by_id(second.replies)

    @rule(halves=st.sampled_from([1, 3, 9]))
    def pass_time(self, halves: int) -> None:
        """Time passes in halves of LONG_S: nothing is just due."""
        for backend in self.backends:
            self.runner.run(backend.pass_time(halves * LONG_S / 2))
        first, second = self.both(lambda store: store.promote())
        assert first.count == second.count

    @rule(crash=st.booleans(), really=rarely)
    def lose(self, crash: bool, really: bool) -> None:
        if really:
            worker, session = self.slot.worker, self.slot.session
            first, second = self.both(
                lambda store: store.harvest(worker, session, "lost", crash=crash, crash_limit=3)
            )
            assert first.requeued == second.requeued
            self.arrive()

    # what must hold

    @invariant()
    def everything_is_the_same(self) -> None:
        first, second = self.both(everything)
        assert first == second

    @invariant()
    def numbers_of_turns_count_up(self) -> None:
        for key in KEYS:
            turns = self._run(self.stores[1].turns(type_of(key), key))
            assert all(one.turn == other.turn + 1 for one, other in pairwise(turns))


def by_id(found: Iterable[Named]) -> list[Named]:
    return sorted(found, key=lambda one: one.id)


def plain(answers: Iterable[object]) -> list[object]:
    """Answers without the words of refusals."""
    return [(one.id, one.code) if isinstance(one, Refused) else one for one in answers]


def answered_by(pumped: BatchResult) -> list[object]:
    return [
        [(one.job, one.verdict, one.state) for one in pumped.finished],
        plain(pumped.sent),
        by_id(pumped.replies),
        pumped.ready,
        pumped.ready_by_ends,
        [(one.id, one.state) for one in pumped.ended],
    ]


def seen_by_worker(attempt: Attempt) -> tuple[object, ...]:
    """An attempt without its token, its number, and times."""
    got = given(attempt)
    events = [structs.replace(event, at=0) for event in got.events]
    timeless = [structs.replace(timer, at=None) for timer in got.timers]
    plain_input: TurnInput = structs.replace(got, now=0, timers=(), events=(), callback_key=b"")
    tries = attempt.attempt, attempt.failures, attempt.crashes, attempt.paused
    return attempt.id, attempt.kind, tries, plain_input, timeless, events


def ended(attempt: Attempt, ending: Ending) -> End:
    """The end of an attempt; what it sends has ids of its own."""
    if ending.how is PutAside:
        return PutAside(attempt.id, attempt.token)
    if ending.how is not None:
        return done(attempt, ending.how, delay_s=LONG_S)
    outbox: list[OutboxItem | Message] = [*ending.outbox]
    replies = answered(attempt) if ending.replies else []
    return taken(
        attempt,
        state=bytes([given(attempt).turn % 256]),
        version=ending.version,
        first=ending.first,
        timers=ending.timers,
        outbox=[*outbox, *replies],
        pauses=ending.pauses,
        stops=ending.stops,
    )


async def everything(store: Store) -> list[object]:
    """All that is shown of actors, without times."""
    found: list[object] = [by_id(await store.replies(MESSAGES))]
    listed = (await store.actors(ActorFilter())).actors
    for one in listed:
        whole = await store.actor(one.type, one.key)
        assert whole is not None
        found.append(timeless_actor(whole))
        mail = await store.mail(one.type, one.key)
        found.append([(m.number, m.name, m.args, m.parked, m.due_at is None) for m in mail])
        turns = await store.turns(one.type, one.key)
        found.append([(t.turn, t.worker, t.read, t.version, t.state) for t in turns])
        job = None if whole.job is None else await store.job(whole.job)
        found.append(None if job is None else (job.state, job.attempt, job.round, job.kind))
    found.append([(one.type, one.key, one.status, one.state) for one in listed])
    return found


def timeless_actor(actor: Actor) -> tuple[object, ...]:
    has_times = actor.turned_at is None, actor.next_at is None
    who = actor.id, actor.type, actor.key, actor.status, actor.terms, actor.unread, actor.job
    timers = [(one.name, one.at is None, one.every_s) for one in actor.timers]
    return (*who, actor.turn, actor.state, actor.version, actor.worker, timers, has_times)


EXAMPLES = {"memory": 3, "sqlite": 20, "postgres": 8, "pgbouncer": 4}


@pytest.mark.timeout(600)  # a failure takes a while to be made small
def test_store_treats_actors_as_the_model_does(
    backend: Backend, request: pytest.FixtureRequest
) -> None:
    """Whatever is asked in whatever order, the store decides as the pure core does."""
    play(SameActors, backend, request, EXAMPLES, steps=50)
