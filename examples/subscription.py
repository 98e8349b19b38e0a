"""Subscriptions as actors, with reminders: `python examples/subscription.py`.

Starts `longshore up` on a temporary store and two subscriptions. One is paid for during its trial;
the other lapses, and then ends itself. In between a worker is killed: no letter is lost or written
twice. Exits with 0 only if that is so.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from longshore import ActorRef
from longshore.errors import AskFailed, NotFound

if TYPE_CHECKING:  # the same modules, by their names from the repository's root
    from examples.actor_fleet import expect, fleet, kill_worker_of, run_example, watch
    from examples.subscription_app import Subscription, app, subscriptions
else:
    from actor_fleet import expect, fleet, kill_worker_of, run_example, watch
    from subscription_app import app, subscriptions

WELCOME, PAID = "welcome", "thank you for yearly"
REMINDERS = ["days left in your trial: 2", "days left in your trial: 1"]
LAPSED = "your trial has ended; pay and we go on"


def show() -> None:
    """Two subscriptions, from their start to their end."""
    with fleet("subscription_app:app"), app:
        ann, bob = subscriptions.start("ann"), subscriptions.start("bob")
        watch(lambda: len(letters(ann)) >= 2, "Ann is reminded")
        kill_worker_of(ann)
        print("Ann pays:", ann.ask("pay", plan="yearly"))
        try:
            ann.ask("pay", plan="monthly")
        except AskFailed as error:
            print(f"Ann pays again: {error}")
        follow(bob)
        got = tell("Ann", letters(ann))
        expect(got in ([WELCOME, *REMINDERS[:n], PAID] for n in (1, 2)), "Ann got other letters")
        print(f"Ann's subscription is {ann.state().state}, and {ann.status()}: {ann.why()}")


def letters(ref: ActorRef[Subscription]) -> list[str]:
    """What a customer got so far."""
    return ref.state().letters


def follow(bob: ActorRef[Subscription]) -> None:
    """Looks at a subscription until it has ended itself."""
    seen: list[str] = []

    def is_gone() -> bool:
        try:
            seen[:] = letters(bob)
        except NotFound as error:
            print(f"Bob never paid: {error}")
            return True
        return False

    watch(is_gone, "Bob's subscription ends")
    expect(tell("Bob", seen) == [WELCOME, *REMINDERS, LAPSED], "Bob got other letters")


def tell(who: str, found: list[str]) -> list[str]:
    """Prints the letters of a customer; answers their texts."""
    print(f"{who} got")
    for letter in found:
        print(f"   {letter}")
    return [letter.split(": ", 1)[1] for letter in found]


if __name__ == "__main__":
    sys.exit(run_example(show))
