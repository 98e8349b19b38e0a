"""What a job adds to its own group, as its code sees it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import longshore
from longshore.core.group_limits import MAX_ADDED_JOBS
from longshore.errors import InvalidInput, TooLarge, WrongState
from longshore.executors.host import context as contexts
from longshore.executors.host import growth
from longshore.model.group import MAP, Condition
from longshore.model.reports import OutboxJob, OutboxNode
from longshore.payload.maps import read_map
from longshore.payload.values import unpack

from .test_context import a_context

app = longshore.App("growing")


@app.job
def fetch(url: str) -> list[str]:
    return [url]


@app.job
def pack(pages: list[str], note: str = "") -> int:
    return len(pages)


@app.job
def shrink(page: str, width: int = 1) -> str:
    return page


def added(context: contexts.RunningContext) -> list[OutboxNode]:
    return [one for one in context.outbox() if isinstance(one, OutboxNode)]


def test_jobs_are_added_with_what_they_depend_on() -> None:
    context = a_context([])
    group = context.group
    first = group.add(fetch.call("u"))
    second = group.add(fetch.call("v"))
    group.add(pack.call(first.result), after=["fetch-2"], on="ended", key="last", detached=True)
    context.submit(fetch.call("w"))
    nodes = added(context)
    assert [(node.key, node.after, node.on, node.detached) for node in nodes] == [
        ("fetch", (), Condition.SUCCEEDED, False),
        ("fetch-2", (), Condition.SUCCEEDED, False),
        ("last", (0, 1), Condition.ENDED, True),
    ]
    assert unpack(nodes[2].job.args) == {"pages": {"$result": {"job": "./fetch", "path": []}}}
    assert isinstance(context.outbox()[0], OutboxJob)
    assert (repr(second), group is context.group) == ("<AddedJob fetch-2>", True)


def test_a_map_is_added_over_a_list_and_over_a_result() -> None:
    context = a_context([])
    first = context.group.add(fetch.call("u"))
    mapped = context.group.map(shrink, over=first.result, width=3)
    context.group.map(shrink, over=["a", "b"], key="plain")
    context.group.add(pack.call(mapped.results))
    nodes = added(context)
    assert [(node.key, node.job.kind, node.after) for node in nodes] == [
        ("fetch", "fetch", ()),
        ("shrink", MAP, (0,)),
        ("plain", MAP, ()),
        ("pack", "pack", (1,)),
    ]
    over, pattern = read_map(nodes[1].job.args)
    assert over == {"$result": {"job": "./fetch", "path": []}}
    assert (pattern.parameter, unpack(pattern.job.args)) == ("page", {"width": 3})
    assert unpack(nodes[3].job.args) == {"pages": {"$results": {"map": "./shrink"}}}


def test_what_cannot_be_added_is_refused_where_it_is_added() -> None:
    context, other = a_context([]), a_context([])
    group = context.group
    call = fetch.call("u")
    first, foreign = group.add(call), other.group.add(fetch.call("u"))
    count = group.add(pack.call(["a"]), key="count")
    bad: list[tuple[Callable[[], object], str]] = [
        (lambda: group.add(call, key="again"), "'again': its call was added already"),
        (lambda: group.add(fetch.call("u"), key="fetch"), "another job that was added has this"),
        (lambda: group.add(fetch.call("u"), key="a/b"), "cannot have a '/'"),
        (lambda: group.add(fetch.call("u"), key=""), "must be text, and not empty"),
        (lambda: group.add(fetch.call("u"), after="later"), "only on others that were added"),
        (lambda: group.add(fetch.call("u"), after=foreign), "only on others that were added"),
        (lambda: group.add(fetch.call("u"), after=3), "after is 3"),  # type: ignore[arg-type]
        (lambda: group.add(fetch.call("u"), on="ended"), "it depends on nothing"),
        (lambda: group.add(fetch.call("u"), after=first, on="x"), "on is 'x'; it must be one of"),
        (lambda: group.add(pack.call(foreign.result)), "which this attempt did not add"),
        (lambda: group.add(fetch), "is not a call; give what job.call"),  # type: ignore[arg-type]
        (lambda: group.map(len, over=[]), "is not a job"),  # type: ignore[arg-type]
        (lambda: group.map(shrink, over=["a"], width=count.result), "among the arguments of all"),
    ]
    for add, said in bad:
        with pytest.raises(InvalidInput, match=said):
            add()
    assert [node.key for node in added(context)] == ["fetch", "count"]
    with pytest.raises(InvalidInput, match="only a job of a group can"):
        context.submit(pack.call(first.result))


def test_what_one_attempt_adds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "MAX_ADDED_JOBS", 3)
    assert MAX_ADDED_JOBS == 5_000
    context = a_context([])
    for _ in range(3):
        context.group.add(fetch.call("u"))
    with pytest.raises(TooLarge, match="may add 3 jobs"):
        context.group.add(fetch.call("u"))
    monkeypatch.setattr(contexts, "MAX_OUTBOX_BYTES", 300)
    heavy = a_context([])
    heavy.submit(fetch.call("u" * 100))
    with pytest.raises(TooLarge, match="take more than 300 bytes"):
        heavy.group.add(fetch.call("u" * 200))
    assert not added(heavy)


def test_what_is_added_after_the_job_returned_is_an_error_not_lost() -> None:
    context = a_context([])
    group = context.group
    group.add(fetch.call("u"))
    assert len(context.outbox()) == 1
    with pytest.raises(WrongState, match="has ended, so it can submit or add no more jobs"):
        group.add(fetch.call("v"))
    with pytest.raises(WrongState, match="has ended"):
        context.submit(fetch.call("w"))
