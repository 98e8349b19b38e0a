"""A saga over several jobs, with compensation: `python examples/saga.py`.

Starts `longshore up` on a temporary store and books two trips, each an actor whose steps are jobs.
The first succeeds. Of the second the last step fails, so the steps before it are undone, the
last one first, although a worker is killed meanwhile. Exits with 0 only if that is so.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from longshore import ActorRef

if TYPE_CHECKING:  # the same modules, by their names from the repository's root
    from examples.actor_fleet import expect, fleet, kill_worker_of, run_example, watch
    from examples.saga_app import Trip, app, trips
else:
    from actor_fleet import expect, fleet, kill_worker_of, run_example, watch
    from saga_app import app, trips

BOOKED = ["reserve flight", "reserve hotel", "reserve car"]
UNDONE = ["reserve flight", "reserve hotel", "release hotel", "release flight"]


def show() -> None:
    """Two trips, each to its end."""
    with tempfile.TemporaryDirectory() as ledgers, fleet("saga_app:app"), app:
        rome = trips.start(
            "rome", steps=["flight", "hotel", "car"], ledger=str(Path(ledgers, "rome"))
        )
        oslo = trips.start(
            "oslo", steps=["flight", "hotel", "submarine"], ledger=str(Path(ledgers, "oslo"))
        )
        watch(lambda: oslo.state().why != "", "no submarine goes to Oslo")
        print(f"oslo: {oslo.state().why}; what is booked is undone")
        kill_worker_of(oslo)
        tell(rome, "booked", BOOKED)
        tell(oslo, "cancelled", UNDONE)


def tell(trip: ActorRef[Trip], end: str, wanted: list[str]) -> None:
    """Prints what became of a trip, and what was really done for it."""
    watch(lambda: trip.state().state in ("booked", "cancelled"), f"{trip.key} ends")
    state = trip.state()
    done = Path(state.ledger).read_text().splitlines()
    print(f"{trip.key}: {state.state}, in {trip.actor().turn} turns")
    for line in done:
        print(f"   {line}")
    expect((state.state, done) == (end, wanted), f"{trip.key} should be {end}, by {wanted}")


if __name__ == "__main__":
    sys.exit(run_example(show))
