"""Gates: a node that ends when a user opens it, once it has been reached."""

from __future__ import annotations

from longshore.model.ends import Failed
from longshore.model.group import GATE, Condition, GateVerdict, GroupState
from longshore.model.job import JobState, Reason
from longshore.payload.references import Reference
from longshore.payload.values import pack, unpack
from longshore.testing.backends import Backend
from longshore.testing.builders import (
    GroupScene,
    Scene,
    a_group,
    a_job,
    additions,
    needs,
    new_id,
)

from .test_groups import run_to_the_end
from .test_growth import error_of

S = JobState
G = GroupState
V = GateVerdict

YES, NO = pack("yes", "value"), pack("no", "value")
GATED = {"a": "", "gate": "a", "d": "gate"}


async def gated(scene: Scene, expires_s: float | None = None) -> GroupScene:
    """A group with a gate behind `a`."""
    jobs = {"gate": a_job(kind=GATE, expires_s=expires_s), "d": needs(Reference("gate"))}
    return await scene.submit_group(a_group(GATED, jobs=jobs))


async def reached(scene: Scene, expires_s: float | None = None) -> GroupScene:
    """A group that waits for somebody to open its gate."""
    group = await gated(scene, expires_s)
    await group.claim()
    await group.end("a")
    await group.settle()
    return group


async def test_a_gate_that_is_opened_lets_the_group_go_on_with_its_value(scene: Scene) -> None:
    group = await reached(scene)
    assert await group.claim() == set()
    assert await group.states() == {"a": S.SUCCEEDED, "gate": S.READY, "d": S.WAITING}
    assert await scene.store.open_gate(group.id, "gate", YES, "ann") is V.OPENED
    await group.settle()
    gate = await scene.job(group.jobs["gate"])
    assert (gate.state, gate.result) == (S.SUCCEEDED, YES)
    assert gate.history[-1].info == "opened by ann"
    assert gate.ended_at is not None
    assert await group.claim() == {"d"}
    assert unpack(group.running["d"].args) == {"a0": "yes"}
    await group.end("d")
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED


async def test_a_gate_is_opened_by_the_number_of_its_group_and_without_a_value(
    scene: Scene,
) -> None:
    group = await reached(scene)
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert await scene.store.open_gate(shown.number, "gate") is V.OPENED
    await group.settle()
    assert await group.claim() == {"d"}
    assert unpack(group.running["d"].args) == {"a0": None}


async def test_the_same_value_may_be_written_in_another_order(scene: Scene) -> None:
    group = await reached(scene)
    await scene.store.open_gate(group.id, "gate", pack({"a": 1, "b": 2}, "a value"))
    again = pack({"b": 2, "a": 1}, "a value")
    assert await scene.store.open_gate(group.id, "gate", again) is V.ALREADY_OPEN
    other = pack({"a": 1, "b": True}, "a value")
    assert await scene.store.open_gate(group.id, "gate", other) is V.ALREADY_ENDED


async def test_a_gate_opened_again_stays_as_it_is(scene: Scene) -> None:
    group = await reached(scene)
    await scene.store.open_gate(group.id, "gate", YES)
    for _ in range(2):
        assert await scene.store.open_gate(group.id, "gate", YES) is V.ALREADY_OPEN
        assert await scene.store.open_gate(group.id, "gate", NO) is V.ALREADY_ENDED
        await group.settle()
    assert (await scene.job(group.jobs["gate"])).result == YES
    assert len(await group.claim()) == 1


async def test_a_gate_that_is_not_reached_cannot_be_opened(scene: Scene) -> None:
    group = await gated(scene)
    assert await scene.store.open_gate(group.id, "gate", YES) is V.NOT_REACHED
    await group.claim()
    await group.end("a")
    await group.settle()
    assert await scene.store.open_gate(group.id, "gate", YES) is V.OPENED


async def test_what_is_no_gate_cannot_be_opened(scene: Scene) -> None:
    group = await gated(scene)
    assert await scene.store.open_gate(group.id, "a", YES) is V.NOT_A_GATE
    assert await scene.store.open_gate(group.id, "nobody", YES) is V.NOT_FOUND
    assert await scene.store.open_gate(new_id(), "gate", YES) is V.NOT_FOUND
    assert await scene.store.open_gate(2**70, "gate", YES) is V.NOT_FOUND


