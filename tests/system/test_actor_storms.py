"""Actors in storms of real processes: in the end each state is that of a plain replay.

`ACTOR_STORM_S=300` rages for longer than the few seconds of an ordinary run. Each run rages in
another way, and prints its seed: `ACTOR_STORM_SEED=7` sends and disturbs in the same order again.
"""

from __future__ import annotations

import os
import secrets
import time

import pytest

from longshore.testing.processes import await_true
from tests.system import replay
from tests.system.apps import ledgers
from tests.system.conftest import Fleet
from tests.system.storm import LEDGERS, Clients, Storm, Watch

STORM_S = float(os.environ.get("ACTOR_STORM_S", "7"))
SEED = int(os.environ.get("ACTOR_STORM_SEED", "0")) or secrets.randbelow(1_000_000) + 1


@pytest.mark.timeout(STORM_S * 3 + 300)
def test_actors_in_a_storm_end_where_a_plain_replay_ends(fleet: Fleet) -> None:
    """Workers, their hosts and dispatchers are killed, drained and frozen; clients repeat sends."""
    print(f"ACTOR_STORM_SEED={SEED}")
    dispatchers = 1 if fleet.store.startswith("sqlite") else 2
    storm = Storm(fleet, dispatchers, SEED)
    began = time.monotonic()
    watch = Watch(storm.frontends)
    clients = Clients(storm.frontends, SEED)
    with clients.at_work():
        storm.rage(STORM_S, clients.have_done_all)
    print(", ".join(storm.told))
    watch.hush()
    await_true(lambda: watch.states_at_rest() is not None, "all is handled", timeout_s=60)
    ticks = (time.monotonic() - began) / ledgers.TICK_S
    states = watch.states_at_rest()
    assert states is not None
    replay.check(states, clients.sent)
    for to, entry, place in clients.answered:
        assert replay.Entry.read(states[to]["entries"][place - 1]) == entry
    for name in LEDGERS:
        assert 1 <= states[name]["ticks"] <= ticks, "a repeated timer fires once each time"
    watch.close()
