"""Histories of processes that broke stateful entities elsewhere, each as it happened.

What a store alone decides is in `tests/conformance/test_actor_histories.py`.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from longshore.model.actor import ActorStatus
from longshore.testing.processes import await_true
from tests.system import replay
from tests.system.conftest import Fleet, lines
from tests.system.storm import Clients, Storm, Watch
from tests.system.test_actors import connect, worker

on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("store_url", ["postgres"], indirect=True)


class HeldTwice:
    """An actor whose turn runs in two places: its first worker is frozen and taken for lost.

    Only the worker's agent is frozen. The process that runs the turn knows nothing of it.
    """

    def __init__(self, fleet: Fleet, counters: Any, folder: Path) -> None:
        self.dispatcher = fleet.dispatcher()
        self.first = worker(fleet, self.dispatcher)
        connect(counters, self.dispatcher)
        self.ref = counters.counters.start("main")
        self.ref.ask("add", amount=1)
        self._folder = folder
        self.ref.add_slowly.send(amount=10, folder=str(folder))
        await_true(lambda: self.began() == 1, "the turn began")
        self.first.signal(signal.SIGSTOP)
        self.second = worker(fleet, self.dispatcher)
        await_true(lambda: self.began() == 2, "it began in another place, too")
        self.ref.add.send(amount=100)

    def began(self) -> int:
        """How often the turn began."""
        return len(lines(self._folder / "began"))

    def go(self) -> None:
        """Both runs of the turn come to their end."""
        (self._folder / "go").touch()


@on_sqlite
def test_one_entity_active_in_two_places_while_the_cluster_disagrees(
    fleet: Fleet, counters: Any, tmp_path: Path
) -> None:
    """Each of two workers is sure that the turn is its own: one of them is right."""
    held = HeldTwice(fleet, counters, tmp_path)
    held.go()
    await_true(lambda: held.ref.state().count == 111, "the newer one counts")
    held.first.signal(signal.SIGCONT)
    held.second.kill()
    assert held.ref.ask("add", amount=1000) == 1111, "the older one is back, and counts nothing"
    assert held.began() == 2


@on_postgres
def test_two_hosts_in_drain_both_holding_the_entity(
    fleet: Fleet, counters: Any, tmp_path: Path
) -> None:
    """Both leave in good order; what they held is counted once, and the next worker goes on."""
    held = HeldTwice(fleet, counters, tmp_path)
    for leaving in (held.first, held.second):
        leaving.signal(signal.SIGTERM)
    held.first.signal(signal.SIGCONT)
    held.go()
    assert (held.first.wait(), held.second.wait()) == (0, 0)
    assert held.ref.state().count in (11, 111)
    worker(fleet, held.dispatcher)
    await_true(lambda: held.ref.state().count == 111, "the next one goes on")
    assert held.ref.mail() == ()
    assert held.ref.ask("add", amount=0) == 111
    assert held.began() == 2


@on_postgres
def test_a_draining_worker_finishes_its_turns_and_hands_over(
    fleet: Fleet, counters: Any, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    old = worker(fleet, dispatcher)
    connect(counters, dispatcher)
    ref = counters.counters.start("main")
    ref.add_slowly.send(amount=1, folder=str(tmp_path))
    await_true(lambda: len(lines(tmp_path / "began")) == 1, "the turn began")
    ref.add.send(amount=10)
    old.signal(signal.SIGTERM)
    await_true(lambda: "drain" in old.said(), "it drains")
    new = worker(fleet, dispatcher)
    ref.add.send(amount=100)
    assert ref.state().count == 0, "the turn goes on where it is"
    (tmp_path / "go").touch()
    assert old.wait() == 0
    await_true(lambda: ref.state().count == 111, "the new worker has the rest")
    assert len(lines(tmp_path / "began")) == 1, "nothing ran twice"
    assert ref.state().moves == 1
    by = [turn.worker for turn in reversed(ref.turns()) if turn.worker is not None]
    assert len(set(by)) == 2
    assert by == sorted(by, key=by.index), "first the old worker, then the new one"
    assert new.running


@on_sqlite
def test_a_timer_due_while_everything_is_down(fleet: Fleet, counters: Any) -> None:
    """It fires once, after."""
    dispatcher = fleet.dispatcher()
    only = worker(fleet, dispatcher)
    connect(counters, dispatcher)
    counters.counters.start("main").ask("wake_me", after_s=0.5)
    due = time.monotonic() + 0.6
    only.kill()
    dispatcher.kill()
    await_true(lambda: time.monotonic() > due, "the timer is due, and nobody is there")
    dispatcher = fleet.dispatcher()
    worker(fleet, dispatcher)
    connect(counters, dispatcher)
    ref = counters.counters.ref("main")
    await_true(lambda: ref.state().alarms == 1, "it fires")
    assert ref.actor().timers == ()
    assert ref.ask("add", amount=1) == 1
    assert ref.state().alarms == 1


@on_sqlite
def test_a_handler_that_hangs_for_ever(fleet: Fleet, counters: Any) -> None:
    """Its timeout ends it. The actor fails by name of the message; all others go on."""
    dispatcher = fleet.dispatcher()
    worker(fleet, dispatcher)
    connect(counters, dispatcher)
    other = counters.counters.start("other")
    for how in ("hang", "block"):
        _hang(counters.sleepers.start(how), other, how)


def _hang(ref: Any, other: Any, how: str) -> None:
    """One after the other: what blocks a whole process makes others in it late, too."""
    before = other.state().count
    ref.add.send(amount=1)
    ref.send(how)
    ref.add.send(amount=10)
    for n in range(1, 6):
        assert other.ask("add", amount=1) == before + n
    await_true(lambda: bool(ref.status() is ActorStatus.FAILED), "it is given up")
    assert ref.state().count == 1
    assert f"message '{how}' (number 2): took longer than its timeout" in ref.why()
    assert [one.name for one in ref.mail()] == [how, "add"]
    ref.drop(2)
    ref.resume()
    await_true(lambda: bool(ref.state().count == 11), "it goes on without that message")


@on_postgres
def test_a_rolling_restart_of_all_workers_under_load(fleet: Fleet) -> None:
    """No message is lost, and none is applied twice. The storms do so on SQLite, too."""
    storm = Storm(fleet, 1, seed=1, workers=2)
    watch = Watch(storm.frontends)
    clients = Clients(storm.frontends, seed=1)
    with clients.at_work():
        during = storm.restart_all(lambda: clients.accepted)
    assert len(during) == 2
    assert all(during), "messages were sent while each worker was replaced"
    watch.hush()
    await_true(lambda: watch.states_at_rest() is not None, "all is handled", timeout_s=60)
    states = watch.states_at_rest()
    assert states is not None
    replay.check(states, clients.sent)
    watch.close()
