"""Many groups at once: none is overlooked because of the others."""

from __future__ import annotations

from longshore.model.group import GroupState
from longshore.testing.builders import Scene, a_group, a_job

MANY = 101
"""More than a store closes in one transaction."""


async def test_a_group_ends_however_many_older_ones_go_on(scene: Scene) -> None:
    """G5: a dispatcher that dies tells nobody which groups may be over."""
    for _ in range(MANY):
        await scene.store.submit_group(a_group({"a": ""}))
    last = await scene.submit_group(a_group({"a": ""}, jobs={"a": a_job(kind="last")}))
    await last.claim()
    await last.end("a")
    await scene.settle()
    assert await last.group_state() is GroupState.SUCCEEDED
