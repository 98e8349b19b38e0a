"""What a client may add to a group that runs."""

from __future__ import annotations

import pytest

from longshore.core.additions import (
    KnownNode,
    check_addition,
    check_room,
    check_state,
    keys_asked,
    placed,
)
from longshore.core.group_limits import MAX_ADDED_JOBS
from longshore.core.reopening import NodeState, added_by
from longshore.errors import InvalidInput, LongshoreError, TooLarge, WrongState
from longshore.model.group import GATE, SCOPE, AddedNode, Condition, GroupState
from longshore.model.job import JobState
from longshore.testing.builders import a_job


def new(key: str, after: str = "", on: Condition = Condition.SUCCEEDED) -> AddedNode:
    kind = SCOPE if key.endswith("part") else "work"
    return AddedNode(key, a_job(kind=kind), tuple(after.split()), on)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([], "no job is given"),
        ([new("a"), new("a")], "job 'a': two of the jobs"),
        ([new("a", "b"), new("b")], "job 'a': it depends on 'b', which does not come before it"),
        ([new("a", "a")], "job 'a': it depends on 'a', which does not come before it"),
        ([new("a"), new("a/b")], "the key 'a' is of a job, and 'a/b' lies below it"),
        ([new("part"), new("part/b")], "job 'part/b': its sub-group comes before it"),
        ([new("a", on=Condition.ENDED)], "job 'a': on is 'ended', but it depends on nothing"),
        ([new("a b")], "job 'a b': the key 'a b' has a character"),
        ([new("k" * 1_000_000)], "the key has more than"),
        ([AddedNode("g", a_job(kind=GATE, queue="q"))], "job 'g': no worker runs"),
    ],
)
def test_what_is_wrong_with_an_addition_itself_is_told(nodes: list[AddedNode], words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        check_addition(nodes)
    assert words in str(raised.value) or "characters" in str(raised.value)
    assert len(str(raised.value)) < 1000


def test_one_request_may_add_only_so_many() -> None:
    nodes = [new(f"n{at}") for at in range(MAX_ADDED_JOBS)]
    check_addition(nodes)
    with pytest.raises(TooLarge, match="one request may add 5,000"):
        check_addition([*nodes, new("more")])


@pytest.mark.parametrize("state", GroupState)
def test_only_a_group_that_runs_or_is_paused_takes_more(state: GroupState) -> None:
    if state in (GroupState.RUNNING, GroupState.PAUSED):
        return check_state(state)
    with pytest.raises(WrongState):
        check_state(state)
    return None


def test_the_last_job_that_a_group_may_have_is_taken() -> None:
    check_room(1, 9, 10)
    with pytest.raises(TooLarge, match="max_group_jobs is 10"):
        check_room(2, 9, 10)


def test_new_nodes_come_behind_all_others() -> None:
    known = {"a": KnownNode(3, "work", False), "part": KnownNode(5, SCOPE, False)}
    nodes = [new("x", "a a"), new("new.part/z"), new("new.part"), new("y", "x a new.part")]
    assert keys_asked(nodes) == {"x", "a", "y", "new.part", "new.part/z"}
    found = placed(nodes, known, 10)
    assert [(one.place, one.parents, one.scope) for one in found] == [
        (10, (3,), None),
        (11, (), 12),
        (12, (), None),
        (13, (3, 10, 12), None),
    ]
    [inside] = placed([new("part/x")], known, 6)
    assert inside.scope == 5


@pytest.mark.parametrize("key", ["out", "new"])
def test_what_joins_a_sub_group_cannot_wait_for_what_may_wait_for_it(key: str) -> None:
    """Also through a job that is added with it."""
    known = {"part": KnownNode(0, SCOPE, False), "out": KnownNode(1, "work", False)}
    with pytest.raises(InvalidInput, match=f"depends on '{key}', which might wait for that"):
        placed([new("new", "out"), new("part/x", key)], known, 5)
    ended = {**known, "out": KnownNode(1, "work", True)}
    assert placed([new("part/w"), new("part/x", "out part/w")], ended, 5)[1].parents == (1, 5)


def test_a_key_that_the_group_does_not_have_gets_the_nearest() -> None:
    with pytest.raises(LongshoreError, match=r"'fetsh', which the group does not have.*'fetch'"):
        placed([new("fetch"), new("x", "fetsh")], {}, 1)


def test_a_job_added_under_the_name_of_a_sub_group_did_not_add_what_is_in_it() -> None:
    """Otherwise its retry would take that out of the group."""
    done = JobState.SUCCEEDED
    first, later = NodeState("desk/x", done, [], is_added=True), NodeState("desk", done, [])
    assert added_by([first, later], {1}) == set()
    assert added_by([later, first], {0}) == {1}
