"""Declaring hooks, resources and middleware, and what submitters see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import longshore
from longshore.errors import AppError, InvalidArguments, WrongState
from longshore.model.worker import Parameter, Pool
from longshore.payload import values


def an_app() -> longshore.App:
    app = longshore.App("shop")

    @app.resource
    def db() -> str:
        return "db"

    @app.job
    def ask(question: str, db: str = longshore.GIVEN) -> str:
        return f"{question} {db}"

    return app


def test_a_resource_is_not_the_submitters_to_give() -> None:
    app = an_app()
    handler = app.handlers()["ask"]
    assert handler.info.parameters == (Parameter("question", True, "str", '{"type":"string"}'),)
    with pytest.raises(InvalidArguments, match="unexpected argument 'db'"):
        handler.bind(values.pack({"question": "why", "db": "mine"}, "it"))


def test_a_job_with_any_names_is_not_given_a_resource_by_its_submitter() -> None:
    app = an_app()

    @app.job
    def tell(db: str = longshore.GIVEN, **rest: int) -> None: ...

    with pytest.raises(InvalidArguments, match="'db' is given by the worker; leave it out"):
        tell.call(db="mine", other=1)


def test_a_resource_that_is_not_there_is_found_when_the_app_is_loaded() -> None:
    app = an_app()

    @app.job
    def look(cache: str = longshore.GIVEN) -> None: ...

    with pytest.raises(AppError, match=r"job 'look' is to be given the resource 'cache'.*has: db"):
        app.handlers()


def test_a_resource_that_is_not_open_says_how_to_give_one() -> None:
    app = an_app()
    body = app.handlers()["ask"].function
    with pytest.raises(WrongState, match=r"with app\.given\(db=…\)"):
        body(question="why")
    with app.given(db="a fake"):
        assert body(question="why") == "why a fake"
    with pytest.raises(WrongState):
        body(question="why")


def test_a_direct_call_without_its_resource_says_so() -> None:
    app = longshore.App("shop")

    @app.job
    def ask(db: Any = longshore.GIVEN) -> object:
        return db.fetch("it")

    with pytest.raises(AttributeError, match="pass it by name"):
        ask()


def test_an_app_without_hooks_asks_for_nothing() -> None:
    app = longshore.App("plain")
    app.job(kind="run")(lambda: None)
    assert app.lifespan(Pool.PROCESS) is None


def test_two_resources_of_one_name_are_refused() -> None:
    app = an_app()

    def db() -> None: ...

    with pytest.raises(AppError, match="already has a resource 'db'"):
        app.resource(db)


def generator() -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("declare", "function", "message"),
    [
        ("resource", lambda x: x, "the resource '<lambda>' must take no arguments"),
        ("on_start", generator, "the start-up hook 'generator' is a generator"),
        ("on_stop", int, "a stop hook is a function"),
        ("middleware", lambda call_next: call_next(), r"two arguments, \(ctx, call_next\)"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(
    declare: str, function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(AppError, match=message):
        getattr(longshore.App("shop"), declare)(function)


@pytest.mark.parametrize("declare", ["resource", "on_start", "on_stop", "middleware"])
def test_brackets_that_are_too_many_are_told(declare: str) -> None:
    app = longshore.App("shop")
    with pytest.raises(AppError, match=rf"write @app\.{declare}, without brackets"):
        getattr(app, declare)()
    with pytest.raises(AppError, match=rf"@app\.{declare}\(…\) takes no options"):
        getattr(app, declare)(order=1)
