"""How an app reaches its dispatchers, from coroutines and from callers without an event loop.

All work is asynchronous. A coroutine uses a connection of its own event loop. A caller without an
event loop hands its coroutine to one loop on a background thread, which the first such call starts.
After a fork the thread and the sockets are still the parent's: the child forgets them without
touching them, and makes its own when it needs them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from longshore.client.connection import Connection
from longshore.client.outcomes import Outcomes
from longshore.errors import Unavailable, WouldBlock

P = ParamSpec("P")
T = TypeVar("T")


class LoopClient(NamedTuple):
    """What one event loop has: a connection, and the outcomes it waits for."""

    connection: Connection
    outcomes: Outcomes


_Reaches = dict[asyncio.AbstractEventLoop, LoopClient]


class Clients:
    """One connection for each event loop, and a background loop for callers that have none."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self.stand_in: Clients | None = None
        """Acts in its place for a while: a test kit, which runs jobs where they are submitted."""
        self._left_behind: list[object] = []
        self._start_over()
        itself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forget_parent(itself()))

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._reaches: _Reaches = {}
        self._background: _Background | None = None

    def forget_parent(self) -> None:
        """In a forked child: leaves the parent's thread and sockets alone, and alive."""
        if self._background is not None:
            self._background.disown()
        self._left_behind += [self._reaches, self._background]
        self._start_over()

    def acting(self) -> Clients:
        """This one, or the one that stands in for it."""
        return self.stand_in or self

    def connection(self) -> Connection:
        """The connection of the running event loop."""
        return self.acting()._reach().connection

    def outcomes(self) -> Outcomes:
        """The outcomes that the running event loop waits for."""
        return self.acting()._reach().outcomes

    def _reach(self) -> LoopClient:
        loop = asyncio.get_running_loop()
        found = self._reaches.get(loop)
        if found is None:
            connection = self._connect()
            found = LoopClient(connection, Outcomes(connection))
            with self._lock:
                self._drop_closed_loops()
                self._reaches[loop] = found
        return found

    def _drop_closed_loops(self) -> None:
        for loop in list(self._reaches):
            if loop.is_closed() and (reach := self._reaches.pop(loop, None)):
                reach.connection.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine for a caller without an event loop, and returns its result."""
        if _is_in_loop():
            coroutine.close()
            raise _would_block(coroutine, "await {}() instead")
        return self.acting()._wait_for(coroutine)

    def for_blocking(self, instead: Callable[..., object]) -> Clients:
        """The one that acts, for a caller that may block; in a coroutine, names what to await."""
        if _is_in_loop():
            raise _would_block(instead, "await {}() instead")
        return self.acting()

    def refuse_in_loop(self, advice: str) -> None:
        """Raises if an event loop runs in this thread, which what follows would block."""
        if _is_in_loop():
            raise WouldBlock(f"this would block the event loop that runs in this thread; {advice}")

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts a coroutine for a caller that does not wait for it yet (see `for_blocking`)."""
        return self._start(coroutine)

    def iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """Yields from an asynchronous generator, to a caller without an event loop."""
        if _is_in_loop():
            raise _would_block(items, "use `async for … in {}()` instead")
        return self.acting()._iterate(items)

    def _iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while not isinstance(item := self._wait_for(_next(items)), _End):
                yield item
        finally:
            # Not waited for: a generator may be dropped anywhere, even where waiting is forbidden.
            self._start(items.aclose())

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.finish(self._start(coroutine))

    def finish(self, future: concurrent.futures.Future[T]) -> T:
        """Waits for what was started, and gives it up if the wait is interrupted."""
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Unavailable("the app was closed while this call was waiting") from None
        finally:
            future.cancel()

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        # Under the lock, so that a loop that is about to stop still hears of it and cancels it.
        with self._lock:
            if self._background is None:
                self._background = _Background(self, self._reaches)
            return asyncio.run_coroutine_threadsafe(coroutine, self._background.loop)

    def close(self) -> None:
        """Closes every connection and stops the background thread. The next call begins anew."""
        if _is_in_loop():
            raise _would_block(self.close_async, "await {}() instead")
        with self._lock:
            background, self._background = self._background, None
            # A call on the background loop may connect until that loop has stopped, so its thread
            # closes its own connection, as the last thing it does.
            own = None if background is None else background.loop
            others = [
                (loop, self._reaches.pop(loop)) for loop in list(self._reaches) if loop is not own
            ]
        for loop, reach in others:
            _close_on(loop, reach.connection)
        if background is not None:
            background.stop()

    async def close_async(self) -> None:
        """Does what `close` does, for a coroutine; its event loop goes on meanwhile."""
        own = self._reaches.pop(asyncio.get_running_loop(), None)
        if own is not None:
            own.connection.close()
        await asyncio.to_thread(self.close)


class _HasClients(Protocol):
    _access: Clients


S = TypeVar("S", bound=_HasClients)


def blocking(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], T]:
    """Makes of `…_async` the method without the suffix, for callers without an event loop."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._access.run(method(self, *args, **kwargs))

    call.__name__ = method.__name__.removesuffix("_async")
    call.__qualname__ = method.__qualname__.removesuffix("_async")
    return call


class _End:
    """Marks the end of a generator."""


class _Background:
    """An event loop on a daemon thread, which ends with its owner."""

    def __init__(self, owner: Clients, reaches: _Reaches) -> None:
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(
            target=_run, args=(self.loop, reaches), name="longshore-client", daemon=True
        )
        thread.start()
        self._ending = weakref.finalize(owner, _end, self.loop, thread)

    def stop(self) -> None:
        """Cancels what runs there and waits until the thread has ended."""
        self._ending()

    def disown(self) -> None:
        """Leaves the thread alone when its owner goes: it belongs to another process."""
        self._ending.detach()


def _run(loop: asyncio.AbstractEventLoop, reaches: _Reaches) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        _cancel_all(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
        if loop in reaches:
            reaches.pop(loop).connection.close()
            _cancel_all(loop)  # which also lets the loop see what was closed
    finally:
        loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()


def _close_on(loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
    """Closes a connection where its sockets live: on its own loop, if that is still there."""
    try:
        loop.call_soon_threadsafe(connection.close)
    except RuntimeError:  # the loop was closed, so nothing uses the sockets any more
        connection.close()


def _forget_parent(access: Clients | None) -> None:
    if access is not None:
        access.forget_parent()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _would_block(call: object, advice: str) -> WouldBlock:
    name = getattr(call, "__name__", "the call")
    return WouldBlock(
        f"{name.removesuffix('_async')}() would block the event loop that runs in this thread; "
        + advice.format(name)
    )


async def _next(items: AsyncGenerator[T, None]) -> T | _End:
    return await anext(items, _End())
