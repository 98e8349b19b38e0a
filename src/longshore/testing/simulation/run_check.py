"""G5 of new runs: what is taken over rests only on what is taken over, and the rest runs.

The rule is written here a second time, from the docs, over the nodes as the checks know them and
over the states that the ledger saw. Of the store only the keys of the copies are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct, structs

from longshore.model.group import NodeView, RunPlan
from longshore.model.job import JobState
from longshore.testing.simulation.database import Rerun
from longshore.testing.simulation.group_nodes import GroupNode
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.snapshots import Snapshot

Shots = Mapping[UUID, Snapshot]


class NewRun(Struct, frozen=True):
    """What a new run must be: its nodes, as they were in the group that it is a run of."""

    taken: tuple[GroupNode, ...]
    anew: tuple[GroupNode, ...]
    left_out: int

    @classmethod
    def of(cls, nodes: Sequence[GroupNode], keys: Sequence[str], shots: Shots) -> NewRun:
        """By the states in which the nodes are now."""
        anew = _anew(nodes, keys, shots)
        gone = _added_by(nodes, anew)
        kept = [node for node in nodes if node.job not in gone]
        return cls(
            tuple(node for node in kept if node.job not in anew),
            tuple(node for node in kept if node.job in anew),
            len(gone),
        )

    def check_plan(self, about: Rerun, plan: RunPlan) -> None:
        """The store says what it does; it refuses only if nothing would run."""
        if plan.refused:
            if self.anew:
                raise _broken(about.run, f"a new run was refused: {plan.refused}")
            return
        said = plan.anew, plan.taken_over, plan.left_out
        if said != (len(self.anew), len(self.taken), self.left_out):
            text = f"the run has {said} jobs anew, taken over and left out, not {self._counts()}"
            raise _broken(about.run, text)

    def _counts(self) -> tuple[int, int, int]:
        return len(self.anew), len(self.taken), self.left_out

    def copied(self, run: UUID, views: Iterable[NodeView], shots: Shots) -> list[GroupNode]:
        """The nodes of the run, all of which are there; raises if one is not as it must be."""
        jobs = {view.key: view.job for view in views}
        wanted = {node.key for node in (*self.taken, *self.anew)}
        if set(jobs) != wanted:
            odd = ", ".join(sorted(set(jobs) ^ wanted))
            raise _broken(run, f"of the new run these are missing, or too many: {odd}")
        for node in self.taken:
            _check_taken(jobs[node.key], shots[jobs[node.key]], shots[node.job])
        for node in self.anew:
            if shots[jobs[node.key]].state is JobState.SUCCEEDED:
                raise _broken(jobs[node.key], "it was taken over, though it must run anew")
        new = {node.job: jobs[node.key] for node in (*self.taken, *self.anew)}
        return [_copy(node, run, new) for node in (*self.taken, *self.anew)]


def _check_taken(copy: UUID, now: Snapshot, then: Snapshot) -> None:
    if (now.state, now.result) != (JobState.SUCCEEDED, then.result):
        raise _broken(copy, f"it is {now.state} with {now.result!r}, not taken over")


def _copy(node: GroupNode, run: UUID, new: Mapping[UUID, UUID]) -> GroupNode:
    return structs.replace(
        node,
        job=new[node.job],
        group=run,
        parents=tuple(new[job] for job in node.parents),
        scope=None if node.scope is None else new[node.scope],
        adder=None if node.adder is None else new[node.adder],
    )


def _anew(nodes: Sequence[GroupNode], keys: Sequence[str], shots: Shots) -> set[UUID]:
    """Who did not succeed or is named, and whoever depends on one of them, or on its scope."""
    inside = _inside(nodes)
    anew = {
        node.job
        for node in nodes
        if node.key in keys or shots[node.job].state is not JobState.SUCCEEDED
    }
    while True:
        more = {
            node.job
            for node in nodes
            if node.job not in anew and any(_all_of(job, inside) & anew for job in node.parents)
        }
        if not more:
            return anew
        anew |= more


def _added_by(nodes: Sequence[GroupNode], adders: set[UUID]) -> set[UUID]:
    """What these jobs added, in a scope or not, and what that added."""
    gone: set[UUID] = set()
    while more := {
        node.job for node in nodes if node.adder in adders | gone and node.job not in gone
    }:
        gone |= more
    return gone


def _inside(nodes: Iterable[GroupNode]) -> dict[UUID, list[UUID]]:
    found: dict[UUID, list[UUID]] = {}
    for node in nodes:
        if node.scope is not None:
            found.setdefault(node.scope, []).append(node.job)
    return found


def _all_of(job: UUID, inside: Mapping[UUID, list[UUID]]) -> set[UUID]:
    """A job, and all that is in its scope, however deep."""
    return {job}.union(*(_all_of(one, inside) for one in inside.get(job, ())))


def _broken(what: UUID, text: str) -> BrokenPromise:
    return BrokenPromise(Promise.ORDER, text, what)
