"""Lists by what is in jobs: their arguments, their errors, how long they ran, how old they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import structs

from longshore.model.ends import Failed, Succeeded
from longshore.model.job import ArgTerm, JobError, JobFilter, Reason, Submission
from longshore.store import listing
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, some_jobs


async def ids(scene: Scene, wanted: JobFilter) -> list[UUID]:
    """The jobs that a filter finds, oldest first; all that there are was looked at."""
    page = await scene.store.jobs(wanted)
    assert page.stopped_at is None
    assert all(job.args == b"" for job in page.jobs), "a list has no arguments"
    return [job.id for job in reversed(page.jobs)]


def given(**args: Any) -> Submission:
    return a_job(args=msgspec.msgpack.encode(args))


async def test_jobs_are_found_by_their_arguments(scene: Scene) -> None:
    acme, other = given(tenant="acme", n=7), given(tenant="other", n=-70000, note="acme")
    deep = given(user={"id": 7, "tags": ["a", {"b": True}]}, ratio=1.5, none=None, digits="7")
    raw = structs.replace(acme, id=a_job().id, options=structs.replace(acme.options, raw=True))
    await scene.accepted(acme, other, deep, raw, a_job())
    expected = {
        ("tenant", "acme"): [acme.id],
        ("tenant", "acm"): [],
        ("note", "acme"): [other.id],
        ("n", "7"): [acme.id],
        ("n", "-70000"): [other.id],
        ("user.id", "7"): [deep.id],
        ("user.tags.0", "a"): [deep.id],
        ("user.tags.1.b", "true"): [deep.id],
        ("ratio", "1.5"): [deep.id],
        ("none", "null"): [deep.id],
        ("digits", "7"): [deep.id],
        ("user", "7"): [],
        ("nobody", "7"): [],
        ("user.tags.9", "a"): [],
        ("tenant", "\ud800"): [],
        ("tenant", "nul\0"): [],
    }
    for (path, value), found in expected.items():
        wanted = JobFilter(args=(ArgTerm(path, value),))
        assert await ids(scene, wanted) == found, (path, value)
    both = JobFilter(args=(ArgTerm("tenant", "acme"), ArgTerm("n", "7")))
    assert await ids(scene, both) == [acme.id]


async def test_jobs_are_found_by_what_went_wrong(scene: Scene) -> None:
    attempts = [await scene.running() for _ in range(3)]
    errors = [
        JobError(Reason.RAISED, "no route to münchen", "OSError", "line 3"),
        JobError(Reason.RAISED, "no such file", "FileNotFoundError", "line 7"),
    ]
    for attempt, error in zip(attempts, errors, strict=False):
        await scene.finish(Failed(attempt.id, attempt.token, error))
    failed = [attempt.id for attempt in attempts[:2]]
    expected = {
        "münchen": failed[:1],
        "no ": failed,
        "FileNotFound": failed[1:],
        "line 7": failed[1:],
        "No ": [],
        "reason": [],
        "message": [],
        "\ud800": [],
    }
    for text, found in expected.items():
        assert await ids(scene, JobFilter(error=text)) == found, text


async def test_jobs_are_found_by_how_long_they_ran(scene: Scene, backend: Backend) -> None:
    slow = await scene.running()
    await backend.pass_time(100)
    await scene.finish(Succeeded(slow.id, slow.token, b"\xc0"))
    quick = await scene.running()
    await scene.finish(Succeeded(quick.id, quick.token, b"\xc0"))
    still = await scene.running()
    await backend.pass_time(50)
    await scene.accepted(a_job())
    assert await ids(scene, JobFilter(slower_s=90)) == [slow.id]
    assert await ids(scene, JobFilter(slower_s=40)) == [slow.id, still.id]
    assert await ids(scene, JobFilter(slower_s=1000)) == []


@pytest.mark.parametrize("near", [1, 2000])
async def test_jobs_are_listed_until_a_time(
    scene: Scene, backend: Backend, monkeypatch: pytest.MonkeyPatch, near: int
) -> None:
    for module in _STORES:
        monkeypatch.setattr(f"longshore.store.{module}.NEAR", near)
    monkeypatch.setattr(listing, "_SPREAD", 2)
    jobs = some_jobs(9)
    for job in jobs:
        await scene.accepted(job)
        await backend.pass_time(3 * 3600)
    for place, job in enumerate(jobs):
        until = (await scene.job(job.id)).created_at
        expected = [one.id for one in jobs[:place]]
        assert await ids(scene, JobFilter(until=until)) == expected
        a_moment_later = until + timedelta(microseconds=1)
        assert await ids(scene, JobFilter(until=a_moment_later)) == [*expected, job.id]
        since = (await scene.job(jobs[2].id)).created_at
        wanted = JobFilter(until=until, since=since)
        assert await ids(scene, wanted) == [one.id for one in jobs[2:place]]


_STORES = ("sqlite.reads", "postgres.reads")


async def test_any_time_is_one_to_list_until(scene: Scene) -> None:
    assert await ids(scene, JobFilter(until=datetime.now(UTC))) == []
    [job] = some_jobs(1)
    await scene.accepted(job)
    assert await ids(scene, JobFilter(until=datetime.max.replace(tzinfo=UTC))) == [job.id]
    assert await ids(scene, JobFilter(until=datetime.min.replace(tzinfo=UTC))) == []


async def test_a_search_begins_at_the_time_it_is_asked_for(
    scene: Scene, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that are too young are not looked at, however many there are."""
    for module in _STORES:
        monkeypatch.setattr(f"longshore.store.{module}.NEAR", 1)
    monkeypatch.setattr(listing, "LOOKED_AT", 4)
    [old] = some_jobs(1)
    await scene.accepted(old)
    await backend.pass_time(3 * 3600)
    await scene.accepted(*some_jobs(40))
    until = (await scene.job(old.id)).created_at + timedelta(seconds=1)
    page = await scene.store.jobs(JobFilter(until=until, limit=3))
    assert [job.id for job in page.jobs] == [old.id]


async def test_a_search_of_arguments_says_where_it_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOKED_INTO", 3)
    wanted = [given(tenant="acme"), *(given(tenant="b") for _ in range(3))]
    numbers = await scene.accepted(*wanted)
    filtered = JobFilter(args=(ArgTerm("tenant", "acme"),), limit=2)
    page = await scene.store.jobs(filtered)
    assert (page.jobs, page.stopped_at) == ((), numbers[1])
    rest = await scene.store.jobs(structs.replace(filtered, before=page.stopped_at))
    assert [job.id for job in rest.jobs] == [wanted[0].id]
