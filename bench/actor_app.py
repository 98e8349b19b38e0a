"""The actors that are measured: they count, tick, or sleep until a timer wakes them."""

import time

import longshore
from longshore import ActorContext

TICK_S = 0.1
KEPT = 200

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


class Ticker:
    """Sets its timer again and again, and notes when it fired."""

    fired: list[float] = []  # noqa: RUF012

    async def start(self, ctx: ActorContext) -> None:
        """The first timer."""
        ctx.timer("tick", after_s=TICK_S)

    async def on_timer_tick(self, ctx: ActorContext) -> None:
        """The next one."""
        self.fired = [*self.fired[-KEPT:], time.time()]
        ctx.timer("tick", after_s=TICK_S)


class Sleeper:
    """Sleeps until its timer wakes it, once, and then notes how late that was."""

    due: float = 0.0
    late_ms: float = -1.0

    async def on_timer_wake(self, ctx: ActorContext) -> None:
        """Says how late it is, by the clock of this machine, which is also the store's."""
        self.late_ms = (time.time() - self.due) * 1000


counters = app.actor(Counter)
tickers = app.actor(Ticker)
sleepers = app.actor(Sleeper)
