"""Streams of events: in order, resumed behind the last one, told where something is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from longshore.core.lifecycle import HISTORY_FIRST, HISTORY_LAST
from longshore.errors import StoreUnavailable
from longshore.model.job import HistoryEntry, Job, JobState
from longshore.wire import messages

from .api import Api

JOBS = "/dispatcher/jobs/"
BEGAN = datetime(2030, 1, 1, tzinfo=UTC)


async def submitted(api: Api) -> str:
    reply = await api.post(JOBS, {"kind": "add", "args": {"a": 1, "b": 2}})
    id: str = reply.json["id"]
    return id


async def test_a_jobs_changes_are_streamed_to_its_end(api: Api) -> None:
    id = await submitted(api)
    async with api.stream(f"{JOBS}{id}/events") as events:
        first = await events.next()
        assert first is not None
        assert (first["event"], first["data"]["state"]) == ("change", "ready")
        await api.kit.drain_async()
        rest = await events.all()
    changes = [one["data"]["state"] for one in rest if one["event"] == "change"]
    assert changes == ["running", "succeeded"]
    assert (rest[-1]["event"], rest[-1]["data"]) == ("end", {"state": "succeeded"})


async def test_a_stream_goes_on_behind_the_last_event(api: Api) -> None:
    id = await submitted(api)
    await api.kit.drain_async()
    async with api.stream(f"{JOBS}{id}/events") as events:
        seen = await events.all()
    for place, event in enumerate(seen[:-1]):
        async with api.stream(f"{JOBS}{id}/events", last_event_id=event["id"]) as events:
            assert await events.all() == seen[place + 1 :]
    assert (await api.get(f"{JOBS}{id}/events", last_event_id="end")).status == 204


def with_changes(api: Api, job: Job, first: int, count: int) -> None:
    """The store has the history of a job that changed so often, as it keeps it."""
    made = [
        HistoryEntry(JobState.READY, BEGAN + timedelta(seconds=n), info=str(n))
        for n in range(first, first + count)
    ]
    kept = made if len(made) <= HISTORY_FIRST + HISTORY_LAST else made[:5] + made[-HISTORY_LAST:]
    state = JobState.CANCELLED
    api.replies[messages.Show] = structs.replace(job, history=tuple(kept), state=state)


def told(events: list[dict[str, Any]]) -> list[str]:
    return [
        one["data"]["info"] if one["event"] == "change" else one["event"] for one in events[:-1]
    ]


@pytest.mark.parametrize(
    ("count", "last", "expected"),
    [
        (3, None, ["0", "1", "2"]),
        (3, 1, ["2"]),
        (60, None, [*map(str, range(5)), "gap", *map(str, range(15, 60))]),
        (60, 1, ["2", "3", "4", "gap", *map(str, range(15, 60))]),
        (60, 4, ["gap", *map(str, range(15, 60))]),
        (60, 9, ["gap", *map(str, range(15, 60))]),
        (60, 58, ["59"]),
    ],
)
async def test_where_the_store_has_cut_the_history_the_stream_says_so(
    api: Api, count: int, last: int | None, expected: list[str]
) -> None:
    id = await submitted(api)
    with_changes(api, await api.connection.job(1), 0, count)
    at = BEGAN + timedelta(seconds=last or 0)
    headers = {} if last is None else {"last_event_id": f"{int(at.timestamp())}000000-0"}
    async with api.stream(f"{JOBS}{id}/events", **headers) as events:
        assert told(await events.all()) == expected


async def test_a_log_is_followed_and_resumed(api: Api) -> None:
    id = await submitted(api)
    async with api.stream(f"{JOBS}{id}/logs?follow=true") as events:
        await api.kit.drain_async()
        line, end = await events.all()
    assert (line["event"], line["data"]["text"], end["event"]) == ("line", "adding 1 2", "end")
    async with api.stream(f"{JOBS}{id}/logs?follow=true", last_event_id=line["id"]) as events:
        assert await events.all() == [end]


async def test_a_group_is_streamed_as_a_snapshot_and_what_changes(api: Api) -> None:
    jobs = [{"key": "a", "kind": "add", "args": {"a": 1, "b": 1}}]
    reply = await api.post("/dispatcher/groups/", {"name": "g", "jobs": jobs})
    target = f"{reply.headers['location']}/events"
    async with api.stream(target) as events:
        snapshot = await events.next()
        assert snapshot is not None
        assert (snapshot["event"], snapshot["data"]["nodes"][0]["state"]) == ("snapshot", "ready")
        await api.kit.drain_async()
        rest = await events.all()
    told = [(one["event"], one["data"]["state"]) for one in rest]
    # A look may see the job while it runs, and then the group as well.
    seen = [one for one in told if one not in (("job", "running"), ("group", "running"))]
    assert seen == [("job", "succeeded"), ("group", "succeeded"), ("end", "succeeded")]
    assert told[-3:] == seen
    async with api.stream(target, last_event_id="2") as events:
        again = await events.all()
    assert [one["event"] for one in again] == ["snapshot", "end"]
    assert (await api.get(target, last_event_id="end")).status == 204


async def test_all_queues_are_streamed_as_counts(api: Api) -> None:
    async with api.stream("/events") as events:
        first = await events.next()
        await submitted(api)
        second = await events.next()
    assert first is not None
    assert second is not None
    assert (first["event"], first["data"]) == ("resync", {"queues": []})
    assert (second["event"], second["data"]["queues"][0]["counts"]["ready"]) == ("queues", 1)


async def test_streams_of_one_job_share_one_look(api: Api) -> None:
    id = await submitted(api)
    async with api.stream(f"{JOBS}{id}/events") as one, api.stream(f"{JOBS}1/events") as other:
        assert await one.next() == await other.next()
        assert len(api.gateway.streams._watches) == 1
    assert len(api.gateway.streams._watches) == 0


async def test_a_stream_of_nothing_is_not_found(api: Api) -> None:
    for target in (f"{JOBS}7/events", f"{JOBS}7/logs?follow=true", "/dispatcher/groups/7/events"):
        assert (await api.get(target)).status == 404


async def test_streams_end_when_the_gateway_stops(api: Api) -> None:
    async with api.stream("/events") as events:
        await events.next()
        api.gateway.closing.set()
        assert await events.all() == []


async def test_there_are_at_most_so_many_streams(make_api: Callable[..., Api]) -> None:
    api = make_api(max_streams=1)
    async with api.stream("/events") as events:
        await events.next()
        refused = await api.get("/events")
        assert (refused.status, "max_streams" in refused.json["detail"]) == (503, True)
    async with api.stream("/events") as events:
        assert await events.next() is not None


async def test_an_idle_stream_says_that_it_is_there(make_api: Callable[..., Api]) -> None:
    api = make_api(stream_ping_s=0.001)
    async with api.stream("/events") as events:
        await events.next()
        while True:
            message = await asyncio.wait_for(events._messages.get(), 10)
            if message.get("body") == b": still here\n\n":
                break


@pytest.mark.parametrize("asked", [messages.ListJobs, messages.Show])
async def test_a_stream_outlives_a_dispatcher_that_does_not_answer(
    api: Api, asked: type[messages.Request]
) -> None:
    """Be it that it looks for changes, or at a job that has changed."""
    id = await submitted(api)
    async with api.stream(f"{JOBS}{id}/events") as events:
        await events.next()
        seen = asyncio.Event()

        def silent(request: messages.Request) -> object:
            seen.set()
            return StoreUnavailable("down")

        api.replies[asked] = silent
        await api.kit.drain_async()
        await seen.wait()
        del api.replies[asked]
        rest = await events.all()
    assert rest[-1]["data"] == {"state": "succeeded"}
