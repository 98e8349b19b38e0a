"""When a job of a group may run, and how a group ends.

Theory. A node counts those it depends on that have not ended (`unmet`), and remembers what the ends
of the others told it (`Marks`). Both only ever move one way, so it does not matter in which order
ends arrive, nor how many arrive at once. `decide` looks at the two and says what becomes of a node
that still waits:

- It fails at once when a failure or a cancel makes its condition impossible. Nobody needs to wait
  for the others.
- A skip is decided only when all have ended: a failure among the others weighs more than a skip,
  whichever came first.

A store locks the nodes that an end reaches, decides here, and writes the answer. The nodes that end
by that reach others, and so on: the store does that in bounded steps.

A node may stand for more than its own job: for the jobs that it added, for the elements of a map,
for a sub-group. These are in its *scope*, and it counts those of them that are `open`. A node is
*closed* once its job has ended and nothing in its scope is open. Only a closed node counts down its
dependents, and its own scope. So whoever depends on a job waits for all that it added too, however
deep, and no edge is needed for that. A failure in a scope does not wait for the close: its
dependents hear of it early, without being counted down. `Parent` is such a word, early or last.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from functools import lru_cache
from typing import Final, NamedTuple, assert_never
from uuid import UUID

from longshore.core import effects
from longshore.core.effects import Change
from longshore.core.lifecycle import Event
from longshore.core.timing import summary
from longshore.model.group import Condition, GroupState
from longshore.model.job import JobError, JobState, Reason


class Marks(IntFlag):
    """What the ends of those that it depends on told a node."""

    NOTHING = 0
    FAILED = 1
    CANCELLED = 2
    SKIPPED = 4


_TOLD: Final = {
    JobState.SUCCEEDED: Marks.NOTHING,
    JobState.FAILED: Marks.FAILED,
    JobState.DEPENDENCY_FAILED: Marks.FAILED,
    JobState.CANCELLED: Marks.CANCELLED,
    JobState.SKIPPED: Marks.SKIPPED,
}


BAD: Final = Marks.FAILED | Marks.CANCELLED
"""What is told early, and is the cause of what cannot run."""


def told(ended: JobState) -> Marks:
    """What the end of a job tells the nodes that depend on it."""
    return _TOLD[ended]


def early(marks: Marks) -> Marks:
    """What is told of a scope before it is closed: a skip is not, since a failure weighs more."""
    return marks & BAD


def decide(on: Condition, unmet: int, marks: Marks) -> Event | None:
    """What happens to a node that waits; None if it must wait on."""
    match on:
        case Condition.SUCCEEDED:
            if marks & (Marks.FAILED | Marks.CANCELLED):
                return Event.DEPENDENCY_FAILED
            lost = bool(marks & Marks.SKIPPED)
        case Condition.ENDED:
            lost = False
        case Condition.FAILED:
            if marks & Marks.FAILED:
                return Event.DEPENDENCIES_MET
            lost = True
        case _:
            assert_never(on)
    if unmet:
        return None
    return Event.CONDITION_LOST if lost else Event.DEPENDENCIES_MET


@lru_cache
def _decided(on: Condition, is_unmet: bool, marks: Marks) -> Event | None:
    """`decide`, remembered: operations on flags take long, and there are few cases."""
    return decide(on, int(is_unmet), marks)


class Parent(NamedTuple):
    """A node that closed, for the nodes that depend on it and for the scope that it is in.

    If it `is_early`, the node is not closed: a job in its scope failed or was cancelled.
    """

    job: UUID
    group: UUID
    key: str
    number: int
    state: JobState
    error: JobError | None = None
    marks: Marks = Marks.NOTHING
    """What the ends in its scope told."""
    cause: JobError | None = None
    """The first failure in its scope, as the error of what cannot run because of it."""
    is_early: bool = False

    @property
    def told(self) -> Marks:
        """What it tells the nodes that depend on it."""
        if self.is_early:
            return early(self.marks)
        # Most scopes are empty, and to join flags takes long.
        return told(self.state) | self.marks if self.marks else told(self.state)


class Waiting(NamedTuple):
    """What a store holds of a node that other jobs' ends reach."""

    on: Condition
    unmet: int
    marks: Marks
    delay_s: float | None = None
    """How long its job waits once its dependencies are met."""
    expires_s: float | None = None
    """How long its job has to begin, from then on."""


