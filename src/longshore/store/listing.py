"""How much a list may read, whatever is asked for: the same rules for every store.

Jobs are numbered in the order they came. A list goes back through the numbers, or through an index
that is in their order, and looks at no more than `LOOKED_AT` jobs for one page. A page that is not
full by then says where it stopped, and the next one goes on from there.

Labels are inside a job's options: the database looks for their bytes among the others, and whoever
asked it makes sure. Times nearly follow the numbers. They do not where a clock was set, and where
jobs are stored at the same moment: the time is when a statement began, the number comes
later. So a list since some time goes back until a job is older by `SLACK`, found by looking at few
of them, and then leaves out what is older.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from longshore.model.job import Job, JobFilter, JobPage, JobState
from longshore.store.rows import LARGEST_INT

LOOKED_AT = 50_000
"""How many jobs a page looks at, unless it holds more."""

SLACK: Final = timedelta(hours=1)
"""How much older than the jobs after it a job may be."""

MAY_BE_MANY: Final = frozenset({JobState.READY, JobState.DELAYED})
"""States that any number of jobs may be in, and whose indexes are not in the order of numbers."""

_FIRST_STEP: Final = 1000
_STEPS: Final = 54


def must_walk(wanted: JobFilter) -> bool:
    """Whether the way is back through all the numbers, not through the indexes of the states."""
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
    """The bytes by which each label is known among the options; None if no job can have one."""
    try:
        return [msgspec.msgpack.encode(label) for label in wanted.labels]
    except UnicodeEncodeError:
        return None


def probes(last: int) -> list[int]:
    """Numbers to look at, each twice as far back as the one before it."""
    numbers = (last - _FIRST_STEP * 2**step for step in range(_STEPS))
    return [number for number in numbers if number > 0]


def old(since: datetime) -> datetime:
    """Behind a job that came before this time, none is looked for that came since then."""
    earliest = datetime.min.replace(tzinfo=UTC)
    return since - SLACK if since - earliest > SLACK else earliest


def page(found: Sequence[Job], wanted: JobFilter, stopped_at: int | None) -> JobPage:
    """The page of what a database found, newest first.

    Below `stopped_at` not everything was looked at, so what was found there is for the next page.
    """
    looked_at = [job for job in found if job.number >= (stopped_at or 0)]
    if len(looked_at) >= wanted.limit:
        stopped_at = looked_at[-1].number if looked_at else None
    labels = set(wanted.labels)
    jobs = tuple(job for job in looked_at if labels <= set(job.options.labels))
    return JobPage(jobs, stopped_at if len(jobs) < wanted.limit else None)
