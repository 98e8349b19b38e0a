"""The executor of callbacks: each attempt that was started is reported once, as it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import pytest

from longshore.core.addresses import allowed
from longshore.gateway.callbacks import MAX_RETRY_AFTER_S, CallbackExecutor
from longshore.model.attempt import Assignment
from longshore.model.callback import CALLBACK_KIND, Callback
from longshore.model.job import LogEntry
from longshore.model.reports import (
    CancelReport,
    FailureReport,
    ReleaseReport,
    Report,
    SuccessReport,
)
from longshore.payload.values import unpack
from longshore.testing.builders import new_id

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Scene:
    """An executor, and a receiver that answers with these bytes, or not at all."""

    def __init__(self, answer: bytes | None) -> None:
        self.reports: list[Report] = []
        self.logs: list[LogEntry] = []
        self.asked = asyncio.Event()
        self.reported = asyncio.Event()
        self.port = 0
        self._answer = answer
        here = allowed([], loopback=True)
        self.executor = CallbackExecutor(5, here, self._report, self.logs.append, lambda: NOW)

    def _report(self, report: Report, took_s: float | None = None, /) -> None:
        self.reports.append(report)
        self.reported.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked.set()
        if self._answer is not None:
            writer.write(self._answer)
        else:
            await reader.read()
        writer.close()

    def start(self, args: bytes | None = None, url: str | None = None) -> Assignment:
        callback = Callback(
            url=url or f"http://127.0.0.1:{self.port}/?token=hush",
            method="POST",
            body="",
            event="job.succeeded",
            subject=new_id(),
            key=b"key",
        )
        data = msgspec.msgpack.encode(callback) if args is None else args
        assignment = Assignment(new_id(), 7, 1, CALLBACK_KIND, data, timeout_s=5.0)
        self.executor.start(assignment)
        return assignment

    async def only(self) -> Report:
        await self.reported.wait()
        [report] = self.reports
        return report


@asynccontextmanager
async def playing(answer: bytes | None = None) -> AsyncIterator[Scene]:
    scene = Scene(answer)
    async with await asyncio.start_server(scene.serve, "127.0.0.1") as server:
        scene.port = server.sockets[0].getsockname()[1]
        await scene.executor.open()
        yield scene
        await scene.executor.close()


def answered(status: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", "Content-Length: 0", *headers, "", ""]
    return "\r\n".join(lines).encode()


async def test_success_has_the_status_and_the_log_no_secret() -> None:
    async with playing(answered(202)) as scene:
        scene.start()
        report = await scene.only()
        assert isinstance(report, SuccessReport)
        assert unpack(report.result or b"") == {"status": 202}
        [entry] = scene.logs
        assert b"answered 202" in entry.data
        assert b"hush" not in entry.data


@pytest.mark.parametrize(
    ("header", "after_s"),
    [
        ("Retry-After: 30", 30.0),
        ("Retry-After: 999999999", MAX_RETRY_AFTER_S),
        (f"Retry-After: {format_datetime(NOW + timedelta(seconds=90))}", 90.0),
        (f"Retry-After: {format_datetime(NOW - timedelta(days=1))}", None),
        ("Retry-After: 0", None),
        ("Retry-After: -5", None),
        ("Retry-After: soon", None),
        ("X-Other: 1", None),
    ],
)
async def test_receiver_may_ask_for_a_pause_within_bounds(
    header: str, after_s: float | None
) -> None:
    async with playing(answered(503, header)) as scene:
        scene.start()
        report = await scene.only()
        assert isinstance(report, FailureReport)
        assert (report.final, report.retry_after_s) == (False, after_s)


async def test_gone_is_final() -> None:
    async with playing(answered(410)) as scene:
        scene.start()
        report = await scene.only()
        assert isinstance(report, FailureReport)
        assert report.final


async def test_arguments_that_cannot_be_read_are_final() -> None:
    async with playing() as scene:
        scene.start(b"\xc1")
        report = await scene.only()
        assert isinstance(report, FailureReport)
        assert report.final


async def test_attempt_that_is_aborted_is_reported_as_it_was_told() -> None:
    async with playing() as scene:
        assignment = scene.start()
        await scene.asked.wait()
        scene.executor.abort(CancelReport(*assignment.key))
        assert scene.reports == []
        assert await scene.only() == CancelReport(*assignment.key)


async def test_attempts_that_are_killed_are_handed_back() -> None:
    async with playing() as scene:
        assignment = scene.start()
        await scene.asked.wait()
        scene.executor.kill()
        assert await scene.only() == ReleaseReport(*assignment.key)


async def test_attempts_at_the_close_are_not_reported() -> None:
    async with playing() as scene:
        scene.start()
        await scene.asked.wait()
    assert scene.reports == []


@pytest.mark.parametrize("url", ["http://xn--a/", "http://[::1]x/", "http://[::1"])
async def test_address_that_cannot_be_read_is_a_failure(url: str) -> None:
    async with playing() as scene:
        scene.start(url=url)
        report = await scene.only()
        assert isinstance(report, FailureReport)
        assert not report.final


async def test_defect_is_a_failure_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("longshore.gateway.callbacks.signed_headers", broken)
    async with playing() as scene:
        assignment = scene.start()
        report = await scene.only()
        assert isinstance(report, FailureReport)
        assert "ZeroDivisionError: a defect" in report.error.message
        assert str(assignment.job) in caplog.text


async def test_attempt_that_is_aborted_before_its_first_step_is_reported() -> None:
    async with playing() as scene:
        assignment = scene.start()
        scene.executor.abort(CancelReport(*assignment.key))
        assert await scene.only() == CancelReport(*assignment.key)


async def test_abort_of_what_does_not_run_is_reported() -> None:
    async with playing() as scene:
        report = CancelReport(new_id(), 8)
        scene.executor.abort(report)
        assert await scene.only() == report
