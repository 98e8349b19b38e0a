"""Plays a Hypothesis state machine on a store: whatever is asked, it answers as the model does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from longshore.testing.backends import Backend


def play(
    machine: Callable[[Backend, asyncio.Runner], RuleBasedStateMachine],
    backend: Backend,
    request: pytest.FixtureRequest,
    examples: dict[str, int],
    *,
    steps: int,
) -> None:
    """Runs so many examples on the backend of this test, the same ones each time."""
    limits = settings(
        max_examples=examples[request.node.callspec.params["backend"]],
        stateful_step_count=steps,
        derandomize=True,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with asyncio.Runner() as runner:
        make = cast("type[RuleBasedStateMachine]", partial(machine, backend, runner))
        run_state_machine_as_test(make, settings=limits)
