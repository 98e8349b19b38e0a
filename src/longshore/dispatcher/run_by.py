"""Which jobs workers run because of one of a group."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from longshore.core.group_limits import naming
from longshore.core.limits import check_submission
from longshore.model.group import MAP, NOT_RUN, GroupPart
from longshore.model.job import Submission
from longshore.payload.maps import check_map, samples

MAX_SAMPLES: Final = 1_000
"""How many elements of a map are checked when it is submitted; workers check all."""


def run_by(named: AbstractContextManager[None], job: Submission) -> list[Submission]:
    """The jobs that workers run because of one of a group; raises if it is none that can be."""
    with named:
        check_submission(job, built_in=NOT_RUN)
        if job.kind != MAP:
            return [job] if job.kind not in NOT_RUN else []
        check_map(job)
        return samples(job, MAX_SAMPLES)


def run_by_shapes(part: GroupPart) -> dict[int, list[Submission]]:
    """What `run_by` says of nodes, by their index; not of a job like the one before it.

    Of that one, only what it does not share is left to check.
    """
    found: dict[int, list[Submission]] = {}
    sound: Submission | None = None
    for index, node in enumerate(part.nodes):
        if sound is None or not node.job.is_like(sound):
            found[index] = run_by(naming(part.head, node.key), node.job)
            sound = node.job if node.job.kind not in NOT_RUN else None
    return found
