"""A node counts those that it has yet to hear of, and knows what the others told."""

from __future__ import annotations

import pytest

from longshore.core.dependencies import Marks
from longshore.core.recounting import Others, recounted
from longshore.core.reopening import NodeState, inner_first, open_again
from longshore.model.job import JobState

S = JobState
NOTHING = Marks.NOTHING


def others(
    state: JobState,
    *,
    has_open: bool = False,
    marks: Marks = NOTHING,
    is_on_its_way: bool = False,
    opens_again: bool = False,
    how_many: int = 1,
) -> Others:
    """Nodes that are alike."""
    return Others(state, has_open, marks, is_on_its_way, opens_again, how_many)


@pytest.mark.parametrize(
    ("some", "counters"),
    [
        (others(S.SUCCEEDED), (0, NOTHING)),
        (others(S.RUNNING, how_many=3), (3, NOTHING)),
        (others(S.FAILED), (0, Marks.FAILED)),
        (others(S.SKIPPED), (0, Marks.SKIPPED)),
        (others(S.FAILED, is_on_its_way=True), (1, Marks.FAILED)),
        (others(S.FAILED, opens_again=True), (1, NOTHING)),
        (others(S.SUCCEEDED, has_open=True), (1, NOTHING)),
        (others(S.SUCCEEDED, has_open=True, marks=Marks.FAILED), (1, Marks.FAILED)),
        (others(S.SUCCEEDED, has_open=True, marks=Marks.SKIPPED), (1, NOTHING)),
        (others(S.SUCCEEDED, marks=Marks.SKIPPED), (0, Marks.SKIPPED)),
        (others(S.SUCCEEDED, opens_again=True, marks=Marks.CANCELLED), (1, Marks.CANCELLED)),
    ],
)
def test_what_a_node_counts_of_others(some: Others, counters: tuple[int, Marks]) -> None:
    assert recounted([some]) == counters


def test_what_a_node_counts_of_several() -> None:
    found = [others(S.FAILED), others(S.WAITING, how_many=2), others(S.CANCELLED, how_many=5)]
    assert recounted(found) == (2, Marks.FAILED | Marks.CANCELLED)
    assert recounted([]) == (0, NOTHING)


NESTED = [
    NodeState("s", S.SUCCEEDED, ()),
    NodeState("s/x", S.SUCCEEDED, (), scope=0),
    NodeState("s/t", S.SUCCEEDED, (), scope=0),
    NodeState("s/t/x", S.FAILED, (), scope=2),
    NodeState("d", S.DEPENDENCY_FAILED, (0,)),
]


def test_the_scopes_around_what_opens_are_open_again() -> None:
    assert open_again(NESTED, [3, 4]) == {0, 2, 3, 4}
    assert open_again(NESTED, [1]) == {0, 1}
    assert open_again(NESTED, []) == set()


def test_inner_scopes_come_first() -> None:
    assert inner_first(NESTED, {0, 2}) == [2, 0]
    assert inner_first(NESTED, {0, 1, 2, 3})[0] == 3
