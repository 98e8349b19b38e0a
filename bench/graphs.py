"""What a client of a fleet does with groups; see `client`."""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import UTC, datetime, timedelta

from bench.noop_app import app, begun_at, noop, unserved
from longshore.client.group import GroupBuilder
from longshore.client.kind import AnyKind, Call
from longshore.model.group import GroupState

DATA = "x" * 100
PARENTS = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def layered(layers: int, width: int, kind: AnyKind, *, edges: bool = True) -> GroupBuilder:
    """A group in layers, each job after two of the layer before; without `edges`, after none."""
    group = app.group("layered")
    if not edges:
        for _ in range(layers * width):
            group.add(kind.call(DATA))
        return group
    above = [group.add(kind.call(DATA)) for _ in range(width)]
    for _ in range(layers - 1):
        before = [[above[(place + n) % width] for n in range(PARENTS)] for place in range(width)]
        above = [group.add(kind.call(DATA), after=some) for some in before]
    return group


def described(layers: int, width: int, *, edges: bool = True) -> GroupBuilder:
    """A group of jobs that do nothing."""
    return layered(layers, width, noop, edges=edges)


async def run(group: GroupBuilder) -> tuple[float, float]:
    """Submits a group that was described before; when that began, and when it had ended."""
    began = time.monotonic()
    await submit(group)
    state = await group.handle.wait_async()
    ended = time.monotonic()
    if state is not GroupState.SUCCEEDED:
        raise RuntimeError(f"group {group.handle.number} ended as {state}")
    return began, ended


async def submit(group: GroupBuilder) -> None:
    """Submits a group that was described before."""
    async with group:
        pass


async def chain(jobs: int) -> dict[str, list[float]]:
    """Milliseconds to the start of each job of a chain but the first.

    `recorded`: from the end of the job before it, as the store has it. It takes that time when the
    transaction begins, so what the transaction and its commit take counts, too. `step`: from the
    start of the job before it.
    """
    group = app.group("chain")
    added = [group.add(begun_at.call(DATA))]
    for _ in range(jobs - 1):
        added.append(group.add(begun_at.call(DATA), after=added[-1]))
    await submit(group)
    await group.handle.wait_async()
    starts = await asyncio.gather(*(job.handle.result_async() for job in added))
    ends = [_nanoseconds((await job.handle.job_async()).ended_at) for job in added]
    return {
        "recorded": [(start - end) / 1e6 for end, start in zip(ends, starts[1:], strict=False)],
        "step": [(later - one) / 1e6 for one, later in itertools.pairwise(starts)],
    }


def _nanoseconds(at: datetime | None) -> int:
    assert at is not None
    return (at - _EPOCH) // timedelta(microseconds=1) * 1_000


async def seconds_to_submit(layers: int, width: int, *, as_group: bool) -> float:
    """Describes jobs that nobody serves and submits them, as a group or each for itself."""
    kind = unserved.options(queue="unserved")
    began = time.monotonic()
    if as_group:
        await submit(layered(layers, width, kind))
    else:
        calls: list[Call[None]] = [kind.call(DATA) for _ in range(layers * width)]
        await app.submit_many_async(calls)
    return time.monotonic() - began
