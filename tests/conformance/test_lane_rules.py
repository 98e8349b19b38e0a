"""Rules for kinds and queues: they hold for all jobs of a lane, whatever keys these name."""

from __future__ import annotations

import pytest

from longshore.dispatcher.lane_depths import lane_depths
from longshore.model.ends import Cancelled, End
from longshore.model.job import JobState, Submission
from longshore.model.limits import JobLimit, LimitRule, Rate
from longshore.model.waited import WaitCause
from longshore.model.worker import Claim
from longshore.testing.backends import Backend
from longshore.testing.builders import ENDS, Scene, a_claim, a_job, done, lane

READY, RUNNING = JobState.READY, JobState.RUNNING
KIND, QUEUE = "kind=work", "queue=default"


def jobs_of(number: int, kind: str = "work", queue: str = "default") -> list[Submission]:
    return [a_job(kind=kind, queue=queue) for _ in range(number)]


@pytest.mark.parametrize("key", [KIND, QUEUE])
async def test_a_rule_holds_at_once_for_jobs_that_were_submitted_before(
    scene: Scene, key: str
) -> None:
    slot = await scene.attend()
    jobs = jobs_of(6)
    await scene.accepted(*jobs)
    await scene.store.set_limit(LimitRule(key, 2))
    first = await scene.pump(claims=[a_claim([slot] * 5)])
    assert [one.id for one in first.claimed] == [job.id for job in jobs[:2]]
    assert first.closed == {lane()}
    assert await scene.claim(slot, most=5) == []
    freed = await scene.pump([done(first.claimed[0])])
    assert freed.ready[lane()] >= 1
    assert [one.id for one in await scene.claim(slot, most=5)] == [jobs[2].id]
    assert (await scene.store.limit_key(key)).held == 2


@pytest.mark.parametrize("how", ENDS)
async def test_every_way_to_end_an_attempt_frees_its_place(scene: Scene, how: type[End]) -> None:
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule(KIND, 1))
    await scene.accepted(*jobs_of(2))
    [one] = await scene.claim(slot, most=2)
    pumped = await scene.pump([done(one, how, delay_s=60)], claims=[a_claim([slot] * 2)])
    assert len(pumped.claimed) == 1
    view = await scene.store.limit_key(KIND)
    assert (view.held, view.holders) == (1, (pumped.claimed[0].number,))


async def test_a_job_needs_room_of_its_kind_its_queue_and_its_own_keys(scene: Scene) -> None:
    slot = await scene.attend(kinds=["work", "other"])
    both = lane(), lane(kind="other")
    await scene.store.set_limit(LimitRule(KIND, 2))
    await scene.store.set_limit(LimitRule(QUEUE, 3))
    mine = [a_job(limits=(JobLimit("t=a", 1),)) for _ in range(2)]
    await scene.accepted(*mine, *jobs_of(2), *jobs_of(3, kind="other"))
    claimed = await scene.claim(slot, *both, most=9)
    assert [one.kind for one in claimed] == ["work", "work", "other"]
    assert [one.id for one in claimed[:1]] == [mine[0].id]
    assert (await scene.store.limit_key(QUEUE)).held == 3
    await scene.finish(done(claimed[2]))
    assert [one.kind for one in await scene.claim(slot, *both, most=9)] == ["other"]
    await scene.finish(done(claimed[1]))
    # The second of its key must wait still, and the job after it goes first.
    [last] = await scene.claim(slot, *both, most=9)
    assert (last.kind, last.options.limits) == ("work", ())


async def test_the_most_specific_rule_of_a_queue_wins_and_counts_each_queue(scene: Scene) -> None:
    slot = await scene.attend()
    lanes = [lane(queue=f"mail-{name}") for name in "abc"]
    await scene.store.set_limit(LimitRule("queue=mail-*", 2))
    await scene.store.set_limit(LimitRule("queue=mail-b", 1))
    for name in "abc":
        await scene.accepted(*jobs_of(4, queue=f"mail-{name}"))
    claimed = await scene.claim(slot, *lanes, most=12)
    assert len(claimed) == 5
    held = [(await scene.store.limit_key(f"queue=mail-{name}")).held for name in "abc"]
    assert held == [2, 1, 2]


