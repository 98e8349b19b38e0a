"""Limits in a real fleet, whose dispatcher dies while a key is full."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import longshore
from longshore import JobState, Limit
from longshore.model.group import GroupState
from longshore.testing.processes import Process, run
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines


def test_a_dispatcher_that_is_killed_at_the_limit_leaves_it_as_it_was(
    fleet: Fleet, tmp_path: Path
) -> None:
    """The jobs go on, keep their slots, and give them to those of their group that wait."""
    dispatcher = fleet.dispatcher(lease_s=10)
    fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    limited = harbour.hold.options(limit=Limit(2, key="dock=a"))
    with fleet.client(dispatcher).group("unload") as group:
        first = group.add(harbour.add.call(1, 2))
        for _ in range(6):
            group.add(limited.call(str(started), str(until)), after=first)
    await_true(lambda: len(lines(started)) == 2, "two started")
    addresses = [dispatcher.facts[k].removeprefix("tcp://") for k in ("backend", "frontend")]
    dispatcher.kill()
    again = fleet.dispatcher(*addresses, lease_s=10)
    shown = run("limits", "show", "dock=a", "--connect", again.facts["frontend"]).stdout
    assert "at most 2 at once" in shown
    assert "2 running" in shown
    assert len(lines(started)) == 2
    until.touch()
    found = fleet.client(again).group_handle(group.handle.id)
    assert found.wait(60) is GroupState.SUCCEEDED
    assert len(lines(started)) == 6, "each ran once"


SHIPS, TURNS = 6, 4


def running(notes: list[str]) -> list[int]:
    """How many ran, after each note."""
    steps = (1 if note.startswith("began") else -1 for note in notes)
    return list(accumulate(steps, initial=0))


def is_full(noted: Path) -> bool:
    """Whether two jobs run now."""
    return running(lines(noted))[-1] == 2


def restarted(fleet: Fleet, victim: Process) -> Process:
    """Kills a dispatcher, and starts another one at its addresses."""
    addresses = [victim.facts[k].removeprefix("tcp://") for k in ("backend", "frontend")]
    victim.kill()
    return fleet.dispatcher(*addresses, lease_s=20)


def test_dispatchers_that_are_killed_again_and_again_never_exceed_a_limit(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Each time while the key is full. The jobs have a rate besides, in the time of the store."""
    dispatchers = [fleet.dispatcher(lease_s=20) for _ in range(2)]
    for order in (dispatchers, dispatchers[::-1]):
        fleet.worker(*order)
    noted, rate, burst = tmp_path / "noted", 20, 3
    limits = [Limit(2, key="dock=a"), Limit(key="api=x", rate=f"{rate}/s", burst=burst)]
    limited = harbour.moor.options(limit=limits)
    app = longshore.App("client", connect=[one.facts["frontend"] for one in dispatchers])
    fleet.apps.append(app)
    jobs = []
    for turn in range(TURNS):
        until = tmp_path / f"until-{turn}"
        names = [f"{turn}-{n}" for n in range(SHIPS)]
        jobs += list(app.submit_many(limited.call(str(noted), name, str(until)) for name in names))
        await_true(lambda: is_full(noted), "the key is full")
        dispatchers[turn % 2] = restarted(fleet, dispatchers[turn % 2])
        assert is_full(noted), "what runs goes on, and nothing else begins"
        until.touch()
        for job in jobs[-SHIPS:]:
            job.result(timeout_s=120)
    notes = lines(noted)
    assert max(running(notes)) == 2
    assert len(notes) == 2 * len(jobs) == 2 * TURNS * SHIPS, "none is lost, each ran once"
    began = sorted(
        entry.at.timestamp()
        for job in jobs
        for entry in job.job().history
        if entry.state is JobState.RUNNING
    )
    for first, at in enumerate(began):
        for last, until_s in enumerate(began[first:], first):
            assert last - first + 1 <= burst + 1 + rate * (until_s - at)


def test_a_rule_for_a_kind_holds_for_a_backlog_that_names_no_key(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    connect = ("--connect", dispatcher.facts["frontend"])
    started, until = tmp_path / "started", tmp_path / "until"
    run("limits", "set", "kind=hold", "--concurrency", "1", *connect)
    with fleet.client(dispatcher).group("hold") as group:
        jobs = [group.add(harbour.hold.call(str(started), str(until))) for _ in range(3)]
    await_true(lambda: len(lines(started)) == 1, "one started")
    assert "kind=hold is at 1 of 1" in " ".join(job.handle.why() for job in jobs)
    run("limits", "set", "kind=hold", "--concurrency", "2", *connect)
    await_true(lambda: len(lines(started)) == 2, "two started")
    run("limits", "rm", "kind=hold", *connect)
    await_true(lambda: len(lines(started)) == 3, "all started")
    until.touch()
    assert group.handle.wait(60) is GroupState.SUCCEEDED
