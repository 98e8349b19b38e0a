"""Actors that write down whatever reaches them, for the storms: each state tells its own history.

An entry is `deed sender n more`. From its entries alone follows all else in a state, and all that
the actor sent: see `tests.system.replay`.
"""

from __future__ import annotations

import asyncio
import time

import longshore
from longshore import ActorContext, Answer, Outcome, current

app = longshore.App("ledgers")

TICK_S = 0.3
RING_S = 0.2
DECLINED = 4


@app.job(retries=5, backoff_s=0.05)
async def work(to: str, n: int) -> None:
    """Tells who hired it."""
    await asyncio.sleep(0.01)
    current().send(ref_of(to), "note", sender=f"job-of-{to}-{n}", n=1, amount=n)


@app.job(retries=0)
async def bill(n: int) -> str:
    """Fails for every fourth."""
    await asyncio.sleep(0.01)
    if n % DECLINED == 0:
        raise ValueError("declined")
    return f"paid-{n}"


class Ledger:
    """Keeps entries, and sends to others."""

    entries: list[str] = []  # noqa: RUF012
    total: int = 0
    sent: dict[str, int] = {}  # noqa: RUF012
    hired: int = 0
    charged: int = 0
    invited: int = 0
    alarms: int = 0
    rung: int = 0
    ticks: int = 0

    async def start(self, ctx: ActorContext) -> None:
        self.entries.append("start - 0 -")
        ctx.timer("tick", every_s=TICK_S)

    async def note(self, ctx: ActorContext, sender: str, n: int, amount: int) -> int:
        """Answers which of its entries this is."""
        await asyncio.sleep(0.002)
        self.total += amount
        return self._write("note", sender, n, str(amount))

    async def relay(self, ctx: ActorContext, sender: str, n: int, to: str) -> int:
        place = self._write("relay", sender, n, to)
        ctx.send(ref_of(to), "note", sender=name_of(ctx), n=self._count(to), amount=1)
        return place

    async def question(self, ctx: ActorContext, sender: str, n: int, to: str) -> int:
        place = self._write("question", sender, n, to)
        number = self._count(to)
        words = {"sender": name_of(ctx), "n": number, "amount": 2}
        ctx.ask(ref_of(to), "note", then="heard", about=[to, number], **words)
        return place

    async def heard(self, ctx: ActorContext, answer: Answer) -> None:
        to, number = answer.about
        self._write("heard", to, number, str(answer.value))

    async def alarm(self, ctx: ActorContext, sender: str, n: int) -> int:
        self.alarms += 1
        ctx.timer("ring", after_s=RING_S)
        return self._write("alarm", sender, n, "-")

    async def hire(self, ctx: ActorContext, sender: str, n: int) -> int:
        self.hired += 1
        ctx.submit(work.call(name_of(ctx), self.hired))
        return self._write("hire", sender, n, "-")

    async def charge(self, ctx: ActorContext, sender: str, n: int) -> int:
        self.charged += 1
        ctx.submit(bill.call(self.charged), then="billed", about=self.charged)
        return self._write("charge", sender, n, "-")

    async def billed(self, ctx: ActorContext, outcome: Outcome) -> None:
        self._write("billed", outcome.state, outcome.about, str(outcome.value or "-"))

    async def invite(self, ctx: ActorContext, sender: str, n: int) -> tuple[int, str]:
        """Answers with the token of a callback, too."""
        self.invited += 1
        token = ctx.callback(then="accepted", about=self.invited)
        return self._write("invite", sender, n, "-"), token

    async def accepted(self, ctx: ActorContext, answer: Answer) -> None:
        self._write("accepted", "-", answer.about, str(answer.value))

    async def on_timer_ring(self, ctx: ActorContext) -> None:
        self.rung = self.alarms
        self._write("ring", "-", self.alarms, "-")

    async def on_timer_tick(self, ctx: ActorContext) -> None:
        self.ticks += 1

    async def quiet(self, ctx: ActorContext) -> None:
        """No more ticks: the storm is over."""
        ctx.clear("tick")

    def _count(self, to: str) -> int:
        self.sent[to] = self.sent.get(to, 0) + 1
        return self.sent[to]

    def _write(self, deed: str, sender: str, n: int, more: str) -> int:
        self.entries.append(f"{deed} {sender} {n} {more}")
        return len(self.entries)


class Book:
    """Keeps entries too, in processes of its own: its handlers are no coroutines."""

    entries: list[str] = []  # noqa: RUF012
    total: int = 0

    def note(self, ctx: ActorContext, sender: str, n: int, amount: int) -> int:
        time.sleep(0.002)
        self.total += amount
        self.entries.append(f"note {sender} {n} {amount}")
        return len(self.entries)


ledgers = app.actor(Ledger)
books = app.actor(Book)


def ref_of(name: str) -> longshore.ActorRef[object]:
    """The actor with this name: type and key."""
    type, key = name.split(":")
    return app.actor_ref(type, key)


def name_of(ctx: ActorContext) -> str:
    return f"{ctx.type}:{ctx.key}"
