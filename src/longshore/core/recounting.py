"""The counters of one node, counted anew from those that it depends on, or that are in its scope.

Theory. A node counts down when it hears of another one (see `dependencies`). So at any moment its
counter must be the number of others that it has yet to hear of: those that are not closed, and
those that are closed but whose word is still on its way. A store that holds the node can count that
at any time, whatever else goes on: nobody tells the node anything meanwhile. So a large group can
be counted anew in small steps, while its jobs run.

A retry opens jobs again in such steps. What it is going to open counts as not closed from the first
step on, although it has ended: it will close once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from longshore.core.dependencies import Marks, early, told
from longshore.core.lifecycle import TERMINAL
from longshore.model.job import JobState


class Others(NamedTuple):
    """Some nodes that another one counts, and that are alike in all of this."""

    state: JobState
    has_open: bool
    """Whether nodes in their scopes are not closed."""
    marks: Marks
    """What the ends in their scopes told them."""
    is_on_its_way: bool
    """Whether the node has yet to hear that they closed."""
    opens_again: bool
    """Whether a retry is going to open them, or a node in their scopes."""
    how_many: int


def recounted(others: Iterable[Others]) -> tuple[int, Marks]:
    """How many of these a node has yet to hear of, and what it was told."""
    left, marks = 0, Marks.NOTHING
    for one in others:
        is_closed = one.state in TERMINAL and not (one.has_open or one.opens_again)
        if not is_closed or one.is_on_its_way:
            left += one.how_many
        # A word that is on its way may count now: it tells the same once more when it arrives.
        marks |= told(one.state) | one.marks if is_closed else early(one.marks)
    return left, marks
