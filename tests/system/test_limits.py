"""Limits in a real fleet, whose dispatcher dies while a key is full."""

from __future__ import annotations

from pathlib import Path

from longshore import Limit
from longshore.model.group import GroupState
from longshore.testing.processes import run
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
