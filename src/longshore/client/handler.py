"""A job's function in the form in which workers run it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args

from longshore.client.hooks import Hooks
from longshore.client.retry_rule import RetryRule
from longshore.client.signature import CONTEXT_PARAMETER, Signature
from longshore.errors import AppError
from longshore.executors.host.context import current
from longshore.model.worker import POOLS, Isolation, KindInfo, KindTerms, Pool
from longshore.payload import values


class FunctionHandler:
    """Runs a function for the jobs of one kind (see `ports.Handler`)."""

    def __init__(
        self,
        kind: str,
        function: Callable[..., object],
        hooks: Hooks | None = None,
        terms: KindTerms | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        refuse_generators(kind, function)
        self.kind = kind
        self.retry_rule = RetryRule()
        self.signature = Signature(kind, function)
        self.is_async = is_coroutine(function)
        pool = pool_for(f"job '{kind}'", isolation, self.is_async)
        self.info = KindInfo(pool, self.signature.parameters(), terms or KindTerms())
        self._hooks = hooks or Hooks(kind)
        self._function = function
        if self.signature.takes_context or self.signature.given:
            self._function = self._completed(function)

    @property
    def function(self) -> Callable[..., object]:
        """The job's body: the function with what the worker gives it, within the middleware."""
        return self._hooks.around(self._function, self.is_async)

    def bind(self, args: bytes) -> dict[str, object]:
        """The keyword arguments for the function; `InvalidArguments` names the parameter."""
        return self.signature.bind(args)

    def files_from(self, args: bytes) -> tuple[str, ...]:
        """The keys of the jobs of a group whose files are inputs of a job: only programs have."""
        return ()

    def pack_result(self, value: object) -> bytes:
        """The result as it is stored."""
        if value is None:
            return values.NONE
        return values.pack(value, f"the result of job '{self.kind}'")

    def is_final(self, error: BaseException) -> bool:
        """Whether a job that raised this is not tried again, by what was declared for it."""
        return self.retry_rule.is_final(error)

    def _completed(self, function: Callable[..., Any]) -> Callable[..., object]:
        """The function with what the worker gives it, looked up at each call."""

        @functools.wraps(function)
        def run(*args: object, **kwargs: object) -> object:
            return function(*args, **kwargs, **self._from_worker())

        return run

    def _from_worker(self) -> dict[str, object]:
        given = {name: self._hooks.resource(name) for name in self.signature.given}
        if self.signature.takes_context:
            given[CONTEXT_PARAMETER] = current()
        return given


def is_coroutine(function: Callable[..., object]) -> bool:
    """Whether what a function returns must be awaited."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def pool_for(what: str, isolation: Isolation | None, is_async: bool) -> Pool:
    """Where the jobs run: as declared, or else as the function is, async or not."""
    if isolation is None:
        return Pool.COROUTINE if is_async else Pool.PROCESS
    if isolation not in get_args(Isolation):
        *most, last = (f"'{one}'" for one in get_args(Isolation))
        there = f"{', '.join(most)} and {last}"
        raise AppError(f"{what}: isolation {isolation!r} is unknown; there are {there}")
    facts = POOLS[isolation]
    if not is_async and not facts.takes_plain:
        raise AppError(
            f"{what}: isolation '{isolation}' is for an async def; a plain def would hold up "
            "every other job of its process. Make it async def, give it isolation 'thread', or "
            "leave isolation out"
        )
    if is_async and not facts.takes_async:
        raise AppError(
            f"{what}: isolation '{isolation}' is for a plain def; an async def runs beside "
            f"others without a {facts.slot}. Make it a plain def, or leave isolation out"
        )
    return Pool(isolation)


def name_of(function: Callable[..., Any]) -> str:
    """The kind of a function's jobs if none is given; raises `AppError` if it has no name."""
    name = getattr(function, "__name__", None)
    if not callable(function):
        raise AppError(f"{function!r} is not a function; a kind is given as @app.job(kind=…)")
    if name is None or name == "<lambda>":
        raise AppError(f"{function!r} has no name of its own; give it one with @app.job(kind=…)")
    return str(name)


def refuse_generators(kind: str, function: Callable[..., object]) -> None:
    """Raises `AppError` for a function that yields."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise AppError(
            f"job '{kind}': its function is a generator, but a job has one result; return a list, "
            "or submit a job for each part"
        )
