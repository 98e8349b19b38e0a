"""When a job of a group may run: what ends tell it, in whatever order they come."""

from __future__ import annotations

from itertools import permutations, product
from uuid import UUID

import pytest

from longshore.core.dependencies import (
    Marks,
    Parent,
    Waiting,
    becomes,
    decide,
    deliver,
    group_end,
    may_wake,
    told,
)
from longshore.core.lifecycle import TERMINAL, Event
from longshore.model.group import Condition, GroupState
from longshore.model.job import JobError, JobState, Reason

S = JobState
GROUP = UUID(int=7)


def parent(number: int, state: JobState, error: JobError | None = None) -> Parent:
    return Parent(UUID(int=number), GROUP, f"k{number}", number, state, error)


def test_every_end_tells_something() -> None:
    assert {state: told(state) for state in TERMINAL} == {
        S.SUCCEEDED: Marks.NOTHING,
        S.FAILED: Marks.FAILED,
        S.DEPENDENCY_FAILED: Marks.FAILED,
        S.CANCELLED: Marks.CANCELLED,
        S.SKIPPED: Marks.SKIPPED,
    }


@pytest.mark.parametrize("on", list(Condition))
def test_the_outcome_does_not_depend_on_the_order_of_ends(on: Condition) -> None:
    """G5: three ends, one after the other in every order, and all at once."""
    for states in product(sorted(TERMINAL), repeat=3):
        parents = [parent(number, state) for number, state in enumerate(states)]
        outcomes = set()
        for order in permutations(parents):
            node, change = Waiting(on, 3, Marks.NOTHING), None
            for one in order:
                unmet, marks, new = deliver(node, [one])
                node, change = node._replace(unmet=unmet, marks=marks), change or new
            outcomes.add(change.state if change else None)
        whole = deliver(Waiting(on, 3, Marks.NOTHING), parents)
        outcomes.add(whole.change.state if whole.change else None)
        assert len(outcomes) == 1, (on, states)
        assert None not in outcomes, "nothing is left to wait for"


def test_a_failure_is_told_at_once_and_a_skip_only_at_the_end() -> None:
    assert decide(Condition.SUCCEEDED, 5, Marks.FAILED) is Event.DEPENDENCY_FAILED
    assert decide(Condition.SUCCEEDED, 5, Marks.SKIPPED) is None
    assert decide(Condition.SUCCEEDED, 0, Marks.SKIPPED) is Event.CONDITION_LOST
    assert decide(Condition.FAILED, 5, Marks.FAILED) is Event.DEPENDENCIES_MET
    assert decide(Condition.FAILED, 0, Marks.CANCELLED) is Event.CONDITION_LOST
    assert decide(Condition.ENDED, 1, Marks.FAILED) is None
    assert decide(Condition.ENDED, 0, Marks.FAILED) is Event.DEPENDENCIES_MET


def test_an_end_that_is_told_once_too_often_counts_nothing_below_zero() -> None:
    late = deliver(Waiting(Condition.ENDED, 0, Marks.NOTHING), [parent(1, S.SUCCEEDED)])
    assert late.unmet == 0


def test_a_delay_begins_when_the_dependencies_are_met() -> None:
    node = Waiting(Condition.SUCCEEDED, 1, Marks.NOTHING, delay_s=30.0)
    change = deliver(node, [parent(1, S.SUCCEEDED)]).change
    assert change is not None
    assert (change.state, change.delay_s) == (S.DELAYED, 30.0)


def test_a_job_without_dependencies_is_ready() -> None:
    change = becomes(Waiting(Condition.SUCCEEDED, 0, Marks.NOTHING))
    assert change is not None
    assert change.state is S.READY


def cause(*ended: Parent) -> str:
    change = deliver(Waiting(Condition.SUCCEEDED, len(ended), Marks.NOTHING), ended).change
    assert change is not None
    assert change.error is not None
    assert change.error.reason is Reason.DEPENDENCY_FAILED
    return change.error.message


def test_what_cannot_run_names_the_first_failure_and_its_root() -> None:
    raised = JobError(Reason.RAISED, "no room", "OSError")
    assert cause(parent(1, S.FAILED, raised)) == "'k1' failed: OSError: no room"
    assert cause(parent(1, S.CANCELLED)) == "'k1' was cancelled"
    assert cause(parent(1, S.FAILED)) == "'k1' failed: no reason was recorded"
    below = JobError(Reason.DEPENDENCY_FAILED, "'root' failed: OSError: no room")
    assert cause(parent(2, S.DEPENDENCY_FAILED, below)) == below.message
    both = cause(parent(2, S.FAILED, raised), parent(1, S.CANCELLED), parent(0, S.SUCCEEDED))
    assert both == "'k1' was cancelled", "the first by number"


def test_only_a_running_group_lets_jobs_become_ready() -> None:
    assert {state for state in GroupState if may_wake(state)} == {GroupState.RUNNING}


@pytest.mark.parametrize(
    ("failed", "cancelled", "by_user", "wanted"),
    [
        (0, 0, False, GroupState.SUCCEEDED),
        (1, 0, False, GroupState.FAILED),
        (1, 1, False, GroupState.FAILED),
        (0, 1, False, GroupState.CANCELLED),
        (1, 1, True, GroupState.CANCELLED),
        (0, 0, True, GroupState.CANCELLED),
    ],
)
def test_how_a_group_ends(failed: int, cancelled: int, by_user: bool, wanted: GroupState) -> None:
    assert group_end(failed, cancelled, by_user=by_user) is wanted
