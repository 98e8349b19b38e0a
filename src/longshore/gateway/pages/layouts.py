"""Layouts of groups, kept by what they depend on: a job that changes its state moves no box."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final
from uuid import UUID

from longshore.core.layout import Layout, lay_out
from longshore.model.group import NodeView

MOST_KEPT: Final = 32
"""So many layouts are kept, those that were looked at last."""
_THREAD_JOBS: Final = 300

_Sign = tuple[Hashable, ...]


class Layouts:
    """The layouts of the groups that pages showed lately."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[UUID, bool, str], tuple[_Sign, Layout]] = OrderedDict()
        self.made = 0
        """How often a layout was computed."""

    async def of(
        self, group: UUID, nodes: Sequence[NodeView], *, folded: bool, part: str = ""
    ) -> Layout:
        """The layout of a group's nodes, or of a `part` of them, in the colours of now."""
        place = (group, folded, part)
        sign = _sign(nodes, folded=folded)
        known = self._kept.pop(place, None)
        if known is None or known[0] != sign:
            self.made += 1
            known = sign, await _laid_out(nodes, folded=folded)
        self._kept[place] = known
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return known[1] if folded else _coloured(known[1], nodes)


def _sign(nodes: Sequence[NodeView], *, folded: bool) -> _Sign:
    """What a layout depends on; folded, jobs of one state are alike."""
    return tuple(
        (one.key, one.kind, one.after, one.on, one.scope, one.state if folded else None)
        for one in nodes
    )


async def _laid_out(nodes: Sequence[NodeView], *, folded: bool) -> Layout:
    if len(nodes) < _THREAD_JOBS:
        return lay_out(nodes, folded=folded)
    return await asyncio.to_thread(lay_out, nodes, folded=folded)


def _coloured(layout: Layout, nodes: Sequence[NodeView]) -> Layout:
    """The layout with the states of these nodes; each box is one of them."""
    states = {one.key: one.state for one in nodes}
    boxes = tuple(box._replace(state=states[box.keys[0]]) for box in layout.boxes)
    return layout._replace(boxes=boxes)
