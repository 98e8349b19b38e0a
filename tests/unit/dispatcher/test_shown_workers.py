"""Workers as documents of the Etcd Job Queue, with the job that each runs."""

from __future__ import annotations

import pytest

from longshore.client import etcdq
from longshore.testing.builders import a_job

from .stage import Stage
from .test_audit import connection
from .test_stories import tell


def test_a_worker_is_shown_with_its_job_however_many_newer_ones_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(etcdq, "_MOST_JOBS", 2)

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        old = await stage.worker("old", slots=1)
        await stage.client().submit(a_job())
        await stage.until(lambda: old.jobs.started)
        busy = await stage.worker("busy", slots=5)
        await stage.worker("idle", slots=1)
        await stage.client().submit(*(a_job(kind="grind") for _ in range(4)))
        await stage.until(lambda: len(busy.processes.started) >= 3)
        async with connection(stage) as client:
            shown = {one["Name"]: one["Job"] for one in await etcdq.shown_workers(client)}
        assert shown["old"] == "1"
        assert int(shown["busy"]) > 1

    tell(story)
