"""Tens of thousands of dependencies on one node, from the order of the SDK through the store."""

from __future__ import annotations

import pytest

from longshore.client.group_plan import MAX_PART_JOBS, GroupPlan
from longshore.core.group_limits import check_part
from longshore.model.attempt import Attempt
from longshore.model.batch import MAX_GROUP_EDGES, MAX_GROUP_JOBS
from longshore.model.group import GroupHead, GroupPart, GroupState, Near, Node
from longshore.testing.builders import Scene, a_job, done, new_id

MOST, MANY = MAX_GROUP_JOBS - 1, 20_000
"""A group cannot have more such dependencies; and how many of them are counted down here."""
STEP = 1_000

ON_BOTH = pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)


def a_wide_plan(parents: int) -> tuple[GroupHead, list[Node]]:
    """A group as the SDK sends it: a job that waits for all the others."""
    plan, job = GroupPlan(new_id(), "wide"), a_job()
    plan.add(job, [plan.add(job) for _ in range(parents)], key="last")
    return plan.in_order()


def test_a_job_may_wait_for_all_others_of_the_largest_group() -> None:
    head, nodes = a_wide_plan(MOST)
    assert (head.jobs, nodes[-1].key) == (MAX_GROUP_JOBS, "last")
    assert nodes[-1].after == tuple(range(MOST))
    last = GroupPart(head, MOST, tuple(nodes[-1:]))
    check_part(last, MOST, MAX_GROUP_JOBS, MAX_GROUP_EDGES)


@ON_BOTH
async def test_a_job_waits_for_the_last_of_very_many(scene: Scene) -> None:
    head, nodes = a_wide_plan(MANY)
    for first in range(0, len(nodes), MAX_PART_JOBS):
        part = GroupPart(head, first, tuple(nodes[first : first + MAX_PART_JOBS]))
        await scene.store.submit_group(part)
    await scene.settle()
    slot, last = await scene.attend(), nodes[-1].job.id
    claimed: list[Attempt] = []
    for ended in range(0, MANY, STEP):
        claimed = await scene.claim(slot, most=STEP)
        assert len(claimed) == STEP
        assert last not in {one.id for one in claimed}
        await scene.pump([done(one, by="") for one in claimed])
        [node] = await scene.store.nodes_near(head.id, [last], Near.THESE)
        assert node.unmet == MANY - ended - STEP
    [attempt] = await scene.claim(slot, most=STEP)
    assert attempt.id == last
    await scene.pump([done(attempt, by="")])
    await scene.settle()
    group = await scene.store.group(head.id)
    assert group is not None
    assert (group.state, group.counts) == (GroupState.SUCCEEDED, {"succeeded": MANY + 1})
