"""The span of a submit, if the program uses OpenTelemetry; its jobs carry it to their attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from longshore.core.tracing import with_trace
from longshore.executors.tracing import SYSTEM, is_used, traceparent_of, tracer
from longshore.model.job import Submission

Traced = tuple[Submission, ...]


@contextmanager
def sending(jobs: Sequence[Submission], *, destination: str = "") -> Iterator[Traced]:
    """A span around a submit; yields the jobs as parts of its trace.

    A submit of many jobs is one span. `destination` names what they make together.
    """
    if not jobs or not is_used():
        yield tuple(jobs)
        return
    from opentelemetry.trace import SpanKind

    kinds = {job.kind for job in jobs}
    name = destination or (jobs[0].kind if len(kinds) == 1 else "jobs")
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
        "messaging.destination.name": name,
    }
    if len(jobs) == 1:
        attributes |= {
            "messaging.message.id": str(jobs[0].id),
            "longshore.queue": jobs[0].queue,
        }
    else:
        attributes["messaging.batch.message_count"] = len(jobs)
    begun = tracer().start_as_current_span(
        f"submit {name}", kind=SpanKind.PRODUCER, attributes=attributes
    )
    with begun as span:
        parent = traceparent_of(span)
        yield tuple([with_trace(job, parent) for job in jobs])
