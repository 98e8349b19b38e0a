"""Growth: what a job adds to its own group, committed with its success.

A store adds the jobs in the transaction that records the success, or records a failure instead: a
job never succeeds with only a part of what it added. It asks here before it writes anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from longshore.core.group_limits import MAX_KEY_CHARS, MAX_MAP_KEY_CHARS
from longshore.model.ends import WITH_OUTBOX, End, Failed
from longshore.model.group import MAP
from longshore.model.job import JobError, Reason
from longshore.model.reports import OutboxJob, OutboxNode


def added(end: End) -> tuple[OutboxNode, ...]:
    """The jobs that an attempt adds to its group."""
    if not isinstance(end, WITH_OUTBOX) or not end.outbox:
        return ()
    return tuple(item for item in end.outbox if isinstance(item, OutboxNode))


def sent(end: End) -> tuple[OutboxJob, ...]:
    """The jobs that an attempt submits, outside any group."""
    if not isinstance(end, WITH_OUTBOX) or not end.outbox:
        return ()
    return tuple(item for item in end.outbox if isinstance(item, OutboxJob))


def why_not(
    key: str | None, nodes: Sequence[OutboxNode], group_jobs: int, max_group_jobs: int
) -> str:
    """Why a job with this key, in a group of so many jobs, cannot add these; empty if it can.

    A job without a group has no key.
    """
    if key is None:
        return "it adds jobs to its group, but it is in no group; use submit instead"
    for node in nodes:
        most = MAX_MAP_KEY_CHARS if node.job.kind == MAP else MAX_KEY_CHARS
        if len(key) + 1 + len(node.key) > most:
            what = "a map" if node.job.kind == MAP else "a job"
            return f"it adds {what} whose key below '{key}' has more than {most} characters"
    if group_jobs + len(nodes) > max_group_jobs:
        return too_many(len(nodes), group_jobs, max_group_jobs)
    return ""


def too_many(new: int, group_jobs: int, max_group_jobs: int) -> str:
    """Why a group cannot grow by so many jobs."""
    return (
        f"it adds {new:,} jobs to a group of {group_jobs:,}, and max_group_jobs is "
        f"{max_group_jobs:,}: make several groups, or raise max_group_jobs"
    )


def refused(end: End, why: str) -> Failed:
    """The end of an attempt whose growth is refused: failed, without its outbox."""
    error = JobError(Reason.INVALID_GROWTH, why)
    who = {"by": end.by, "worker": end.worker, "ran_s": end.ran_s}
    return Failed(end.job, end.token, error, info=why, **who)  # type: ignore[arg-type]
