"""The same groups on a store and on the plain model in memory: once settled, the same states.

Between two settlements a store may be further than the other, so the machine settles both before it
compares, claims, cancels, pauses or retries. What a sweep cancels may have failed by its dependency
just before, if ends and the sweep come in small steps: groups of which jobs were cancelled so are
compared by what ran and what did not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)
from msgspec import Struct

from longshore.core.lifecycle import TERMINAL
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Failed, Succeeded
from longshore.model.group import (
    ENDED_GROUPS,
    Condition,
    Group,
    GroupHead,
    GroupPart,
    GroupState,
    GroupSubmitted,
    NodeView,
)
from longshore.model.ids import derive_id
from longshore.model.job import Ended, JobState, Verdict
from longshore.model.worker import Attended, SessionKey
from longshore.ports import Batch, BatchResult, Store
from longshore.testing.backends import Backend, MemoryBackend
from longshore.testing.builders import ENDS, a_claim, a_job, a_node, a_worker, done

from .conftest import ALSO_IN_STEPS
from .machines import play

T = TypeVar("T")

DISPATCHER = UUID(int=200)
LONG_S = 1000.0
MOST_GROUPS = 5
NOT_RUN = frozenset({JobState.DEPENDENCY_FAILED, JobState.SKIPPED, JobState.CANCELLED})


class Shape(Struct, frozen=True):
    """A node to be: how many of those just before it it depends on, and which of them."""

    before: tuple[int, ...]
    on: Condition
    delay_s: float | None


class Ending(Struct, frozen=True):
    """The end of an attempt that is not known before the machine runs."""

    outcome: type[End]
    delay_s: float


shapes = st.builds(
    Shape,
    before=st.lists(st.integers(1, 4), max_size=3).map(tuple),
    on=st.sampled_from([Condition.SUCCEEDED] * 3 + list(Condition)),
    delay_s=st.sampled_from([None, None, None, LONG_S]),
)
endings = st.builds(
    Ending,
    outcome=st.sampled_from([Succeeded] * 6 + [Failed] * 3 + list(ENDS)),
    delay_s=st.sampled_from([0.0, LONG_S]),
)
choice = st.integers(0, 15)
steps = st.sampled_from([1, 2, 3, 1000])


class SameGroups(RuleBasedStateMachine):
    """Two stores side by side: the model first, the one under test second."""

    def __init__(self, backend: Backend, runner: asyncio.Runner) -> None:
        super().__init__()
        self.runner = runner
        self.backends = (MemoryBackend(), backend)
        runner.run(backend.clear())
        self.stores = tuple(one.connect() for one in self.backends)
        for store in self.stores:
            runner.run(store.open())
        self.parts: list[GroupPart] = []
        self.blurred: set[UUID] = set()
        self.attempts: list[tuple[Attempt, Attempt]] = []
        self.workers = 0
        self.ended: tuple[list[Ended], list[Ended]] = ([], [])

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())

    # the operations

    @initialize(nodes=st.lists(shapes, min_size=3, max_size=8))
    def begin(self, nodes: list[Shape]) -> None:
        self.arrive()
        self.submit(nodes, False, 8, 1000)

    @precondition(lambda self: len(self.parts) < MOST_GROUPS)
    @rule(
        nodes=st.lists(shapes, min_size=1, max_size=8),
        fail_fast=st.booleans(),
        step=st.integers(1, 8),
        most=steps,
    )
    def submit(self, nodes: list[Shape], fail_fast: bool, step: int, most: int) -> None:
        self.settle(most)
        part = a_part(UUID(int=5000 + len(self.parts)), nodes, fail_fast)
        self.parts.append(part)
        if fail_fast:
            self.blurred.add(part.head.id)
        for first in range(0, len(nodes), step):
            self.submit_part(GroupPart(part.head, first, part.nodes[first : first + step]))

    @precondition(lambda self: self.parts)
    @rule(which=choice, most=steps)
    def submit_again(self, which: int, most: int) -> None:
        self.settle(most)
        self.submit_part(pick(self.parts, which))

    def submit_part(self, part: GroupPart) -> None:
        model, real = self.both(lambda store: store.submit_group(part))
        assert isinstance(model, GroupSubmitted)
        assert isinstance(real, GroupSubmitted)
        assert (real.id, real.state, real.staged) == (model.id, model.state, model.staged)

    @rule(slots=st.integers(1, 6), most=steps)
    def claim(self, slots: int, most: int) -> None:
        self.settle(most)
        claims = [a_claim([SessionKey(UUID(int=1000 + self.workers), 1)] * slots)]
        model, real = self.both(lambda store: store.pump(DISPATCHER, Batch([], [], claims)))
        self.note_claimed(model, real)

    def note_claimed(self, model: BatchResult, real: BatchResult) -> None:
        assert [one.id for one in real.claimed] == [one.id for one in model.claimed]
        self.attempts[:0] = zip(model.claimed, real.claimed, strict=True)

    @precondition(lambda self: self.attempts)
    @rule(
        first=st.sampled_from([0, 0, 0, 1, 2, 6]), ending=st.lists(endings, min_size=1, max_size=5)
    )
    def end(self, first: int, ending: list[Ending]) -> None:
        """Some neighbours end in one batch; old attempts too, which must change nothing."""
        chosen = [(pick(self.attempts, at), one) for at, one in enumerate(ending, first)]
        model, real = (
            self.run(
                store.pump(
                    DISPATCHER,
                    Batch([done(pair[side], e.outcome, delay_s=e.delay_s) for pair, e in chosen]),
                )
            )
            for side, store in enumerate(self.stores)
        )
        recorded = [one.verdict is Verdict.RECORDED for one in model.finished]
        assert [one.verdict is Verdict.RECORDED for one in real.finished] == recorded

    @rule(most=steps, crash=st.booleans())
    def lose_the_worker(self, most: int, crash: bool) -> None:
        self.settle(most)
        worker = UUID(int=1000 + self.workers)
        model, real = self.both(
            lambda store: store.harvest(worker, 1, "lost", crash=crash, crash_limit=2)
        )
        assert real.requeued == model.requeued
        assert {one.id for one in real.ended} == {one.id for one in model.ended}
        self.arrive()

    @precondition(lambda self: self.parts)
    @rule(which=choice, node=choice, most=steps)
    def cancel_a_job(self, which: int, node: int, most: int) -> None:
        self.settle(most)
        job = pick(pick(self.parts, which).nodes, node).job.id
        self.same(lambda store: store.cancel([job], "ann"))

    @precondition(lambda self: self.parts)
    @rule(which=choice, most=steps)
    def cancel(self, which: int, most: int) -> None:
        self.settle(most)
        group = pick(self.parts, which).head.id
        self.blurred.add(group)
        self.same(lambda store: store.cancel_group(group, "ann"))
        self.settle(most)

    @precondition(lambda self: self.parts)
    @rule(which=choice, paused=st.booleans(), most=steps)
    def pause(self, which: int, paused: bool, most: int) -> None:
        self.settle(most)
        group = pick(self.parts, which).head.id
        self.same(lambda store: store.pause_group(group, paused))
        self.settle(most)

    @precondition(lambda self: self.parts)
    @rule(
        which=choice,
        node=st.none() | choice,
        request=st.sampled_from([None, 901, 902]),
        dry_run=st.booleans(),
        most=steps,
    )
    def retry(
        self, which: int, node: int | None, request: int | None, dry_run: bool, most: int
    ) -> None:
        self.settle(most)
        part = pick(self.parts, which)
        group = part.head.id
        only = () if node is None or group in self.blurred else (pick(part.nodes, node).key,)
        id = None if request is None else derive_id(group, request)
        self.same(lambda store: store.retry_group(group, "ann", id, keys=only, dry_run=dry_run))
        self.settle(most)

    @rule(most=steps)
    def pass_time(self, most: int) -> None:
        self.settle(most)
        for backend in self.backends:
            self.run(backend.pass_time(LONG_S * 1.5))
        model, real = self.both(lambda store: store.promote())
        assert real.count == model.count

    # what must hold once both have settled

    def settle(self, most: int) -> None:
        """Settles both stores, and compares them."""
        for ended, store in zip(self.ended, self.stores, strict=True):
            self.run(settle_all(store, most, ended))
        for part in self.parts:
            self.same_group(part)
        for ended in self.ended:
            ended.clear()

    def same_group(self, part: GroupPart) -> None:
        group, blurred = part.head.id, part.head.id in self.blurred
        model, real = self.both(lambda store: store.group(group))
        assert model is not None
        assert real is not None
        assert group_of(real) == group_of(model)
        nodes, found = self.both(lambda store: store.nodes(group))
        for one, other in zip(nodes, found, strict=True):
            assert node_of(other, blurred) == node_of(one, blurred)
        told, heard = ([one.state for one in ended if one.id == group] for ended in self.ended)
        assert heard == told
        for view in (nodes, found):
            check_sound(part, view, model.state)

    # both stores at once

    def arrive(self) -> None:
        self.workers += 1
        info = a_worker(id=UUID(int=1000 + self.workers))
        for answer in self.both(lambda store: store.attend(DISPATCHER, info)):
            assert isinstance(answer, Attended)

    def run(self, call: Awaitable[T]) -> T:
        async def answer() -> T:
            return await call

        return self.runner.run(answer())

    def both(self, call: Callable[[Store], Awaitable[T]]) -> tuple[T, T]:
        model, real = (self.run(call(store)) for store in self.stores)
        return model, real

    def same(self, call: Callable[[Store], Awaitable[object]]) -> None:
        model, real = self.both(call)
        assert real == model


def a_part(group: UUID, shapes: Sequence[Shape], fail_fast: bool) -> GroupPart:
    nodes = []
    for place, shape in enumerate(shapes):
        after = tuple(sorted({place - back for back in shape.before if back <= place}))
        on = shape.on
        if fail_fast and on is Condition.FAILED:
            on = Condition.ENDED
        job = a_job(id=derive_id(group, place), delay_s=shape.delay_s)
        nodes.append(a_node(group, place, f"n{place}", after, on, job))
    return GroupPart(GroupHead(group, "g", len(nodes), fail_fast), 0, tuple(nodes))


async def settle_all(store: Store, most: int, ended: list[Ended]) -> None:
    for _ in range(2000):
        settled = await store.settle(most=most)
        ended += settled.ended
        if not settled.groups:
            return
    raise AssertionError("there is always more to settle")


def check_sound(part: GroupPart, views: Sequence[NodeView], state: GroupState) -> None:
    """What follows from the edges alone, whatever the model does."""
    states = [view.state for view in views]
    for node, view in zip(part.nodes, views, strict=True):
        live = [states[parent] for parent in node.after if states[parent] not in TERMINAL]
        if view.state is JobState.WAITING:
            assert view.unmet == len(live)
        if view.state is JobState.DEPENDENCY_FAILED:
            assert node.on is Condition.SUCCEEDED
    assert (state in ENDED_GROUPS) == TERMINAL.issuperset(states)


def group_of(group: Group) -> tuple[object, ...]:
    """A group without what each store may choose for itself."""
    ended = group.ended_at is not None
    return group.id, group.name, group.state, group.jobs, group.cancelled_by, ended


def node_of(view: NodeView, blurred: bool) -> tuple[object, ...]:
    state = "not run" if blurred and view.state in NOT_RUN else view.state
    # Nobody counts down what has ended once its group is over.
    unmet = view.unmet if view.state is JobState.WAITING else None
    return view.key, view.job, state, view.after, view.on, unmet


def pick(values: Sequence[T], which: int) -> T:
    """One of the values, however many there are."""
    return values[which % len(values)]


EXAMPLES = {"memory": 2, "sqlite": 25, "postgres": 6, "pgbouncer": 2, "in_steps": 4}


@ALSO_IN_STEPS
@pytest.mark.timeout(600)  # a failure takes a while to be made small
def test_store_settles_groups_as_the_model_does(
    backend: Backend, request: pytest.FixtureRequest
) -> None:
    """G5: whatever ends in whatever order, in steps of whatever size, the jobs end the same."""
    play(SameGroups, backend, request, EXAMPLES, steps=40)
