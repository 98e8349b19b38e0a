"""The actors that are measured: they count, or note how late their timers fired."""

import time

import longshore
from longshore import ActorContext

app = longshore.App("bench-actors")


@app.job
async def noop(data: str) -> None:
    """Does nothing, asynchronously."""


class Counter:
    """Counts its messages."""

    count: int = 0

    async def add(self, ctx: ActorContext, data: str) -> int:
        """One more."""
        self.count += 1
        return self.count


counters = app.actor(Counter)


class Sleeper:
    """Sleeps until its timer wakes it, once, and then notes how late that was."""

    late_ms: float = -1.0

    async def on_timer_wake(self, ctx: ActorContext) -> None:
        """Says how late it is, by the clock of this machine."""
        self.late_ms = (time.time() - ctx.now.timestamp()) * 1000


sleepers = app.actor(Sleeper)