async def test_a_gate_that_nobody_opened_in_time_fails(scene: Scene, backend: Backend) -> None:
    group = await reached(scene, expires_s=50.0)
    await backend.pass_time(49)
    assert await scene.store.expire() == []
    await backend.pass_time(2)
    assert [one.id for one in await scene.store.expire()] == [group.jobs["gate"]]
    assert await error_of(scene, group, "gate") == (
        Reason.EXPIRED,
        "expired: nobody opened it within 50 s",
    )
    await group.settle()
    assert await group.state("d") is S.DEPENDENCY_FAILED
    assert await group.group_state() is G.FAILED
    assert await scene.store.open_gate(group.id, "gate", YES) is V.ALREADY_ENDED


async def test_the_time_of_a_gate_counts_from_when_it_is_reached(
    scene: Scene, backend: Backend
) -> None:
    group = await gated(scene, expires_s=60.0)
    await backend.pass_time(100)
    assert await scene.store.expire() == []
    await group.claim()
    await group.end("a")
    await group.settle()
    assert await scene.store.expire() == []
    assert await scene.store.open_gate(group.id, "gate") is V.OPENED


async def test_a_cancelled_gate_cannot_be_opened(scene: Scene) -> None:
    group = await reached(scene)
    await scene.store.cancel([group.jobs["gate"]])
    assert await scene.store.open_gate(group.id, "gate") is V.ALREADY_ENDED
    await group.settle()
    assert await group.state("d") is S.DEPENDENCY_FAILED


async def test_a_gate_of_a_cancelled_group_ends_with_it(scene: Scene) -> None:
    group = await reached(scene)
    await scene.store.cancel_group(group.id, "me")
    await group.settle()
    assert await group.state("gate") is S.CANCELLED
    assert await group.group_state() is G.CANCELLED
    assert await scene.store.open_gate(group.id, "gate") is V.ALREADY_ENDED


async def test_a_gate_of_a_paused_group_is_opened_when_it_goes_on(scene: Scene) -> None:
    group = await reached(scene)
    await scene.store.pause_group(group.id, True)
    await group.settle()
    assert await scene.store.open_gate(group.id, "gate") is V.NOT_REACHED
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await scene.store.open_gate(group.id, "gate") is V.OPENED
    await group.settle()
    assert await group.claim() == {"d"}


async def test_a_gate_that_can_never_be_reached_ends(scene: Scene) -> None:
    group = await gated(scene)
    await group.claim()
    await group.end("a", how=Failed)
    await group.settle()
    assert await group.state("gate") is S.DEPENDENCY_FAILED
    assert await scene.store.open_gate(group.id, "gate") is V.ALREADY_ENDED
    assert await group.group_state() is G.FAILED


async def test_a_gate_is_closed_again_by_a_retry(scene: Scene) -> None:
    group = await reached(scene)
    await scene.store.open_gate(group.id, "gate", YES)
    await group.settle()
    await run_to_the_end(group)
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["gate"])
    assert plan is not None
    assert set(plan.reopened) == {"gate", "d"}
    await group.settle()
    assert await group.states() == {"a": S.SUCCEEDED, "gate": S.READY, "d": S.WAITING}
    assert await scene.store.open_gate(group.id, "gate", NO) is V.OPENED
    await group.settle()
    await group.claim()
    assert unpack(group.running["d"].args) == {"a0": "no"}


async def test_a_job_adds_a_gate(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "d": "a"}))
    await group.claim()
    adds = additions({"ask": "", "then": "ask"}, jobs={"ask": a_job(kind=GATE)})
    await group.end("a", adds=adds)
    await group.settle()
    assert await group.claim() == set()
    assert await scene.store.open_gate(group.id, "a/ask") is V.OPENED
    await group.settle()
    assert await run_to_the_end(group) == [{"a/then"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_group_that_waits_for_a_gate_alone_does_not_end(scene: Scene) -> None:
    part = a_group({"gate": ""}, {}, jobs={"gate": a_job(kind=GATE)})
    group = await scene.submit_group(part)
    await group.settle()
    assert await group.group_state() is G.RUNNING
    await scene.store.open_gate(group.id, "gate")
    settled = await group.settle()
    assert group.id in {one.id for one in settled.ended}
    assert await group.group_state() is G.SUCCEEDED


async def test_what_runs_on_the_failure_of_a_gate(scene: Scene, backend: Backend) -> None:
    jobs = {"gate": a_job(kind=GATE, expires_s=5.0)}
    part = a_group({"gate": "", "late": "gate"}, {"late": Condition.FAILED}, jobs=jobs)
    group = await scene.submit_group(part)
    await group.settle()
    await backend.pass_time(6)
    await scene.store.expire()
    await group.settle()
    assert await group.claim() == {"late"}
