"""Rushes of short jobs: what workers hold ahead of their slots keeps every promise too."""

from __future__ import annotations

import pytest

from longshore.model.attempt import AttemptKey
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_rush
from longshore.worker.line import Line

from .telling import assert_kept


@pytest.mark.parametrize("first", range(1, 9, 4))
def test_every_promise_is_kept_in_a_rush(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """G1, G2, G3, G6, G8; what goes back as not begun has never run, nothing waits in one worker
    while another is idle, and a loss blames no more than could run.
    """
    held, late = list[int](), Line.late

    def watched(line: Line, now: float, after_s: float) -> list[AttemptKey]:
        held.append(len(line))
        return late(line, now, after_s)

    monkeypatch.setattr(Line, "late", watched)
    for seed in range(first, first + 4):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_rush(seed)), "rush")
    assert any(held), "no worker held anything ahead: these seeds show nothing"
