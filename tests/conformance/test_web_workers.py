"""Web workers: who is registered, and which gateway attends it."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from msgspec import structs

from longshore.errors import Conflict, WrongState
from longshore.model.job import JobState, Reason, Refused
from longshore.model.web_worker import (
    WebNote,
    WebRegistered,
    WebRegistration,
    WebState,
    WebWorker,
)
from longshore.model.worker import Attended, Gone, SessionKey
from longshore.testing.builders import Scene, a_job, a_worker, lanes_of, new_id

MOST = 100
CRASH_LIMIT = 3


def said(port: int = 8000, **more: object) -> WebRegistration:
    return WebRegistration(host="127.0.0.1", port=port, kinds=("work",), **more)  # type: ignore[arg-type]


async def registered(scene: Scene, registration: WebRegistration | None = None) -> WebWorker:
    answer = await scene.store.register_web_worker(new_id(), registration or said(), MOST)
    assert isinstance(answer, WebRegistered), answer
    return answer.web_worker


async def a_gateway(scene: Scene) -> SessionKey:
    return await scene.attend(a_worker(kinds=()))


async def attended(scene: Scene, one: WebWorker, session: int | None = None) -> SessionKey:
    """The worker that a service is."""
    info = a_worker(id=one.worker, kinds=["work"])
    answer = await scene.store.attend(scene.dispatcher, info, session=session)
    assert isinstance(answer, Attended), answer
    return SessionKey(one.worker, answer.session)


async def lose(scene: Scene, slot: SessionKey, *, crash: bool = True) -> None:
    await scene.store.harvest(
        slot.worker, slot.session, "gone", crash=crash, crash_limit=CRASH_LIMIT
    )


async def shown(scene: Scene, id: UUID) -> WebWorker:
    [found] = await scene.store.web_workers([id])
    return found


async def test_a_registration_is_there_until_it_resigns(scene: Scene) -> None:
    one = await registered(scene, said(maxjobs := 8001, max_jobs=4, target="linux"))
    assert (one.state, one.gateway, one.registration.port) == (WebState.REGISTERED, None, maxjobs)
    assert await scene.store.web_workers() == [one]
    assert await scene.store.resign_web_worker(one.id) is not None
    assert await scene.store.resign_web_worker(one.id) is None
    assert (await shown(scene, one.id)).state is WebState.RESIGNED


async def test_a_repeat_of_an_id_or_of_an_instance_changes_nothing(scene: Scene) -> None:
    id, registration = new_id(), said(instance="run-1")
    first = await scene.store.register_web_worker(id, registration, MOST)
    again = await scene.store.register_web_worker(id, registration, MOST)
    other = await scene.store.register_web_worker(new_id(), registration, MOST)
    assert isinstance(first, WebRegistered)
    assert not first.existing
    for repeat in (again, other):
        assert isinstance(repeat, WebRegistered)
        assert repeat.existing
        assert repeat.web_worker == first.web_worker


async def test_the_same_address_again_replaces_the_service_and_frees_its_jobs(scene: Scene) -> None:
    old = await registered(scene)
    attempt = await scene.running(slot=await attended(scene, old))
    # It names no instance, so this may be a repeat: nobody can say that it died.
    answer = await scene.store.register_web_worker(new_id(), said(), MOST, CRASH_LIMIT)
    assert isinstance(answer, WebRegistered)
    assert answer.freed.requeued == 1
    job = await scene.job(attempt.id)
    assert (job.state, job.crashes) == (JobState.READY, 0)
    assert job.token != attempt.token
    assert (await shown(scene, old.id)).state is WebState.REPLACED
    assert answer.web_worker.number > old.number


async def test_a_job_that_kills_its_service_again_and_again_is_poisonous(scene: Scene) -> None:
    """Each time the service comes back under its address, and has not resigned."""
    poison, one = a_job(), await registered(scene, said(instance="0"))
    await scene.accepted(poison)
    for n in range(CRASH_LIMIT):
        assert await scene.claim(await attended(scene, one), *lanes_of([poison]))
        again = said(instance=str(n + 1))
        answer = await scene.store.register_web_worker(new_id(), again, MOST, CRASH_LIMIT)
        assert isinstance(answer, WebRegistered)
        one = answer.web_worker
    job = await scene.job(poison.id)
    assert (job.state, job.crashes) == (JobState.FAILED, CRASH_LIMIT)
    assert job.error is not None
    assert job.error.reason is Reason.POISONOUS


@pytest.mark.parametrize("how", ["resigned", "replaced", "as another worker"])
async def test_nobody_attends_the_worker_of_a_registration_that_has_ended(
    scene: Scene, how: str
) -> None:
    """Its READY may come late: a job that is given to it would wait for the end of its lease."""
    one = await registered(scene)
    if how == "resigned":
        await scene.store.resign_web_worker(one.id)
    elif how == "replaced":
        await registered(scene)
    else:
        gateway = await a_gateway(scene)
        [one] = await scene.store.adopt_web_workers(gateway.worker)
        note = WebNote(one.id, WebState.ALIVE, worker=new_id())
        await scene.store.note_web_workers(gateway.worker, [note])
    info = structs.replace(a_worker(id=one.worker, kinds=["work"]), service=one.id)
    assert isinstance(await scene.store.attend(scene.dispatcher, info), Gone)


async def test_a_service_that_resigns_while_it_is_attended_leaves_no_live_worker(
    scene: Scene,
) -> None:
    for port in range(8000, 8010):
        one = await registered(scene, said(port))
        info = structs.replace(a_worker(id=one.worker, kinds=["work"]), service=one.id)
        await asyncio.gather(
            scene.store.attend(scene.dispatcher, info), scene.store.resign_web_worker(one.id)
        )
    assert not [view for view in await scene.store.workers() if view.alive]


async def test_another_principal_may_not_replace_a_service(scene: Scene) -> None:
    one = await registered(scene, said(principal="mine", instance="a"))
    for instance in ("a", "b"):
        registration = said(principal="yours", instance=instance)
        answer = await scene.store.register_web_worker(new_id(), registration, MOST)
        assert isinstance(answer, Refused)
        assert answer.code == Conflict.code
    assert (await shown(scene, one.id)).state is WebState.REGISTERED


async def test_past_the_limit_registrations_are_refused_but_replacing_is_not(scene: Scene) -> None:
    await registered(scene, said(1))
    full = await scene.store.register_web_worker(new_id(), said(2), 1)
    assert isinstance(full, Refused)
    assert full.code == WrongState.code
    assert isinstance(await scene.store.register_web_worker(new_id(), said(1), 1), WebRegistered)


async def test_two_registrations_of_one_address_at_once_leave_one(scene: Scene) -> None:
    asked = [scene.store.register_web_worker(new_id(), said(), MOST) for _ in range(5)]
    answers = await asyncio.gather(*asked)
    assert all(isinstance(one, WebRegistered) for one in answers)
    states = [one.state for one in await scene.store.web_workers()]
    assert sorted(states) == sorted([WebState.REGISTERED, *[WebState.REPLACED] * 4])


async def test_a_service_is_adopted_by_one_gateway_only(scene: Scene) -> None:
    one = await registered(scene)
    gateways = [await a_gateway(scene) for _ in range(3)]
    found = await asyncio.gather(
        *[scene.store.adopt_web_workers(gateway.worker) for gateway in gateways]
    )
    [taken] = [some for some in found if some]
    assert [two.id for two in taken] == [one.id]
    assert taken[0].adoptions == 1
    holder = taken[0].gateway
    assert holder in {gateway.worker for gateway in gateways}
    for gateway in gateways:
        mine = (await scene.store.web_attendance(gateway.worker)).mine
        assert (one.id in mine) == (gateway.worker == holder)


async def test_gateways_share_services_and_the_one_with_fewest_comes_first(scene: Scene) -> None:
    first, second = [await a_gateway(scene) for _ in range(2)]
    for port in range(1, 5):
        await registered(scene, said(port))
    assert await scene.store.adopt_web_workers(second.worker, most=0) == []
    assert len(await scene.store.adopt_web_workers(first.worker)) == 2
    assert await scene.store.adopt_web_workers(first.worker) == []
    assert len(await scene.store.adopt_web_workers(second.worker)) == 2
    await registered(scene, said(9))
    await registered(scene, said(10))
    assert len(await scene.store.adopt_web_workers(first.worker)) == 1


async def test_a_gateway_that_is_not_alive_adopts_nothing(scene: Scene) -> None:
    await registered(scene)
    gateway = await a_gateway(scene)
    await lose(scene, gateway)
    assert await scene.store.adopt_web_workers(gateway.worker) == []
    assert await scene.store.adopt_web_workers(new_id()) == []


async def test_a_gateways_loss_lets_its_services_go_and_their_jobs_run_on(scene: Scene) -> None:
    one, gateway = await registered(scene), await a_gateway(scene)
    await scene.store.adopt_web_workers(gateway.worker)
    attempt = await scene.running(slot=await attended(scene, one))
    await lose(scene, gateway)
    assert (await shown(scene, one.id)).gateway is None
    job = await scene.job(attempt.id)
    assert (job.state, job.token, job.crashes) == (JobState.RUNNING, attempt.token, 0)
    successor = await a_gateway(scene)
    [adopted] = await scene.store.adopt_web_workers(successor.worker)
    assert (adopted.id, adopted.worker, adopted.adoptions) == (one.id, one.worker, 2)
    assert adopted.jobs == (attempt.id,)


async def test_a_gateway_that_was_lost_neither_notes_nor_steals_back(scene: Scene) -> None:
    one, gateway = await registered(scene), await a_gateway(scene)
    await scene.store.adopt_web_workers(gateway.worker)
    await lose(scene, gateway)
    successor = await a_gateway(scene)
    await scene.store.adopt_web_workers(successor.worker)
    await scene.store.note_web_workers(gateway.worker, [WebNote(one.id, WebState.REMOVED)])
    assert await scene.store.adopt_web_workers(gateway.worker) == []
    found = await shown(scene, one.id)
    assert (found.state, found.gateway) == (WebState.REGISTERED, successor.worker)


async def test_the_loss_of_a_service_without_a_gateway_is_no_crash(scene: Scene) -> None:
    one, gateway = await registered(scene), await a_gateway(scene)
    await scene.store.adopt_web_workers(gateway.worker)
    slot = await attended(scene, one)
    attempt = await scene.running(slot=slot)
    await lose(scene, gateway)
    await lose(scene, slot)
    job = await scene.job(attempt.id)
    assert (job.state, job.crashes) == (JobState.READY, 0)


async def test_the_loss_of_a_service_that_a_gateway_attends_is_a_crash(scene: Scene) -> None:
    one, gateway = await registered(scene), await a_gateway(scene)
    await scene.store.adopt_web_workers(gateway.worker)
    slot = await attended(scene, one)
    attempt = await scene.running(slot=slot)
    await lose(scene, slot)
    assert (await scene.job(attempt.id)).crashes == 1


async def test_what_a_gateway_finds_out_is_noted(scene: Scene) -> None:
    one, gateway, worker = await registered(scene), await a_gateway(scene), new_id()
    await scene.store.adopt_web_workers(gateway.worker)
    note = WebNote(one.id, WebState.DEAD, 3, "refused\x00", worker)
    await scene.store.note_web_workers(gateway.worker, [note])
    found = await shown(scene, worker)
    assert (found.id, found.state, found.failed_pings) == (one.id, WebState.DEAD, 3)
    assert found.last_error.startswith("refused")
    assert found.pinged_at is not None
    await scene.store.note_web_workers(gateway.worker, [WebNote(one.id, WebState.REMOVED)])
    assert (await scene.store.web_attendance(gateway.worker)).mine == frozenset()
    assert (await shown(scene, one.id)).worker == worker
