"""What is wrong with a group, by its edges."""

from __future__ import annotations

from uuid import UUID

from longshore.core.dependencies import Marks, Waiting
from longshore.core.examining import EndCounts, GroupRecord, NodeRecord, examined
from longshore.core.reopening import NodeState
from longshore.model.finding import Trouble
from longshore.model.group import Condition, GroupState
from longshore.model.job import JobState

S = JobState
GROUP = UUID(int=1)


def a_group(first: JobState, waiting: Waiting, *, is_unsettled: bool = False) -> GroupRecord:
    """Two jobs: the second waits for the first, and this is what it counts."""
    nodes = [
        NodeRecord(
            UUID(int=2),
            NodeState("a", first, ()),
            Waiting(Condition.SUCCEEDED, 0, Marks.NOTHING),
            is_unsettled,
        ),
        NodeRecord(UUID(int=3), NodeState("b", S.WAITING, (0,)), waiting, False),
    ]
    ended = int(first is not S.RUNNING)
    counts = EndCounts(ended, int(first is S.FAILED), 0)
    return GroupRecord(GROUP, GroupState.RUNNING, False, counts, nodes)


def test_a_node_that_was_not_told_how_a_job_ended_is_found() -> None:
    found = examined(a_group(S.FAILED, Waiting(Condition.ENDED, 0, Marks.NOTHING)))
    assert [one.trouble for one in found.findings] == [Trouble.COUNT]
    assert "remembers wrongly how those ended" in found.findings[0].words
    assert found.counters == {1: (0, Marks.FAILED)}


def test_an_end_that_is_on_its_way_is_no_finding() -> None:
    late = a_group(S.SUCCEEDED, Waiting(Condition.SUCCEEDED, 1, Marks.NOTHING), is_unsettled=True)
    assert examined(late).findings == []


def test_a_job_that_waits_for_nothing_is_found_unless_its_group_is_held_or_swept() -> None:
    group = a_group(S.SUCCEEDED, Waiting(Condition.SUCCEEDED, 0, Marks.NOTHING))
    assert [one.trouble for one in examined(group).findings] == [Trouble.WAITING]
    assert examined(group._replace(state=GroupState.PAUSED)).findings == []
    assert examined(group._replace(is_swept=True)).findings == []


def test_counts_of_a_group_that_differ_from_its_jobs_are_found() -> None:
    group = a_group(S.RUNNING, Waiting(Condition.SUCCEEDED, 1, Marks.NOTHING))
    assert examined(group).findings == []
    [found] = examined(group._replace(counts=EndCounts(1, 0, 0))).findings
    assert found.words == (
        "the group counts 1 ended, 0 failed, 0 cancelled; "
        "its jobs say 0 ended, 0 failed, 0 cancelled"
    )
