"""G4: in storms, what is said of a job that does not run is known and true. If not, it shows."""

from __future__ import annotations

from msgspec import structs

from longshore.core.why import Facts
from longshore.model.job import Job
from longshore.model.limits import KeyView
from longshore.testing.memory import MemoryStore
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import simulate_on_sqlite
from longshore.testing.simulation.scenario import make_groups, make_growth, make_limits

from .telling import assert_kept
from .test_guards import hunt

NEWS_IS_UNDER_WAY = 16
"""In this seed, on SQLite, a dispatcher dies before it told a job that what it waits for ended."""


def test_a_job_that_was_not_told_yet_is_not_said_to_wait_for_nobody() -> None:
    assert_kept(simulate_on_sqlite(make_growth(NEWS_IS_UNDER_WAY)), "growth")


class SeesNoWorker(MemoryStore):
    """Explains as if no worker were there."""

    async def explain(self, job: Job) -> Facts:
        return structs.replace(await super().explain(job), workers=())


def test_without_the_workers_it_is_said_that_nobody_serves_a_job() -> None:
    assert hunt(2, SeesNoWorker).promise is Promise.NO_SILENCE


class SeesNoKey(MemoryStore):
    """Says of every key that it has room."""

    async def limit_key(self, key: str) -> KeyView:
        return structs.replace(await super().limit_key(key), held=0, concurrency=None, rate=None)


def test_without_the_keys_a_job_that_waits_for_one_is_said_to_be_about_to_start() -> None:
    assert hunt(4, SeesNoKey, make=make_limits).promise is Promise.NO_SILENCE


class TakesAllForMet(MemoryStore):
    """Knows of no job that another one waits for."""

    async def explain(self, job: Job) -> Facts:
        facts = await super().explain(job)
        if facts.node is None:
            return facts
        return structs.replace(facts, node=structs.replace(facts.node, unmet=0, waits_for=()))


def test_without_what_it_waits_for_a_job_is_said_to_be_decided_at_any_moment() -> None:
    assert hunt(4, TakesAllForMet, make=make_groups).promise is Promise.NO_SILENCE
