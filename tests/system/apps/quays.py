"""Actors and jobs with limits, as the dashboard shows them."""

# ruff: noqa: ASYNC110, ASYNC240

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import longshore
from longshore import ActorContext, Limit

app = longshore.App("quays")


class Berth:
    """A place at the quay; it is listed by its ship."""

    ship: str
    size: int = 1
    notes: list[str] = []  # noqa: RUF012

    async def moor(self, ctx: ActorContext, ship: str, side: Literal["port", "starboard"]) -> str:
        self.ship = ship
        return f"{ship} lies to {side}"

    async def grow(self, ctx: ActorContext, by: int) -> int:
        self.size += by
        return self.size

    async def leave_at(self, ctx: ActorContext, after_s: float) -> None:
        ctx.timer("leave", after_s=after_s)

    async def on_timer_leave(self, ctx: ActorContext) -> None:
        self.ship = ""

    async def sink(self, ctx: ActorContext, why: str = "a hole") -> None:
        raise ValueError(f"{self.ship} sinks: {why}")


berths = app.actor(retries=0, listed=("ship",))(Berth)


@app.job(limit=Limit(1, key="crane"))
async def hoist(crane: str, until: str) -> str:
    """Needs a crane until a file appears."""
    while not Path(until).exists():
        await asyncio.sleep(0.01)
    return crane


@app.job
async def tally(pages: int = 1) -> int:
    """What schedules submit."""
    return pages


@app.job
async def founder() -> None:
    """What fails."""
    raise ValueError("it foundered")
