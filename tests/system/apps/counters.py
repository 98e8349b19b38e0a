"""Actors for the system tests: what each turn does is also noted in files."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import longshore
from longshore import ActorContext

app = longshore.App("counters")


class Counter:
    """Counts, and notes how often it was woken."""

    count: int = 0
    ticks: int = 0
    moves: int = 0
    alarms: int = 0

    async def add(self, ctx: ActorContext, amount: int) -> int:
        self.count += amount
        return self.count

    async def add_slowly(self, ctx: ActorContext, amount: int, folder: str) -> int:
        """Says that it began; goes on when the file `go` is there."""
        self.count += amount
        with (Path(folder) / "began").open("a") as began:
            began.write(f"{os.getppid()}\n")
        while not (Path(folder) / "go").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self.count

    async def tick(self, ctx: ActorContext, every_s: float) -> None:
        ctx.timer("tick", every_s=every_s)

    async def on_timer_tick(self, ctx: ActorContext) -> None:
        self.ticks += 1
        if self.ticks == 3:
            ctx.clear("tick")

    async def wake_me(self, ctx: ActorContext, after_s: float) -> None:
        ctx.timer("alarm", after_s=after_s)

    async def on_timer_alarm(self, ctx: ActorContext) -> None:
        self.alarms += 1

    async def moved(self, ctx: ActorContext) -> None:
        self.moves += 1


counters = app.actor(Counter)


class Plain:
    """Handlers that are no coroutines, in processes of their own."""

    seen: list[str] = []  # noqa: RUF012

    def start(self, ctx: ActorContext) -> None:
        self.seen.append("start")

    def note(self, ctx: ActorContext, text: str) -> list[str]:
        self.seen.append(text)
        ctx.send(counters.ref("main"), "add", amount=1)
        return self.seen

    def broken(self, ctx: ActorContext) -> None:
        raise ValueError("boom")


plains = app.actor(retries=0)(Plain)


class Sleeper:
    """Has handlers that never end."""

    count: int = 0

    async def add(self, ctx: ActorContext, amount: int) -> int:
        self.count += amount
        return self.count

    async def hang(self, ctx: ActorContext) -> None:
        await asyncio.Event().wait()

    async def block(self, ctx: ActorContext) -> None:
        """Stops all coroutines of its process, too."""
        threading.Event().wait()


sleepers = app.actor(timeout_s=0.5, retries=1, backoff_s=0.05)(Sleeper)
