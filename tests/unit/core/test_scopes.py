"""Scopes: a node is closed once its job has ended and nothing that it added is open."""

from __future__ import annotations

from uuid import UUID

from longshore.core.dependencies import Marks, Parent, Scope, Waiting, deliver, tell_scope
from longshore.core.examining import EndCounts, GroupRecord, NodeRecord, examined
from longshore.core.reopening import NodeState, closures, reopening
from longshore.model.group import Condition, GroupState
from longshore.model.job import JobError, JobState, Reason

S = JobState
ID = UUID(int=1)
RAISED = JobError(Reason.RAISED, "no paper", "ValueError")


def said(state: JobState, number: int = 1, **more: object) -> Parent:
    error = RAISED if state is S.FAILED else None
    return Parent(ID, ID, f"a/{number}", number, state, error, **more)  # type: ignore[arg-type]


def test_the_last_end_closes_a_scope_whose_own_job_has_ended() -> None:
    scope = Scope(2, Marks.NOTHING, None, has_ended=True)
    first = tell_scope(scope, [said(S.SUCCEEDED)])
    assert (first.open, first.is_closed, first.is_news) == (1, False, False)
    last = tell_scope(scope._replace(open=1), [said(S.SUCCEEDED)])
    assert (last.open, last.is_closed) == (0, True)


def test_a_scope_does_not_close_before_its_own_job_ended() -> None:
    """A map whose first elements end before the last ones are there."""
    told = tell_scope(Scope(1, Marks.NOTHING, None, has_ended=False), [said(S.SUCCEEDED)])
    assert (told.open, told.is_closed) == (0, False)


def test_a_failure_in_a_scope_is_news_once_and_names_its_root() -> None:
    scope = Scope(3, Marks.NOTHING, None, has_ended=True)
    first = tell_scope(scope, [said(S.FAILED)])
    assert (first.marks, first.is_news) == (Marks.FAILED, True)
    assert first.cause is not None
    assert first.cause.message == "'a/1' failed: ValueError: no paper"
    again = tell_scope(Scope(2, first.marks, first.cause, True), [said(S.FAILED, 2)])
    assert (again.is_news, again.cause) == (False, first.cause)


def test_an_early_word_decides_and_does_not_count_down() -> None:
    cause = JobError(Reason.DEPENDENCY_FAILED, "'a/1' failed: ValueError: no paper")
    early = said(S.SUCCEEDED, marks=Marks.FAILED, cause=cause, is_early=True)
    told = deliver(Waiting(Condition.SUCCEEDED, 2, Marks.NOTHING), [early])
    assert told.unmet == 2
    assert told.change is not None
    assert (told.change.state, told.change.error) == (S.DEPENDENCY_FAILED, cause)


def test_a_skip_in_a_scope_is_not_told_early() -> None:
    early = said(S.SUCCEEDED, marks=Marks.SKIPPED, is_early=True)
    assert deliver(Waiting(Condition.SUCCEEDED, 1, Marks.NOTHING), [early]).marks is Marks.NOTHING
    closed = said(S.SUCCEEDED, marks=Marks.SKIPPED)
    told = deliver(Waiting(Condition.SUCCEEDED, 1, Marks.NOTHING), [closed])
    assert told.change is not None
    assert told.change.state is S.SKIPPED


def adder_and_dependent(*added: JobState, dependent: JobState = S.WAITING) -> list[NodeState]:
    """`a`, `d` which depends on it, and what `a` added."""
    own = [NodeState("a", S.SUCCEEDED, ()), NodeState("d", dependent, (0,))]
    return own + [NodeState(f"a/{n}", state, (), scope=0) for n, state in enumerate(added)]


def test_a_retry_of_an_added_job_opens_its_scope_again() -> None:
    nodes = adder_and_dependent(S.FAILED, S.SUCCEEDED, dependent=S.DEPENDENCY_FAILED)
    found = reopening(nodes)
    assert (found.reopened, found.retired) == ([1, 2], [])
    assert found.scopes == {0: (1, Marks.NOTHING)}
    assert found.counters[1] == (1, Marks.NOTHING)


def test_a_retry_of_the_adder_retires_what_it_added_however_deep() -> None:
    nodes = adder_and_dependent(S.SUCCEEDED, S.CANCELLED)
    nodes.append(NodeState("a/0/x", S.FAILED, (), scope=2))
    found = reopening(nodes, ["a"])
    assert (found.reopened, found.retired) == ([0], [2, 3, 4])
    assert found.scopes == {0: (0, Marks.NOTHING)}
    assert found.counters[1] == (1, Marks.NOTHING)


