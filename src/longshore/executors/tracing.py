"""Spans of OpenTelemetry, for programs that use it; without it, nothing happens and nothing costs.

A program uses it if it has imported it: so nothing is imported here. The conventions are those for
messaging: a submit is a `send`, an attempt is a `process` that links to the span of its submit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from longshore._version import __version__
from longshore.core.tracing import is_traceparent
from longshore.model.attempt import Assignment
from longshore.model.reports import CrashReport, FailureReport, Report

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer

SYSTEM: Final = "longshore"
_MAX_MESSAGE_CHARS: Final = 500

Processed = Callable[[Report], None]
"""Tells the span of an attempt how that ended."""

_NOT_TRACED: Final[AbstractContextManager[Processed]] = nullcontext(lambda report: None)


def is_used() -> bool:
    """Whether this program has imported OpenTelemetry."""
    return "opentelemetry.trace" in sys.modules


def tracer() -> Tracer:
    """Who makes our spans."""
    from opentelemetry import trace

    return trace.get_tracer(SYSTEM, __version__)


def current_traceparent() -> str:
    """Where the calling code is in a trace; empty if it is in none."""
    if not is_used():
        return ""
    from opentelemetry import trace

    return traceparent_of(trace.get_current_span())


def traceparent_of(span: Span) -> str:
    """A span as others refer to it; empty if it is of no trace."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def processing(assignment: Assignment) -> AbstractContextManager[Processed]:
    """A span for an attempt, around the job's own code."""
    return _process_span(assignment) if is_used() else _NOT_TRACED


@contextmanager
def _process_span(assignment: Assignment) -> Iterator[Processed]:
    from opentelemetry.trace import SpanKind

    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": assignment.kind,
        "messaging.message.id": str(assignment.job),
        "longshore.job.number": assignment.number,
        "longshore.job.attempt": assignment.attempt,
    }
    span = tracer().start_as_current_span(
        f"process {assignment.kind}",
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=_links(assignment.traceparent),
        record_exception=False,
        set_status_on_exception=False,
    )
    with span as begun:
        yield lambda report: _ended(begun, report)


ProcessedAll = Callable[[Sequence[Report]], None]
"""Tells the span of a batch how its attempts ended."""

_NONE_TRACED: Final[AbstractContextManager[ProcessedAll]] = nullcontext(lambda reports: None)


def processing_batch(assignments: Sequence[Assignment]) -> AbstractContextManager[ProcessedAll]:
    """A span for attempts that share a run, around their code; it links to all their submits."""
    return _batch_span(assignments) if is_used() else _NONE_TRACED


@contextmanager
def _batch_span(assignments: Sequence[Assignment]) -> Iterator[ProcessedAll]:
    from opentelemetry.trace import SpanKind

    kind = assignments[0].kind
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": kind,
        "messaging.batch.message_count": len(assignments),
    }
    span = tracer().start_as_current_span(
        f"process {kind}",
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=[link for one in assignments for link in _links(one.traceparent)],
        record_exception=False,
        set_status_on_exception=False,
    )
    with span as begun:
        yield lambda reports: _batch_ended(begun, reports)


def _batch_ended(span: Span, reports: Sequence[Report]) -> None:
    """One that failed says how for all of them."""
    failed = [one for one in reports if isinstance(one, FailureReport | CrashReport)]
    span.set_attribute("longshore.batch.failed", len(failed))
    _ended(span, failed[0] if failed else reports[0])


def _links(traceparent: str) -> list[Link]:
    """The link to the span that submitted a job."""
    from opentelemetry.trace import Link, SpanContext, TraceFlags

    if not is_traceparent(traceparent):
        return []
    _, trace, span, flags = traceparent.split("-")
    traced = TraceFlags(int(flags, 16))
    return [Link(SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=traced))]


def _ended(span: Span, report: Report) -> None:
    from opentelemetry.trace import Status, StatusCode

    name = type(report).__name__.removesuffix("Report").lower()
    span.set_attribute("longshore.job.outcome", name)
    if isinstance(report, FailureReport | CrashReport):
        error = report.error
        span.set_attribute("error.type", error.type or error.reason.value)
        span.set_status(Status(StatusCode.ERROR, error.message[:_MAX_MESSAGE_CHARS]))
