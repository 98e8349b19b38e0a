"""What an app wants done in the processes that run its jobs.

    resources   opened before the first job, in the order declared
    on_start    called then
                … jobs, each within the middleware …
    on_stop     called at the process's orderly end, the last declared first
    resources   closed, the last opened first

A process opens only the resources that the jobs it may run ask for, and does nothing of all this
for an app that has no jobs for it.
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
    """The same decorator; with brackets it says that it takes none."""

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
        self._starts: list[Function] = []
        self._stops: list[Function] = []
        self._middleware: list[Function] = []
        self._open: dict[str, object] = {}

    # declaring

    def add_resource(self, function: Function) -> None:
        """Takes in a resource, which goes by its function's name."""
        name = _checked("resource", function, places=0)
        if name in self._resources:
            raise AppError(f"the app '{self._app}' already has a resource '{name}'; rename one")
        self._resources[name] = function

    def add_start(self, function: Function) -> None:
        """Takes in a hook for the beginning."""
        _checked("start-up hook", _no_generator("start-up hook", function), places=0)
        self._starts.append(function)

    def add_stop(self, function: Function) -> None:
        """Takes in a hook for the end."""
        _checked("stop hook", _no_generator("stop hook", function), places=0)
        self._stops.append(function)

    def add_middleware(self, function: Function) -> None:
        """Takes in what goes around jobs; the first declared is the outermost."""
        _checked("middleware", _no_generator("middleware", function), places=2)
        self._middleware.append(function)

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
        layers = [m for m in self._middleware if inspect.iscoroutinefunction(m) == is_async]
        return _surrounded(function, layers) if layers else function

    def lifespan(self, names: Iterable[str]) -> AbstractAsyncContextManager[None] | None:
        """What to do around all jobs of a process that asks for these; None if it is nothing."""
        wanted = [name for name in self._resources if name in set(names)]
        return self._span(wanted) if wanted or self._starts or self._stops else None

    @asynccontextmanager
    async def _span(self, names: list[str]) -> AsyncIterator[None]:
        # Closed by hand: what others failed at is not raised inside what was opened here.
        stack = AsyncExitStack()
        try:
            await self._begin(stack, names)
            yield
        finally:
            await self._close(stack)

    async def _close(self, stack: AsyncExitStack) -> None:
        # Only told: what went wrong before is what counts.
        try:
            await stack.aclose()
        except BaseException as error:
            _log.error("what the app '%s' opened could not be closed: %s", self._app, told(error))

    async def _begin(self, stack: AsyncExitStack, names: list[str]) -> None:
        for name in names:
            what = f"the resource '{name}' of the app '{self._app}' could not be opened"
            with _explained(what):
                self._open[name] = await _opened(stack, self._resources[name])
        for function in self._starts:
            name = function.__name__
            with _explained(f"the start-up hook '{name}' of the app '{self._app}' failed"):
                await _called(function)
        for function in self._stops:
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
    """The function's name, if it is a function that takes so many arguments."""
    name = getattr(function, "__name__", None)
    if not inspect.isroutine(function) or name is None:
        raise AppError(f"a {role} is a function, not {function!r}")
    parameters = list(inspect.signature(function).parameters.values())
    needed = [p for p in parameters if p.default is p.empty and p.kind in _PLACES]
    if len(needed) != places or len(parameters) != places:
        wanted = "no arguments" if places == 0 else "two arguments, (ctx, call_next)"
        raise AppError(f"the {role} '{name}' must take {wanted}")
    return str(name)


def _no_generator(role: str, function: Function) -> Function:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise AppError(
            f"the {role} '{function.__name__}' is a generator; only a resource may be one"
        )
    return function