def test_detached_jobs_leave_with_their_adder_and_those_of_others_stay() -> None:
    nodes = [
        NodeState("a", S.SUCCEEDED, ()),
        NodeState("a/own", S.SUCCEEDED, ()),
        NodeState("a/x", S.SUCCEEDED, (), scope=0, is_added=True),
        NodeState("a/y", S.SUCCEEDED, (2,), is_added=True),
        NodeState("a/y/z", S.FAILED, (), is_added=True),
        NodeState("b", S.SUCCEEDED, ()),
        NodeState("b/y", S.SUCCEEDED, (), is_added=True),
    ]
    found = reopening(nodes, ["a"])
    assert (found.reopened, found.retired) == ([0], [2, 3, 4])
    assert reopening(nodes).retired == []


def test_what_depends_on_the_adder_runs_again_after_an_added_job() -> None:
    nodes = adder_and_dependent(S.SUCCEEDED, S.SUCCEEDED, dependent=S.SUCCEEDED)
    assert reopening(nodes, ["a/1"]).reopened == [1, 3]
    assert reopening(nodes, ["a/"]).reopened == [1, 2, 3]


def test_a_retired_job_that_runs_must_end_first() -> None:
    nodes = adder_and_dependent(S.RUNNING)
    assert reopening(nodes, ["a"]).running == [2]


def test_a_sub_group_keeps_its_members_when_it_is_opened_again() -> None:
    nodes = [
        NodeState("sub/x", S.FAILED, (), scope=1),
        NodeState("sub", S.SUCCEEDED, (), adds=False),
        NodeState("d", S.DEPENDENCY_FAILED, (1,)),
    ]
    found = reopening(nodes, ["sub"])
    assert (found.reopened, found.retired) == ([1, 2], [])
    assert reopening(nodes).reopened == [0, 2]


def test_a_job_about_to_run_is_not_held_by_a_retry_elsewhere() -> None:
    """It runs at the first failure, while another of those before it still runs."""
    nodes = [
        NodeState("a", S.FAILED, ()),
        NodeState("b", S.RUNNING, ()),
        NodeState("d", S.READY, (0, 1)),
        NodeState("x", S.FAILED, ()),
    ]
    assert reopening(nodes, ["x"]).held == []
    assert reopening(nodes, ["a"]).held == [2]


def test_a_map_that_is_half_expanded_refuses_a_retry_of_what_it_waited_for() -> None:
    nodes = [
        NodeState("list", S.SUCCEEDED, ()),
        NodeState("map", S.READY, (0,)),
        NodeState("map/0", S.SUCCEEDED, (), scope=1),
    ]
    assert reopening(nodes, ["list"]).running == [1]


def test_a_chain_of_ten_thousand_adders_is_counted() -> None:
    nodes = [NodeState("0", S.SUCCEEDED, ())]
    nodes += [NodeState(str(n), S.SUCCEEDED, (), scope=n - 1) for n in range(1, 10_000)]
    assert closures(nodes)[0].is_closed
    assert not closures(nodes, opened=[9_999])[0].is_closed


def record(node: NodeState, unmet: int = 0, open: int = 0, **more: object) -> NodeRecord:
    waiting = Waiting(Condition.SUCCEEDED, unmet, Marks.NOTHING)
    return NodeRecord(ID, node, waiting, False, open, **more)  # type: ignore[arg-type]


def test_the_doctor_finds_a_wrong_count_of_a_scope() -> None:
    a, d, x = adder_and_dependent(S.RUNNING)
    nodes = [record(a, open=2), record(d, unmet=1), record(x)]
    found = examined(GroupRecord(ID, GroupState.RUNNING, False, EndCounts(1, 0, 0), nodes))
    assert found.scopes == {0: (1, Marks.NOTHING)}
    assert found.closed == []
    assert [one.words for one in found.findings] == [
        "'a' counts 2 jobs that it added and that have not ended, but there are 1"
    ]


def test_the_doctor_leaves_a_scope_alone_while_an_end_is_on_its_way() -> None:
    a, d, x = adder_and_dependent(S.SUCCEEDED)
    nodes = [record(a, open=1), record(d, unmet=1), record(x)._replace(is_unsettled=True)]
    counts = EndCounts(2, 0, 0)
    assert not examined(GroupRecord(ID, GroupState.RUNNING, False, counts, nodes)).findings
