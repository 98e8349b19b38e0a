"""`@app.job(batch=…)`: how the types of a batched function become those of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from longshore.client.kind import Kind
from longshore.executors.host.context import Context

K = ParamSpec("K")
T = TypeVar("T")
R = TypeVar("R")


class BatchDecorator(Protocol):
    """Declares the function it is called with.

    The function takes a list, and a job one item of it. What stands in the list that it returns is
    the result of each job, or the error of one that failed.
    """

    @overload
    def __call__(
        self,
        function: Callable[
            Concatenate[list[Context], list[T], K], Coroutine[Any, Any, Sequence[R | BaseException]]
        ],
        /,
    ) -> Kind[
        Concatenate[T, K],
        R,
        Concatenate[list[Context], list[T], K],
        Coroutine[Any, Any, Sequence[R | BaseException]],
    ]: ...

    @overload
    def __call__(
        self,
        function: Callable[Concatenate[list[Context], list[T], K], Coroutine[Any, Any, None]],
        /,
    ) -> Kind[
        Concatenate[T, K],
        None,
        Concatenate[list[Context], list[T], K],
        Coroutine[Any, Any, None],
    ]: ...

    @overload
    def __call__(
        self,
        function: Callable[
            Concatenate[list[T], K], Coroutine[Any, Any, Sequence[R | BaseException]]
        ],
        /,
    ) -> Kind[
        Concatenate[T, K],
        R,
        Concatenate[list[T], K],
        Coroutine[Any, Any, Sequence[R | BaseException]],
    ]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[T], K], Coroutine[Any, Any, None]], /
    ) -> Kind[Concatenate[T, K], None, Concatenate[list[T], K], Coroutine[Any, Any, None]]: ...
