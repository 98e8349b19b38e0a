"""What a type checker knows of jobs. mypy reads this file too, and an ignore that it does not need
is an error there: so the calls that it must refuse are proven to be refused."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

import pytest

from longshore import GIVEN, App, Call, Context, GroupState, Handle
from longshore.client.handles import Handles
from longshore.errors import InvalidArguments

app = App("typing", "tcp://127.0.0.1:1")


@app.job
async def fetch(url: str, tries: int = 3) -> str:
    return url * tries


@app.job(retries=3, backoff_s=1, queue="sums")
def add(a: int, b: int) -> int:
    return a + b


@app.job(isolation="process")
async def apart(url: str) -> str:
    return url


@app.job
async def measured(ctx: Context, url: str) -> bytes:
    return url.encode()


@app.job
async def asked(question: str, db: dict[str, str] = GIVEN) -> str:
    return db[question]


def check_results(handle: Handle[str]) -> None:
    """Only read by the type checker."""
    assert_type(fetch.submit("a", tries=2), Handle[str])
    assert_type(fetch.options(delay_s=5).submit("a"), Handle[str])
    assert_type(measured.submit("a"), Handle[bytes])
    assert_type(apart.submit("a"), Handle[str])
    assert_type(asked.submit("a"), Handle[str])
    assert_type(handle.result(), str)
    assert_type(app.submit_many([add.call(1, 2)]), Handles[int])
    assert_type(app.submit_by_name("add", {"a": 1, "b": 2}, priority=1), Handle[Any])
    assert_type(list(app.results([handle])), list[str])


def check_groups() -> None:
    """Only read by the type checker."""
    with app.group("g") as group:
        first = group.add(fetch.call("a"))
        second = group.add(add.call(1, 2), after=[first, "fetch"], on="ended")
        group.add(add.call(second.result, b=second.result))
        group.add(add.call(1, first.result))  # type: ignore[arg-type]
    assert_type(first.handle.result(), str)
    assert_type(second.handle, Handle[int])
    assert_type(group.handle.wait(), GroupState)


def check_growth(ctx: Context) -> None:
    """Only read by the type checker."""
    with app.group("g") as group:
        mapped = group.sub("s").map(add.options(retries=2), over=[1, 2], b=1)
        gate = group.gate("approve", after=[mapped, group.sub("t")])
        group.map(fetch, over=mapped.results, after=gate)
    assert_type(mapped.results, list[int])
    added = ctx.group.add(fetch.call("a"))
    assert_type(added.result, str)
    assert_type(ctx.group.map(add, over=[1], b=2, after=added).results, list[int])


async def check_async_results(handle: Handle[str]) -> None:
    """Only read by the type checker."""
    assert_type(await add.submit_async(1, 2), Handle[int])
    assert_type(await handle.result_async(), str)
    assert_type([result async for result in app.results_async([handle])], list[str])


def test_a_call_has_the_type_of_its_result() -> None:
    assert_type(fetch.call("a"), Call[str])
    assert_type(add.options(priority=1).call(1, b=2), Call[int])
    assert_type(measured.call(url="a"), Call[bytes])


async def test_a_direct_call_has_the_type_of_the_function() -> None:
    body: Coroutine[Any, Any, str] = fetch("a")
    assert_type(await body, str)
    assert_type(add(1, 2), int)


def test_wrong_arguments_are_refused_by_the_type_checker_too() -> None:
    with pytest.raises(InvalidArguments):
        fetch.call(1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments):
        fetch.call()  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments):
        add.options(delay_s=1).call(1, c=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments):
        measured.call(None, "a")  # type: ignore[call-arg, arg-type]
