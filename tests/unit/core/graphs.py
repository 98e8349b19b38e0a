"""Graphs of groups, for the tests of what folds and lays them out."""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st

from longshore.model.group import Condition, NodeView
from longshore.model.job import JobState


def node(
    key: str,
    *after: str,
    kind: str = "work",
    state: JobState = JobState.WAITING,
    on: str = "succeeded",
) -> NodeView:
    """A node that depends on these keys."""
    on_ = Condition(on)
    return NodeView(key=key, job=UUID(int=1), number=1, kind=kind, state=state, after=after, on=on_)


def nodes(text: str) -> list[NodeView]:
    """`a: b c` says that a depends on b and c; nodes are divided by semicolons."""
    pairs = (one.split(":") for one in text.split(";"))
    return [node(key.strip(), *after.split(), kind=key.strip()) for key, after in pairs]


@st.composite
def graphs(draw: st.DrawFn) -> list[NodeView]:
    """Any graph of up to 40 nodes, of a few kinds, states, conditions and sub-groups."""
    found: list[NodeView] = []
    for place in range(draw(st.integers(0, 40))):
        before = [one.key for one in found]
        after = draw(st.lists(st.sampled_from(before), max_size=3, unique=True)) if before else []
        prefix = draw(st.sampled_from(["", "", "a/", "a/b/", "c/"]))
        found.append(
            node(
                f"{prefix}{place}",
                *after,
                kind=draw(st.sampled_from("xyz")),
                state=draw(st.sampled_from([JobState.WAITING, JobState.FAILED])),
                on=draw(st.sampled_from(["succeeded", "ended"])),
            )
        )
    return found


def mosaic(images: int) -> list[NodeView]:
    """Projections, a fit of each two neighbours, one model, a correction of each, one mosaic."""
    side = range(images)
    found = [node(f"project-{n}", kind="project") for n in side]
    fits = [(a, b) for a in side for b in range(a + 1, min(a + 5, images))]
    found += [node(f"fit-{a}-{b}", f"project-{a}", f"project-{b}", kind="fit") for a, b in fits]
    found.append(node("concat", *(f"fit-{a}-{b}" for a, b in fits), kind="concat"))
    found.append(node("model", "concat", kind="model"))
    found += [node(f"correct-{n}", "model", f"project-{n}", kind="correct") for n in side]
    found.append(node("add", *(f"correct-{n}" for n in side), kind="add"))
    return found


def lanes(number: int, chunks: int) -> list[NodeView]:
    """Lanes that are split, mapped in chains and merged, as sequencing does it."""
    found: list[NodeView] = []
    for lane in range(number):
        found.append(node(f"split-{lane}", kind="split"))
        for n in range(chunks):
            name = f"{lane}-{n}"
            found.append(node(f"filter-{name}", f"split-{lane}", kind="filter"))
            found.append(node(f"map-{name}", f"filter-{name}", kind="map"))
        maps = [f"map-{lane}-{n}" for n in range(chunks)]
        found.append(node(f"merge-{lane}", *maps, kind="merge"))
    found.append(node("all", *(f"merge-{lane}" for lane in range(number)), kind="all"))
    return found
