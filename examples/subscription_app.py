"""Subscriptions that remind their customers, and end by themselves. A day here takes half a second.

Run it by hand from this folder:

    longshore up --app subscription_app:app
    longshore actor start Subscription ann
    longshore actor send Subscription ann pay plan=yearly
    longshore actor show Subscription ann
"""

from __future__ import annotations

from longshore import ActorContext, App, when

app = App("subscription")

DAY_S = 0.5
TRIAL_DAYS = 3
GRACE_DAYS = 2


class Subscription:
    """A customer's subscription: first a trial, then paid for, or lapsed and then gone."""

    state: str = "trial"
    plan: str = ""
    day: int = 0
    letters: list[str] = []  # noqa: RUF012  (each actor has a list of its own)

    async def start(self, ctx: ActorContext) -> None:
        ctx.timer("day", every_s=DAY_S)
        self._write("welcome")

    @when("trial", "lapsed")
    async def pay(self, ctx: ActorContext, plan: str) -> str:
        """The reminders end, whichever there were."""
        self.plan = plan
        ctx.become("paid")
        ctx.clear("day")
        self._write(f"thank you for {plan}")
        return f"{plan}, from day {self.day} on"

    @when("paid", handles="pay")
    async def pay_again(self, ctx: ActorContext, plan: str) -> None:
        """Who asks for this gets the error. Nothing has changed."""
        ctx.refuse(f"you have {self.plan} already")

    @when("trial", handles="on_timer_day")
    async def remind(self, ctx: ActorContext) -> None:
        self.day += 1
        left = TRIAL_DAYS - self.day
        if left > 0:
            self._write(f"days left in your trial: {left}")
        else:
            ctx.become("lapsed")
            self._write("your trial has ended; pay and we go on")

    @when("lapsed", handles="on_timer_day")
    async def give_up(self, ctx: ActorContext) -> None:
        self.day += 1
        if self.day >= TRIAL_DAYS + GRACE_DAYS:
            ctx.submit(say_goodbye.call(ctx.key, len(self.letters)))
            ctx.stop()

    def _write(self, text: str) -> None:
        self.letters.append(f"day {self.day}: {text}")


subscriptions = app.actor(Subscription)


@app.job
async def say_goodbye(customer: str, letters: int) -> str:
    """It is submitted in the last turn of a subscription: both happen, or neither."""
    return f"goodbye, {customer}, after {letters} letters"
