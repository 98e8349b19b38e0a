"""A trip is booked in steps, each a job. If one is refused, those before it are undone in reverse.

Run it by hand from this folder:

    longshore up --app saga_app:app
    longshore actor start Trip rome 'steps=["flight", "hotel", "car"]'
    longshore actor show Trip rome
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from longshore import ActorContext, App, Context, when

app = App("saga")


class Trip:
    """What is booked, what is to be done next, and in which direction."""

    steps: list[str]
    ledger: str = ""
    """A file in which the jobs note what they really did, once each."""
    state: str = "booking"
    booked: list[str] = []  # noqa: RUF012  (each actor has a list of its own)
    why: str = ""

    async def start(self, ctx: ActorContext) -> None:
        self._go_on(ctx)

    @when("booking")
    async def reserved(self, ctx: ActorContext, step: str) -> None:
        """One step is booked; the next one, if there is one."""
        self.booked.append(step)
        self._go_on(ctx)

    @when("booking")
    async def refused(self, ctx: ActorContext, step: str, why: str) -> None:
        """From now on it goes back."""
        self.why = f"{step}: {why}"
        ctx.become("undoing")
        self._go_back(ctx)

    @when("undoing")
    async def released(self, ctx: ActorContext, step: str) -> None:
        """One step is undone; the one before it, if there is one."""
        self.booked.remove(step)
        self._go_back(ctx)

    def _go_on(self, ctx: ActorContext) -> None:
        left = self.steps[len(self.booked) :]
        if left:
            ctx.submit(reserve.call(ctx.key, left[0], self.ledger))
        else:
            ctx.become("booked")

    def _go_back(self, ctx: ActorContext) -> None:
        if self.booked:
            ctx.submit(release.call(ctx.key, self.booked[-1], self.ledger))
        else:
            ctx.become("cancelled")


trips = app.actor(Trip)


@app.job(retries=5, backoff_s=0.2)
async def reserve(ctx: Context, trip: str, step: str, ledger: str) -> None:
    """Books one step. What it tells the trip is committed with its own success."""
    await asyncio.sleep(0.3)
    if step.startswith("no "):
        ctx.send(trips.ref(trip), "refused", step=step, why="there is none left")
        return
    note(ledger, f"reserve {step}")
    ctx.send(trips.ref(trip), "reserved", step=step)


@app.job(retries=5, backoff_s=0.2)
async def release(ctx: Context, trip: str, step: str, ledger: str) -> None:
    """Undoes one step."""
    await asyncio.sleep(0.3)
    note(ledger, f"release {step}")
    ctx.send(trips.ref(trip), "released", step=step)


def note(ledger: str, line: str) -> None:
    """The world outside: it takes the same thing twice for once, as a good API does."""
    path = Path(ledger)
    done = path.read_text().splitlines() if path.exists() else []
    if ledger and line not in done:
        path.write_text("\n".join([*done, line]) + "\n")
