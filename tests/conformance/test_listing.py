"""Lists by label and by time: what they find, and that they stop looking and say where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec import structs

from longshore.model.ends import Cancelled, Failed
from longshore.model.job import JobFilter, JobPage, JobState, Options
from longshore.store import listing
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, some_jobs

S = JobState


async def ids(scene: Scene, wanted: JobFilter) -> list[UUID]:
    """The jobs that a filter finds, oldest first; all that there are was looked at."""
    page = await scene.store.jobs(wanted)
    assert page.stopped_at is None
    return [job.id for job in reversed(page.jobs)]


async def pages(scene: Scene, wanted: JobFilter) -> list[JobPage]:
    """Page after page, until one is the last: neither full nor stopped early."""
    found: list[JobPage] = []
    before: int | None = None
    while True:
        page = await scene.store.jobs(structs.replace(wanted, before=before))
        found.append(page)
        if len(page.jobs) == wanted.limit:
            before = page.jobs[-1].number
        elif page.stopped_at is not None:
            assert before is None or page.stopped_at < before, "it must go on"
            before = page.stopped_at
        else:
            return found


async def test_jobs_of_every_state_can_be_asked_for(scene: Scene) -> None:
    ready = a_job()
    await scene.accepted(ready)
    found = {state: await ids(scene, JobFilter(states=(state,))) for state in S}
    assert found == {state: [ready.id] if state is S.READY else [] for state in S}


async def test_jobs_are_listed_by_their_labels(scene: Scene) -> None:
    red, both, big = a_job(labels=("red",)), a_job(labels=("red", "big")), a_job(labels=("big",))
    other = a_job(labels=("redder", "bigred", "ãred", "re", ""), timeout_s=9)
    await scene.accepted(red, both, big, other, a_job(), a_job(timeout_s=5))
    assert await ids(scene, JobFilter(labels=("red",))) == [red.id, both.id]
    assert await ids(scene, JobFilter(labels=("big", "red"))) == [both.id]
    assert await ids(scene, JobFilter(labels=("ãred", ""))) == [other.id]
    for nobodys in ("timeout_s", "labels", "blue", "r", "nul\0", "\ud800"):
        assert await ids(scene, JobFilter(labels=(nobodys,))) == [], nobodys


async def test_some_jobs_are_listed_by_their_ids(scene: Scene) -> None:
    jobs = [a_job(), a_job(kind="other"), a_job()]
    first, second, third = (job.id for job in jobs)
    await scene.accepted(*jobs)
    await scene.store.cancel([third])
    nobody = UUID(int=7)
    some = (third, first, nobody, first)
    assert await ids(scene, JobFilter(ids=some)) == [first, third]
    assert await ids(scene, JobFilter(ids=(second,), kind="other")) == [second]
    assert await ids(scene, JobFilter(ids=some, states=(S.CANCELLED,))) == [third]
    assert await ids(scene, JobFilter(ids=some, limit=1)) == [third]
    assert await ids(scene, JobFilter(ids=(nobody,))) == []
    assert await ids(scene, JobFilter(ids=some, group=nobody)) == []


async def test_a_label_is_not_taken_for_another_part_of_the_options(scene: Scene) -> None:
    named = a_job(labels=("raw",))
    unnamed = structs.replace(a_job(), options=Options(labels=("x",), raw=True))
    await scene.accepted(named, unnamed)
    assert await ids(scene, JobFilter(labels=("raw",))) == [named.id]


async def test_labels_go_with_every_other_part(scene: Scene) -> None:
    failed = await scene.ended(Failed, a_job(kind="a", labels=("red",)))
    await scene.ended(Failed, a_job(kind="a"))
    running = await scene.running(a_job(kind="a", queue="q", labels=("red",)))
    ready, later = a_job(kind="b", labels=("red",)), a_job(delay_s=60, labels=("red",))
    await scene.accepted(ready, later, a_job(kind="b"))
    expected = {
        JobFilter(states=(S.FAILED,)): [failed.id],
        JobFilter(states=(S.FAILED, S.RUNNING)): [failed.id, running.id],
        JobFilter(states=(S.READY, S.FAILED)): [failed.id, ready.id],
        JobFilter(states=(S.DELAYED,)): [later.id],
        JobFilter(states=(S.SUCCEEDED,)): [],
        JobFilter(kind="a"): [failed.id, running.id],
        JobFilter(queue="q"): [running.id],
        JobFilter(worker=running.worker): [running.id],
    }
    for wanted, found in expected.items():
        assert await ids(scene, structs.replace(wanted, labels=("red",))) == found, wanted


@pytest.mark.parametrize("step", [1, 2, 1000])
async def test_jobs_are_listed_since_a_time(
    scene: Scene, backend: Backend, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(listing, "_FIRST_STEP", step)
    jobs = some_jobs(6)
    for job in jobs:
        await scene.accepted(job)
        await backend.pass_time(3 * 3600)
    for place, job in enumerate(jobs):
        since = (await scene.job(job.id)).created_at
        expected = [one.id for one in jobs[place:]]
        assert await ids(scene, JobFilter(since=since)) == expected
        assert await ids(scene, JobFilter(since=since, states=(S.READY,))) == expected
        a_moment_later = since + timedelta(microseconds=1)
        assert await ids(scene, JobFilter(since=a_moment_later)) == expected[1:]
        before = (await scene.job(jobs[4].id)).number
        wanted = JobFilter(since=since, before=before)
        assert await ids(scene, wanted) == [one.id for one in jobs[place:4]]


async def test_any_time_is_one_to_list_since(scene: Scene) -> None:
    [job] = some_jobs(1)
    assert await ids(scene, JobFilter(since=datetime.now(UTC))) == []
    await scene.accepted(job)
    assert await ids(scene, JobFilter(since=datetime.min.replace(tzinfo=UTC))) == [job.id]
    assert await ids(scene, JobFilter(since=datetime.max.replace(tzinfo=UTC))) == []


async def test_a_list_that_looked_far_enough_says_where_it_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT", 3)
    jobs = [a_job(labels=("red",) if place in (1, 7, 8) else ()) for place in range(10)]
    numbers = await scene.accepted(*jobs)
    found = await pages(scene, JobFilter(labels=("red",), limit=3))
    shown = [[job.id for job in page.jobs] for page in found]
    assert shown == [[jobs[8].id, jobs[7].id], [], [jobs[1].id], []]
    stops = [page.stopped_at for page in found]
    assert stops == [numbers[7], numbers[4], numbers[1], None]


async def test_a_list_that_is_full_or_complete_did_not_stop_early(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT", 3)
    await scene.accepted(*(a_job(labels=("red",)) for _ in range(5)))
    for wanted in (JobFilter(limit=2), JobFilter(limit=2, labels=("red",)), JobFilter(limit=9)):
        assert (await scene.store.jobs(wanted)).stopped_at is None


async def test_lists_of_several_states_meet_no_job_twice_and_miss_none(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the states may be looked at less far back than another."""
    monkeypatch.setattr(listing, "LOOKED_AT", 2)
    wanted_ids = []
    for place in range(12):
        outcome = Failed if place % 3 else Cancelled
        labels = ("red",) if place % 2 else ()
        attempt = await scene.ended(outcome, a_job(labels=labels))
        wanted_ids += [attempt.id] if labels else []
    found = await pages(scene, JobFilter(states=(S.CANCELLED, S.FAILED), labels=("red",), limit=2))
    shown = [job.id for page in found for job in page.jobs]
    assert shown == list(reversed(wanted_ids))
