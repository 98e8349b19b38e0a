"""A client of actors, told what to do by lines of JSON; LONGSHORE_CONNECT says where.

{"do": "start", "type": T, "actors": N}     there are so many actors of a type
{"do": "send", "messages": N, "actors": K}  sends so many to K counters in turn; when it began
{"do": "send_each", "messages": N, "actors": K,
 "at_once": M}                              the same one by one, with so many under way
{"do": "counted", "actors": K}              how many messages they have counted in all
{"do": "ask", "samples": N, "pause_s": S}   one ask after another, in milliseconds
{"do": "steady", "rate": R, "seconds": S}   so many messages a second to one counter, one by one
{"do": "fired", "actors": K}                when the timers of K tickers fired of late
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import uvloop

from bench.actor_app import app, counters, sleepers, tickers
from bench.helper import questions, reply
from longshore.client.actor import ActorRef, ActorType

DATA = "x" * 100
AT_ONCE = 100
TYPES: dict[str, ActorType[Any]] = {one.type: one for one in (counters, tickers, sleepers)}


def refs(type: str, actors: int) -> list[ActorRef[Any]]:
    """The first so many actors of a type."""
    return [TYPES[type].ref(f"actor-{number}") for number in range(actors)]


async def start(type: str, actors: int) -> None:
    """Starts those that are not there."""
    keys = [ref.key for ref in refs(type, actors)]
    for first in range(0, actors, AT_ONCE):
        some = keys[first : first + AT_ONCE]
        await asyncio.gather(*(TYPES[type].get_or_start_async(key) for key in some))


async def send(messages: int, actors: int) -> float:
    """Sends in bulk, to each actor in turn; answers when it began."""
    adds = [ref.add for ref in refs("Counter", actors)]
    began = time.monotonic()
    await app.send_many_async(adds[number % actors].call(DATA) for number in range(messages))
    return began


async def send_each(messages: int, actors: int, at_once: int) -> float:
    """Sends one by one, to each actor in turn, with so many under way; answers when it began."""
    every = refs("Counter", actors)
    places = iter(range(messages))

    async def stream() -> None:
        for place in places:
            await every[place % actors].send_async("add", DATA)

    began = time.monotonic()
    await asyncio.gather(*(stream() for _ in range(at_once)))
    return began


async def states(type: str, actors: int) -> list[Any]:
    """What the last turns of these actors left."""
    found: list[Any] = []
    every = refs(type, actors)
    for first in range(0, actors, AT_ONCE):
        some = every[first : first + AT_ONCE]
        found += await asyncio.gather(*(ref.state_async() for ref in some))
    return found


async def ask(samples: int, pause_s: float) -> list[float]:
    """Milliseconds from each ask to its reply."""
    [ref] = refs("Counter", 1)
    found = []
    for _ in range(samples):
        await asyncio.sleep(pause_s)
        began = time.perf_counter()
        await ref.ask_async("add", DATA)
        found.append((time.perf_counter() - began) * 1e3)
    return found


async def steady(rate: float, seconds: float) -> int:
    """Sends at this rate, whatever becomes of it; answers how many."""
    [ref] = refs("Counter", 1)
    began, sent = time.monotonic(), 0
    async with asyncio.TaskGroup() as tasks:
        while (spent := time.monotonic() - began) < seconds:
            while sent < spent * rate:
                tasks.create_task(ref.send_async("add", DATA))
                sent += 1
            await asyncio.sleep(1 / rate)
    return sent


async def do(question: dict[str, Any]) -> Any:
    """The answer to one question."""
    match question:
        case {"do": "start", "type": type, "actors": actors}:
            return await start(type, actors)
        case {"do": "send", "messages": messages, "actors": actors}:
            return await send(messages, actors)
        case {"do": "send_each", "messages": messages, "actors": actors, "at_once": at_once}:
            return await send_each(messages, actors, at_once)
        case {"do": "counted", "actors": actors}:
            return sum(state.count for state in await states("Counter", actors))
        case {"do": "ask", "samples": samples, "pause_s": pause_s}:
            return await ask(samples, pause_s)
        case {"do": "steady", "rate": rate, "seconds": seconds}:
            return await steady(rate, seconds)
        case {"do": "fired", "actors": actors}:
            return [state.fired for state in await states("Ticker", actors)]
        case _:
            raise ValueError(f"no such question: {question}")


async def main() -> None:
    """Answers until nobody asks."""
    asked = questions()
    while (question := await asyncio.to_thread(next, asked, None)) is not None:
        reply(await do(question))
    await app.close_async()


if __name__ == "__main__":
    uvloop.run(main())
