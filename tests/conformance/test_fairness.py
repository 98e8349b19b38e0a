"""Fairness between keys: who waits is served in turn, whatever one key submits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest

from longshore.core.fairness import IDLE_S
from longshore.model.attempt import Attempt
from longshore.model.ends import Retried
from longshore.model.fair import FairKey, FairUse
from longshore.model.job import Submission
from longshore.model.limits import JobLimit, LimitRule
from longshore.model.worker import SessionKey
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_group, a_job, done, lane

from .test_dependents import end, open_slots


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


def fair(key: str, number: int, **given: object) -> list[Submission]:
    """So many jobs of one tenant."""
    return [a_job(fair=f"tenant={key}", **given) for _ in range(number)]  # type: ignore[arg-type]


async def tenants(scene: Scene, slot: SessionKey, most: int) -> Counter[str]:
    """Whose jobs a claim takes; they are finished."""
    claimed = await scene.claim(slot, most=most)
    await scene.pump([done(one) for one in claimed])
    return Counter(one.options.fair.removeprefix("tenant=") for one in claimed)


def ids(some: Sequence[Attempt] | Sequence[Submission]) -> list[UUID]:
    return [one.id for one in some]


async def test_one_that_comes_late_is_served_beside_a_backlog(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*fair("flood", 100))
    assert await tenants(scene, slot, 10) == {"flood": 10}
    await scene.accepted(*fair("small", 10))
    assert (await tenants(scene, slot, 22))["small"] >= 10


async def test_jobs_of_one_key_keep_their_order(scene: Scene) -> None:
    slot = await scene.attend()
    first, second = fair("a", 6), fair("a", 6)
    await scene.accepted(*first)
    await scene.accepted(*fair("b", 6), *second)
    claimed = await scene.claim(slot, most=18)
    assert [one.id for one in claimed if one.options.fair == "tenant=a"] == ids([*first, *second])


async def test_a_higher_priority_stands_above_fairness(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*fair("a", 5), *fair("b", 5, priority=1))
    assert await tenants(scene, slot, 5) == {"b": 5}


async def test_weights_are_rules_and_the_most_specific_one_counts(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule("tenant=*", weight=1.0))
    await scene.store.set_limit(LimitRule("tenant=big", weight=3.0))
    assert [rule.weight for rule in await scene.store.limit_rules()] == [1.0, 3.0]
    await scene.accepted(*fair("small", 60))
    await scene.accepted(*fair("big", 60))
    served = await tenants(scene, slot, 40)
    assert served["big"] == pytest.approx(30, abs=2)


async def test_a_rule_with_a_weight_only_limits_nothing(scene: Scene) -> None:
    slot = await scene.attend()
    key = "tenant=big"
    await scene.store.set_limit(LimitRule("tenant=*", 1))
    await scene.store.set_limit(LimitRule(key, weight=3.0))
    await scene.accepted(*[a_job(fair=key, limits=(JobLimit(key, 5),)) for _ in range(3)])
    assert len(await scene.claim(slot, most=3)) == 1, "the rule for all tenants limits it still"


async def test_jobs_without_a_fair_key_share_one_scale_with_them(scene: Scene) -> None:
    slot = await scene.attend()
    old = [a_job() for _ in range(5)]
    await scene.accepted(*old)
    newer = fair("a", 5)
    await scene.accepted(*newer)
    await scene.accepted(*(latest := [a_job() for _ in range(5)]))
    claimed = await scene.claim(slot, most=15)
    assert ids(claimed) == ids([*old, *newer, *latest])


async def test_a_repeated_submit_is_charged_nothing(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*fair("b", 40))
    jobs = fair("a", 10)
    for _ in range(3):
        await scene.accepted(*jobs)
    await scene.accepted(*(more := fair("a", 10)))
    claimed = await scene.claim(slot, most=42)
    mine = [one.id for one in claimed if one.options.fair == "tenant=a"]
    assert mine == ids([*jobs, *more]), "its turns follow without a gap"


async def test_a_job_that_is_tried_again_keeps_its_turn(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*fair("a", 4))
    await scene.accepted(*fair("b", 4))
    [first] = await scene.claim(slot)
    await scene.finish(done(first, Retried, delay_s=0.0))
    await scene.store.promote()
    assert [one.id for one in await scene.claim(slot)] == [first.id]


async def test_who_comes_while_an_old_job_is_tried_again_gets_no_credit(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*fair("a", 60))
    [first] = await scene.claim(slot)
    assert await tenants(scene, slot, 40) == {"a": 40}
    await scene.finish(done(first, Retried, delay_s=0.0))
    await scene.store.promote()
    await scene.accepted(*fair("b", 19))
    served = await tenants(scene, slot, 21)
    assert served["a"] == pytest.approx(10, abs=2)


async def test_jobs_of_groups_get_their_turn_when_they_are_ready(scene: Scene) -> None:
    slot = await scene.attend()
    for job in (groups := fair("group", 10)):
        await scene.submit_group(a_group({"one": ""}, jobs={"one": job}))
    await scene.accepted(*fair("other", 30))
    await scene.settle()
    await scene.accepted(*fair("late", 5))
    served = await tenants(scene, slot, 18)
    assert served["late"] == 5
    assert served["group"] == pytest.approx(6, abs=2)
    assert len(groups) == 10


async def test_a_job_of_a_group_is_not_started_past_its_turn(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = {"one": a_job(), "two": fair("a", 1)[0]}
    group = await scene.submit_group(a_group({"one": "", "two": "one"}, jobs=jobs))
    assert await group.claim(1) == {"one"}
    await scene.accepted(*fair("a", 3), *fair("b", 1))
    ended = await end(scene, group, "one", offered=open_slots(slot, 5))
    assert ended.dependents == []
    claimed = await scene.claim(slot, most=5)
    assert [x.id for x in claimed if x.options.fair == "tenant=a"][-1] == group.jobs["two"]


async def test_a_job_with_a_delay_gets_its_turn_when_it_is_due(
    scene: Scene, backend: Backend
) -> None:
    slot = await scene.attend()
    late = fair("late", 3, delay_s=60.0)
    await scene.accepted(*late, *fair("a", 20))
    await backend.pass_time(61)
    assert (await scene.store.promote()).count == 3
    await scene.accepted(*fair("a", 20))
    assert (await tenants(scene, slot, 10))["late"] == 3


async def test_limits_and_fair_keys_go_together(scene: Scene) -> None:
    slot = await scene.attend()
    limits = (JobLimit("tenant=a", 2),)
    mine = fair("a", 20, limits=limits)
    await scene.accepted(*mine)
    await scene.accepted(*fair("b", 20))
    assert await tenants(scene, slot, 10) == {"a": 2, "b": 8}
    await scene.store.open_limits()
    claimed = await scene.claim(slot, most=30)
    assert [x.id for x in claimed if x.options.fair == "tenant=a"] == ids(mine[2:4])


async def test_a_key_whose_jobs_run_long_gets_fewer_of_them(scene: Scene) -> None:
    slot = await scene.attend()
    uses = [("long", 30, 120.0), ("short", 30, 30.0)]
    await scene.store.note_use(
        [FairUse(FairKey(lane(), 0, f"tenant={key}"), n, s) for key, n, s in uses]
    )
    await scene.accepted(*fair("long", 100))
    await scene.accepted(*fair("short", 100))
    served = await tenants(scene, slot, 50)
    assert served["short"] / served["long"] == pytest.approx(4, rel=0.35)


async def test_what_a_key_took_too_much_its_next_jobs_wait_for(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*fair("a", 1), *fair("b", 100))
    assert (await tenants(scene, slot, 2)) == {"a": 1, "b": 1}
    of = FairKey(lane(), 0, "tenant=a")
    others = FairUse(of._replace(key="tenant=c"), 5000, 5000.0)
    await scene.store.note_use([others, FairUse(of, 1, 31.0)])
    await scene.accepted(*fair("a", 30))
    assert (await tenants(scene, slot, 25))["a"] == 0


async def test_why_can_say_how_many_of_its_key_are_before_a_job(scene: Scene) -> None:
    jobs = fair("a", 8)
    await scene.accepted(*fair("b", 20), *jobs)
    assert await scene.store.fair_place(jobs[5].id) == (5, False)


async def test_a_cancelled_flood_leaves_no_debt(scene: Scene) -> None:
    slot = await scene.attend()
    flood = fair("a", 200)
    await scene.accepted(*flood, *fair("b", 100))
    await scene.store.cancel(ids(flood))
    await scene.accepted(*fair("a", 10))
    assert (await tenants(scene, slot, 22))["a"] >= 9


async def test_idle_keys_are_forgotten_and_begin_anew(scene: Scene, backend: Backend) -> None:
    slot = await scene.attend()
    await scene.accepted(*fair("a", 2))
    assert await tenants(scene, slot, 2) == {"a": 2}
    await backend.pass_time(IDLE_S + 1)
    await scene.store.forget_lanes()
    await scene.accepted(*fair("a", 2))
    assert await tenants(scene, slot, 2) == {"a": 2}


async def test_submits_of_one_key_at_the_same_time_get_turns_one_behind_the_other(
    scene: Scene, rival: Scene
) -> None:
    slot = await scene.attend()
    await scene.accepted(*fair("b", 60))
    await asyncio.gather(*((scene, rival)[at % 2].accepted(*fair("a", 5)) for at in range(8)))
    served = await tenants(scene, slot, 40)
    assert served["a"] == pytest.approx(20, abs=3), "no two of its jobs had one turn"


async def test_a_job_without_a_turn_is_found_though_nobody_knows_its_lane(
    scene: Scene, rival: Scene
) -> None:
    slot = await scene.attend()
    for job in fair("a", 3):
        await scene.submit_group(a_group({"one": ""}, jobs={"one": job}))
    await scene.settle()
    opened = await rival.store.open_limits()
    assert sum(opened.ready.values()) == 3
    assert (await tenants(scene, slot, 3)) == {"a": 3}
