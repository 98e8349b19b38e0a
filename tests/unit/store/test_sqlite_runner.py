"""The runners: what goes before what, and that nothing is forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from longshore.store.sqlite.runner import InlineRunner, ThreadRunner, Turn


class Writer:
    """A thread runner whose writer is busy until told otherwise."""

    def __init__(self) -> None:
        self.runner = ThreadRunner()
        self.done: list[str] = []
        self._free = threading.Event()
        self._busy = threading.Event()

    async def block(self) -> asyncio.Task[None]:
        """The writer has begun something that lasts."""
        task = asyncio.create_task(self.runner.run(Turn.PUMP, self._wait))
        await asyncio.to_thread(self._busy.wait, 30)
        return task

    def _wait(self) -> None:
        self._busy.set()
        assert self._free.wait(30)

    def free(self) -> None:
        self._free.set()

    async def ask(self, turn: Turn, name: str) -> asyncio.Task[None]:
        """Something waits for its turn from now on."""
        task = asyncio.create_task(self.runner.run(turn, self._note(name)))
        await asyncio.sleep(0)
        return task

    def _note(self, name: str) -> Callable[[], None]:
        return lambda: self.done.append(name)


async def test_keeper_goes_before_the_pump_and_each_keeps_its_order() -> None:
    writer = Writer()
    await writer.block()
    asked = [
        await writer.ask(Turn.PUMP, "pump 1"),
        await writer.ask(Turn.PUMP, "pump 2"),
        await writer.ask(Turn.KEEPER, "keeper 1"),
        await writer.ask(Turn.KEEPER, "keeper 2"),
    ]
    writer.free()
    await asyncio.gather(*asked)
    assert writer.done == ["keeper 1", "keeper 2", "pump 1", "pump 2"]
    await writer.runner.close()


async def test_reading_does_not_wait_for_the_writer() -> None:
    writer = Writer()
    await writer.block()
    assert await writer.runner.run(Turn.READ, lambda: "read") == "read"
    writer.free()
    await writer.runner.close()


async def test_close_returns_when_all_that_was_asked_for_is_done() -> None:
    writer = Writer()
    await writer.block()
    for name in ("one", "two", "three"):
        await writer.ask(Turn.PUMP, name)
    closing = asyncio.create_task(writer.runner.close())
    await asyncio.sleep(0)
    writer.free()
    await closing
    assert writer.done == ["one", "two", "three"]


async def test_work_that_nobody_waits_for_any_more_is_not_begun() -> None:
    writer = Writer()
    await writer.block()
    unwanted = await writer.ask(Turn.PUMP, "unwanted")
    wanted = await writer.ask(Turn.PUMP, "wanted")
    unwanted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unwanted
    writer.free()
    await wanted
    assert writer.done == ["wanted"]
    await writer.runner.close()


async def test_runner_that_had_nothing_to_do_closes() -> None:
    await ThreadRunner().close()


@pytest.mark.parametrize("make", [ThreadRunner, InlineRunner])
async def test_what_the_work_raises_is_raised_to_who_asked(
    make: type[ThreadRunner] | type[InlineRunner],
) -> None:
    runner = make()

    def fail() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await runner.run(Turn.READ, fail)
    assert await runner.run(Turn.READ, lambda: 1) == 1
    await runner.close()


async def test_inline_work_is_done_where_it_is_asked_for() -> None:
    thread = await InlineRunner().run(Turn.PUMP, threading.current_thread)
    assert thread is threading.current_thread()
