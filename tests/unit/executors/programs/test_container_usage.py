"""What engines say of a container's use, with cgroups of either version."""

from __future__ import annotations

from typing import Any

import pytest

from longshore.executors.host.programs.container_usage import joined, usage_in
from longshore.model.usage import Usage

CPU = {"cpu_usage": {"total_usage": 1_500_000_000}}


@pytest.mark.parametrize(
    ("memory", "used"),
    [
        ({"usage": 900, "stats": {"inactive_file": 400}}, 500),
        ({"usage": 900, "max_usage": 2000, "stats": {"total_inactive_file": 400}}, 1600),
        ({"usage": 900}, 900),
        ({"usage": 900, "stats": {"inactive_file": 1000}}, 0),
    ],
)
def test_memory_is_what_the_kernel_cannot_drop(memory: dict[str, Any], used: int) -> None:
    assert usage_in({"memory_stats": memory, "cpu_stats": CPU}) == Usage(used, 1.5)


def test_a_container_that_has_ended_says_nothing() -> None:
    said: list[dict[str, Any]] = [{}, {"memory_stats": {}, "cpu_stats": None}]
    assert [usage_in(stats) for stats in said] == [None, None]


def test_the_most_of_all_looks_counts() -> None:
    one, two = Usage(5, 1.0), Usage(3, 2.0)
    assert joined(one, two) == Usage(5, 2.0)
    assert joined(None, two) == joined(two, None) == two
    assert joined(None, None) is None
