"""Declaring jobs, submitting them, and what workers run of them."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from longshore import App, Context
from longshore.client.connection import Connection
from longshore.errors import (
    AppError,
    Conflict,
    InvalidArguments,
    InvalidInput,
    NotSerialisable,
    UnknownKind,
)
from longshore.executors.host.context import RunningContext, enter
from longshore.model.ids import make_id
from longshore.model.job import RetryPolicy
from longshore.model.worker import KindInfo, KindTerms, Parameter, Pool
from longshore.payload import values
from longshore.wire import messages
from longshore.wire.messages import Assignment

from .fake import FakeDispatcher


@dataclass
class Report:
    pages: int


async def fetch(url: str, tries: int = 3) -> str:
    """Fetches a page."""
    return f"{url} in {tries}"


def add(a: int, b: int = 1) -> int:
    return a + b


# declaring


def test_a_job_called_directly_is_its_function() -> None:
    job = App("test").job(add)
    assert job(2, 3) == 5
    assert job.__name__ == "add"
    assert inspect.signature(job) == inspect.signature(add)


async def test_an_async_job_called_directly_is_a_coroutine() -> None:
    job = App("test").job(fetch)
    assert await job("http://a") == "http://a in 3"
    assert job.__doc__ == "Fetches a page."


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("delay", "; here it is greet.submit(…)"),
        ("apply_async", "; here it is greet.options(…).submit(…)"),
        ("s", "; here it is greet.call(…)"),
        ("send", "; here it is greet.submit(…)"),
        ("nonsense", ""),
    ],
)
def test_what_a_job_has_under_another_name_is_told(name: str, advice: str) -> None:
    @App("a").job
    def greet(name: str) -> str:
        return name

    with pytest.raises(AttributeError) as raised:
        getattr(greet, name)
    assert str(raised.value) == f"job 'greet' has no attribute '{name}'{advice}"
    assert not hasattr(greet, name)


def test_a_kind_is_the_functions_name_unless_given() -> None:
    app = App("test")
    app.job(add)
    app.job(kind="mail.send")(fetch)
    assert set(app.handlers()) == {"add", "mail.send"}


def test_a_kind_is_declared_once() -> None:
    app = App("test")
    app.job(add)
    with pytest.raises(AppError, match="the app 'test' already has a job 'add'"):
        app.job(add)


def test_a_lambda_needs_a_kind() -> None:
    app = App("test")
    with pytest.raises(AppError, match=re.escape("give it one with @app.job(kind=…)")):
        app.job(lambda a: a)
    assert app.job(kind="same")(lambda a: a).kind == "same"


def generates() -> Iterator[int]:
    yield 1


async def generates_slowly() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ("fetch", "'fetch' is not a function; a kind is given as @app.job(kind=…)"),
        (generates, "job 'generates': its function is a generator"),
        (generates_slowly, "job 'generates_slowly': its function is a generator"),
        (Report, "job 'Report': it is a class"),
    ],
)
def test_what_is_not_a_plain_function_is_refused(thing: Any, message: str) -> None:
    with pytest.raises(AppError, match=re.escape(message)):
        App("test").job(thing)


def test_a_declared_job_is_not_declared_again() -> None:
    job = App("test").job(add)
    with pytest.raises(AppError, match="it is declared as a job already"):
        App("other").job(job)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "two words"}, "kind 'two words'"),
        (
            {"kind": "longshore.add"},
            "kind 'longshore.add' begins with 'longshore.', which is reser",
        ),
        ({"queue": "longshore.q"}, "queue 'longshore.q' begins with 'longshore.'"),
        ({"retries": -1}, "retries is -1"),
        ({"retries": "many"}, "retries is 'many'"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"expires_s": 0}, "expires_s is 0"),
        ({"expires_s": "soon"}, "expires_s"),
        ({"priority": 40_000}, "priority is 40000"),
        ({"queue": ""}, "queue is empty"),
        ({"jitter": 2}, "jitter is 2"),
    ],
)
def test_options_past_a_limit_are_refused_where_they_are_given(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        App("test").job(**options)(add)


def test_a_job_refused_for_its_options_can_be_declared_again() -> None:
    app = App("test")
    with pytest.raises(InvalidInput):
        app.job(priority=40_000)(add)
    assert app.job(add).kind == "add"


def test_an_app_has_a_name_fit_to_be_one() -> None:
    with pytest.raises(InvalidInput, match="the app's name"):
        App("two words")


# describing


@pytest.mark.parametrize("odd", [float("nan"), 0, -1, "1", True])
def test_an_apps_timeout_is_a_time(odd: Any) -> None:
    with pytest.raises(InvalidInput, match=f"timeout_s is {odd!r}; give seconds, more than 0"):
        App("shop", timeout_s=odd)


def test_a_call_carries_everything_it_was_told() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    job = App("test").job(
        retries=3, backoff_s=2, backoff_factor=3, max_backoff_s=60, jitter=0, queue="web"
    )(fetch)
    call = job.options(
        run_at=at,
        priority=5,
        unique_key="u",
        labels=["x"],
        id=UUID(int=9),
        target="linux-x86_64",
        timeout_s=30,
        expires_s=9,
    ).call("http://a")
    sent = call.submission
    assert sent.id == call.id == UUID(int=9)
    assert (sent.kind, values.unpack(sent.args)) == ("fetch", {"url": "http://a"})
    assert (sent.queue, sent.target, sent.priority) == ("web", "linux-x86_64", 5)
    assert (sent.run_at, sent.unique_key) == (at, "u")
    assert (sent.options.timeout_s, sent.options.labels) == (30, ("x",))
    assert sent.options.expires_s == 9
    assert sent.options.retry == RetryPolicy(4, 2, 3, 60, 0)


def test_options_change_what_they_name_and_leave_the_rest() -> None:
    job = App("test").job(retries=3, timeout_s=30, backoff_s=7)(add)
    changed = job.options(retries=1, timeout_s=None).options(delay_s=5).call(1).submission
    assert changed.options.retry == RetryPolicy(2, 7)
    assert changed.options.timeout_s is None
    assert changed.delay_s == 5
    assert job.call(1).submission.options.timeout_s == 30
    assert job.call(1).submission.delay_s is None


def test_a_naive_time_is_refused_with_a_hint() -> None:
    job = App("test").job(add)
    with pytest.raises(InvalidInput, match="has no time zone; give an aware datetime"):
        job.options(run_at=datetime(2030, 1, 1)).call(1)


def test_labels_are_a_list_and_not_a_text() -> None:
    job = App("test").job(add)
    with pytest.raises(InvalidInput, match="labels is 'urgent'; give a list of texts"):
        job.options(labels="urgent")


def test_ids_sort_by_when_they_were_made() -> None:
    times = iter((1000, 2000))
    app = App("test", new_id=lambda: make_id(next(times), bytes(10)))
    job = app.job(add)
    assert job.call(1).id < job.call(1).id


def test_arguments_are_checked_when_a_call_is_described() -> None:
    with pytest.raises(InvalidArguments, match="job 'add': argument 'a' expected int, got str"):
        App("test").job(add).call("one")  # type: ignore[arg-type]


# submitting


def test_a_submit_answers_with_the_jobs_handle(app: App, fake: FakeDispatcher) -> None:
    handle = app.job(add).submit(1, b=2)
    assert fake.jobs[handle.id].kind == "add"
    assert (handle.number, handle.kind, handle.existing) == (1, "add", False)


async def test_an_async_submit_uses_the_callers_own_loop(fake: FakeDispatcher) -> None:
    async with App("test", fake.address) as app:
        handle = await app.job(fetch).submit_async("http://a")
        assert handle.id in fake.jobs
        assert app._access._background is None


def test_submitting_a_call_again_is_the_same_job(app: App, fake: FakeDispatcher) -> None:
    call = app.job(add).call(1)
    assert call.submit() == call.submit()
    assert len(fake.jobs) == 1


def test_a_call_that_was_submitted_keeps_its_id_when_a_job_submits_it_again(app: App) -> None:
    call = app.job(add).call(1)
    handle = call.submit()
    context = RunningContext(Assignment(uuid4(), 1, 1, "add", b""), lambda attempt_log: None)
    assert context.submit(call) == call.id == handle.id


def test_a_unique_key_leads_to_the_job_that_is_there(app: App, fake: FakeDispatcher) -> None:
    fake.replies[messages.Submit] = lambda request: [
        messages.SubmitAnswer(UUID(int=3), 8, existing=True)
    ]
    handle = app.job(add).options(unique_key="u").submit(1)
    assert (handle.id, handle.number, handle.existing) == (UUID(int=3), 8, True)


def test_many_jobs_are_submitted_in_one_message(app: App, fake: FakeDispatcher) -> None:
    job = app.job(add)
    handles = app.submit_many(job.call(number) for number in range(100))
    assert [handle.number for handle in handles] == list(range(1, 101))
    assert len(fake.of(messages.Submit)) == 1


async def test_many_jobs_are_submitted_without_blocking(app: App) -> None:
    job = app.job(add)
    handles = await app.submit_many_async([job.call(1), job.call(2)])
    assert len(handles) == 2
    await app.close_async()


def test_what_is_no_list_of_calls_is_refused_with_what_to_give(app: App) -> None:
    job: Any = app.job(add)
    with pytest.raises(InvalidInput, match=r"<Kind add> is not a call; give what add\.call\("):
        app.submit_many([job])
    with pytest.raises(InvalidInput, match=r"is not a list of calls; give a list, like \[job"):
        app.submit_many(job.call(1))
    with pytest.raises(InvalidInput, match=r"^7 is not a call"):
        app.enqueue_many(object(), [7])  # type: ignore[arg-type]


def test_an_option_of_another_type_is_refused_before_it_is_sent(app: App) -> None:
    job: Any = app.job(add)
    with pytest.raises(InvalidInput, match="run_at is 'tomorrow'; give an aware datetime"):
        job.options(run_at="tomorrow")
    with pytest.raises(InvalidInput, match="retries is True; give a whole number"):
        job.options(retries=True)
    with pytest.raises(InvalidInput, match=r"id is 'abc'; give a uuid\.UUID"):
        job.options(id="abc")


def test_a_refused_job_raises_what_it_was_refused_for(app: App, fake: FakeDispatcher) -> None:
    fake.replies[messages.Submit] = lambda request: [
        messages.SubmitAnswer(job.id, code="conflict", message="another body")
        for job in request.jobs
    ]
    with pytest.raises(Conflict, match="another body"):
        app.job(add).submit(1)


def test_of_many_jobs_the_first_refused_is_raised_with_their_number(
    app: App, fake: FakeDispatcher
) -> None:
    def refuse_all_but_the_first(request: messages.Submit) -> object:
        return [messages.SubmitAnswer(request.jobs[0].id, 1)] + [
            messages.SubmitAnswer(job.id, code="unknown_kind", message="nobody serves 'add'")
            for job in request.jobs[1:]
        ]

    fake.replies[messages.Submit] = refuse_all_but_the_first
    job = app.job(add)
    with pytest.raises(UnknownKind, match=r"nobody serves 'add' \(2 of 3 jobs were refused"):
        app.submit_many([job.call(number) for number in range(3)], strict=True)
    assert fake.of(messages.Submit)[0].strict


def test_an_app_finds_its_dispatcher_in_the_environment(
    fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGSHORE_CONNECT", fake.address)
    with App("test") as app:
        app.job(add).submit(1)
    assert len(fake.jobs) == 1


def test_an_app_can_be_given_its_connection(fake: FakeDispatcher) -> None:
    with App("test", connection=lambda: Connection(fake.address)) as app:
        app.job(add).submit(1)
    assert len(fake.jobs) == 1


def test_what_is_declared_of_every_submit_holds_unless_an_option_says_otherwise(app: App) -> None:
    job = app.job(delay_s=60, unique_key="one", labels=["night"])(add)
    sent = job.call(1).submission
    assert (sent.delay_s, sent.unique_key, sent.options.labels) == (60, "one", ("night",))
    assert job.options(delay_s=None).call(1).submission.delay_s is None
    at = datetime(2040, 1, 1, tzinfo=UTC)
    assert app.job(kind="later", run_at=at)(add).call(1).submission.run_at == at


def test_an_id_is_not_declared(app: App) -> None:
    declare: Any = app.job
    with pytest.raises(AppError, match=r"'id' is for a single submit, job\.options\(id=…\)"):
        declare(id=uuid4())


# what workers run


def test_a_handler_binds_runs_and_packs() -> None:
    app = App("test")
    job = app.job(add)
    handler = app.handlers()["add"]
    bound = handler.bind(job.call(2, 3).submission.args)
    assert handler.pack_result(handler.function(**bound)) == values.pack(5, "it")
    assert not handler.is_async


def test_a_mistyped_option_is_told_with_the_nearest_one() -> None:
    job: Any = App("test").job
    with pytest.raises(AppError, match="'retriess' is unknown; did you mean 'retries'"):
        job(retriess=3)
    with pytest.raises(AppError, match=r"job option 'colour' is unknown; there are .*timeout_s"):
        job(colour="red")


def test_a_mistyped_option_of_a_submit_is_told_with_the_nearest_one() -> None:
    job = App("shop").job(add)
    with pytest.raises(AppError, match="'retriess' is unknown; did you mean 'retries'"):
        job.options(retriess=3)  # type: ignore[call-arg]
    with pytest.raises(AppError, match="job option 'kind' is unknown"):
        job.options(kind="other")  # type: ignore[call-arg]


def test_a_handler_advertises_its_pool_and_parameters() -> None:
    app = App("test")
    app.job(add)
    app.job(fetch)
    whole = '{"type":"integer"}'
    parameters = (Parameter("a", True, "int", whole), Parameter("b", False, "int", whole))
    assert app.handlers()["add"].info == KindInfo(Pool.PROCESS, parameters)
    assert app.handlers()["fetch"].info.pool is Pool.COROUTINE
    assert app.handlers()["fetch"].is_async


def test_isolation_chooses_the_pool() -> None:
    app = App("test")
    app.job(isolation="process")(fetch)
    app.job(kind="light", isolation="coroutine")(fetch)
    app.job(isolation="process")(add)
    app.job(kind="beside", isolation="thread")(add)
    pools = {kind: handler.info.pool for kind, handler in app.handlers().items()}
    assert pools == {
        "fetch": Pool.PROCESS,
        "light": Pool.COROUTINE,
        "add": Pool.PROCESS,
        "beside": Pool.THREAD,
    }
    assert app.handlers()["fetch"].is_async


def test_isolation_that_cannot_be_is_refused() -> None:
    job: Any = App("test").job
    with pytest.raises(AppError, match="job 'add': isolation 'coroutine' is for an async def"):
        job(isolation="coroutine")(add)
    with pytest.raises(AppError, match="job 'fetch': isolation 'thread' is for a plain def"):
        job(isolation="thread")(fetch)
    there = "there are 'coroutine', 'process' and 'thread'"
    with pytest.raises(AppError, match=f"'container' is unknown; {there}"):
        job(isolation="container")(add)
    with pytest.raises(AppError, match="'isolatoin' is unknown; did you mean 'isolation'"):
        job(isolatoin="process")


def test_a_handler_says_which_errors_are_final() -> None:
    app = App("test")
    app.job(fetch)
    app.job(kind="only", retry_on=OSError)(fetch)
    app.job(kind="but", fail_on=(ValueError, KeyError))(fetch)
    app.job(retry_on=(OSError,))(kind="both", fail_on=FileNotFoundError)(fetch)
    errors = (OSError(), FileNotFoundError(), KeyError(), asyncio.CancelledError())
    final = {
        kind: [handler.is_final(error) for error in errors]
        for kind, handler in app.handlers().items()
    }
    assert final == {
        "fetch": [False, False, False, False],
        "only": [False, False, True, True],
        "but": [False, False, True, False],
        "both": [False, True, True, True],
    }


@pytest.mark.parametrize("option", ["retry_on", "fail_on"])
@pytest.mark.parametrize("wrong", ["OSError", OSError("down"), int, None, [OSError], (OSError, 1)])
def test_what_is_no_exception_class_is_refused(option: str, wrong: object) -> None:
    app: Any = App("test")
    with pytest.raises(AppError, match=rf"^{option}: .* is not an exception class; give a class"):
        app.job(**{option: wrong})
    assert app.handlers() == {}


def test_which_errors_are_final_is_declared_and_not_submitted() -> None:
    job: Any = App("test").job(fetch)
    with pytest.raises(
        AppError, match=r"'retry_on' is unknown at a submit; declare it: @app\.job\(retry_on=…\)"
    ):
        job.options(retry_on=OSError)


def test_a_handler_advertises_what_was_declared_for_its_jobs() -> None:
    app = App("test")
    app.job(queue="q", target="linux", priority=3, timeout_s=30, retries=3, backoff_s=5)(add)
    app.job(fetch)
    declared = KindTerms("q", "linux", 3, 30, RetryPolicy(attempts=4, backoff_s=5))
    assert app.handlers()["add"].info.terms == declared
    assert app.handlers()["fetch"].info.terms == KindTerms()


def test_a_handler_refuses_arguments_by_name() -> None:
    app = App("test")
    app.job(add)
    with pytest.raises(InvalidArguments, match="job 'add': missing a required argument: 'a'"):
        app.handlers()["add"].bind(values.pack({}, "it"))


def test_a_result_that_cannot_be_stored_is_refused_by_job() -> None:
    app = App("test")
    app.job(add)
    with pytest.raises(NotSerialisable, match="the result of job 'add'"):
        app.handlers()["add"].pack_result(object())


def a_context() -> RunningContext:
    return RunningContext(Assignment(uuid4(), 5, 1, "job", b"\x80"), lambda attempt_log: None)


def test_a_job_is_given_the_context_it_asks_for() -> None:
    def token(ctx: Context, extra: int = 0) -> int:
        return ctx.token + extra

    app = App("test")
    job = app.job(token)
    handler = app.handlers()["token"]
    enter(a_context())
    assert handler.function(**handler.bind(job.call(extra=2).submission.args)) == 7
    enter(None)


async def test_an_async_job_is_given_the_context_it_asks_for() -> None:
    async def token(ctx: Context) -> int:
        return ctx.token

    app = App("test")
    job = app.job(token)
    handler = app.handlers()["token"]
    context = a_context()
    enter(context)
    body: Any = handler.function(**handler.bind(job.call().submission.args))
    assert handler.is_async
    assert await body == 5
    assert await job(context) == 5