async def test_what_began_before_the_rule_counts_and_a_removed_rule_lets_all_begin(
    scene: Scene,
) -> None:
    slot = await scene.attend()
    await scene.accepted(*jobs_of(9))
    running = await scene.claim(slot, most=4)
    await scene.store.set_limit(LimitRule(QUEUE, 3))
    assert await scene.claim(slot, most=9) == []
    await scene.finish(*map(done, running[:2]))
    assert len(await scene.claim(slot, most=9)) == 1
    await scene.store.set_limit(LimitRule(QUEUE, 5))
    assert (await scene.store.open_limits()).ready.keys() == {lane()}
    assert len(await scene.claim(slot, most=9)) == 2
    await scene.store.set_limit(LimitRule(QUEUE, 0))
    assert await scene.claim(slot, most=9) == []
    assert await scene.store.remove_limit(QUEUE)
    assert len(await scene.claim(slot, most=9)) == 2


async def test_jobs_of_a_limited_lane_start_by_a_claim_only(scene: Scene) -> None:
    slot = await scene.attend(kinds=["work", "other"])
    await scene.store.set_limit(LimitRule(KIND, 1))
    job, free = a_job(), a_job(kind="other")
    pumped = await scene.pump(submits=[job, free], slots=[slot, slot])
    assert [one.id for one in pumped.started] == [free.id]
    assert await scene.states([job.id, free.id]) == [READY, RUNNING]
    assert [one.id for one in (await scene.pump(submits=[a_job()], slots=[slot])).started] == []


async def test_jobs_of_a_limited_lane_are_not_held_ahead(scene: Scene) -> None:
    slot = await scene.attend(kinds=["work", "other"])
    await scene.store.set_limit(LimitRule(KIND, 5))
    free, job = a_job(kind="other"), a_job()
    await scene.accepted(free, job, a_job(kind="other"))
    both = lane(), lane(kind="other")
    pumped = await scene.pump(claims=[Claim(both, (slot,) * 3, frozenset(both))])
    assert [one.id for one in pumped.claimed] == [free.id]
    assert pumped.barred == {*both}


async def test_a_full_lane_holds_back_no_other_and_moves_no_job(scene: Scene) -> None:
    slot = await scene.attend(kinds=["work", "other"])
    await scene.store.set_limit(LimitRule(KIND, 1))
    await scene.accepted(*jobs_of(40))
    free = jobs_of(2, kind="other")
    await scene.accepted(*free)
    both = lane(), lane(kind="other")
    claimed = await scene.claim(slot, *both, most=3)
    assert [one.id for one in claimed[1:]] == [job.id for job in free]
    opened = await scene.store.open_limits()
    assert opened.ready == {}, "no room, and nothing waits behind a key"
    assert await scene.store.remove_limit(KIND)
    assert len(await scene.claim(slot, most=50)) == 39


async def test_what_a_closed_lane_waits_is_told_of_its_queue_and_not_of_a_key(scene: Scene) -> None:
    """No job is put behind anything, so a job tells of a slot: in every store."""
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule(QUEUE, 1))
    jobs = jobs_of(3)
    await scene.accepted(*jobs)
    [first] = await scene.claim(slot, most=3)
    [one] = await lane_depths(scene.store)
    assert (one.counts[READY], one.behind) == (2, 2), "its queue is full"
    waiting = await scene.job(jobs[1].id)
    assert [part.cause for part in waiting.waited] == [WaitCause.SLOT]
    await scene.finish(done(first))
    [one] = await lane_depths(scene.store)
    assert one.behind == 0
    [second] = await scene.claim(slot, most=3)
    over = await scene.job(second.id)
    assert {part.cause for part in over.waited} == {WaitCause.SLOT}
    view = await scene.store.limit_key(QUEUE)
    assert (view.stays, view.waited_s) == (0, 0)


async def test_a_rate_that_is_spent_holds_its_lanes_back(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule(KIND, rate=Rate(1, 3600.0, 1)))
    await scene.accepted(*jobs_of(3))
    assert [one.behind for one in await lane_depths(scene.store)] == [0]
    assert len(await scene.claim(slot, most=3)) == 1
    assert [one.behind for one in await lane_depths(scene.store)] == [2]


async def test_a_lost_workers_places_return(scene: Scene) -> None:
    gone, slot = await scene.attend(), await scene.attend()
    await scene.store.set_limit(LimitRule(QUEUE, 2))
    await scene.accepted(*jobs_of(3))
    assert len(await scene.claim(gone, most=3)) == 2
    assert await scene.claim(slot, most=3) == []
    await scene.store.harvest(gone.worker, gone.session, "gone", crash=False, crash_limit=3)
    assert (await scene.store.open_limits()).ready.keys() == {lane()}
    assert len(await scene.claim(slot, most=3)) == 2


