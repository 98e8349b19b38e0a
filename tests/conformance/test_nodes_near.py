"""The nodes of a group that are near some of its jobs, by its edges and not by a look at all."""

from __future__ import annotations

from longshore.model.group import Near
from longshore.testing.builders import GroupScene, Scene, a_group, new_id

SHAPE = {"top": "", "left": "top", "right": "top", "bottom": "left right", "alone": ""}


async def keys(group: GroupScene, near: Near, *jobs: str, most: int = 1000) -> list[str]:
    """The keys of what is near these jobs."""
    ids = [group.jobs[key] for key in jobs]
    return [node.key for node in await group.store.nodes_near(group.id, ids, near, most)]


async def test_a_job_is_found_with_what_is_around_it(scene: Scene) -> None:
    group = await scene.submit_group(a_group(SHAPE))
    assert await keys(group, Near.THESE, "left") == ["left"]
    assert await keys(group, Near.AFTER, "bottom") == ["left", "right"]
    assert await keys(group, Near.DEPENDENTS, "top") == ["left", "right"]
    for near in (Near.AFTER, Near.DEPENDENTS):
        assert await keys(group, near, "alone") == []


async def test_many_jobs_are_asked_for_at_once_and_answered_in_order_once_each(
    scene: Scene,
) -> None:
    group = await scene.submit_group(a_group(SHAPE))
    assert await keys(group, Near.THESE, "alone", "top", "top") == ["top", "alone"]
    assert await keys(group, Near.AFTER, "left", "right", "bottom") == ["top", "left", "right"]
    assert await keys(group, Near.DEPENDENTS, "left", "right") == ["bottom"]
    assert await keys(group, Near.AFTER, "bottom", most=1) == ["left"]


async def test_nodes_are_shown_as_in_the_list_of_all(scene: Scene) -> None:
    group = await scene.submit_group(a_group(SHAPE))
    all_nodes = await scene.store.nodes(group.id)
    ids = [node.job for node in all_nodes]
    assert await scene.store.nodes_near(group.id, ids, Near.THESE) == all_nodes


async def test_jobs_elsewhere_are_near_nothing(scene: Scene) -> None:
    """Whoever may read one group learns nothing of another by naming its jobs."""
    group = await scene.submit_group(a_group(SHAPE))
    other = await scene.submit_group(a_group(SHAPE))
    for near in Near:
        ids = [other.jobs["left"], new_id()]
        assert await scene.store.nodes_near(group.id, ids, near) == []
        assert await scene.store.nodes_near(new_id(), ids, near) == []
    assert await scene.store.nodes_near(group.id, [], Near.THESE) == []
