"""A trip is booked in steps, each a job. If one fails, those before it are undone in reverse.

The trip is an actor. Each job that it submits tells it how it ended, as a message.

Run it by hand from this folder:

    longshore up --app saga_app:app
    longshore actor start Trip rome 'steps=["flight", "hotel", "car"]'
    longshore actor show Trip rome
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from longshore import ActorContext, App, Outcome

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

    async def reserved(self, ctx: ActorContext, outcome: Outcome) -> None:
        """A step ended. If it is booked, the next one follows; otherwise it goes back."""
        if outcome.succeeded:
            self.booked.append(outcome.about)
            self._go_on(ctx)
        else:
            self.why = f"{outcome.about}: {outcome.error}"
            self.state = "undoing"
            self._go_back(ctx)

    async def released(self, ctx: ActorContext, outcome: Outcome) -> None:
        """A step is undone; the one before it follows. What cannot be undone needs a human."""
        if not outcome.succeeded:
            self.why += f"; {outcome.about} is still booked: {outcome.error}"
        self.booked.remove(outcome.about)
        self._go_back(ctx)

    def _go_on(self, ctx: ActorContext) -> None:
        left = self.steps[len(self.booked) :]
        if left:
            ctx.submit(reserve.call(left[0], self.ledger), then="reserved", about=left[0])
        else:
            self.state = "booked"

    def _go_back(self, ctx: ActorContext) -> None:
        if self.booked:
            last = self.booked[-1]
            ctx.submit(release.call(last, self.ledger), then="released", about=last)
        else:
            self.state = "cancelled"


trips = app.actor(Trip)


@app.job(retries=3, backoff_s=0.2, fail_on=LookupError)
async def reserve(step: str, ledger: str) -> None:
    """Books one step. A network that is down is tried again; a full hotel is not."""
    await asyncio.sleep(0.3)
    if step == "submarine":
        raise LookupError("there is none left")
    note(ledger, f"reserve {step}")


@app.job(retries=10, backoff_s=0.2)
async def release(step: str, ledger: str) -> None:
    """Undoes one step. To be undone is what must not fail, so it is tried more often."""
    await asyncio.sleep(0.3)
    note(ledger, f"release {step}")


def note(ledger: str, line: str) -> None:
    """The world outside: it takes the same thing twice for once, as a good API does."""
    path = Path(ledger)
    done = path.read_text().splitlines() if path.exists() else []
    if ledger and line not in done:
        path.write_text("\n".join([*done, line]) + "\n")
