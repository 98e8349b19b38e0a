"""Trace context (W3C): the line that says to which trace a job belongs, and under which span."""

from __future__ import annotations

import re
from typing import Final

from msgspec import structs

from longshore.model.group import NOT_RUN
from longshore.model.job import Submission

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


def is_traceparent(text: str) -> bool:
    """Whether this is a `traceparent` as the W3C has it: version, trace, span and flags in hex."""
    return _TRACEPARENT.fullmatch(text) is not None


def trace_of(traceparent: str) -> str:
    """The id of the trace; empty if there is none."""
    return traceparent.split("-")[1] if traceparent else ""


def with_trace(job: Submission, traceparent: str) -> Submission:
    """The job as a part of a trace, unless it is a part of one already, or no worker runs it."""
    if not traceparent or job.options.traceparent or job.kind in NOT_RUN:
        return job
    options = structs.replace(job.options, traceparent=traceparent)
    return structs.replace(job, options=options)


def untraced(job: Submission) -> Submission:
    """The job without its trace."""
    if not job.options.traceparent:
        return job
    return structs.replace(job, options=structs.replace(job.options, traceparent=""))
