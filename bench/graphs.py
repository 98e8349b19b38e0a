"""What a client of a fleet does with groups; see `client`."""

from __future__ import annotations

import asyncio
import itertools
import time

from bench.noop_app import app, begun, noop, unserved
from longshore.client.group import GroupBuilder
from longshore.client.kind import AnyKind, Call

DATA = "x" * 100
PARENTS = 2


def layered(layers: int, width: int, kind: AnyKind) -> GroupBuilder:
    """A group in layers, each job after two of the layer before."""
    group = app.group("layered")
    above = [group.add(kind.call(DATA)) for _ in range(width)]
    for _ in range(layers - 1):
        before = [[above[(place + n) % width] for n in range(PARENTS)] for place in range(width)]
        above = [group.add(kind.call(DATA), after=some) for some in before]
    return group


def described(layers: int, width: int) -> GroupBuilder:
    """A group of jobs that do nothing."""
    return layered(layers, width, noop)


async def submit(group: GroupBuilder) -> None:
    """Submits a group that was described before."""
    async with group:
        pass


async def chain(jobs: int) -> list[float]:
    """Milliseconds from the start of each job of a chain to that of the next."""
    group = app.group("chain")
    added = [group.add(begun.call(DATA))]
    for _ in range(jobs - 1):
        added.append(group.add(begun.call(DATA), after=added[-1]))
    await submit(group)
    await group.handle.wait_async()
    results = (job.handle.result_async() for job in added)
    starts = await asyncio.gather(*results)
    return [(later - one) / 1e6 for one, later in itertools.pairwise(starts)]


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
