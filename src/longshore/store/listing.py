"""How much a list may read, whatever it asks for: rules for every store.

Jobs are numbered in the order they came. A list goes back through the numbers, or through an index
in their order, and looks at no more than `LOOKED_AT` jobs for one page. A page that is not full by
then says where it stopped, and the next page goes on from there.

Labels are inside a job's options. The database only searches the options for the bytes of a label,
so `page` checks the labels again.

Times nearly follow the numbers. They do not where a clock was set, nor where jobs were stored at
one moment: a job has the time at which its statement began, and gets its number later. So a list
since some time goes back to a job that is older by `SLACK`, which a few probes find. Then it leaves
out the jobs that are too old.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from longshore.core.lifecycle import MAY_BE_MANY
from longshore.model.job import Job, JobFilter, JobPage, JobState
from longshore.store.rows import LARGEST_INT

LOOKED_AT = 50_000
"""The most jobs that a page looks at, unless the page itself is larger."""

SLACK: Final = timedelta(hours=1)
"""How far the times of jobs may differ from the order of their numbers."""

_FIRST_STEP: Final = 1000
_STEPS: Final = 54


def must_walk(wanted: JobFilter) -> bool:
    """Whether a list goes back through all numbers, not through the indexes of states."""
    if not wanted.states or JobState.SUCCEEDED in wanted.states:
        return True
    asks_beyond_indexes = wanted.labels or wanted.since is not None
    return bool(asks_beyond_indexes) and not MAY_BE_MANY.isdisjoint(wanted.states)


def most_looked_at(wanted: JobFilter) -> int:
    """How many jobs this page may look at."""
    return max(LOOKED_AT, page_size(wanted))


def page_size(wanted: JobFilter) -> int:
    """How many jobs a page holds at most, as a number that any database takes."""
    return max(0, min(wanted.limit, LARGEST_INT))


def last_number(wanted: JobFilter) -> int:
    """The highest number that may be listed."""
    last = LARGEST_INT if wanted.before is None else min(wanted.before - 1, LARGEST_INT)
    return max(last, 0)


def packed_labels(wanted: JobFilter) -> list[bytes] | None:
    """The bytes of each label as options hold it; None if no job can have one of the labels."""
    try:
        return [msgspec.msgpack.encode(label) for label in wanted.labels]
    except UnicodeEncodeError:
        return None


def probes(last: int) -> list[int]:
    """Numbers to look at, each twice as far back as the one before it."""
    numbers = (last - _FIRST_STEP * 2**step for step in range(_STEPS))
    return [number for number in numbers if number > 0]


def old(since: datetime) -> datetime:
    """A list since a time need not go past a job that is older than the answer."""
    earliest = datetime.min.replace(tzinfo=UTC)
    return since - SLACK if since - earliest > SLACK else earliest


def page(found: Sequence[Job], wanted: JobFilter, stopped_at: int | None) -> JobPage:
    """Makes a page of the jobs that a database found, newest first.

    The database did not look at every job below `stopped_at`: jobs found there are for the next
    page.
    """
    looked_at = [job for job in found if job.number >= (stopped_at or 0)]
    if len(looked_at) >= wanted.limit:
        stopped_at = looked_at[-1].number if looked_at else None
    labels = set(wanted.labels)
    jobs = tuple(job for job in looked_at if labels <= set(job.options.labels))
    return JobPage(jobs, stopped_at if len(jobs) < wanted.limit else None)
