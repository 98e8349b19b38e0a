"""Ids and hashes of many things at once are those of each one."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from longshore.core.lanes import node_hash, node_hashes
from longshore.model.group import Condition, Node
from longshore.model.ids import derive_id, derive_ids
from longshore.testing.builders import a_job

NODES = st.builds(
    Node,
    st.text(max_size=5),
    st.just(a_job()),
    st.lists(st.integers(0, 9), unique=True, max_size=3).map(tuple),
    st.sampled_from(Condition),
    st.none() | st.integers(0, 2**31 - 1),
)


@given(st.uuids(), st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_ids_derived_together_are_those_derived_one_by_one(
    parent: UUID, indexes: list[int]
) -> None:
    assert derive_ids(parent, indexes) == [derive_id(parent, index) for index in indexes]


@given(st.lists(st.tuples(NODES, st.integers(-(2**63), 2**63 - 1)), max_size=5))
def test_nodes_hashed_together_have_the_hashes_of_each(items: list[tuple[Node, int]]) -> None:
    nodes, bodies = [node for node, _ in items], [body for _, body in items]
    parents = [sorted(node.after) for node in nodes]
    assert list(node_hashes(nodes, parents, bodies)) == [node_hash(*item) for item in items]
