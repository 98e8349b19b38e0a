"""Claiming: in order, for live slots only, and never the same job twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

from longshore.core.lanes import lane_of
from longshore.model.ends import Cancelled, Crashed, Failed, Released, Succeeded
from longshore.model.job import JobState, Options, Submission
from longshore.model.worker import Claim, SessionKey
from longshore.ports import Batch, BatchResult
from longshore.testing.backends import Backend
from longshore.testing.builders import (
    Scene,
    a_claim,
    a_job,
    a_worker,
    done,
    lane,
    lanes_of,
    new_id,
    some_jobs,
)


async def test_claimed_attempt_carries_what_its_worker_needs(scene: Scene) -> None:
    job = a_job(kind="fetch", args=b"\x81\xa1a\x01", timeout_s=3, labels=("x",))
    [number] = await scene.accepted(job)
    slot = await scene.attend()
    [attempt] = await scene.claim(slot, *lanes_of([job]))
    assert (attempt.id, attempt.number) == (job.id, number)
    assert (attempt.kind, attempt.args) == ("fetch", job.args)
    assert attempt.options == Options(timeout_s=3, labels=("x",))
    assert (attempt.worker, attempt.session) == (slot.worker, slot.session)
    assert (attempt.attempt, attempt.failures, attempt.crashes) == (1, 0, 0)
    assert attempt.token > 0
    assert not attempt.cancelling


async def test_arguments_and_words_arrive_as_they_were_submitted(scene: Scene) -> None:
    odd = [b"", b"\0", b"\0\xff\xfe\0", bytes(range(256)) * 3, "ä".encode("utf-16"), b"\xc3"]
    kinds = ["", " ", "quote '\"\\", "new\nline", "\x01", "𝔘"]
    jobs = [
        a_job(
            kind=kind, queue=f"q{kind}", target=f"t{kind}", args=args, timeout_s=0.5, labels=(kind,)
        )
        for kind, args in zip(kinds, odd, strict=True)
    ]
    await scene.accepted(*jobs)
    claimed = await scene.claim(await scene.attend(), *lanes_of(jobs), most=9)
    expected = [(job.kind, job.args, job.options) for job in jobs]
    assert [(attempt.kind, attempt.args, attempt.options) for attempt in claimed] == expected


async def test_claimed_job_is_shown_as_running(scene: Scene) -> None:
    attempt = await scene.running()
    seen = await scene.job(attempt.id)
    assert seen.state is JobState.RUNNING
    assert (seen.worker, seen.token, seen.attempt) == (attempt.worker, attempt.token, 1)
    assert seen.started_at is not None
    assert seen.started_at >= seen.created_at
    last = seen.history[-1]
    assert (last.state, last.by) == (JobState.RUNNING, str(attempt.worker))


async def test_higher_priority_first_then_the_older(scene: Scene) -> None:
    priorities = [0, 5, -5, 0, 5, 32767, -32768]
    jobs = [a_job(priority=priority) for priority in priorities]
    await scene.accepted(*jobs)
    claimed = await scene.claim(await scene.attend(), most=10)
    expected = [jobs[index].id for index in (5, 1, 4, 0, 3, 2, 6)]
    assert [attempt.id for attempt in claimed] == expected


async def test_order_holds_across_lanes(scene: Scene) -> None:
    jobs = [
        a_job(kind=f"k{index % 3}", queue=f"q{index % 2}", priority=index * 7 % 4)
        for index in range(24)
    ]
    numbers = await scene.accepted(*jobs)
    order = {job.id: (-job.priority, number) for job, number in zip(jobs, numbers, strict=True)}
    slot = await scene.attend()
    claimed = await scene.claim(slot, *lanes_of(jobs), most=10)
    claimed += await scene.claim(slot, *lanes_of(jobs), most=100)
    assert [attempt.id for attempt in claimed] == sorted(order, key=order.__getitem__)


async def test_only_the_lanes_asked_for_are_served(scene: Scene) -> None:
    jobs = [a_job(kind="a"), a_job(queue="q"), a_job(target="t"), a_job()]
    await scene.accepted(*jobs)
    slot = await scene.attend()
    assert [one.id for one in await scene.claim(slot, lane(), most=9)] == [jobs[3].id]
    assert [one.id for one in await scene.claim(slot, lane(target="t"), 7, most=9)] == [jobs[2].id]
    assert await scene.states([jobs[0].id, jobs[1].id]) == [JobState.READY] * 2


async def test_never_more_than_the_slots(scene: Scene) -> None:
    await scene.accepted(*some_jobs(5))
    slot = await scene.attend()
    assert len(await scene.claim(slot, most=2)) == 2
    assert await scene.claim(slot, most=0) == []
    assert len(await scene.claim(slot, most=9)) == 3
    assert await scene.claim(slot, most=9) == []


async def test_slot_are_taken_in_order(scene: Scene) -> None:
    first, second = await scene.attend(), await scene.attend()
    slots = [first, second, second, first, first]
    jobs = some_jobs(4)
    await scene.accepted(*jobs)
    claimed = (await scene.pump(claims=[a_claim(slots)])).claimed
    assert [attempt.id for attempt in claimed] == [job.id for job in jobs]
    assert [attempt.worker for attempt in claimed] == [slot.worker for slot in slots[:4]]


async def test_slot_that_do_not_count_leave_no_gap(scene: Scene) -> None:
    """G2: a claim never lands on a worker that is dead, has moved, or is drained."""
    good, also_good = await scene.attend(), await scene.attend()
    draining = await scene.attend()
    await scene.store.set_draining(draining.worker, True)
    dead = await scene.attend()
    await scene.store.harvest(dead.worker, dead.session, "gone", crash=True, crash_limit=3)
    elsewhere = await Scene(scene.store).attend()
    info = a_worker()
    older = await scene.attend(info)
    await scene.attend(info)
    newer = SessionKey(good.worker, good.session + 1)
    unknown = SessionKey(new_id(), 1)
    bad = [draining, dead, elsewhere, older, newer, unknown]
    jobs = some_jobs(9)
    await scene.accepted(*jobs)
    assert (await scene.pump(claims=[a_claim(bad)])).claimed == []
    claimed = (await scene.pump(claims=[a_claim([*bad, good, *bad, also_good])])).claimed
    assert [attempt.id for attempt in claimed] == [jobs[0].id, jobs[1].id]
    assert [attempt.worker for attempt in claimed] == [good.worker, also_good.worker]


async def test_another_dispatcher_cannot_claim_for_my_worker(scene: Scene) -> None:
    """G2: a worker is attended by one dispatcher at a time."""
    slot = await scene.attend()
    await scene.accepted(a_job())
    assert await Scene(scene.store).claim(slot) == []
    assert len(await scene.claim(slot)) == 1


async def test_drained_worker_takes_again_when_resumed(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(a_job())
    assert await scene.store.set_draining(slot.worker, True)
    assert await scene.claim(slot) == []
    assert await scene.store.set_draining(slot.worker, False)
    assert len(await scene.claim(slot)) == 1


async def test_paused_queue_gives_nothing(scene: Scene) -> None:
    jobs = [a_job(queue="held"), a_job(queue="open")]
    await scene.accepted(*jobs)
    await scene.store.set_paused("held", True)
    slot = await scene.attend()
    assert [one.id for one in await scene.claim(slot, *lanes_of(jobs), most=9)] == [jobs[1].id]
    assert await scene.claim(slot, *lanes_of(jobs), most=9) == []
    await scene.store.set_paused("held", False)
    assert [one.id for one in await scene.claim(slot, *lanes_of(jobs), most=9)] == [jobs[0].id]


async def test_first_job_of_a_paused_queue_is_not_claimed_with_its_submit(scene: Scene) -> None:
    await scene.store.set_paused("fresh", True)
    slot, job = await scene.attend(), a_job(queue="fresh")
    pumped = await scene.pump(submits=[job], claims=[a_claim([slot], lane(queue="fresh"))])
    assert pumped.claimed == []


async def test_queue_paused_through_another_connection_is_seen_at_once(
    scene: Scene, backend: Backend
) -> None:
    slot = await scene.attend()
    await scene.accepted(*some_jobs(2))
    assert len(await scene.claim(slot)) == 1
    async with backend.opened() as other:
        await other.set_paused("default", True)
        assert await scene.claim(slot) == []
        await other.set_paused("default", False)
        assert len(await scene.claim(slot)) == 1


async def test_several_wants_are_served_in_order_and_none_twice(scene: Scene) -> None:
    slots = [await scene.attend() for _ in range(3)]
    a, b = [a_job(kind="a") for _ in range(3)], [a_job(kind="b") for _ in range(3)]
    await scene.accepted(*a, *b)
    pumped = await scene.pump(
        claims=[
            a_claim([slots[0]] * 2, lane(kind="a")),
            a_claim([slots[1]] * 2, lane(kind="a"), lane(kind="b")),
            a_claim([slots[2]] * 9, lane(kind="b"), lane(kind="a")),
        ]
    )
    expected = [(job.id, slots[0].worker) for job in a[:2]]
    expected += [(a[2].id, slots[1].worker), (b[0].id, slots[1].worker)]
    expected += [(job.id, slots[2].worker) for job in b[1:]]
    assert [(attempt.id, attempt.worker) for attempt in pumped.claimed] == expected


async def test_lane_named_twice_gives_each_job_once(scene: Scene) -> None:
    jobs = some_jobs(3)
    await scene.accepted(*jobs)
    slot = await scene.attend()
    claimed = await scene.claim(slot, lane(), lane(), lane(), most=9)
    assert [attempt.id for attempt in claimed] == [job.id for job in jobs]


async def test_want_without_lanes_or_slot_is_served_nothing(scene: Scene) -> None:
    await scene.accepted(a_job())
    slot = await scene.attend()
    claims = [Claim((), (slot,)), Claim((lane(),), ()), Claim((), ())]
    assert (await scene.pump(claims=claims)).claimed == []


async def test_job_submitted_in_the_batch_is_claimed_in_the_batch(scene: Scene) -> None:
    slot = await scene.attend()
    job = a_job(kind="new", queue="never seen")
    pumped = await scene.pump(submits=[job], claims=[a_claim([slot], *lanes_of([job]))])
    assert [attempt.id for attempt in pumped.claimed] == [job.id]
    assert await scene.state(job.id) is JobState.RUNNING


async def test_job_freed_by_a_finish_is_claimed_in_the_batch(scene: Scene) -> None:
    attempt = await scene.running()
    slot = await scene.attend()
    pumped = await scene.pump(finishes=[done(attempt, Released)], claims=[a_claim([slot])])
    [again] = pumped.claimed
    assert (again.id, again.worker, again.attempt) == (attempt.id, slot.worker, 2)
    assert again.token > attempt.token
    assert pumped.ready == {lane(): 1}


async def test_job_of_an_outbox_is_claimed_in_the_batch(scene: Scene) -> None:
    attempt = await scene.running()
    child = a_job()
    pumped = await scene.pump(
        finishes=[done(attempt, outbox=[child])],
        claims=[a_claim([SessionKey(attempt.worker, attempt.session)])],
    )
    assert [one.id for one in pumped.claimed] == [child.id]


async def test_attempt_and_token_grow_with_every_claim(scene: Scene) -> None:
    """G2: each attempt has a token of its own, and later ones are larger."""
    slot = await scene.attend()
    attempts = [await scene.running(slot=slot)]
    for _ in range(5):
        await scene.finish(done(attempts[-1], Released))
        attempts += await scene.claim(slot)
    assert [attempt.attempt for attempt in attempts] == [1, 2, 3, 4, 5, 6]
    assert all(a.token < b.token for a, b in pairwise(attempts))


async def test_tokens_of_a_batch_differ(scene: Scene) -> None:
    """G2: no two attempts share a token, also of different jobs."""
    await scene.accepted(*some_jobs(30))
    claimed = await scene.claim(await scene.attend(), most=30)
    assert len({attempt.token for attempt in claimed}) == 30


async def test_job_that_is_not_ready_is_never_claimed(scene: Scene) -> None:
    """G3: an ended job is not run again."""
    await scene.accepted(a_job(delay_s=60))
    for outcome in (Succeeded, Failed, Cancelled):
        await scene.ended(outcome)
    await scene.running()
    await scene.being_cancelled()
    assert await scene.claim(await scene.attend(), most=100) == []


async def test_concurrent_claims_never_share_a_job(scene: Scene, backend: Backend) -> None:
    """G2: two dispatchers can never hold the same job."""
    jobs = some_jobs(60)
    await scene.accepted(*jobs)
    async with backend.opened() as second, backend.opened() as third:
        scenes = [scene, Scene(second), Scene(third)]
        slots = [await one.attend() for one in scenes]
        turns = [
            one.claim(slot, most=2)
            for _ in range(10)
            for one, slot in zip(scenes, slots, strict=True)
        ]
        answers = await asyncio.gather(*turns)
        claimed = [attempt.id for answer in answers for attempt in answer]
        left = [attempt.id for attempt in await scene.claim(slots[0], most=60)]
    assert sorted([*claimed, *left]) == sorted(job.id for job in jobs)


async def test_concurrent_batches_of_one_store_all_take_effect(scene: Scene) -> None:
    slot = await scene.attend()
    groups: list[list[Submission]] = [some_jobs(5) for _ in range(8)]
    batches = [Batch(submits=group, claims=[a_claim([slot] * 5)]) for group in groups]
    answers = await asyncio.gather(
        *(scene.store.pump(scene.dispatcher, batch) for batch in batches)
    )
    claimed = [attempt.id for answer in answers for attempt in answer.claimed]
    left = [attempt.id for attempt in await scene.claim(slot, most=40)]
    assert sorted([*claimed, *left]) == sorted(job.id for group in groups for job in group)


async def test_a_pump_tells_how_many_jobs_it_took_from_which_lane(scene: Scene) -> None:
    """A dispatcher that believes a lane empty does not look into it again for a while."""
    kinds = ["fetch", "fetch", "fetch", "resize", "mail"]
    jobs = [a_job(kind=kind) for kind in kinds]
    await scene.accepted(*jobs)
    fetch, resize, mail = (lane_of("default", kind, "").hash for kind in dict.fromkeys(kinds))
    slot = await scene.attend()
    claims = [Claim((fetch,), (slot, slot)), Claim((resize, mail), (slot,) * 5)]
    pumped = await scene.store.pump(scene.dispatcher, Batch(claims=claims))
    assert dict(pumped.taken) == {fetch: 2, resize: 1, mail: 1}
    again = await scene.store.pump(scene.dispatcher, Batch(claims=claims))
    assert dict(again.taken) == {fetch: 1}


async def test_a_claim_stops_with_the_job_that_fills_it_with_bytes_and_says_that_more_is_left(
    scene: Scene,
) -> None:
    """What one transaction reads is bounded, whatever slots are free."""
    large = [a_job(args=bytes(1000)) for _ in range(5)]
    other = a_job(kind="other")
    await scene.accepted(*large, other)
    slot = await scene.attend()
    one, two = lanes_of(large), lanes_of([other])
    claims = [a_claim([slot] * 9, *one), a_claim([slot] * 9, *two)]
    first = await scene.store.pump(scene.dispatcher, Batch(claims=claims, max_bytes=2500))
    assert [attempt.id for attempt in first.claimed] == [job.id for job in large[:3]]
    assert first.contested == frozenset(one + two)
    assert first.taken == {one[0]: 3}
    second = await scene.store.pump(scene.dispatcher, Batch(claims=claims, max_bytes=2500))
    assert {attempt.id for attempt in second.claimed} == {job.id for job in [*large[3:], other]}
    assert second.contested == frozenset()


async def test_a_job_that_is_larger_than_a_batch_is_claimed_by_itself(scene: Scene) -> None:
    jobs = [a_job(args=bytes(1000)) for _ in range(2)]
    await scene.accepted(*jobs)
    slot = await scene.attend()
    batch = Batch(claims=[a_claim([slot] * 2, *lanes_of(jobs))], max_bytes=10)
    for job in jobs:
        pumped = await scene.store.pump(scene.dispatcher, batch)
        assert [attempt.id for attempt in pumped.claimed] == [job.id]


# ahead of free slots


async def ahead(scene: Scene, slots: Sequence[SessionKey], *lanes: int) -> BatchResult:
    """A claim ahead that names all lanes; of these lanes jobs may be held ahead."""
    every = (lane(kind="a"), lane(kind="b"))
    return await scene.pump(claims=[Claim(every, tuple(slots), frozenset(lanes or every))])


async def crashed(scene: Scene, kind: str) -> UUID:
    """A ready job whose worker died once."""
    attempt = await scene.running(a_job(kind=kind))
    await scene.finish(done(attempt, Crashed))
    return attempt.id


async def test_a_claim_ahead_takes_what_may_be_held_in_order(scene: Scene) -> None:
    jobs = [a_job(kind=kind) for kind in "abab"]
    await scene.accepted(*jobs)
    slot = await scene.attend(kinds="ab")
    result = await ahead(scene, [slot] * 9)
    assert [one.id for one in result.claimed] == [job.id for job in jobs]
    assert result.barred == frozenset()


async def test_a_claim_ahead_stops_before_a_job_with_a_crash_behind_it(scene: Scene) -> None:
    """It runs only on a free slot: then a loss of its worker blames it for certain."""
    first = a_job(kind="a", priority=1)
    suspect = await crashed(scene, "a")
    await scene.accepted(first, *some_jobs(3, "a"))
    slot = await scene.attend(kinds="ab")
    result = await ahead(scene, [slot] * 3)
    assert [one.id for one in result.claimed] == [first.id]
    assert result.barred == {lane(kind="a"), lane(kind="b")}
    assert result.contested == frozenset()
    [given] = await scene.claim(slot, lane(kind="a"))
    assert given.id == suspect
    assert len((await ahead(scene, [slot] * 3)).claimed) == 3


async def test_a_claim_ahead_stops_before_a_job_of_a_lane_that_may_not_be_held(
    scene: Scene,
) -> None:
    """Otherwise no slot would come free for it while others keep coming."""
    short, long, later = a_job(kind="a"), a_job(kind="b"), a_job(kind="a")
    await scene.accepted(short, long, later)
    slot = await scene.attend(kinds="ab")
    result = await ahead(scene, [slot] * 3, lane(kind="a"))
    assert [one.id for one in result.claimed] == [short.id]
    assert result.barred
    claimed = await scene.claim(slot, lane(kind="a"), lane(kind="b"), most=3)
    assert [one.id for one in claimed] == [long.id, later.id]


async def test_a_claim_ahead_heeds_a_paused_queue(scene: Scene) -> None:
    await scene.accepted(a_job(kind="a"), a_job(kind="b"))
    await scene.store.set_paused("default", True)
    slot = await scene.attend(kinds="ab")
    result = await ahead(scene, [slot] * 3, lane(kind="a"))
    assert (result.claimed, result.barred) == ([], frozenset())


async def test_a_claim_for_free_slots_takes_any_job(scene: Scene) -> None:
    await crashed(scene, "a")
    await scene.accepted(a_job(kind="b"))
    slot = await scene.attend(kinds="ab")
    claimed = await scene.claim(slot, lane(kind="a"), lane(kind="b"), most=3)
    assert [one.crashes for one in claimed] == [1, 0]
