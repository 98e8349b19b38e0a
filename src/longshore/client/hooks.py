"""What an app does in the processes that run its jobs.

    resources   opened before the first job, in the order declared
    on_start    called then
                … jobs, each within the middleware …
    on_stop     called at the process's orderly end, the last declared first
    resources   closed, the last opened first

A process opens only the resources that its jobs ask for. For an app that has no jobs for it, it
does none of this.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Final, TypeVar, cast

from longshore.errors import AppError, WrongState
from longshore.executors.host.apps import told
from longshore.executors.host.context import current

_log = logging.getLogger(__name__)

Function = Callable[..., Any]
D = TypeVar("D", bound=Function)
_PLACES: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def without_brackets(declare: D) -> D:
    """Makes a decorator refuse brackets with an error that says so."""

    @functools.wraps(declare)
    def checked(*args: Any, **options: Any) -> Any:
        if len(args) < 2 and "function" not in options:
            name = declare.__name__
            raise AppError(f"@app.{name}(…) takes no options; write @app.{name}, without brackets")
        return declare(*args, **options)

    return cast(D, checked)


class Hooks:
    """An app's hooks, resources and middleware, and the resources that are open here."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._resources: dict[str, Function] = {}
        self.starts: list[Function] = []
        self.stops: list[Function] = []
        self.middleware: list[Function] = []
        """Goes around jobs; the first is the outermost."""
        self._open: dict[str, object] = {}

    # declaring

    def add_resource(self, function: Function) -> None:
        """Adds a resource under the name of its function."""
        name = _checked("resource", function, places=0)
        if name in self._resources:
            raise AppError(f"the app '{self._app}' already has a resource '{name}'; rename one")
        self._resources[name] = function

    def check(self, kind: str, names: Iterable[str]) -> None:
        """Raises `AppError` unless there is a resource for each of the names a job asks for."""
        for name in names:
            if name not in self._resources:
                there = ", ".join(self._resources) or "none"
                raise AppError(
                    f"job '{kind}' is to be given the resource '{name}', but the app "
                    f"'{self._app}' has no such resource; it has: {there}"
                )

    # where jobs run

    def resource(self, name: str) -> object:
        """A resource that is open here."""
        try:
            return self._open[name]
        except KeyError:
            raise WrongState(
                f"the resource '{name}' is not open here: a worker opens it before its first job; "
                f"elsewhere give one: with app.given({name}=…)"
            ) from None

    @contextmanager
    def given(self, values: dict[str, object]) -> Iterator[None]:
        """While the block runs, these are the resources."""
        for name in values:
            self.check("…", [name])
        before = dict(self._open)
        self._open.update(values)
        try:
            yield
        finally:
            self._open = before

    def around(self, function: Function, is_async: bool) -> Function:
        """A job's function within the middleware for functions of its colour."""
        if not self.middleware:
            return function
        layers = [m for m in self.middleware if inspect.iscoroutinefunction(m) == is_async]
        return _surrounded(function, layers) if layers else function

    def lifespan(self, names: Iterable[str]) -> AbstractAsyncContextManager[None] | None:
        """What to do around all jobs of a process that asks for these; None if nothing."""
        wanted = [name for name in self._resources if name in set(names)]
        return self._span(wanted) if wanted or self.starts or self.stops else None

    @asynccontextmanager
    async def _span(self, names: list[str]) -> AsyncIterator[None]:
        # Closed by hand, so that an error of the jobs is not raised inside the resources.
        stack = AsyncExitStack()
        try:
            await self._begin(stack, names)
            yield
        finally:
            await self._close(stack)

    async def _close(self, stack: AsyncExitStack) -> None:
        # Only logged: an earlier error counts more.
        try:
            await stack.aclose()
        except BaseException as error:
            _log.error("what the app '%s' opened could not be closed: %s", self._app, told(error))

    async def _begin(self, stack: AsyncExitStack, names: list[str]) -> None:
        for name in names:
            what = f"the resource '{name}' of the app '{self._app}' could not be opened"
            with _explained(what):
                self._open[name] = await _opened(stack, self._resources[name])
        for function in self.starts:
            name = function.__name__
            with _explained(f"the start-up hook '{name}' of the app '{self._app}' failed"):
                await _called(function)
        for function in self.stops:
            stack.push_async_callback(self._stop, function)

    async def _stop(self, function: Function) -> None:
        try:
            await _called(function)
        except Exception as error:
            name = function.__name__
            _log.error(
                "the stop hook '%s' of the app '%s' failed: %s", name, self._app, told(error)
            )


async def _opened(stack: AsyncExitStack, function: Function) -> object:
    if inspect.isasyncgenfunction(function):
        return await stack.enter_async_context(asynccontextmanager(function)())
    if inspect.isgeneratorfunction(function):
        return stack.enter_context(contextmanager(function)())
    return await _called(function)


async def _called(function: Function) -> object:
    value = function()
    return await value if inspect.isawaitable(value) else value


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        raise AppError(f"{what}: {told(error)}") from None


def _surrounded(function: Function, layers: list[Function]) -> Function:
    @functools.wraps(function)
    def run(*args: object, **kwargs: object) -> object:
        context = current()
        call = functools.partial(function, *args, **kwargs)
        for layer in reversed(layers):
            call = functools.partial(layer, context, call)
        return call()

    return run


def _checked(role: str, function: Function, places: int) -> str:
    """The function's name, if it is a function with `places` parameters."""
    name = getattr(function, "__name__", None)
    if not inspect.isroutine(function) or name is None:
        raise AppError(f"a {role} is a function, not {function!r}")
    parameters = list(inspect.signature(function).parameters.values())
    needed = [p for p in parameters if p.default is p.empty and p.kind in _PLACES]
    if len(needed) != places or len(parameters) != places:
        wanted = "no arguments" if places == 0 else "two arguments, (ctx, call_next)"
        raise AppError(f"the {role} '{name}' must take {wanted}")
    return str(name)


def hook(role: str, function: Function, places: int = 0) -> Function:
    """The function, if it can be called as this hook; raises `AppError` if not."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise AppError(
            f"the {role} '{function.__name__}' is a generator; only a resource may be one"
        )
    _checked(role, function, places)
    return function
