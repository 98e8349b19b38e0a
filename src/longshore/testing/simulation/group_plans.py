"""Groups for scenarios: random graphs of jobs, and what a client does to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from longshore.model.group import (
    GATE,
    MAP,
    NOT_RUN,
    SCOPE,
    AddedNode,
    Condition,
    GroupHead,
    GroupPart,
    Node,
)
from longshore.model.ids import derive_id
from longshore.model.job import Options, RetryPolicy, Submission
from longshore.payload.maps import MapPattern, pack_map
from longshore.payload.values import pack
from longshore.testing.simulation.bodies import NO_ID, Added, Behaviour, behaviour_in

MOST_NODES: Final = 14
MOST_PARENTS: Final = 3
MOST_ADDED: Final = 3
MOST_ELEMENTS: Final = 5
DEEPEST: Final = 2
"""So deep do added jobs add others."""
_ON: Final = (*[Condition.SUCCEEDED] * 4, Condition.ENDED, Condition.ENDED, Condition.FAILED)


class Act(StrEnum):
    """What a client does to a group that runs."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"


class GatePlan(Struct, frozen=True):
    """A gate that a client opens with a value, so long after the submit, as soon as it can."""

    key: str
    after_s: float
    value: bytes


class AdditionPlan(Struct, frozen=True):
    """Jobs that a client adds to a group, so long after the submit, if that still runs."""

    after_s: float
    request: UUID
    nodes: tuple[AddedNode, ...]

    @property
    def work_s(self) -> float:
        """How long it takes at most until they have run."""
        return self.after_s + sum(behaviour_in(node.job.args).work_s for node in self.nodes)


class RerunPlan(Struct, frozen=True):
    """A new run of a group, so long after that has ended for good."""

    run: UUID
    after_s: float
    keys: tuple[str, ...]
    """Jobs that run anew whatever became of them."""
    most: int
    """So many jobs are copied in one step; 0: a dispatcher is asked, and decides that."""


class GroupPlan(Struct, frozen=True):
    """A group: who submits it when, in how many parts, and what is done to it afterwards."""

    client: str
    at: float
    head: GroupHead
    nodes: tuple[Node, ...]
    behaviours: tuple[Behaviour, ...]
    part_nodes: int
    acts: tuple[tuple[float, Act], ...]
    """Each comes so many seconds after the one before."""
    retries: int
    """How often its submitter retries it when it did not succeed."""
    elements: tuple[int, ...] = ()
    """For each node how many elements it has, if it is a map."""
    gates: tuple[GatePlan, ...] = ()
    """Those that its client opens. The others expire."""
    additions: tuple[AdditionPlan, ...] = ()
    rerun: RerunPlan | None = None

    @property
    def id(self) -> UUID:
        """The group's id."""
        return self.head.id

    @property
    def edges(self) -> int:
        """How many dependencies it has."""
        return sum(len(node.after) for node in self.nodes)

    @property
    def parts(self) -> list[GroupPart]:
        """The parts in which its client sends it."""
        step = self.part_nodes
        return [
            GroupPart(self.head, first, self.nodes[first : first + step])
            for first in range(0, len(self.nodes), step)
        ]

    @property
    def work_s(self) -> float:
        """How long it would take one slot to run every job once."""
        gates_s = sum(node.job.options.expires_s or 0.0 for node in self.nodes)
        opened_s = max((gate.after_s for gate in self.gates), default=0.0)
        bodies_s = sum(one.work_s for one in self.behaviours)
        added_s = sum(one.work_s for one in self.additions)
        once_s = sum(self.elements) + bodies_s + gates_s + opened_s + added_s
        return once_s if self.rerun is None else 2 * once_s + self.rerun.after_s

    def parents(self, place: int) -> list[UUID]:
        """The jobs on which the node at a place depends."""
        return [self.nodes[other].job.id for other in self.nodes[place].after]


