"""Added jobs take the place of what added them: older groups come first, also when they grow."""

from __future__ import annotations

from longshore.model.group import AddedNode
from longshore.model.job import Submission
from longshore.model.worker import SessionKey
from longshore.testing.builders import GroupScene, Scene, a_group, a_job, a_map, additions, new_id

TWO = additions({"x": "", "y": ""})
MOST = 20


async def next_ones(
    scene: Scene, slot: SessionKey, group: GroupScene, *singles: Submission
) -> list[str]:
    """What a claim takes, in order: jobs of the group by their keys, others by their places."""
    await scene.settle()
    await group.look()
    names = {id: key for key, id in group.jobs.items()}
    names |= {job.id: f"single {place}" for place, job in enumerate(singles)}
    return [names.get(one.id, "another") for one in await scene.claim(slot, most=MOST)]


async def test_what_a_job_adds_comes_before_all_that_is_younger_than_the_job(scene: Scene) -> None:
    slot = await scene.attend()
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    single = a_job()
    await scene.accepted(single)
    await scene.submit_group(a_group({"b": ""}))
    await group.end("a", adds=TWO)
    assert await next_ones(scene, slot, group, single) == ["a/x", "a/y", "single 0", "another"]


async def test_what_a_job_adds_comes_after_all_that_is_older_than_the_job(scene: Scene) -> None:
    """So a group that grows for ever starves nobody."""
    slot = await scene.attend()
    single, urgent = a_job(), a_job(priority=5)
    await scene.accepted(single)
    part = a_group({"a": ""}, jobs={"a": a_job(priority=9)})
    group = await scene.submit_group(part)
    assert await group.claim(most=1) == {"a"}
    await scene.accepted(urgent)
    await group.end("a", adds=TWO)
    found = await next_ones(scene, slot, group, single, urgent)
    assert found == ["single 1", "single 0", "a/x", "a/y"]


async def test_what_added_jobs_add_has_the_place_of_the_first_of_them(scene: Scene) -> None:
    slot = await scene.attend()
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    single = a_job()
    await scene.accepted(single)
    await group.end("a", adds=additions({"x": ""}))
    assert await group.claim(most=1) == {"a/x"}
    await group.end("a/x", adds=TWO)
    assert await next_ones(scene, slot, group, single) == ["a/x/x", "a/x/y", "single 0"]


async def test_the_elements_of_a_map_have_its_place(scene: Scene) -> None:
    slot = await scene.attend()
    group = await scene.submit_group(a_group({"m": ""}, jobs={"m": a_map(range(3))}))
    single = a_job()
    await scene.accepted(single)
    assert await next_ones(scene, slot, group, single) == ["m/0", "m/1", "m/2", "single 0"]


async def test_what_clients_add_has_the_place_of_the_group(scene: Scene) -> None:
    slot = await scene.attend()
    older, younger = a_job(), a_job()
    await scene.accepted(older)
    group = await scene.submit_group(a_group({"a": ""}))
    await scene.accepted(younger)
    await scene.store.add_to_group(group.id, new_id(), [AddedNode("late", a_job())])
    found = await next_ones(scene, slot, group, older, younger)
    assert found == ["single 0", "late", "a", "single 1"]


async def test_claims_that_went_past_an_adder_find_what_it_adds(scene: Scene) -> None:
    """A store that remembers how far its claims came goes back for it."""
    slot = await scene.attend()
    group = await scene.submit_group(a_group({"a": ""}))
    await scene.accepted(*[a_job() for _ in range(3 * MOST)])
    await group.claim(most=1)
    assert len(await scene.claim(slot, most=MOST)) == MOST
    await group.end("a", adds=TWO)
    found = await next_ones(scene, slot, group)
    assert found[:3] == ["a/x", "a/y", "another"]
