"""A new run of a group that has ended: which jobs run anew, and which are taken over.

The rule. A job is taken over if it succeeded, and everything that it depends on is taken over. All
others run anew. What a job added, or the elements of a map, belong to that job: if it is taken
over, they are in the new run, each by the same rule; if it runs anew, they are left out, because it
adds its own. So a result that is taken over rests only on results that are taken over.

The new run begins as if all that is taken over had just succeeded in it: nodes count only what runs
anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from longshore.core.reopening import (
    NodeState,
    added_by,
    below,
    named,
    not_succeeded,
    unknown_key,
    whole,
)
from longshore.model.group import ENDED_GROUPS, MOST_NAMED, GroupState, RunPlan


class Copy(NamedTuple):
    """A node of the new run, `at` an index in the group that it is a run of.

    It waits for `unmet` others, or was taken over. `open` nodes in its scope run anew.
    """

    at: int
    unmet: int
    open: int
    is_taken: bool


def copies(nodes: Sequence[NodeState], keys: Sequence[str] = ()) -> list[Copy]:
    """The nodes of a new run, in order. The jobs with these keys run anew whatever became of them.

    A key that ends in `/` means all below it.
    """
    anew = below(nodes, not_succeeded(nodes) | named(nodes, keys))
    left_out = added_by(nodes, anew)
    is_open, inside = _open(nodes, anew - left_out)
    made = []
    for at, node in enumerate(nodes):
        if at not in left_out:
            unmet = sum(one in is_open for one in node.after) if at in anew else 0
            made.append(Copy(at, unmet, inside[at], at not in anew))
    return made


def _open(nodes: Sequence[NodeState], anew: Collection[int]) -> tuple[set[int], Counter[int]]:
    """The nodes that are not closed at first, and how many of these are in the scope of each.

    They are those that run anew, and all in whose scopes such are, however deep.
    """
    found, inside = set[int](), Counter[int]()
    for place in anew:
        at: int | None = place
        while at is not None and at not in found:
            found.add(at)
            at = nodes[at].scope
            if at is not None:
                inside[at] += 1
    return found, inside


def run_plan(
    group: UUID,
    state: GroupState,
    nodes: Sequence[NodeState],
    keys: Sequence[str],
    *,
    is_whole: bool,
    max_jobs: int,
) -> tuple[RunPlan, list[Copy]]:
    """What a new run of a group does; or why there is none, and no copies."""
    if state not in ENDED_GROUPS:
        why = "wait until it has ended, or cancel it"
        return RunPlan(
            group, refused=f"it is {state}, and only a group that ended can be; {why}"
        ), []
    if not is_whole:
        why = "its submitter did not send all of its jobs; submit it again"
        return RunPlan(group, refused=why), []
    keys = [one for key in keys for one in whole(nodes, key)]
    if why := unknown_key(nodes, keys):
        return RunPlan(group, refused=why), []
    made = copies(nodes, keys)
    anew = [nodes[one.at].key for one in made if not one.is_taken]
    if not anew:
        why = "all of its jobs succeeded, so none would run; name those to run anew (from_, --from)"
        return RunPlan(group, refused=why), []
    if len(made) > max_jobs:
        why = f"it has {len(made):,} jobs, and max_group_jobs is {max_jobs:,}: raise it"
        return RunPlan(group, refused=why), []
    plan = RunPlan(
        group,
        anew=len(anew),
        taken_over=len(made) - len(anew),
        left_out=len(nodes) - len(made),
        keys=tuple(anew[:MOST_NAMED]),
    )
    return plan, made


def taken_over(job: int, group: int) -> str:
    """What the history of a job says that was taken over from this job of this group."""
    return f"taken over from job {job} of group {group}"
