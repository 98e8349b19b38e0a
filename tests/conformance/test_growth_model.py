"""The same growing groups on a store and on the plain model in memory: settled, they are the same.

As `test_group_model.py`, with jobs that add others, maps, sub-groups and gates. Stores may give new
jobs numbers and places in another order, so the machine claims all that is ready at once, and
compares by keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Literal
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from msgspec import Struct, structs

from longshore.core.lifecycle import TERMINAL
from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.ends import End, Failed, Succeeded
from longshore.model.group import (
    ENDED_GROUPS,
    GATE,
    SCOPE,
    AddedNode,
    Condition,
    GroupHead,
    GroupPart,
    GroupState,
    Node,
    NodeView,
)
from longshore.model.ids import derive_id
from longshore.model.job import JobState, Submission, Verdict
from longshore.model.reports import OutboxNode
from longshore.model.worker import SessionKey
from longshore.payload.references import Reference
from longshore.payload.values import pack
from longshore.ports import Batch, BatchResult, Store
from longshore.testing.backends import Backend
from longshore.testing.builders import ENDS, a_claim, a_job, a_map, done, needs

from .conftest import ALSO_IN_STEPS
from .machines import play
from .test_group_model import DISPATCHER, LONG_S, SameGroups, choice, group_of, node_of, pick, steps

MOST_GROUPS = 4
MOST_JOBS = 40
"""A group does not grow past so many by what the machine adds."""
SLOTS = 100

What = Literal["job", "map", "map over", "results", "gate", "scope"]


class Shape(Struct, frozen=True):
    """A node to be: what it is, and which of those just before it it depends on, or is within."""

    what: What
    before: tuple[int, ...]
    inside: int
    on: Condition
    late: bool
    detached: bool


class Ending(Struct, frozen=True):
    """The end of an attempt that is not known before the machine runs, and what it adds."""

    outcome: type[End]
    result: tuple[int, ...] | None
    adds: tuple[Shape, ...]


def a_shape(*what: What) -> st.SearchStrategy[Shape]:
    return st.builds(
        Shape,
        what=st.sampled_from(what),
        before=st.lists(st.integers(1, 4), max_size=3).map(tuple),
        inside=st.integers(0, 3),
        on=st.sampled_from([Condition.SUCCEEDED] * 4 + list(Condition)),
        late=st.sampled_from([False, False, False, True]),
        detached=st.sampled_from([False, False, True]),
    )


shapes = a_shape("job", "job", "job", "map", "map over", "results", "gate", "scope", "scope")
added = a_shape("job", "job", "job", "map", "map over", "gate")
outside = a_shape("job", "job", "map", "gate")
endings = st.builds(
    Ending,
    outcome=st.sampled_from([Succeeded] * 16 + [Failed] * 3 + list(ENDS)),
    result=st.none() | st.lists(st.integers(0, 9), max_size=3).map(tuple),
    adds=st.lists(added, max_size=3).map(tuple),
)
limits = st.sampled_from([MAX_GROUP_JOBS] * 4 + [9])


class SameGrowth(SameGroups):
    """Two stores side by side, whose groups grow."""

    def __init__(self, backend: Backend, runner: asyncio.Runner) -> None:
        super().__init__(backend, runner)
        self.views: dict[UUID, list[NodeView]] = {}
        self.added = 0
        """How many additions clients made."""

    @initialize(nodes=st.lists(shapes, min_size=2, max_size=7))
    def begin(self, nodes: list[Shape]) -> None:
        self.arrive()
        self.submit(nodes, 8, 1000)

    @precondition(lambda self: len(self.parts) < MOST_GROUPS)
    @rule(nodes=st.lists(shapes, min_size=1, max_size=7), step=st.integers(1, 8), most=steps)
    def submit(self, nodes: list[Shape], step: int, most: int) -> None:
        """No group fails fast: how many of its sub-groups end before that is not said."""
        self.settle(most)
        part = a_part(UUID(int=7000 + len(self.parts)), nodes)
        self.parts.append(part)
        for first in range(0, len(nodes), step):
            self.submit_part(GroupPart(part.head, first, part.nodes[first : first + step]))

    @rule(most=steps)
    def claim(self, most: int) -> None:
        self.settle(most)
        claims = [a_claim([SessionKey(UUID(int=1000 + self.workers), 1)] * SLOTS)]
        model, real = self.both(lambda store: store.pump(DISPATCHER, Batch([], [], claims)))
        self.note_claimed(model, real)

    def note_claimed(self, model: BatchResult, real: BatchResult) -> None:
        one = sorted(model.claimed, key=lambda attempt: attempt.id)
        other = sorted(real.claimed, key=lambda attempt: attempt.id)
        assert [(at.id, at.args, at.problem) for at in other] == [
            (at.id, at.args, at.problem) for at in one
        ]
        self.attempts[:0] = zip(one, other, strict=True)

    @rule(ending=st.lists(endings, min_size=3, max_size=6), limit=limits, most=steps)
    def work(self, ending: list[Ending], limit: int, most: int) -> None:
        """All that is ready runs, and some of it ends."""
        self.claim(most)
        if self.attempts:
            self.end(0, ending, limit)

    @precondition(lambda self: self.attempts)
    @rule(
        first=st.sampled_from([0, 0, 0, 1, 2, 6]),
        ending=st.lists(endings, min_size=1, max_size=5),
        limit=limits,
    )
    def end(self, first: int, ending: list[Ending], limit: int) -> None:
        """Some neighbours end in one batch; old attempts too, which must change and add nothing."""
        chosen = [(pick(self.attempts, at), one) for at, one in enumerate(ending, first)]
        batches = [
            Batch([self.ended_as(pair[side], one) for pair, one in chosen], max_group_jobs=limit)
            for side in range(2)
        ]
        model, real = (
            self.run(store.pump(DISPATCHER, batch))
            for store, batch in zip(self.stores, batches, strict=True)
        )
        recorded = [one.verdict is Verdict.RECORDED for one in model.finished]
        assert [one.verdict is Verdict.RECORDED for one in real.finished] == recorded
        assert {(one.id, one.state) for one in real.ended} >= {
            (one.job, one.state)
            for one in model.finished
            if one.verdict is Verdict.RECORDED and one.state in TERMINAL
        }

    def ended_as(self, attempt: object, ending: Ending) -> End:
        result = None if ending.result is None else pack(list(ending.result), "result")
        grown = sum(len(views) for views in self.views.values())
        adds = additions_of(ending.adds) if grown < MOST_JOBS * MOST_GROUPS else ()
        return done(attempt, ending.outcome, result=result, adds=adds)  # type: ignore[arg-type]

    @precondition(lambda self: self.parts)
    @rule(which=choice, node=choice, most=steps)
    def cancel_a_job(self, which: int, node: int, most: int) -> None:
        self.settle(most)
        views = self.views[pick(self.parts, which).head.id]
        job = pick(views, node).job
        self.same(lambda store: store.cancel([job], "ann"))

    @precondition(lambda self: self.parts)
    @rule(
        which=choice,
        shapes=st.lists(outside, min_size=1, max_size=3),
        near=st.lists(choice, max_size=3),
        repeat=st.sampled_from([False, False, True]),
        is_settled=st.booleans(),
        most=steps,
    )
    def add(
        self,
        which: int,
        shapes: list[Shape],
        near: list[int],
        repeat: bool,
        is_settled: bool,
        most: int,
    ) -> None:
        """A client adds to a group, whether or not all ends before that were told."""
        self.settle(most)
        group = pick(self.parts, which).head.id
        views = [view for view in self.views[group] if "/" not in view.key]
        if group in self.blurred or not views or len(self.views[group]) > MOST_JOBS:
            return
        if not is_settled:
            self.end_some()
        self.added += not repeat
        before = tuple({pick(views, at).key for at in near})
        nodes = outside_nodes(shapes, before, self.added)
        id = derive_id(group, 9000 + self.added)
        model, real = self.both(lambda store: store.add_to_group(group, id, nodes))
        told = [
            (type(one), getattr(one, "code", getattr(one, "state", None))) for one in (model, real)
        ]
        assert told[0] == told[1]
        self.settle(most)

    def end_some(self) -> None:
        """Some of what runs ends, and nobody settles."""
        if self.attempts:
            self.end(0, [Ending(Succeeded, None, ())], MAX_GROUP_JOBS)

    @precondition(lambda self: self.parts)
    @rule(which=choice, value=st.sampled_from([None, b"\xc2"]), most=steps)
    def open_gate(self, which: int, value: bytes | None, most: int) -> None:
        """One that is reached, if there is any; otherwise any node."""
        self.settle(most)
        nodes = [
            (group, view)
            for group, views in self.views.items()
            for view in views
            if group not in self.blurred
        ]
        reached = [one for one in nodes if one[1].kind == GATE and one[1].state is JobState.READY]
        if nodes:
            group, view = pick(reached or nodes, which)
            self.same(lambda store: store.open_gate(group, view.key, value, "ann"))

    @precondition(lambda self: self.parts)
    @rule(
        which=choice,
        node=st.none() | choice,
        request=st.sampled_from([None, 901, 902]),
        dry_run=st.sampled_from([False, False, True]),
        most=steps,
    )
    def retry(
        self, which: int, node: int | None, request: int | None, dry_run: bool, most: int
    ) -> None:
        self.settle(most)
        group = pick(self.parts, which).head.id
        views = self.views[group]
        adders = {view.scope for view in views if view.scope is not None}
        some = [view for view in views if view.key in adders or node is None or node % 2]
        only = () if node is None or group in self.blurred else (pick(some or views, node).key,)
        id = None if request is None else derive_id(group, request)
        plans = self.both(
            lambda store: store.retry_group(group, "ann", id, keys=only, dry_run=dry_run)
        )
        model, real = (
            plan
            and (plan.group, {*plan.reopened}, {*plan.running}, {*plan.retired}, bool(plan.refused))
            for plan in plans
        )
        assert real == model
        self.settle(most)

    @rule(most=steps)
    def pass_time(self, most: int) -> None:
        super().pass_time(most)
        self.settle(most)
        model, real = self.both(lambda store: store.expire())
        assert {one.id for one in real} == {one.id for one in model}

    @rule()
    def examine(self) -> None:
        """Nothing is wrong, and a repair of nothing changes nothing."""
        self.settle(1000)
        for part in self.parts:
            group = part.head.id
            assert self.both(partial(examined, group)) == ([], [])

    def same_group(self, part: GroupPart) -> None:
        group, blurred = part.head.id, part.head.id in self.blurred
        model, real = self.both(lambda store: store.group(group))
        if model is None:
            return
        assert real is not None
        assert group_of(real) == group_of(model)
        one, other = (by_key(views) for views in self.both(lambda store: store.nodes(group)))
        assert [seen(view, model.state, blurred) for view in other] == [
            seen(view, model.state, blurred) for view in one
        ]
        told, heard = ([end.state for end in ended if end.id == group] for ended in self.ended)
        assert heard == told
        self.views[group] = one
        if model.state not in ENDED_GROUPS:
            check_counts(one)
            check_counts(other)
        assert (model.state in ENDED_GROUPS) == TERMINAL.issuperset(view.state for view in one)


async def examined(group: UUID, store: Store) -> list[str]:
    return [one.words for one in await store.examine_group(group, repair=True)]


def by_key(views: Sequence[NodeView]) -> list[NodeView]:
    return sorted(views, key=lambda view: view.key)


def seen(view: NodeView, group: GroupState, blurred: bool) -> tuple[object, ...]:
    open = None if group in ENDED_GROUPS else view.open
    return (*node_of(view, blurred), view.kind, view.scope, open)


def check_counts(views: Sequence[NodeView]) -> None:
    """What follows from edges and scopes alone, whatever the model does."""
    closed = {view.key: view.state in TERMINAL and not view.open for view in views}
    inside = [view.scope for view in views if not closed[view.key]]
    for view in views:
        assert view.open == inside.count(view.key)
        if view.state is JobState.WAITING:
            assert view.unmet == sum(not closed[key] for key in view.after)
        if view.state is JobState.DEPENDENCY_FAILED:
            assert view.on is Condition.SUCCEEDED


def a_part(group: UUID, shapes: Sequence[Shape]) -> GroupPart:
    nodes: list[Node] = []
    for place, shape in enumerate(shapes):
        after = tuple(sorted({place - back for back in shape.before if back <= place}))
        on = shape.on if after else Condition.SUCCEEDED
        job = structs.replace(a_work(shape, f"n{after[0]}" if after else ""), id=UUID(int=0))
        node = Node(f"n{place}", job, after, on)
        node = structs.replace(node, scope=a_scope(nodes, node, shape.inside))
        nodes.append(structs.replace(node, job=structs.replace(job, id=derive_id(group, place))))
    return GroupPart(GroupHead(group, "g", len(nodes)), 0, tuple(nodes))


def a_scope(nodes: Sequence[Node], node: Node, inside: int) -> int | None:
    """A sub-group for a new node, unless the node would wait for that sub-group."""
    scopes = [place for place, other in enumerate(nodes) if other.job.kind == SCOPE]
    if not inside or not scopes:
        return None
    scope = pick(scopes, inside)
    return scope if may_be_within(nodes, node, scope) else None


def may_be_within(nodes: Sequence[Node], node: Node, scope: int) -> bool:
    """Whether a new node may be in a sub-group: it must not wait for it, nor for one around it."""
    reached, left = set[int](), list(node.after)
    while left:
        place = left.pop()
        if place not in reached:
            reached.add(place)
            left += nodes[place].after
            left += [at for at, other in enumerate(nodes) if other.scope == place]
    around: int | None = scope
    while around is not None and around not in reached:
        around = nodes[around].scope
    return around is None


def a_work(shape: Shape, parent: str) -> Submission:
    """The job of a node; `parent` is the key of one that it depends on, if there is any."""
    delay_s = LONG_S if shape.late else None
    match shape.what:
        case "scope":
            job = a_job(kind=SCOPE)
        case "gate":
            return a_job(kind=GATE, expires_s=delay_s)
        case "map over" if parent:
            job = a_map(Reference(parent))
        case "results" if parent:
            job = needs(Reference(parent, is_map=True))
        case "map" | "map over":
            job = a_map([f"e{at}" for at in range(shape.inside)])
        case _:
            job = a_job()
    return structs.replace(job, delay_s=delay_s)


def additions_of(shapes: Sequence[Shape]) -> tuple[OutboxNode, ...]:
    found = []
    for place, shape in enumerate(shapes):
        after = tuple(sorted({place - back for back in shape.before if back <= place}))
        job = a_work(shape, f"./k{after[0]}" if after else "")
        on = shape.on if after else Condition.SUCCEEDED
        found.append(OutboxNode(f"k{place}", job, after, on, shape.detached))
    return tuple(found)


def outside_nodes(
    shapes: Sequence[Shape], before: tuple[str, ...], number: int
) -> tuple[AddedNode, ...]:
    """Jobs that a client adds: the first depends on some of the group, the others on each other."""
    found = []
    for place, shape in enumerate(shapes):
        after = {f"o{number}-{place - back}" for back in shape.before if back <= place}
        after |= set(before) if place == 0 or shape.inside else set()
        job = structs.replace(a_work(shape, ""), id=UUID(int=0))
        on = shape.on if after else Condition.SUCCEEDED
        found.append(AddedNode(f"o{number}-{place}", job, tuple(sorted(after)), on))
    return tuple(found)


EXAMPLES = {"memory": 2, "sqlite": 12, "postgres": 4, "pgbouncer": 1, "in_steps": 4}


@ALSO_IN_STEPS
@pytest.mark.timeout(600)  # a failure takes a while to be made small
def test_store_settles_growing_groups_as_the_model_does(
    backend: Backend, request: pytest.FixtureRequest
) -> None:
    """G5: whatever is added, mapped, opened, ends in whatever order, the groups end the same."""
    play(SameGrowth, backend, request, EXAMPLES, steps=40)
