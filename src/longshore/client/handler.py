"""A job's function as workers run it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from longshore.client.signature import CONTEXT_PARAMETER, Signature
from longshore.core import values
from longshore.errors import AppError
from longshore.executors.context import current
from longshore.model.worker import KindInfo, Pool


class FunctionHandler:
    """Runs a function for the jobs of one kind (see `ports.Handler`)."""

    def __init__(self, kind: str, function: Callable[..., object]) -> None:
        _refuse_generators(kind, function)
        self.kind = kind
        self.signature = Signature(kind, function)
        self.is_async = _is_async(function)
        pool = Pool.COROUTINE if self.is_async else Pool.PROCESS
        self.info = KindInfo(pool, self.signature.parameters())
        self.function = function
        if self.signature.takes_context:
            self.function = _given_context(function, self.is_async)

    def bind(self, args: bytes) -> dict[str, object]:
        """The keyword arguments for the function; `InvalidArguments` names the parameter."""
        return self.signature.bind(args)

    def pack_result(self, value: object) -> bytes:
        """The result as it is stored."""
        return values.pack(value, f"the result of job '{self.kind}'")


def _is_async(function: Callable[..., object]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _refuse_generators(kind: str, function: Callable[..., object]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise AppError(
            f"job '{kind}': its function is a generator, but a job has one result; return a list, "
            "or submit a job for each part"
        )


def _given_context(function: Callable[..., Any], is_async: bool) -> Callable[..., object]:
    """The function with the running attempt as its context, looked up when it is called."""

    @functools.wraps(function)
    async def run_async(*args: object, **kwargs: object) -> object:
        return await function(*args, **kwargs, **{CONTEXT_PARAMETER: current()})

    @functools.wraps(function)
    def run(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs, **{CONTEXT_PARAMETER: current()})

    return run_async if is_async else run