def random_group(random: Random, id: UUID, client: str, at: float) -> GroupPlan:
    """A group of some layers, in which later nodes depend on any of the earlier ones."""
    count = random.randint(2, MOST_NODES)
    behaviours = tuple(_behaviour(random) for _ in range(count))
    return GroupPlan(
        client=client,
        at=at,
        head=GroupHead(id, f"group {id.hex[:8]}", count, fail_fast=random.random() < 0.25),
        nodes=tuple(_node(random, id, place) for place in range(count)),
        behaviours=behaviours,
        part_nodes=random.choice((count, count, random.randint(1, count))),
        acts=_acts(random),
        retries=random.choice((0, 0, 1, 2)),
    )


def _node(random: Random, group: UUID, place: int) -> Node:
    most = min(place, MOST_PARENTS)
    # Those just before it more often: that makes chains and diamonds rather than stars.
    near = range(max(0, place - 5), place)
    parents = random.sample(near, min(len(near), random.randint(0 if place < 3 else 1, most)))
    retry = RetryPolicy(attempts=random.randint(1, 3), backoff_s=random.choice((0.1, 1.0)))
    job = Submission(
        id=derive_id(group, place),
        kind=random.choice(("work", "work", "grind")),
        args=b"\x80",
        delay_s=random.choice((None, None, None, None, random.uniform(0.0, 5.0))),
        options=Options(retry=retry),
    )
    on = random.choice(_ON) if parents else Condition.SUCCEEDED
    return Node(f"n{place}", job, tuple(sorted(parents)), on)


def _behaviour(random: Random) -> Behaviour:
    return Behaviour(
        takes_s=random.choice((0.0, random.uniform(0.0, 0.3), random.uniform(0.0, 4.0))),
        fails=random.choice((0, 0, 0, 0, 1, 1, 3)),
        crashes=random.choice((*[0] * 9, 1)),
        kills=random.choice((*[0] * 40, 1)),
        skips=random.random() < 0.1,
        stubborn=random.random() < 0.1,
    )


def _acts(random: Random) -> tuple[tuple[float, Act], ...]:
    """A few acts. Whoever pauses a group lets it go on in the end."""
    chosen = random.choices(list(Act), k=random.choice((0, 0, 1, 1, 2, 4)))
    if Act.PAUSE in chosen:
        chosen.append(Act.RESUME)
    return tuple((random.choice((0.0, random.uniform(0.0, 12.0))), act) for act in chosen)


# growth


def growing(random: Random, plan: GroupPlan) -> GroupPlan:
    """The group, of which jobs add others, some nodes are maps, and some are sub-groups."""
    nodes: list[Node] = []
    elements = []
    kinds = [random.choice((*["job"] * 6, "map", "scope")) for _ in plan.nodes]
    for place, (node, what) in enumerate(zip(plan.nodes, kinds, strict=True)):
        elements.append(random.randrange(MOST_ELEMENTS) if what == "map" else 0)
        if what == "map":
            node = structs.replace(node, job=_map(node.job, elements[-1]))
        elif what == "scope":
            node = structs.replace(node, job=_plain(node.job, SCOPE, b"\x80"))
        nodes.append(structs.replace(node, scope=_scope(random, kinds, place)))
    return structs.replace(
        plan,
        nodes=tuple(nodes),
        behaviours=tuple(_adding(random, one, DEEPEST, 0.4) for one in plan.behaviours),
        elements=tuple(elements),
        additions=_additions(plan),
    )


def _additions(plan: GroupPlan) -> tuple[AdditionPlan, ...]:
    """What clients add to a group from outside, by a chance of its own."""
    random = Random(plan.id.int)
    return tuple(
        AdditionPlan(
            random.choice((0.0, random.uniform(0.0, 4.0))),
            derive_id(plan.id, 10_000 + at),
            tuple(_added_node(random, plan, at, place) for place in range(random.randint(1, 3))),
        )
        for at in range(random.choice((0, 1, 1, 2)))
    )


