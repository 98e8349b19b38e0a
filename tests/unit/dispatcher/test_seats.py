"""Submits that begin at once, if the store answers late, not at all, or not as was thought."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from longshore.ports import Batch, Hint
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import FaultyStore

from .stage import Stage
from .test_stories import tell


class DeafStore(FaultyStore):
    """No hint of what others did ever comes."""

    async def watch(self) -> AsyncIterator[Hint]:
        await asyncio.Event().wait()
        yield Hint.WORK


def test_a_job_that_was_accepted_before_is_begun_by_whoever_it_is_submitted_to_again() -> None:
    """The dispatcher that accepted it died before it answered, or told anybody."""

    async def story(stage: Stage) -> None:
        stage.store = DeafStore(stage.model)
        await stage.dispatcher(poll_s=1000.0)
        worker = await stage.worker()
        job = a_job()
        await stage.model.pump(new_id(), Batch(submits=[job]))
        await stage.client().submit(job)
        await stage.until(lambda: bool(worker.jobs.running), at_most_s=1.0)

    tell(story)
