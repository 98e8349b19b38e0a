"""The nodes of groups, as the checks of a simulation know them: planned, or added since."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct

from longshore.model.ends import End, Succeeded
from longshore.model.group import GATE, MAP, SCOPE, Condition
from longshore.model.ids import derive_id
from longshore.model.reports import OutboxNode
from longshore.payload.maps import grown_id
from longshore.testing.simulation.bodies import behaviour_in
from longshore.testing.simulation.database import Additions
from longshore.testing.simulation.group_plans import GroupPlan


class GroupNode(Struct, frozen=True, kw_only=True):
    """A node, and what it waits for. `scope` and `adder` are jobs of other nodes."""

    job: UUID
    group: UUID
    key: str
    on: Condition = Condition.SUCCEEDED
    parents: tuple[UUID, ...] = ()
    scope: UUID | None = None
    adder: UUID | None = None
    is_expanded: bool = False
    """Whether it is a map or a sub-group: no worker runs it."""
    elements: int = 0
    """How many jobs it becomes, if it is a map."""
    is_gate: bool = False
    value: bytes | None = None
    """With what its client opens it, if it is a gate that one opens."""
    skips: bool = False

    def of_map(self, round: int) -> list[GroupNode]:
        """The jobs that a map becomes in a round of its own."""
        return [
            GroupNode(
                job=grown_id(self.job, round, index),
                group=self.group,
                key=f"{self.key}/{index}",
                scope=self.job,
                adder=self.job,
            )
            for index in range(self.elements)
        ]


def planned_nodes(plan: GroupPlan) -> list[GroupNode]:
    """The nodes of a group as its client submits it."""
    ids = [node.job.id for node in plan.nodes]
    elements = plan.elements or (0,) * len(ids)
    values = {gate.key: gate.value for gate in plan.gates}
    return [
        GroupNode(
            job=node.job.id,
            group=plan.id,
            key=node.key,
            on=node.on,
            parents=tuple(ids[place] for place in node.after),
            scope=None if node.scope is None else ids[node.scope],
            is_expanded=node.job.kind in (MAP, SCOPE),
            elements=count,
            is_gate=node.job.kind == GATE,
            value=values.get(node.key),
            skips=behaviour.skips,
        )
        for node, behaviour, count in zip(plan.nodes, plan.behaviours, elements, strict=True)
    ]


def added_nodes(adder: GroupNode, end: End, round: int) -> list[GroupNode]:
    """What the end of a job adds to its group, in this round of the job."""
    outbox = end.outbox if isinstance(end, Succeeded) else ()
    added = [item for item in outbox if isinstance(item, OutboxNode)]
    ids = [grown_id(adder.job, round, index) for index in range(len(added))]
    return [
        GroupNode(
            job=id,
            group=adder.group,
            key=f"{adder.key}/{item.key}",
            on=item.on,
            parents=tuple(ids[place] for place in item.after),
            scope=None if item.detached else adder.job,
            adder=adder.job,
            skips=behaviour_in(item.job.args).skips,
        )
        for id, item in zip(ids, added, strict=True)
    ]


def outside_nodes(about: Additions, known: Mapping[str, UUID]) -> list[GroupNode]:
    """What a client adds to a group that has these jobs."""
    ids = {node.key: derive_id(about.request, at) for at, node in enumerate(about.nodes)}
    jobs = {**known, **ids}
    return [
        GroupNode(
            job=ids[node.key],
            group=about.group,
            key=node.key,
            on=node.on,
            parents=tuple(jobs[key] for key in node.after),
            skips=behaviour_in(node.job.args).skips,
        )
        for node in about.nodes
    ]
