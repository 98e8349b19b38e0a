"""One side of a duel: its jobs and its client, by nothing but what every version has.

The checkout's own interpreter runs it: its workers as `--app duel_side:app`, its client as a script
that answers lines of JSON. Both sides of a duel are therefore measured by the same code.

{"do": "burst", "jobs": N, "goal": G}    submits so many, until G have ever been recorded
{"do": "recorded"}                       how many have ever been recorded
{"do": "compute", "jobs": N, "rounds"}   plain functions that compute, until all outcomes are here
{"do": "single"}                         one job: milliseconds to its start, and to its result
{"do": "group", "layers", "width"}       jobs in layers, each after two of the layer before
{"do": "flat", "jobs": N}                a group of jobs of which none depends on another
{"do": "chain", "jobs": N}               jobs one after the other: milliseconds from start to start
{"do": "ask", "asks": N}                 asks of an actor: milliseconds until a reply, the median
"""

import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

import longshore

app = longshore.App("duel")
DATA = "x" * 100
POLL_S = 0.01
IDLE_S = 0.005


@app.job
async def noop(data: str) -> None:
    """Does nothing."""


@app.job
async def begun(data: str) -> int:
    """When it began, on the clock that all processes of a machine share."""
    return time.monotonic_ns()


@app.job
def burn(rounds: int) -> int:
    """Computes for so many rounds."""
    total = 0
    for number in range(rounds):
        total += number * number & 7
    return total


class Counter:
    """Counts what it is asked."""

    count: int = 0

    async def add(self, ctx: Any, data: str) -> int:
        """One more."""
        self.count += 1
        return self.count


counters: Any = app.actor(Counter) if hasattr(app, "actor") else None


async def recorded() -> int:
    """How many jobs ever succeeded."""
    queues = await app._access.connection().queues()
    return sum(queue.counts.get(longshore.JobState.SUCCEEDED, 0) for queue in queues)


async def burst(jobs: int, goal: int) -> list[float]:
    """When the first `call(…)` was made, and when the last outcome was recorded."""
    began = time.monotonic()
    await app.submit_many_async(noop.call(DATA) for _ in range(jobs))
    while await recorded() < goal:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    return [began, time.monotonic()]


async def compute(jobs: int, rounds: int) -> list[float]:
    """When the first `call(…)` was made, and when the last outcome was here."""
    began = time.monotonic()
    await app.wait_all_async(await app.submit_many_async(burn.call(rounds) for _ in range(jobs)))
    return [began, time.monotonic()]


async def single() -> list[float]:
    """Milliseconds from a submit until the job's start, and until its result is here."""
    await asyncio.sleep(IDLE_S)
    call = begun.call(DATA)
    submitted = time.monotonic_ns()
    started = await (await call.submit_async()).result_async()
    return [(started - submitted) / 1e6, (time.monotonic_ns() - submitted) / 1e6]


async def group(layers: int, width: int) -> list[float]:
    """When a group that was described before was submitted, when it had ended, and was stored."""
    layered = app.group("layered")
    above = [layered.add(noop.call(DATA)) for _ in range(width)]
    for _ in range(layers - 1):
        pairs = [(above[place], above[(place + 1) % width]) for place in range(width)]
        above = [layered.add(noop.call(DATA), after=list(pair)) for pair in pairs]
    return await run_group(layered)


async def flat(jobs: int) -> list[float]:
    """The same of a group without edges."""
    edgeless = app.group("flat")
    for _ in range(jobs):
        edgeless.add(noop.call(DATA))
    return await run_group(edgeless)


async def run_group(described: Any) -> list[float]:
    """When a group was submitted, when it had ended, and when it was stored."""
    began = time.monotonic()
    async with described:
        pass
    submitted = time.monotonic()
    await described.handle.wait_async()
    return [began, time.monotonic(), submitted]


async def chain(jobs: int) -> float:
    """Milliseconds from the start of a job to that of the one after it: the median."""
    steps = app.group("chain")
    added = [steps.add(begun.call(DATA))]
    for _ in range(jobs - 1):
        added.append(steps.add(begun.call(DATA), after=added[-1]))
    async with steps:
        pass
    await steps.handle.wait_async()
    starts = await asyncio.gather(*(job.handle.result_async() for job in added))
    return statistics.median(b - a for a, b in itertools.pairwise(starts)) / 1e6


async def ask(asks: int) -> float:
    """Milliseconds from an ask of an actor that sleeps until its reply is here: the median."""
    ref = await counters.get_or_start_async("one")
    took = []
    for _ in range(asks):
        await asyncio.sleep(IDLE_S)
        asked = time.monotonic_ns()
        await ref.ask_async("add", DATA)
        took.append(time.monotonic_ns() - asked)
    return statistics.median(took) / 1e6


async def answer(question: dict[str, Any]) -> Any:
    """What is asked, done."""
    words = {name: value for name, value in question.items() if name != "do"}
    verbs: dict[str, Callable[..., Awaitable[Any]]]
    verbs = {"burst": burst, "recorded": recorded, "compute": compute, "single": single}
    verbs |= {"group": group, "flat": flat, "chain": chain, "ask": ask}
    return await verbs[question["do"]](**words)


async def main() -> None:
    """Answers until nobody asks."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await answer(json.loads(line))), flush=True)
    await app.close_async()


if __name__ == "__main__":
    uvloop.run(main())
