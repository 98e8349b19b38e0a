"""How batches are declared, what their jobs look like from outside, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, assert_type
from uuid import UUID

import msgspec
import pytest

from longshore import GIVEN, App, Batch, Context, Fail, Handle, Limit
from longshore.client.batch import MAX_BATCH_SIZE, MAX_BATCH_WAIT_S
from longshore.errors import AppError, InvalidArguments, InvalidInput
from longshore.executors.host.context import RunningContext, enter
from longshore.executors.host.shared_run import BatchHandler
from longshore.model.attempt import Assignment
from longshore.model.worker import Parameter, Pool
from longshore.payload.values import unpack

app = App("shop", "tcp://127.0.0.1:1")


class Doc(msgspec.Struct):
    url: str
    words: int = 0


@app.job(batch=Batch(100, wait_s=0.2), retries=3)
async def index(docs: list[Doc]) -> list[int | Exception]:
    return [doc.words for doc in docs]


@app.job(batch=Batch(10, key="tenant"), limit=Limit(2, key="tenant"))
async def send(ctx: list[Context], mails: Sequence[str], tenant: str, db: str = GIVEN) -> None:
    pass


@app.job(batch=Batch(10, key=lambda given: f"size={len(given['word'])}"))
async def by_length(word: list) -> list:  # type: ignore[type-arg]
    return word


def check_types() -> None:
    """Only read by the type checker."""
    assert_type(index.submit(Doc("a")), Handle[int])
    assert_type(send.submit("hello", tenant="acme"), Handle[None])
    assert_type(index.options(priority=1).submit(Doc("a")), Handle[int])
    index.submit([Doc("a")])  # type: ignore[arg-type]
    send.submit("hello")  # type: ignore[call-arg]


def test_a_job_is_submitted_with_one_item() -> None:
    assert unpack(index.call(Doc("a", 2)).submission.args) == {"docs": {"url": "a", "words": 2}}
    assert unpack(send.call("hello", tenant="acme").submission.args) == {
        "mails": "hello",
        "tenant": "acme",
    }


def test_what_does_not_fit_is_refused_at_the_submit() -> None:
    with pytest.raises(InvalidArguments, match="docs"):
        index.call([Doc("a")])  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="unexpected keyword argument 'ctx'"):
        send.call("hello", tenant="acme", ctx=[])  # type: ignore[call-arg]


def test_workers_advertise_the_parameters_of_one_job() -> None:
    info = index.handler.info
    assert (info.pool, info.batch, info.terms.retry.attempts) == (Pool.COROUTINE, 100, 4)
    assert info.parameters is not None
    assert [one.name for one in info.parameters] == ["docs"]
    assert "url" in info.parameters[0].schema
    text = '{"type":"string"}'
    assert send.handler.info.parameters == (
        Parameter("mails", True, "str", text),
        Parameter("tenant", True, "str", text),
    )


def test_a_job_has_limits_of_its_own() -> None:
    [limit] = send.call("hello", tenant="acme").submission.options.limits
    assert limit.key == "tenant=acme"


def test_the_result_of_a_job_is_one_of_the_list() -> None:
    assert index.handler.signature.returns is int
    assert index.handler.signature.unpack_result(b"\x05") == 5


async def test_called_directly_it_is_the_function() -> None:
    assert await index([Doc("a", 2), Doc("b", 3)]) == [2, 3]


def test_a_job_whose_key_is_none_is_refused_at_the_submit() -> None:
    with pytest.raises(InvalidInput, match="job 'send' cannot have the key of its batch"):
        send.call("hello", tenant="a\nb")

    @app.job(batch=Batch(10, key=lambda given: None))  # type: ignore[arg-type]
    async def keyless(word: list[str]) -> list[str]:
        return word

    with pytest.raises(InvalidInput, match="its function returned None"):
        keyless.call("a")


def test_one_and_the_text_of_it_are_two_keys() -> None:
    @app.job(batch=Batch(10, key="tenant"))
    async def untyped(words, tenant):  # type: ignore[no-untyped-def]
        return words

    handler = untyped.handler
    assert isinstance(handler, BatchHandler)
    keys = {handler.batch_key(untyped.call("a", one).submission.args) for one in (1, "1")}
    assert len(keys) == 2


async def test_where_nothing_gathers_a_job_runs_alone() -> None:
    @app.job(batch=Batch(10))
    async def alone(words: list[str]) -> list[str | Exception]:
        return [Fail("no") if word == "bad" else word for word in words]

    body: Any = alone.handler.function
    enter(RunningContext(Assignment(UUID(int=1), 1, 1, "alone", b""), lambda log: None))
    assert await body(words="a") == "a"
    with pytest.raises(Fail, match="no"):
        await body(words="bad")


# what is refused


def test_a_batch_has_bounds() -> None:
    for size in (0, -1, MAX_BATCH_SIZE + 1, 2.5, True):
        with pytest.raises(AppError, match="give a whole number from 1 to 10,000"):
            Batch(size)  # type: ignore[arg-type]
    for wait_s in (-1, MAX_BATCH_WAIT_S + 1, float("nan"), "1"):
        with pytest.raises(AppError, match="give a number of seconds from 0 to 60"):
            Batch(10, wait_s)  # type: ignore[arg-type]
    with pytest.raises(AppError, match="all jobs would have that key"):
        Batch(10, key="api=maps")


async def plain_list(docs: list[str]) -> list[str]: ...  # type: ignore[empty-body]
def plain_def(docs: list[str]) -> list[str]: ...  # type: ignore[empty-body]
async def no_list(doc: str) -> list[str]: ...  # type: ignore[empty-body]
async def nothing() -> None: ...
async def no_result(docs: list[str]) -> int: ...  # type: ignore[empty-body]
async def two(docs: list[str], tenants: list[str]) -> None: ...
async def names(docs: list[str], **more: str) -> None: ...
async def one_context(ctx: Context, docs: list[str]) -> None: ...
async def odd_context(contexts: list[Context], docs: list[str]) -> None: ...
async def default(docs: list[str] = []) -> None: ...  # noqa: B006


@pytest.mark.parametrize(
    ("function", "batch", "said"),
    [
        (plain_def, Batch(2), "a batch is for an async def"),
        (no_list, Batch(2), "annotate doc: list[str]"),
        (nothing, Batch(2), "it takes no list"),
        (no_result, Batch(2), "it returns int, but a batch has a result for each job"),
        (two, Batch(2), "share it: Batch(…, key='tenants')"),
        (names, Batch(2), "'**more' cannot be of a batch"),
        (one_context, Batch(2), "annotate ctx: list[longshore.Context]"),
        (odd_context, Batch(2), "name it ctx"),
        (default, Batch(2), "no default for it"),
        (plain_list, Batch(2, key="tenant"), "the key 'tenant', which is no parameter"),
        (plain_list, 100, "batch is 100; give Batch(100, wait_s=0.2)"),
    ],
)
def test_a_function_that_cannot_take_a_batch_is_refused(
    function: Callable[..., Any], batch: Any, said: str
) -> None:
    with pytest.raises(AppError, match=re.escape(said)):
        App("other").job(batch=batch)(function)


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_a_batch_cannot_be_isolated(isolation: str) -> None:
    options: dict[str, Any] = {"batch": Batch(2), "isolation": isolation}
    with pytest.raises(AppError, match="runs each job by itself"):
        App("other").job(**options)(plain_list)


def test_what_runs_each_job_by_itself_has_no_batch() -> None:
    other, options = App("other"), {"batch": Batch(2)}
    with pytest.raises(AppError, match="a program is started for each job"):
        other.command("list", ["ls"], **options)  # type: ignore[arg-type]
    with pytest.raises(AppError, match="a turn of an actor"):
        other.actor(**options)  # type: ignore[call-overload]
    with pytest.raises(AppError, match="declare it"):
        index.options(**options)  # type: ignore[arg-type]
