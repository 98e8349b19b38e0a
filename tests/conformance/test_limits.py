"""Limits: never more jobs of a key than it lets, whatever dies; and no slot is lost."""

from __future__ import annotations

import pytest

from longshore.model.ends import Cancelled, End, Failed, NotBegun, Released, Retried, Succeeded
from longshore.model.job import JobFilter, JobState, Submission
from longshore.model.limits import JobLimit, LimitRule, Rate
from longshore.model.worker import Claim
from longshore.testing.backends import Backend
from longshore.testing.builders import ENDS, Scene, a_claim, a_job, done, lane, lanes_of

READY, RUNNING = JobState.READY, JobState.RUNNING


def limited(
    number: int, *limits: JobLimit, kind: str = "work", priority: int = 0
) -> list[Submission]:
    return [a_job(kind=kind, limits=limits, priority=priority) for _ in range(number)]


TWO = JobLimit("tenant=a", 2)


async def test_no_more_jobs_of_a_key_run_than_it_lets(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = limited(5, TWO)
    await scene.accepted(*jobs)
    first = await scene.claim(slot, most=5)
    assert [one.id for one in first] == [job.id for job in jobs[:2]]
    assert await scene.claim(slot, most=5) == []
    freed = await scene.pump([done(first[0])])
    assert sum(freed.ready.values()) == 1, "as many are claimed again as may start"
    assert [one.id for one in await scene.claim(slot, most=5)] == [jobs[2].id]


async def test_jobs_of_many_keys_are_stored_each_with_its_own_words(scene: Scene) -> None:
    """Some differ in all that jobs of one batch may share, others in nothing but their keys."""
    slot = await scene.attend(kinds=["work", "other"])
    jobs = [
        a_job(
            kind="other" if at % 3 else "work",
            queue="default" if at % 5 else "slow",
            priority=at % 2,
            args=bytes([0x91, at % 100]),
            timeout_s=60.0 + at if at % 7 else None,
            labels=(f"n={at}",) if at % 2 else (),
            limits=(JobLimit(f"tenant={at}", 1 + at % 3),),
        )
        for at in range(80)
    ]
    numbers = await scene.accepted(*jobs)
    assert numbers == sorted(numbers)
    claimed = await scene.claim(slot, *lanes_of(jobs), most=80)
    assert [one.priority for one in claimed] == [1] * 40 + [0] * 40
    wanted = {job.id: job for job in jobs}
    for one in claimed:
        job = wanted[one.id]
        assert (one.kind, one.args, one.options) == (job.kind, job.args, job.options)
        assert one.priority == job.priority
        found = await scene.store.job(one.id)
        assert found is not None
        assert (found.queue, found.options.timeout_s) == (job.queue, job.options.timeout_s)
        key = job.options.limits[0].key
        assert (await scene.store.limit_key(key)).holders == (one.number,)


async def test_jobs_behind_a_key_hold_back_no_others(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(40, TWO))
    other, free = a_job(limits=(JobLimit("tenant=b", 1),)), a_job()
    await scene.accepted(other, free)
    claimed = await scene.claim(slot, most=4)
    assert [one.id for one in claimed[2:]] == [other.id, free.id]


async def test_a_finish_and_the_next_start_are_one_transaction(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(3, JobLimit("t=a", 1)))
    [one] = await scene.claim(slot, most=3)
    for left in (1, 1, 0):
        pumped = await scene.pump([done(one)], claims=[a_claim([slot] * 3)])
        assert len(pumped.claimed) == left
        one = pumped.claimed[0] if pumped.claimed else one


@pytest.mark.parametrize("how", ENDS)
async def test_every_way_to_end_an_attempt_frees_its_slot(scene: Scene, how: type[End]) -> None:
    slot = await scene.attend()
    key = JobLimit(f"how={how.__name__}", 1)
    jobs = limited(2, key)
    await scene.accepted(*jobs)
    [one] = await scene.claim(slot, most=2)
    await scene.pump([done(one, how, delay_s=60)])
    claimed = await scene.claim(slot, most=2)
    assert len(claimed) == 1
    assert (await scene.store.limit_key(key.key)).holders == (claimed[0].number,)


async def test_a_lost_workers_slots_return(scene: Scene) -> None:
    gone, slot = await scene.attend(), await scene.attend()
    jobs = limited(3, TWO)
    await scene.accepted(*jobs)
    assert len(await scene.claim(gone, most=3)) == 2
    assert await scene.claim(slot, most=3) == []
    await scene.store.harvest(gone.worker, gone.session, "gone", crash=False, crash_limit=3)
    await scene.store.open_limits()
    assert [one.id for one in await scene.claim(slot, most=3)] == [job.id for job in jobs[:2]]


async def test_a_cancel_that_is_forced_returns_the_slot(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = limited(2, JobLimit("t=a", 1))
    await scene.accepted(*jobs)
    [one] = await scene.claim(slot, most=2)
    await scene.store.cancel([one.id])
    assert await scene.claim(slot, most=2) == [], "it is being cancelled, and still runs"
    await scene.finish(done(one, Cancelled, forced=True))
    assert [two.id for two in await scene.claim(slot, most=2)] == [jobs[1].id]


async def test_an_end_that_is_repeated_frees_nothing_twice(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(4, JobLimit("t=a", 1)))
    [one] = await scene.claim(slot, most=4)
    await scene.finish(done(one))
    [two] = await scene.claim(slot, most=4)
    await scene.finish(done(one))
    await scene.store.open_limits()
    assert await scene.claim(slot, most=4) == []
    view = await scene.store.limit_key("t=a")
    assert (view.held, view.holders, view.is_waited_for) == (1, (two.number,), True)


async def test_a_job_needs_room_of_all_its_keys(scene: Scene) -> None:
    slot = await scene.attend()
    both = limited(2, JobLimit("t=a", 1), JobLimit("u=b", 2))
    await scene.accepted(*both, *limited(2, JobLimit("u=b", 2)))
    claimed = await scene.claim(slot, most=4)
    assert len(claimed) == 2
    assert claimed[0].id == both[0].id
    await scene.finish(done(claimed[1]))
    assert len(await scene.claim(slot, most=4)) == 1
    await scene.finish(done(claimed[0]))
    assert [one.id for one in await scene.claim(slot, most=4)] == [both[1].id]


async def test_a_rule_goes_before_what_jobs_bring_and_holds_for_the_backlog(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(9, TWO))
    assert len(await scene.claim(slot, most=9)) == 2
    await scene.store.set_limit(LimitRule("tenant=*", 3))
    await scene.store.open_limits()
    assert len(await scene.claim(slot, most=9)) == 1
    await scene.store.set_limit(LimitRule("tenant=a", 5))
    await scene.store.open_limits()
    running = await scene.claim(slot, most=9)
    assert len(running) == 2
    await scene.store.set_limit(LimitRule("tenant=a", 1))
    await scene.finish(*map(done, running))
    await scene.store.open_limits()
    assert await scene.claim(slot, most=9) == [], "three run still"
    assert [rule.pattern for rule in await scene.store.limit_rules()] == ["tenant=*", "tenant=a"]
    assert await scene.store.remove_limit("tenant=a")
    assert not await scene.store.remove_limit("tenant=a")
    view = await scene.store.limit_key("tenant=a")
    assert (view.concurrency, view.pattern, view.held) == (3, "tenant=*", 3)


async def test_a_rule_counts_what_began_before_it(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(3, JobLimit("tenant=a")))
    assert len(await scene.claim(slot, most=2)) == 2
    await scene.store.set_limit(LimitRule("tenant=a", 2))
    assert await scene.claim(slot, most=1) == []


async def test_jobs_wait_in_order_and_new_ones_behind_them(scene: Scene) -> None:
    slot = await scene.attend()
    key = JobLimit("t=a", 1)
    old = limited(2, key)
    await scene.accepted(*old)
    [one] = await scene.claim(slot, most=2)
    new, urgent = limited(1, key), limited(1, key, priority=5)
    await scene.accepted(*new)
    await scene.accepted(*urgent)
    order = []
    for _ in range(3):
        await scene.finish(done(one))
        [one] = await scene.claim(slot, most=4)
        order.append(one.id)
    assert order == [urgent[0].id, old[1].id, new[0].id]


async def test_every_lane_behind_a_key_gets_its_chance(scene: Scene) -> None:
    """A lane that nobody serves must not keep the room of a key from others."""
    slot = await scene.attend()
    key = JobLimit("t=a", 1)
    await scene.accepted(*limited(1, key))
    [one] = await scene.claim(slot)
    await scene.accepted(*limited(3, key, kind="unserved"))
    mine = limited(1, key)
    await scene.accepted(*mine)
    assert await scene.claim(slot, lane(), lane(kind="unserved"), most=5) == []
    await scene.finish(done(one))
    assert [two.id for two in await scene.claim(slot, most=5)] == [mine[0].id]


async def test_a_job_with_limits_starts_by_a_claim_only(scene: Scene) -> None:
    slot = await scene.attend()
    job, free = a_job(limits=(TWO,)), a_job()
    pumped = await scene.pump(submits=[job, free], slots=[slot, slot])
    assert [one.id for one in pumped.started] == [free.id]
    assert await scene.states([job.id, free.id]) == [READY, RUNNING]
    assert [one.options for one in await scene.claim(slot, most=2)] == [job.options]


async def test_a_job_with_limits_is_not_held_ahead(scene: Scene) -> None:
    slot = await scene.attend()
    free, job = a_job(), a_job(limits=(TWO,))
    await scene.accepted(free, job, a_job())
    ahead = Claim((lane(),), (slot,) * 3, frozenset({lane()}))
    pumped = await scene.pump(claims=[ahead])
    assert [one.id for one in pumped.claimed] == [free.id]
    assert pumped.barred == {lane()}


async def test_jobs_behind_keys_are_listed_cancelled_and_retried_like_others(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = limited(3, JobLimit("t=a", 1))
    await scene.accepted(*jobs)
    await scene.claim(slot, most=3)
    page = await scene.store.jobs(JobFilter(states=(READY,)))
    assert {job.id for job in page.jobs} == {job.id for job in jobs[1:]}
    await scene.store.cancel([jobs[1].id])
    assert await scene.state(jobs[1].id) is JobState.CANCELLED
    await scene.store.retry([jobs[1].id])
    await scene.store.open_limits()
    assert await scene.claim(slot, most=3) == []
    [queue] = await scene.store.queues()
    assert {state: n for state, n in queue.counts.items() if n} == {READY: 2, RUNNING: 1}


async def test_a_rate_lets_its_burst_begin_and_says_when_the_next_may(scene: Scene) -> None:
    slot = await scene.attend()
    key = JobLimit("t=a", rate=Rate(1, 3600.0, 2))
    await scene.accepted(*limited(4, key))
    pumped = await scene.pump(claims=[a_claim([slot] * 4)])
    assert len(pumped.claimed) == 2
    assert pumped.limits_open_s is not None
    assert 3000 < pumped.limits_open_s <= 3600
    await scene.finish(*map(done, pumped.claimed))
    assert await scene.claim(slot, most=4) == [], "an end brings no room to a rate"
    opened = await scene.store.open_limits()
    assert not opened.ready
    assert opened.next_s is not None
    assert 3000 < opened.next_s <= 3600
    view = await scene.store.limit_key("t=a")
    assert (view.rate, view.held, view.is_waited_for) == (key.rate, 0, True)
    await scene.store.set_limit(LimitRule("t=a", 5))
    assert sum((await scene.store.open_limits()).ready.values()) == 2
    assert len(await scene.claim(slot, most=4)) == 2


async def test_a_rate_that_has_room_again_lets_the_next_begin(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(3, JobLimit("t=a", rate=Rate(1000, 1.0))))
    begun = 0
    while begun < 3:
        begun += len(await scene.claim(slot, most=3))
        await scene.store.open_limits()


async def test_keys_are_opened_a_piece_at_a_time(scene: Scene) -> None:
    slot = await scene.attend()
    keys = [JobLimit(f"t={name}", 1) for name in "abc"]
    await scene.accepted(*(a_job(limits=(key,)) for key in keys for _ in range(2)))
    running = await scene.claim(slot, most=6)
    assert len(running) == 3
    await scene.store.harvest(slot.worker, slot.session, "gone", crash=False, crash_limit=3)
    after, pieces = "", 0
    while True:
        opened = await scene.store.open_limits(after, most=1)
        pieces += 1
        after = opened.after
        if not after:
            break
    other = await scene.attend()
    assert len(await scene.claim(other, most=6)) == 3


async def test_ways_back_to_ready_keep_to_the_limit(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(2, JobLimit("t=a", 1)))
    [one] = await scene.claim(slot, most=2)
    for how in (Released, NotBegun, Retried, Failed, Succeeded):
        await scene.finish(done(one, how))
        if how is Retried:
            await scene.store.promote()
        found = await scene.claim(slot, most=2)
        assert len(found) == 1, how
        [one] = found
        if how is Failed:
            break


async def test_keys_are_forgotten_when_nothing_holds_them_and_come_back(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(3, JobLimit("t=a", 1)))
    [one] = await scene.claim(slot, most=3)
    await scene.store.forget_lanes()
    assert await scene.claim(slot, most=3) == []
    await scene.finish(done(one))
    await scene.store.forget_lanes()
    # The first may find that the row of the key is gone.
    running = await scene.claim(slot, most=3) or await scene.claim(slot, most=3)
    assert len(running) == 1
    assert await scene.claim(slot, most=3) == []
    assert (await scene.store.limit_key("t=a")).held == 1


async def test_a_key_says_since_when_it_is_full(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(3, TWO))
    await scene.claim(slot)
    assert (await scene.store.limit_key("tenant=a")).full_s is None
    await scene.claim(slot)
    first = (await scene.store.limit_key("tenant=a")).full_s
    assert first is not None
    await scene.store.set_limit(LimitRule("tenant=a", 1))
    ruled = (await scene.store.limit_key("tenant=a")).full_s
    assert ruled is not None
    assert ruled >= 0
    await scene.store.set_limit(LimitRule("tenant=a", 3))
    assert (await scene.store.limit_key("tenant=a")).full_s is None


async def test_jobs_behind_a_key_expire_and_let_others_go_first(
    scene: Scene, backend: Backend
) -> None:
    slot = await scene.attend()
    key = JobLimit("t=a", 1)
    late, good = a_job(limits=(key,), expires_s=30), a_job(limits=(key,), expires_s=60)
    await scene.accepted(*limited(1, key), late, good)
    [one] = await scene.claim(slot, most=3)
    assert (await scene.store.limit_key("t=a")).is_waited_for
    await backend.pass_time(31)
    await scene.pump([done(one)])
    assert [two.id for two in await scene.claim(slot, most=3)] == [good.id]
    assert [gone.id for gone in await scene.store.expire()] == [late.id]
    assert await scene.state(late.id) is JobState.FAILED
    assert not (await scene.store.limit_key("t=a")).is_waited_for


async def test_keys_that_are_held_waited_for_or_counted_are_listed_page_by_page(
    scene: Scene,
) -> None:
    slot = await scene.attend()
    held, paced = JobLimit("t=a", 2), JobLimit("t=b", rate=Rate(1, 3600.0))
    await scene.accepted(*limited(3, held), *limited(1, paced), a_job())
    claimed = await scene.claim(slot, most=4)
    assert len(claimed) == 4
    assert await scene.store.limit_keys() == ["t=a", "t=b"]
    assert await scene.store.limit_keys(most=1) == ["t=a"]
    assert await scene.store.limit_keys("t=a") == ["t=b"]
    assert await scene.store.limit_keys("t=b") == []
    assert await scene.store.limit_keys(waited_for=True) == ["t=a"]
    assert await scene.store.limit_keys("t=a", waited_for=True) == []


async def test_a_full_key_says_since_when_and_a_rate_when_it_goes_on(scene: Scene) -> None:
    slot = await scene.attend()
    both = JobLimit("t=a", 1, Rate(1, 3600.0))
    await scene.accepted(*limited(2, both))
    assert len(await scene.claim(slot, most=1)) == 1
    view = await scene.store.limit_key("t=a")
    again = await scene.store.limit_key("t=a")
    assert view.full_at is not None
    assert view.next_at is not None
    assert view.next_at > view.full_at
    assert (again.full_at, again.next_at) == (view.full_at, view.next_at), "times stand still"
