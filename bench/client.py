"""A client of a fleet, told what to do by lines of JSON; LONGSHORE_CONNECT says where.

{"do": "prepare", "jobs": N, "kind": K,
 "described": B, "keys": M}                 describes that many jobs, or does so at the submit;
                                            those with keys get one of M in turn
{"do": "run", "all": N}                     submits them in bulk, until so many were recorded
{"do": "collect"}                           the same, until all outcomes are here
{"do": "work", "kind": K, "each": [...]}    the same, with a job for each argument
{"do": "latency", "samples": N, "pause_s"}  one job after another
{"do": "load", "rate": R}                   submits so many a second, in the background …
{"do": "flow", "outstanding": N}            or keeps so many short naps under way …
{"do": "stop"}                              until now
{"do": "queue", "jobs": N}                  submits jobs that nobody serves
{"do": "describe", "layers": L, "width": W,
 "edges": B}                                describes a group of jobs that do nothing
{"do": "run_group"}                         submits it, until it has ended
{"do": "chain", "jobs": N}                  runs a chain of jobs
{"do": "submit", "layers": L, "width": W,
 "as_group": B}                             submits jobs that nobody serves, as a group or not
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import uvloop

from bench import graphs
from bench.command_app import noop_command
from bench.helper import questions, reply
from bench.limited_app import noop_in_turn, noop_many_keys, noop_one_key
from bench.noop_app import app, begun, nap, noop, unserved
from bench.plain_app import block, burn, noop_process, noop_thread, sleep
from longshore.client.group import GroupBuilder
from longshore.client.kind import AnyKind, Call
from longshore.model.job import JobState

DATA = "x" * 100
TICK_S = 0.02
POLL_S = 0.01
CHUNK = 10_000
FLOWS = 10
PLAIN: tuple[AnyKind, ...] = (noop_process, noop_thread, block, sleep, burn, noop_command)
KEYED: tuple[AnyKind, ...] = (noop_many_keys, noop_in_turn)
KINDS = {kind.kind: kind for kind in (noop, noop_one_key, *PLAIN, *KEYED)}
_turns = itertools.count()


def described_job(kind: AnyKind, keys: int) -> Call[Any]:
    """A job that does nothing. Commands take their arguments by name, some jobs one of the keys."""
    if kind in KEYED:
        return kind.call(DATA, next(_turns) % keys)
    return kind.call(data=DATA) if kind is noop_command else kind.call(DATA)


class Client:
    """What it can be asked to do."""

    def __init__(self) -> None:
        self._calls: Iterable[Call[Any]] = []
        self._group: GroupBuilder | None = None
        self._background: asyncio.Task[None] | None = None
        self._submitted = 0
        self._recorded = 0

    async def do(self, question: dict[str, Any]) -> Any:
        """The answer to one question."""
        match question:
            case {"do": "prepare", "jobs": jobs, "kind": kind, "described": described}:
                keys = question["keys"]
                calls = (described_job(KINDS[kind], keys) for _ in range(jobs))
                self._calls = list(calls) if described else calls
                self._recorded = await recorded()
            case {"do": "run", "all": all}:
                return await self._run(all)
            case {"do": "collect"}:
                return await self._collect()
            case {"do": "work", "kind": kind, "each": each}:
                self._calls = (KINDS[kind].call(argument) for argument in each)
                return await self._collect()
            case {"do": "latency", "samples": samples, "pause_s": pause_s}:
                return await latencies(samples, pause_s)
            case {"do": "load", "rate": rate}:
                self._background = asyncio.create_task(self._load(rate))
            case {"do": "flow", "outstanding": outstanding}:
                self._background = asyncio.create_task(self._flow(outstanding))
            case {"do": "stop"}:
                return await self._stop()
            case {"do": "queue", "jobs": jobs}:
                await queue(jobs)
            case {"do": "describe", "layers": layers, "width": width, "edges": edges}:
                self._group = graphs.described(layers, width, edges=edges)
            case {"do": "run_group"}:
                assert self._group is not None
                return await graphs.run(self._group)
            case {"do": "chain", "jobs": jobs}:
                return await graphs.chain(jobs)
            case {"do": "submit", "layers": layers, "width": width, "as_group": as_group}:
                return await graphs.seconds_to_submit(layers, width, as_group=as_group)
            case _:
                raise ValueError(f"no such question: {question}")
        return None

    async def _run(self, jobs: int) -> tuple[float, float]:
        calls, self._calls = self._calls, []
        began = time.monotonic()
        await app.submit_many_async(calls)
        return began, await self._recorded_at(self._recorded + jobs)

    async def _recorded_at(self, goal: int) -> float:
        while await recorded() < goal:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return time.monotonic()

    async def _collect(self) -> tuple[float, float]:
        calls, self._calls = self._calls, []
        began = time.monotonic()
        await app.wait_all_async(await app.submit_many_async(calls))
        return began, time.monotonic()

    async def _load(self, rate: float) -> None:
        began = time.monotonic()
        while True:
            due = round((time.monotonic() - began) * rate) - self._submitted
            if due > 0:
                await app.submit_many_async([noop.call(DATA) for _ in range(due)])
                self._submitted += due
            await asyncio.sleep(TICK_S)

    async def _flow(self, outstanding: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(FLOWS):
                group.create_task(self._stream(outstanding // FLOWS))

    async def _stream(self, jobs: int) -> None:
        while True:
            handles = await app.submit_many_async([nap.call(DATA) for _ in range(jobs)])
            self._submitted += jobs
            await app.wait_all_async(handles)

    async def _stop(self) -> int:
        if self._background is not None:
            self._background.cancel()
            with suppress(asyncio.CancelledError):
                await self._background
        submitted, self._submitted, self._background = self._submitted, 0, None
        return submitted


async def recorded() -> int:
    """How many jobs ever succeeded."""
    queues = await app._access.connection().queues()
    return sum(queue.counts.get(JobState.SUCCEEDED, 0) for queue in queues)


async def latencies(samples: int, pause_s: float) -> dict[str, list[float]]:
    """Milliseconds from each submit until the job's start, and until its result is here."""
    to_start, to_result = [], []
    for _ in range(samples):
        await asyncio.sleep(pause_s)
        call = begun.call(DATA)
        submitted = time.monotonic_ns()
        handle = await call.submit_async()
        started = await handle.result_async()
        to_result.append((time.monotonic_ns() - submitted) / 1e6)
        to_start.append((started - submitted) / 1e6)
    return {"start": to_start, "result": to_result}


async def queue(jobs: int) -> None:
    """Submits jobs of a queue that nobody serves."""
    kind = unserved.options(queue="unserved")
    for start in range(0, jobs, CHUNK):
        count = min(CHUNK, jobs - start)
        await app.submit_many_async([kind.call(DATA) for _ in range(count)])


async def main() -> None:
    """Answers until nobody asks."""
    client = Client()
    asked = questions()
    while (question := await asyncio.to_thread(next, asked, None)) is not None:
        reply(await client.do(question))
    await app.close_async()


if __name__ == "__main__":
    uvloop.run(main())
