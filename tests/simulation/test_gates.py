"""Gates in storms: nothing passes one that its client has not opened."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest

from longshore.core import effects
from longshore.model.group import GATE, GateVerdict
from longshore.model.job import JobState
from longshore.testing.memory import MemoryStore
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_gates

from .telling import assert_kept
from .test_guards import hunt


@pytest.mark.parametrize("first", range(1, 13, 4))
def test_every_promise_is_kept_of_groups_with_gates(first: int) -> None:
    """G1, G2, G3, G5, G6, G8."""
    for seed in range(first, first + 4):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_gates(seed)), "gates")


def test_storms_hold_gates_that_are_opened_and_gates_that_expire() -> None:
    """Otherwise the checks would look at nothing."""
    lines = [line for seed in range(1, 9) for line in simulate(make_gates(seed)).trace.lines()]
    assert sum("has opened it" in line for line in lines) > 5
    assert any("expire: ready → failed" in line for line in lines)
    assert any("open_gate: ready → succeeded" in line for line in lines)


# without what keeps the order


class OpensByItself(MemoryStore):
    """Lets a gate end as soon as it is reached, as a sub-group does."""

    def _expand(self, most: int, settled: Counter[int]) -> None:
        for row in self._where(lambda row: row.job.kind == GATE and row.state is JobState.READY):
            self._apply(row, effects.EXPANDED[row.state])
        super()._expand(most, settled)


def test_a_gate_that_nobody_opened_is_noticed() -> None:
    """G5."""
    assert hunt(10, OpensByItself, make=make_gates).promise is Promise.ORDER


class SaysThatItIsOpen(MemoryStore):
    """Answers that a gate is open which has not been reached."""

    async def open_gate(
        self, ref: UUID | int, key: str, value: bytes | None = None, by: str = ""
    ) -> GateVerdict:
        verdict = await super().open_gate(ref, key, value, by)
        return GateVerdict.OPENED if verdict is GateVerdict.NOT_REACHED else verdict


def test_a_client_that_is_told_of_a_gate_that_is_not_open_is_noticed() -> None:
    """G5."""
    assert hunt(10, SaysThatItIsOpen, make=make_gates).promise is Promise.ORDER


class ForgetsTheValue(MemoryStore):
    """Opens a gate without the value."""

    async def open_gate(
        self, ref: UUID | int, key: str, value: bytes | None = None, by: str = ""
    ) -> GateVerdict:
        return await super().open_gate(ref, key, None, by)


def test_a_gate_that_is_opened_with_another_value_is_noticed() -> None:
    """G5."""
    assert hunt(10, ForgetsTheValue, make=make_gates).promise is Promise.ORDER
