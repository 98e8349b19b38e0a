"""The jobs of a chaos run. Each body says when it begins, that it still runs, and when it ends."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import longshore
from longshore import ActorContext, Context, Limit
from longshore.testing.chaos.history import (
    BODIES_VARIABLE,
    WORKER_VARIABLE,
    Beat,
    Began,
    Over,
    Writer,
)

BEAT_S = 0.05
TANKS = ("north", "south")
AT_ONCE = 2
"""How many jobs of a tank may run at once."""
FILESET = "cargo"
MADE = "unloaded"

app = longshore.App("chaos")


class Body:
    """What one body says of itself."""

    def __init__(self, ctx: Context, keys: tuple[str, ...] = (), parent: str = "") -> None:
        self.job, self.attempt = str(ctx.id), str(ctx.token)
        self._writer = Writer(Path(os.environ[BODIES_VARIABLE]))
        worker = os.environ.get(WORKER_VARIABLE, "")
        self._writer.add(
            Began(
                job=self.job,
                attempt=self.attempt,
                worker=worker,
                sort=ctx.kind,
                keys=keys,
                parent=parent,
            )
        )

    def beats(self, ms: int) -> Iterator[float]:
        """How long to wait until the next beat, for so long in all."""
        until = time.monotonic() + ms / 1000
        while (left := until - time.monotonic()) > 0:
            yield min(BEAT_S, left)
            self._writer.add(Beat(job=self.job, attempt=self.attempt))

    async def run(self, ms: int) -> dict[str, str]:
        """Runs for so long; answers the result of the job."""
        for seconds in self.beats(ms):
            await asyncio.sleep(seconds)
        return self.over()

    def block(self, ms: int) -> dict[str, str]:
        """As `run`, for what is no coroutine."""
        for seconds in self.beats(ms):
            time.sleep(seconds)
        return self.over()

    def over(self) -> dict[str, str]:
        """The body has ended; answers the result of the job."""
        self._writer.add(Over(job=self.job, attempt=self.attempt))
        self._writer.close()
        return {"attempt": self.attempt}


@app.job
async def step(ctx: Context, ms: int, parent: str = "") -> dict[str, str]:
    """A coroutine."""
    return await Body(ctx, parent=parent).run(ms)


@app.job
def block(ctx: Context, ms: int) -> dict[str, str]:
    """A process of its own."""
    return Body(ctx).block(ms)


@app.job(isolation="thread")
def thread(ctx: Context, ms: int) -> dict[str, str]:
    """A thread."""
    return Body(ctx).block(ms)


@app.job(retries=10, backoff_s=0.05, max_backoff_s=0.2)
async def flaky(ctx: Context, ms: int, fails: int) -> dict[str, str]:
    """Fails some times."""
    body = Body(ctx)
    if ctx.attempt <= fails:
        body.over()
        raise RuntimeError("as it was told")
    return await body.run(ms)


@app.job
async def doomed(ctx: Context, ms: int) -> None:
    """Always fails."""
    await Body(ctx).run(ms)
    raise RuntimeError("as it was told")


@app.job
async def parent(ctx: Context, ms: int, children: int) -> dict[str, str]:
    """Submits others with its success."""
    result = await Body(ctx).run(ms)
    for _ in range(children):
        ctx.submit(step.call(10, parent=str(ctx.id)))
    return result


@app.job
async def grow(ctx: Context, ms: int, children: int) -> dict[str, str]:
    """Adds others to its group."""
    result = await Body(ctx).run(ms)
    for _ in range(children):
        ctx.group.add(step.call(10, parent=str(ctx.id)))
    return result


@app.job
async def teller(ctx: Context, ms: int, to: str) -> dict[str, str]:
    """Tells an actor, with its success."""
    result = await Body(ctx).run(ms)
    ctx.send(ledgers.ref(to), "note", sender=str(ctx.id), n=1)
    return result


@app.job(limit=Limit(AT_ONCE, key="tank"))
async def fill(ctx: Context, tank: str, ms: int) -> dict[str, str]:
    """At most two of a tank at once."""
    return await Body(ctx, keys=(f"tank={tank}",)).run(ms)


@app.job(limit=Limit(AT_ONCE, key="tank"))
def drain(ctx: Context, tank: str, ms: int) -> dict[str, str]:
    """Counts for the same tanks, in a process of its own."""
    return Body(ctx, keys=(f"tank={tank}",)).block(ms)


@app.job
async def tick(ctx: Context) -> dict[str, str]:
    """What a schedule submits."""
    return await Body(ctx).run(10)


unload = app.command(
    "unload",
    [sys.executable, "-m", "longshore.testing.chaos.cargo", "{bodies}"],
    inputs=[{"fileset": FILESET, "path": "in"}],
    outputs=[{"fileset": MADE, "patterns": ["crate"], "path": "out"}],
    retries=20,
    backoff_s=0.1,
    max_backoff_s=0.5,
)


class Ledger:
    """Keeps which messages reached it, in their order."""

    entries: list[tuple[str, int, str]] = []  # noqa: RUF012
    sent: dict[str, int] = {}  # noqa: RUF012

    async def note(self, ctx: ActorContext, sender: str, n: int) -> None:
        self.entries.append((sender, n, ""))

    async def forward(self, ctx: ActorContext, sender: str, n: int, to: str) -> None:
        """Tells another one, too."""
        self.entries.append((sender, n, to))
        self.sent[to] = self.sent.get(to, 0) + 1
        ctx.send(ledgers.ref(to), "note", sender=f"ledger:{ctx.key}", n=self.sent[to])


ledgers = app.actor(Ledger)
