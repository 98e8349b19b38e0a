"""Groups that grew, as graphs."""

from __future__ import annotations

from uuid import UUID

import pytest

from longshore.core import grown
from longshore.core.grown import with_scopes
from longshore.core.layout import lay_out
from longshore.model.group import MAP, SCOPE, NodeView
from longshore.model.job import JobState


def node(
    key: str, *after: str, scope: str | None = None, kind: str = "work", state: str = "succeeded"
) -> NodeView:
    return NodeView(
        key=key,
        job=UUID(int=1),
        number=1,
        kind=kind,
        state=JobState(state),
        after=after,
        scope=scope,
    )


def edges(nodes: list[NodeView]) -> dict[str, tuple[str, ...]]:
    return {one.key: one.after for one in with_scopes(nodes)}


def test_a_group_that_did_not_grow_stays_as_it_is() -> None:
    nodes = [node("a"), node("b", "a")]
    assert with_scopes(nodes) == nodes


def test_what_depends_on_a_job_comes_after_all_that_it_added() -> None:
    nodes = [
        node("a"),
        node("z", "a"),
        node("a/x", scope="a"),
        node("a/y", "a/x", scope="a"),
        node("a/w", scope="a"),
        node("a/w/v", scope="a/w"),
    ]
    assert edges(nodes) == {
        "a": (),
        "a/x": ("a",),
        "a/y": ("a/x",),
        "a/w": ("a",),
        "a/w/v": ("a/w",),
        "z": ("a/y", "a/w/v"),
    }
    assert list(edges(nodes))[-1] == "z"


def test_the_node_of_a_subgroup_comes_after_its_jobs() -> None:
    nodes = [
        node("s/a", scope="s"),
        node("s/b", "s/a", scope="s"),
        node("s", kind=SCOPE),
        node("z", "s"),
        node("s/b/0", scope="s/b"),
    ]
    found = edges(nodes)
    assert found["s"] == ("s/a", "s/b/0")
    assert found["z"] == ("s",)


def test_with_very_many_edges_added_jobs_are_drawn_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grown, "MAX_DRAWN_EDGES", 3)
    nodes = [node("a"), node("y", "a"), node("z", "a")]
    nodes += [node(f"a/{n}", scope="a") for n in range(3)]
    assert edges(nodes)["z"] == ("a",)
    assert edges(nodes)["a/0"] == ("a",)


def test_the_elements_of_a_map_fold_to_one_box() -> None:
    nodes = [node("fetch"), node("resize", "fetch", kind=MAP), node("pack", "resize")]
    nodes += [node(f"resize/{n}", scope="resize", kind="shrink") for n in range(40)]
    layout = lay_out(nodes)
    assert [(box.label, box.layer) for box in layout.boxes] == [
        ("fetch", 0),
        ("resize", 1),
        ("resize ×40", 2),
        ("pack", 3),
    ]
    assert len(layout.edges) == 3
