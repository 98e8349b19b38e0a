"""Actors on real processes and real stores."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from longshore.errors import AskFailed, NotFound
from longshore.model.actor import ActorStatus
from longshore.testing.processes import Process, await_true, settings
from tests.system.conftest import ANY, APPS, QUICK, QUICK_WORKER, Fleet, lines

WORDS = [*settings(**QUICK_WORKER)]


def worker(fleet: Fleet, dispatcher: Process) -> Process:
    words = ["--app", "counters:app", "--connect", dispatcher.facts["backend"]]
    return fleet.start("worker", *words, *WORDS)


def connect(counters: Any, dispatcher: Process) -> None:
    counters.app.close()
    counters.app._addresses = dispatcher.facts["frontend"]


def test_an_actor_lives_through_the_death_of_its_worker(
    fleet: Fleet, counters: Any, tmp_path: Path
) -> None:
    """Killed in the middle of a turn, the turn happens again elsewhere, and counts once."""
    dispatcher = fleet.dispatcher()
    first = worker(fleet, dispatcher)
    connect(counters, dispatcher)
    ref = counters.counters.start("main")
    assert ref.ask("add", amount=1) == 1
    ref.add_slowly.send(amount=10, folder=str(tmp_path))
    ref.add.send(amount=100)
    await_true(lambda: len(lines(tmp_path / "began")) == 1, "the turn began")
    assert ref.state().count == 1, "nothing of a turn is seen before its end"
    os.kill(first.pid, signal.SIGKILL)
    worker(fleet, dispatcher)
    await_true(lambda: len(lines(tmp_path / "began")) == 2, "the turn began again")
    (tmp_path / "go").touch()
    await_true(lambda: ref.state().count == 111, "the state is right in the end")
    assert ref.state().moves == 1, "it saw that it has moved"
    assert ref.mail() == ()
    assert ref.status() is ActorStatus.SLEEPING


def test_timers_asks_and_messages_between_actors(fleet: Fleet, counters: Any) -> None:
    dispatcher = fleet.dispatcher()
    worker(fleet, dispatcher)
    connect(counters, dispatcher)
    counter = counters.counters.start("main")
    plain = counters.plains.get_or_start("notes")
    counter.tick.send(every_s=0.2)
    assert plain.ask("note", text="one") == ["start", "one"]
    await_true(lambda: counter.state().count == 1, "an actor sent to another")
    await_true(lambda: counter.state().ticks == 3, "the timer fired three times")
    assert counter.actor().timers == ()
    plain.send("broken")
    await_true(lambda: plain.status() is ActorStatus.FAILED, "its turn failed")
    assert "message 'broken' (number 2): boom" in plain.why()
    plain.drop(2)
    plain.resume()
    assert plain.ask("note", text="two") == ["start", "one", "two"]


def test_a_paused_actor_waits_and_a_stopped_one_answers(fleet: Fleet, counters: Any) -> None:
    dispatcher = fleet.dispatcher()
    worker(fleet, dispatcher)
    connect(counters, dispatcher)
    ref = counters.counters.start("main")
    ref.ask("add", amount=1)
    ref.pause()
    ref.add.send(amount=1)
    assert ref.status() is ActorStatus.PAUSED
    assert ref.state().count == 1
    ref.resume()
    await_true(lambda: ref.state().count == 2, "it went on")
    ref.edit(count=40)
    assert ref.ask("add", amount=2) == 42
    ref.stop()
    with pytest.raises(NotFound):
        ref.state()
    with pytest.raises(NotFound):
        ref.ask("add", amount=1)


def test_who_asks_an_actor_that_is_stopped_hears_of_it(
    fleet: Fleet, counters: Any, tmp_path: Path
) -> None:
    """The turn that runs is stopped, and then the actor is removed."""
    dispatcher = fleet.dispatcher()
    worker(fleet, dispatcher)
    connect(counters, dispatcher)
    ref = counters.counters.start("main")
    ref.add_slowly.send(amount=1, folder=str(tmp_path))
    await_true(lambda: len(lines(tmp_path / "began")) == 1, "the turn began")
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ref.ask, "add", amount=1)
        await_true(lambda: len(ref.mail()) == 2, "the ask is in the mailbox")
        ref.stop()
        with pytest.raises(AskFailed):
            asked.result()
    await_true(lambda: _is_gone(ref), "the actor is gone")


def _is_gone(ref: Any) -> bool:
    try:
        ref.status()
    except NotFound:
        return True
    return False


def test_up_runs_actors(tmp_path: Path, counters: Any) -> None:
    """`longshore up` alone is enough."""
    words = ["--app", "counters:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    store = ["--store", f"sqlite:///{tmp_path}/jobs.db"]
    with Process("up", *words, *store, cwd=APPS, log=tmp_path / "up.log") as up:
        connect(counters, up.ready())
        ref = counters.counters.get_or_start("main")
        assert [ref.ask("add", amount=one) for one in (1, 2, 3)] == [1, 3, 6]
        assert [turn.turn for turn in ref.turns()][-1] == 0


def test_on_a_steady_fleet_actors_stay_where_they_are(fleet: Fleet, counters: Any) -> None:
    """Two workers, and many more slots than turns: hardly any turn goes elsewhere."""
    dispatcher = fleet.dispatcher()
    for _ in range(2):
        worker(fleet, dispatcher)
    connect(counters, dispatcher)
    refs = [counters.counters.start(f"steady {n}") for n in range(10)]
    rounds = 8
    for _ in range(rounds):
        with ThreadPoolExecutor(5) as several:
            list(several.map(lambda ref: ref.ask("add", amount=1), refs))
    homes = {ref.turns()[0].worker for ref in refs}
    assert len(homes) == 2, "they are spread over both"
    moves = sum(ref.state().moves for ref in refs)
    assert moves <= len(refs) * rounds * 0.05, f"{moves} moves"