def _added_node(random: Random, plan: GroupPlan, at: int, place: int) -> AddedNode:
    """A job that comes after some of the group, and after some that are added with it."""
    known = random.sample(plan.nodes, random.randint(0, min(2, len(plan.nodes))))
    after = {node.key for node in known} | {f"out{at}-{one}" for one in range(place)}
    behaviour = structs.replace(_behaviour(random), takes_s=random.uniform(0.0, 0.5))
    job = Added(f"out{at}-{place}", (), Condition.SUCCEEDED, False, behaviour).node.job
    on = random.choice(_ON) if after else Condition.SUCCEEDED
    return AddedNode(f"out{at}-{place}", job, tuple(sorted(after)), on)


def gated(random: Random, plan: GroupPlan) -> GroupPlan:
    """The group, of which some jobs are gates: its client opens them, or they expire."""
    nodes, gates = list[Node](), list[GatePlan]()
    for node in plan.nodes:
        if node.job.kind not in NOT_RUN and random.random() < 0.35:
            expires_s = random.choice((None, random.uniform(0.1, 3.0), random.uniform(3.0, 15.0)))
            node = structs.replace(node, job=_gate(node.job, expires_s))
            if expires_s is None or random.random() < 0.5:
                value = pack(random.randrange(100), "a value")
                gates.append(GatePlan(node.key, random.uniform(0.0, 15.0), value))
        nodes.append(node)
    return structs.replace(plan, nodes=tuple(nodes), gates=tuple(gates))


def rerun(random: Random, plan: GroupPlan) -> GroupPlan:
    """The group, of which its client makes a new run when it has ended."""
    named = random.sample(plan.nodes, random.choice((0, 0, 1, 1, 2)))
    made = RerunPlan(
        run=derive_id(plan.id, 20_000),
        after_s=random.choice((0.0, random.uniform(0.0, 5.0))),
        keys=tuple(node.key for node in named),
        most=random.choice((0, 0, 1, 3, 50)),
    )
    return structs.replace(plan, rerun=made)


def _gate(job: Submission, expires_s: float | None) -> Submission:
    return structs.replace(_plain(job, GATE, b"\x80"), options=Options(expires_s=expires_s))


def _plain(job: Submission, kind: str, args: bytes) -> Submission:
    """The job of a node that no worker runs."""
    return Submission(job.id, kind, args, delay_s=job.delay_s)


def _map(job: Submission, elements: int) -> Submission:
    pattern = MapPattern("x", Submission(NO_ID, "work", b"\x80", options=job.options))
    return _plain(job, MAP, pack_map(list(range(elements)), pattern))


def _scope(random: Random, kinds: Sequence[str], place: int) -> int | None:
    """One of the sub-groups behind a node, or none. So no node can wait for the one it is in."""
    scopes = [at for at in range(place + 1, len(kinds)) if kinds[at] == "scope"]
    return random.choice(scopes) if scopes and random.random() >= 0.4 else None


def _adding(random: Random, behaviour: Behaviour, deep: int, often: float) -> Behaviour:
    """The behaviour, of which a job adds some others to its group."""
    if random.random() >= often:
        return behaviour
    adds = tuple(_added(random, place, deep) for place in range(random.randint(1, MOST_ADDED)))
    return structs.replace(behaviour, adds=adds)


def _added(random: Random, place: int, deep: int) -> Added:
    parents = tuple(sorted(random.sample(range(place), random.randint(0, min(place, 2)))))
    behaviour = structs.replace(_behaviour(random), takes_s=random.uniform(0.0, 0.5))
    if deep > 1:
        behaviour = _adding(random, behaviour, deep - 1, 0.3)
    on = random.choice(_ON) if parents else Condition.SUCCEEDED
    return Added(f"k{place}", parents, on, random.random() < 0.2, behaviour)