class Delivered(NamedTuple):
    """What the ends of some jobs do to a node: its new counters, and what becomes of its job.

    The change is for a job that still waits. It is None if the job must wait on.
    """

    unmet: int
    marks: Marks
    change: Change | None


def deliver(node: Waiting, ended: Sequence[Parent]) -> Delivered:
    """A node hears this of those that it depends on."""
    unmet, marks = node.unmet, node.marks
    for parent in ended:
        if not parent.is_early:
            unmet -= 1
        if mark := parent.told:
            marks |= mark
    unmet = max(0, unmet)
    on, _, _, *rest = node
    return Delivered(unmet, marks, becomes(Waiting(on, unmet, marks, *rest), ended))


def becomes(node: Waiting, ended: Sequence[Parent] = ()) -> Change | None:
    """What becomes of the job of a node that waits, after the ends of these; None if it waits."""
    event = _decided(node.on, node.unmet > 0, node.marks)
    if event is None:
        return None
    if event is Event.DEPENDENCY_FAILED:
        return effects.of_dependency(event, _cause(ended))
    if event is Event.CONDITION_LOST:
        return effects.of_dependency(event)
    if node.delay_s:
        return effects.of_dependency(Event.DELAY_BEGAN, None, node.delay_s, node.expires_s)
    return _met(node.expires_s)


@lru_cache
def _met(expires_s: float | None) -> Change:
    return effects.of_dependency(Event.DEPENDENCIES_MET, expires_s=expires_s)


def _cause(ended: Sequence[Parent]) -> JobError:
    """The error of a node that cannot run any more: the first failure among what it depends on.

    It names the root. What failed because of another failure passes that one's error on.
    """
    told_badly = [one for one in ended if one.told & BAD]
    if not told_badly:
        return JobError(Reason.DEPENDENCY_FAILED, "a job it depends on failed")
    first = min(told_badly, key=lambda one: one.number)
    if first.is_early or not told(first.state) & BAD:
        return first.cause or JobError(Reason.DEPENDENCY_FAILED, f"a job of '{first.key}' failed")
    if first.state is JobState.DEPENDENCY_FAILED and first.error is not None:
        return first.error
    if first.state is JobState.CANCELLED:
        return JobError(Reason.DEPENDENCY_FAILED, f"'{first.key}' was cancelled")
    words = "no reason was recorded" if first.error is None else summary(first.error)
    return JobError(Reason.DEPENDENCY_FAILED, f"'{first.key}' failed: {words}")


class Scope(NamedTuple):
    """What a store holds of a node that others are in the scope of."""

    open: int
    marks: Marks
    cause: JobError | None
    has_ended: bool
    """Whether its own job has ended."""


class ScopeTold(NamedTuple):
    """What the ends in its scope do to a node: its new counters, and what is to be told of it."""

    open: int
    marks: Marks
    cause: JobError | None
    is_closed: bool
    """It closed by this: its dependents and its own scope hear of it, for the last time."""
    is_news: bool
    """It is not closed, but a failure in it must be told early."""


def tell_scope(scope: Scope, ended: Sequence[Parent]) -> ScopeTold:
    """A node hears this of nodes in its scope."""
    left = max(0, scope.open - sum(not one.is_early for one in ended))
    marks, cause = scope.marks, scope.cause
    for one in ended:
        marks |= one.told
    if cause is None and marks & BAD:
        cause = _cause(ended)
    is_closed = scope.open > 0 and left == 0 and scope.has_ended
    is_news = not is_closed and bool(marks & BAD & ~scope.marks)
    return ScopeTold(left, marks, cause, is_closed, is_news)


def may_wake(group: GroupState) -> bool:
    """Whether a job of a group in this state may become ready or delayed."""
    return group is GroupState.RUNNING


def may_become(group: GroupState, change: Change) -> bool:
    """Whether a job that waits in a group in this state may change so, by what it depends on.

    While the group is being cancelled it ends by that: the sweep has not come to it yet. Otherwise
    it would depend on the size of the steps whether it is cancelled or cannot run.
    """
    return group is not GroupState.CANCELLING if change.ends else may_wake(group)


def group_end(failed: int, cancelled: int, *, by_user: bool) -> GroupState:
    """How a group ends that has no live job left, with so many failed and cancelled ones.

    `by_user` says that a user cancelled the group.
    """
    if failed and not by_user:
        return GroupState.FAILED
    return GroupState.CANCELLED if by_user or cancelled else GroupState.SUCCEEDED
