"""Fair use: what dispatchers tell the store of how long the jobs of keys took."""

from __future__ import annotations

from collections import Counter

from longshore.dispatcher.duties.fair_use import FairUses
from longshore.model.ends import Retried, Succeeded
from longshore.testing.builders import Scene, a_job, done
from longshore.testing.memory import MemoryStore


async def test_a_key_whose_jobs_took_long_gets_fewer_of_them() -> None:
    scene = Scene(MemoryStore())
    slot = await scene.attend()
    uses = FairUses(scene.store)
    await scene.accepted(*(a_job(fair=f"t={key}") for key in "ab" for _ in range(30)))
    for one in await scene.claim(slot, most=60):
        seconds = 9.0 if one.options.fair == "t=a" else 1.0
        uses.took(one, done(one, Retried), seconds / 2)
        uses.took(one, done(one, Succeeded), seconds / 2)
        await scene.finish(done(one))
    await uses.tell()
    await scene.accepted(*(a_job(fair="t=b") for _ in range(60)))
    await scene.accepted(*(a_job(fair="t=a") for _ in range(60)))
    served = Counter(one.options.fair for one in await scene.claim(slot, most=50))
    assert served["t=b"] > 4 * served["t=a"] > 0


async def test_nothing_is_told_of_attempts_whose_lane_is_not_known() -> None:
    scene = Scene(MemoryStore())
    slot = await scene.attend()
    uses = FairUses(scene.store)
    await scene.accepted(a_job())
    [one] = await scene.claim(slot)
    uses.took(one, done(one), 5.0)
    await uses.tell()
    assert (one.lane, one.options.fair) == (0, "")
