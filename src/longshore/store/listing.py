"""How much a list may read, whatever it asks for: rules for every store.

Jobs are numbered in the order they came. A list goes back through the numbers, or through an index
in their order, and looks at no more than `LOOKED_AT` jobs for one page. A page that is not full by
then says where it stopped, and the next page goes on from there.

Labels are inside a job's options. The database only searches the options for the bytes of a label,
so `page` checks the labels again. It does the same for arguments and errors. Arguments may be
large, so a list that asks for some looks at no more than `LOOKED_INTO` jobs.

Times nearly follow the numbers. They do not where a clock was set, nor where jobs were stored at
one moment: a job has the time at which its statement began, and gets its number later. So a list
since some time goes back to a job that is older by `SLACK`, which a few probes find. Then it leaves
out the jobs that are too old. A list until some time begins in the same way (`spread`, `young`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from longshore.core.arg_terms import has_args, has_text, packed_forms
from longshore.core.lifecycle import MAY_BE_MANY
from longshore.model.job import Job, JobFilter, JobPage, JobState
from longshore.store.rows import LARGEST_INT

LOOKED_AT = 50_000
"""The most jobs that a page looks at, unless the page itself is larger."""
LOOKED_INTO: Final = 5_000
"""The same, if it looks into arguments."""

SLACK: Final = timedelta(hours=1)
"""How far the times of jobs may differ from the order of their numbers."""

_FIRST_STEP: Final = 1000
_STEPS: Final = 54
_SPREAD: Final = 32
NEAR: Final = 2000
"""A search for the newest job before a time ends when it is between numbers as near as this."""


class Contents(NamedTuple):
    """Bytes that the columns of a wanted job contain, as far as a database can look for them.

    `args` contain each of `keys`, and of each of `values` one at least.
    """

    labels: list[bytes]
    error: bytes | None
    keys: list[bytes]
    values: list[list[bytes]]


def must_walk(wanted: JobFilter) -> bool:
    """Whether a list goes back through all numbers, not through the indexes of states."""
    if not wanted.states or JobState.SUCCEEDED in wanted.states:
        return True
    times = wanted.since, wanted.until, wanted.slower_s, wanted.error
    asks_beyond_indexes = wanted.labels or wanted.args or any(one is not None for one in times)
    return bool(asks_beyond_indexes) and not MAY_BE_MANY.isdisjoint(wanted.states)


def most_looked_at(wanted: JobFilter) -> int:
    """How many jobs this page may look at."""
    return max(LOOKED_INTO if wanted.args else LOOKED_AT, page_size(wanted))


def page_size(wanted: JobFilter) -> int:
    """How many jobs a page holds at most, as a number that any database takes."""
    return max(0, min(wanted.limit, LARGEST_INT))


def last_number(wanted: JobFilter) -> int:
    """The highest number that may be listed."""
    last = LARGEST_INT if wanted.before is None else min(wanted.before - 1, LARGEST_INT)
    return max(last, 0)


def contents(wanted: JobFilter) -> Contents | None:
    """The bytes that wanted jobs contain; None if no job can have such a text."""
    try:
        labels = [msgspec.msgpack.encode(label) for label in wanted.labels]
        forms = [packed_forms(term) for term in wanted.args]
        error = None if wanted.error is None else wanted.error.encode()
    except UnicodeEncodeError:
        return None
    keys = [key for of_term, _ in forms for key in of_term]
    return Contents(labels, error, keys, [values for _, values in forms if values])


def probes(last: int) -> list[int]:
    """Numbers to look at, each twice as far back as the one before it."""
    numbers = (last - _FIRST_STEP * 2**step for step in range(_STEPS))
    return [number for number in numbers if number > 0]


def old(since: datetime) -> datetime:
    """A list since a time need not go past a job that is older than the answer."""
    earliest = datetime.min.replace(tzinfo=UTC)
    return since - SLACK if since - earliest > SLACK else earliest


def spread(low: int, high: int) -> list[int]:
    """Numbers to look at between two, `low` and `high` among them."""
    step = max(1, (high - low) // _SPREAD)
    return [*range(low, high, step), high]


def young(until: datetime) -> datetime:
    """A list until a time need not begin with a job that came at the answer or later."""
    latest = datetime.max.replace(tzinfo=UTC)
    return until + SLACK if latest - until > SLACK else latest


def narrow(
    numbers: Sequence[int], came: Mapping[int, datetime], high: int, after: datetime
) -> tuple[int, int]:
    """Between which two of these numbers jobs begin to be as young as `after`.

    `came` says when the job at a number came, or the next older one. It lacks a number below which
    no job is left.
    """
    high = min((number for number, at in came.items() if at >= after), default=high)
    return max((one for one in numbers if one < high), default=high), high


def page(found: Sequence[Job], wanted: JobFilter, stopped_at: int | None) -> JobPage:
    """Makes a page of the jobs that a database found, newest first.

    The database did not look at every job below `stopped_at`: jobs found there are for the next
    page.
    """
    looked_at = [job for job in found if job.number >= (stopped_at or 0)]
    if len(looked_at) >= wanted.limit:
        stopped_at = looked_at[-1].number if looked_at else None
    jobs = tuple(job for job in looked_at if _matches(job, wanted))
    if wanted.args:
        jobs = tuple(structs.replace(job, args=b"") for job in jobs)
    return JobPage(jobs, stopped_at if len(jobs) < wanted.limit else None)


def _matches(job: Job, wanted: JobFilter) -> bool:
    """Whether a job really has what a database found by its bytes."""
    return (
        set(wanted.labels) <= set(job.options.labels)
        and (wanted.error is None or has_text(job.error, wanted.error))
        and (not wanted.args or (not job.options.raw and has_args(job.args, wanted.args)))
    )
