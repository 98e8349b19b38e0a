"""Jobs go to workers that have their files at hand, if these have a slot; otherwise to any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from longshore.model.attempt import Attempt
from longshore.model.ends import Released, Succeeded
from longshore.model.job import Submission
from longshore.model.limits import JobLimit
from longshore.model.program import COMMAND_KIND
from longshore.model.worker import Claim, FileKey, FilesAtHand, KindInfo, SessionKey
from longshore.payload.values import pack
from longshore.ports import Batch
from longshore.testing.builders import Scene, a_group, a_job, done, lane

KINDS = {COMMAND_KIND: KindInfo(files=True)}
LANE = lane(kind=COMMAND_KIND)


@pytest.fixture
async def workers(scene: Scene) -> list[SessionKey]:
    return [await scene.attend(kinds=[COMMAND_KIND]) for _ in range(3)]


def reading(*inputs: object, limits: tuple[JobLimit, ...] = ()) -> Submission:
    args = pack({"argv": ["true"], "inputs": [*inputs]}, "arguments")
    return a_job(kind=COMMAND_KIND, args=args, limits=limits)


async def claim(
    scene: Scene, slots: Sequence[SessionKey], has: Mapping[FileKey, SessionKey]
) -> list[Attempt]:
    """Claims for these slots, while these workers have these files."""
    at_hand = FilesAtHand({file: [slot.worker] for file, slot in has.items()}, KINDS)
    batch = Batch(claims=[Claim((LANE,), tuple(slots), at_hand=at_hand)])
    return (await scene.store.pump(scene.dispatcher, batch)).claimed


def placed(attempts: Sequence[Attempt]) -> dict[UUID, UUID]:
    return {one.id: one.worker for one in attempts}


async def test_each_job_goes_to_the_worker_that_has_its_inputs(
    scene: Scene, workers: list[SessionKey]
) -> None:
    a, b, c = workers
    photos, tables, other = reading("photos@3"), reading("x", "tables"), reading("words")
    await scene.accepted(other, photos, tables)
    claimed = await claim(scene, [a, a, b, b, c, c], {"photos@3": c, "tables": b})
    expected = {photos.id: c.worker, tables.id: b.worker, other.id: a.worker}
    assert placed(claimed) == expected


@pytest.mark.parametrize("limits", [(), (JobLimit("key=1", 9),)])
async def test_a_job_never_waits_for_the_worker_that_has_its_inputs(
    scene: Scene, workers: list[SessionKey], limits: tuple[JobLimit, ...]
) -> None:
    a, b, _ = workers
    jobs = [reading("photos", limits=limits) for _ in range(3)]
    await scene.accepted(*jobs)
    claimed = await claim(scene, [a, a, b], {"photos": b})
    assert sorted(placed(claimed).values()) == sorted([b.worker, a.worker, a.worker])
    assert placed(claimed)[jobs[0].id] == b.worker, "the first of the lane gets it"


async def test_a_retry_goes_to_the_worker_that_had_the_job(
    scene: Scene, workers: list[SessionKey]
) -> None:
    a, b, _ = workers
    job = reading("photos")
    await scene.accepted(job)
    [first] = await claim(scene, [b], {})
    await scene.finish(done(first, Released))
    [again] = await claim(scene, [a, b], {job.id: b, "photos": a})
    assert again.worker == b.worker
    await scene.finish(done(again, Released))
    [third] = await claim(scene, [a, b], {job.id: b, "photos": b})
    assert third.worker == a.worker, "perhaps the other's disk is full"


async def test_inputs_from_a_job_are_with_the_worker_that_ran_it(
    scene: Scene, workers: list[SessionKey]
) -> None:
    a, b, _ = workers
    jobs = {"make": a_job(kind=COMMAND_KIND), "use": reading({"from": "make"})}
    group = await scene.submit_group(a_group({"make": "", "use": "make"}, jobs=jobs))
    [make] = await claim(scene, [b], {})
    await scene.finish(done(make, Succeeded))
    await group.settle()
    [use] = await claim(scene, [a, b], {group.jobs["make"]: b})
    assert (use.id, use.worker) == (group.jobs["use"], b.worker)


async def test_a_worker_that_is_gone_is_not_waited_for(
    scene: Scene, workers: list[SessionKey]
) -> None:
    a, b, _ = workers
    job = reading("photos")
    await scene.accepted(job)
    await scene.store.harvest(b.worker, b.session, "lost", crash=False, crash_limit=9)
    [only] = await claim(scene, [b, a], {"photos": b})
    assert only.worker == a.worker
