"""Jobs submitted by the name of their kind, from where their function is not."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from longshore import App
from longshore.errors import AppError, InvalidArguments, UnknownKind
from longshore.model.job import RetryPolicy, Submission
from longshore.model.worker import KindInfo, KindTerms
from longshore.payload import values
from longshore.testing import run_inline
from longshore.wire.messages import ShowKind, Submit, SubmitAnswer

from .fake import FakeDispatcher

MAIL = KindInfo(terms=KindTerms(queue="mail", timeout_s=30.0, retry=RetryPolicy(attempts=4)))


def submitted(fake: FakeDispatcher) -> Submission:
    [job] = fake.jobs.values()
    return job


def test_a_job_goes_out_on_the_terms_that_its_app_declares(app: App, fake: FakeDispatcher) -> None:
    fake.replies[ShowKind] = lambda request: MAIL if request.kind == "send" else None
    handle = app.submit_by_name("send", {"to": "ann", "n": 2}, priority=7, id=UUID(int=9))
    job = submitted(fake)
    assert (handle.id, handle.kind) == (UUID(int=9), "send")
    assert values.unpack(job.args) == {"to": "ann", "n": 2}
    assert (job.queue, job.options.timeout_s, job.options.retry.attempts) == ("mail", 30.0, 4)
    assert job.priority == 7
    fake.end(handle.id, values.pack({"sent": True}, "it"))
    assert handle.result() == {"sent": True}


def test_options_say_otherwise(app: App, fake: FakeDispatcher) -> None:
    fake.replies[ShowKind] = lambda request: MAIL
    app.submit_by_name("send", queue="bulk", retries=0, timeout_s=None)
    job = submitted(fake)
    assert (job.queue, job.options.timeout_s, job.options.retry.attempts) == ("bulk", None, 1)
    assert values.unpack(job.args) == {}


async def test_a_kind_that_nobody_serves_waits_on_plain_terms(fake: FakeDispatcher) -> None:
    fake.replies[ShowKind] = lambda request: None
    async with App("elsewhere", fake.address) as app:
        await app.submit_by_name_async("send", {"to": "ann"}, labels=["a"])
    assert submitted(fake).queue == "default"
    assert submitted(fake).options.labels == ("a",)


def test_mistakes_are_told(app: App, fake: FakeDispatcher) -> None:
    careless: Any = app
    fake.replies[ShowKind] = lambda request: None
    with pytest.raises(AppError, match="'retriess' is unknown; did you mean 'retries'"):
        careless.submit_by_name("send", retriess=1)
    with pytest.raises(InvalidArguments, match="give a map by name"):
        careless.submit_by_name("send", ["ann"])
    assert not fake.jobs


def test_strict_goes_with_it(app: App, fake: FakeDispatcher) -> None:
    fake.replies[ShowKind] = lambda request: None
    fake.replies[Submit] = lambda request: [
        SubmitAnswer(job.id, code="unknown_kind", message="nobody") if request.strict else None
        for job in request.jobs
    ]
    with pytest.raises(UnknownKind):
        app.submit_by_name("send", strict=True)


def test_a_kind_of_this_app_is_checked_as_its_function_says() -> None:
    app = App("here")

    @app.job(queue="sums")
    def add(a: int, b: int = 1) -> int:
        return a + b

    with run_inline(app) as kit:
        with pytest.raises(InvalidArguments, match="argument 'a' expected int, got str"):
            app.submit_by_name("add", {"a": "1"})
        handle = app.submit_by_name("add", {"a": 1}, priority=2)
        assert kit.submitted(add) == [add.options(priority=2).call(1)]
        kit.drain()
        assert handle.result() == 2


def test_a_kit_knows_the_kinds_of_its_other_apps() -> None:
    here, there = App("here"), App("there")

    @there.job(queue="mail", retries=2)
    async def send(to: str) -> str:
        return f"dear {to}"

    with run_inline(here, there) as kit:
        handle = here.submit_by_name("send", {"to": "ann"})
        [job] = kit.submitted("send")
        assert (job.submission.queue, job.submission.options.retry.attempts) == ("mail", 3)
        kit.drain()
        assert handle.result() == "dear ann"