async def test_an_attempt_that_is_being_cancelled_keeps_its_place(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule(KIND, 1))
    jobs = jobs_of(2)
    await scene.accepted(*jobs)
    [one] = await scene.claim(slot, most=2)
    await scene.store.cancel([one.id])
    assert await scene.claim(slot, most=2) == []
    await scene.finish(done(one, Cancelled, forced=True))
    assert [two.id for two in await scene.claim(slot, most=2)] == [jobs[1].id]


async def test_a_kinds_rule_counts_jobs_that_name_the_key_and_those_that_do_not_once(
    scene: Scene,
) -> None:
    """`Limit(3)` without a key names kind=work, which means the same as the rule for it."""
    slot = await scene.attend()
    named = [a_job(limits=(JobLimit(KIND, 1),)) for _ in range(4)]
    await scene.accepted(*named)
    assert len(await scene.claim(slot, most=9)) == 1, "by what the job says"
    await scene.accepted(*jobs_of(4))
    assert len(await scene.claim(slot, most=1)) == 1, "without a rule those without the key run"
    await scene.store.set_limit(LimitRule(KIND, 4))
    await scene.store.open_limits()
    assert len(await scene.claim(slot, most=9)) == 2
    view = await scene.store.limit_key(KIND)
    assert (view.held, view.concurrency, view.pattern) == (4, 4, KIND)
    foreign = a_job(kind="other", limits=(JobLimit(KIND),))
    await scene.accepted(foreign)
    other = await scene.attend(kinds=["other"])
    assert await scene.claim(other, lane(kind="other"), most=2) == [], "it names a key that is full"


async def test_a_rate_of_a_queue_is_exact_and_says_when_the_next_may_begin(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule(QUEUE, rate=Rate(1, 3600.0, 3)))
    await scene.accepted(*jobs_of(6))
    pumped = await scene.pump(claims=[a_claim([slot] * 2)])
    assert len(pumped.claimed) == 2
    pumped = await scene.pump(claims=[a_claim([slot] * 4)])
    assert len(pumped.claimed) == 1
    assert pumped.limits_open_s is not None
    assert 3000 < pumped.limits_open_s <= 3600
    assert pumped.closed == {lane()}
    opened = await scene.store.open_limits()
    assert opened.ready == {}
    assert opened.next_s is not None
    assert 3000 < opened.next_s <= 3600
    view = await scene.store.limit_key(QUEUE)
    assert (view.held, view.next_s is not None and view.next_s > 3000) == (3, True)


async def test_a_queue_that_has_no_lane_yet_can_have_a_rule(scene: Scene) -> None:
    await scene.store.set_limit(LimitRule("queue=new", 1))
    slot = await scene.attend()
    pumped = await scene.pump(submits=jobs_of(2, queue="new"), slots=[slot, slot])
    assert pumped.started == []
    assert len(await scene.claim(slot, lane(queue="new"), most=2)) == 1


async def test_a_paused_queue_stays_paused_whatever_its_rule(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule(QUEUE, 3))
    await scene.accepted(*jobs_of(2))
    await scene.store.set_paused("default", True)
    assert await scene.claim(slot, most=2) == []
    await scene.store.set_paused("default", False)
    assert len(await scene.claim(slot, most=2)) == 2


async def test_jobs_of_a_limited_lane_expire_and_take_no_room(
    scene: Scene, backend: Backend
) -> None:
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule(KIND, 1))
    late, good = a_job(expires_s=30), a_job(expires_s=60)
    await scene.accepted(*jobs_of(1), late, good)
    [one] = await scene.claim(slot, most=3)
    await backend.pass_time(31)
    await scene.finish(done(one))
    assert [two.id for two in await scene.claim(slot, most=3)] == [good.id]


async def test_rows_of_keys_may_be_forgotten_while_their_jobs_run(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule(KIND, 1))
    await scene.accepted(*jobs_of(3))
    [one] = await scene.claim(slot, most=3)
    await scene.store.forget_lanes()
    # The first claim may find that the row of the key is gone.
    for _ in range(2):
        assert await scene.claim(slot, most=3) == []
    await scene.finish(done(one))
    await scene.store.forget_lanes()
    running = await scene.claim(slot, most=3) or await scene.claim(slot, most=3)
    assert len(running) == 1
