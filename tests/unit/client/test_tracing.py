"""Spans from a submit to its attempt, as the conventions for messaging have them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import longshore
from longshore.client import tracing as spans_of_submits
from longshore.core.lanes import body_hash
from longshore.core.limits import check_submission
from longshore.core.tracing import trace_of, with_trace
from longshore.errors import InvalidInput
from longshore.executors import tracing as spans_of_attempts
from longshore.testing.builders import a_job
from longshore.testing.kit import run_inline

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

app = longshore.App("traced")
seen: list[str] = []


@app.job
async def add(a: int, b: int) -> int:
    seen.append(longshore.current().traceparent)
    return a + b


@app.job
def double(n: int) -> int:
    return 2 * n


@app.job
def fail() -> None:
    raise ValueError("no luck")


@app.job
async def first() -> None:
    longshore.current().submit(add.call(1, 2))


@app.job(batch=longshore.Batch(10))
async def shout(words: list[str]) -> list[str | Exception]:
    return [word.upper() if word else ValueError("silence") for word in words]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Keeps the spans of one test. A program's own provider is for good, and would be for all."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for module in (spans_of_attempts, spans_of_submits):
        monkeypatch.setattr(module, "tracer", lambda: provider.get_tracer("longshore"))
    seen.clear()
    return exporter


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    [found] = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def facts(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def test_attempt_links_to_the_span_of_its_submit(spans: InMemorySpanExporter) -> None:
    with run_inline(app) as kit:
        handle = add.submit(1, 2)
        assert kit.submitted(add) == [add.call(1, 2)]
        kit.drain()
    sent, processed = named(spans, "submit add"), named(spans, "process add")
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.context is not None
    assert linked(processed) == [sent.context.span_id]
    assert seen == [
        f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-{int(sent.context.trace_flags):02x}"
    ]
    assert facts(sent) == {
        "messaging.system": "longshore",
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
        "messaging.destination.name": "add",
        "messaging.message.id": str(handle.id),
        "longshore.queue": "default",
    }
    assert facts(processed) == {
        "messaging.system": "longshore",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "add",
        "messaging.message.id": str(handle.id),
        "longshore.job.number": 1,
        "longshore.job.attempt": 1,
        "longshore.job.outcome": "success",
    }
    assert processed.status.status_code is StatusCode.UNSET


def test_span_of_an_attempt_that_fails_has_its_error(spans: InMemorySpanExporter) -> None:
    with run_inline(app) as kit:
        fail.submit()
        kit.drain()
    processed = named(spans, "process fail")
    assert processed.status.status_code is StatusCode.ERROR
    assert processed.status.description == "no luck"
    assert facts(processed)["error.type"] == "ValueError"


def test_submit_of_many_is_one_span(spans: InMemorySpanExporter) -> None:
    with run_inline(app) as kit:
        app.submit_many([add.call(n, n) for n in range(3)])
        kit.drain()
    sent = named(spans, "submit add")
    assert facts(sent)["messaging.batch.message_count"] == 3
    assert sent.context is not None
    processed = [span for span in spans.get_finished_spans() if span.name == "process add"]
    assert [linked(span) for span in processed] == [[sent.context.span_id]] * 3


def test_group_is_one_span(spans: InMemorySpanExporter) -> None:
    with run_inline(app) as kit:
        with app.group("nightly") as group:
            group.gate("go")
            group.add(add.call(1, 2), key="a")
            group.map(double, over=[], key="m")
        kit.drain()
    sent = named(spans, "submit nightly")
    assert sent.context is not None
    assert linked(named(spans, "process add")) == [sent.context.span_id]


def test_job_that_a_job_submits_links_to_the_attempt(spans: InMemorySpanExporter) -> None:
    with run_inline(app) as kit:
        first.submit()
        kit.drain()
    attempt = named(spans, "process first")
    assert attempt.context is not None
    assert linked(named(spans, "process add")) == [attempt.context.span_id]


def test_trace_is_no_part_of_the_body_so_that_a_repeat_may_have_another() -> None:
    job = a_job(kind="add")
    traced = with_trace(job, PARENT)
    assert traced.options.traceparent == PARENT
    assert body_hash(traced) == body_hash(job)
    assert trace_of(PARENT) == "0af7651916cd43dd8448eb211c80319c"


def test_trace_context_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="give a W3C trace context"):
        check_submission(with_trace(a_job(kind="add"), "00-short-01"))


def test_program_without_open_telemetry_imports_nothing_of_it() -> None:
    program = (
        "import sys, longshore\n"
        "from longshore.testing import run_inline\n"
        "app = longshore.App('plain')\n"
        "@app.job\n"
        "def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "with run_inline(app) as kit:\n"
        "    handle = add.submit(1, 2)\n"
        "    kit.drain()\n"
        "    print(handle.result(), [name for name in sys.modules if 'opentelemetry' in name])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "3 []\n", done.stderr


def test_a_batch_has_one_span_that_links_to_all_its_submits(spans: InMemorySpanExporter) -> None:
    with run_inline(app) as kit:
        handles = [shout.submit("a"), shout.submit("")]
        kit.drain()
        assert handles[0].result() == "A"
    run = named(spans, "process shout")
    sends = [span for span in spans.get_finished_spans() if span.name == "submit shout"]
    wanted = [span.context.span_id for span in sends if span.context is not None]
    assert len(wanted) == 2
    assert linked(run) == wanted
    assert facts(run)["messaging.batch.message_count"] == 2
    assert facts(run)["longshore.batch.failed"] == 1
    assert run.status.status_code is StatusCode.ERROR
