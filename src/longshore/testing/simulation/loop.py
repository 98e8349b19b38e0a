"""One event loop for many processes, each of which can be killed or frozen between two callbacks.

A `Process` is a context. Whatever is scheduled from within it, or for it, runs as a *turn* of that
process, and a process that does not live takes no turns: kill -9 runs not even a `finally`, a
frozen process does everything late, in the order a real event loop would have: what was ready
before, then what arrived meanwhile, then the timers that came due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from contextvars import copy_context as context_here
from enum import IntEnum, StrEnum
from operator import attrgetter
from typing import Any, TypeVar, TypeVarTuple, Unpack

from longshore.testing.virtual import VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Life(StrEnum):
    """Whether a process takes its turns."""

    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


class Rank(IntEnum):
    """In which order a process that thaws takes the turns it missed."""

    SOON = 0
    ARRIVAL = 1
    TIMER = 2


class Turn:
    """One callback of one process. `handle` is what whoever scheduled it may cancel."""

    __slots__ = ("args", "callback", "context", "handle", "process", "rank")

    def __init__(
        self,
        process: Process,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        rank: Rank,
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.context = context
        self.rank = rank
        self.handle: asyncio.Handle

    def __call__(self) -> None:
        """Takes place now, or when its process can."""
        process = self.process
        if process.life is not Life.RUNNING or process.loop.halted:
            process.missed.append(self)
        elif not self.handle.cancelled():
            try:
                self.callback(*self.args)
            finally:
                process.stepped()


class Process:
    """One simulated operating system process; `node` is its place in the network."""

    def __init__(self, loop: SimulatedLoop, name: str, node: str) -> None:
        self.loop = loop
        self.name = name
        self.node = node
        self.life = Life.RUNNING
        self.missed: list[Turn] = []
        self.frozen_s = 0.0
        """For how long it was frozen in all; grows when it thaws."""
        self._frozen_at = 0.0
        self._steps = 0
        self._fuse: tuple[int, Callable[[], None]] | None = None
        self.context = Context()
        self.context.run(_PROCESS.set, self)

    @property
    def runs(self) -> bool:
        """Whether it takes its turns now."""
        return self.life is Life.RUNNING

    @property
    def dead(self) -> bool:
        """Whether it was killed."""
        return self.life is Life.DEAD

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine as this process."""
        return self.loop.create_task(main, context=self.context)

    def kill(self) -> None:
        """Takes no turn ever again."""
        self.life = Life.DEAD
        self._fuse = None

    def freeze(self) -> None:
        """Takes no turn until it thaws; its clock goes on."""
        if self.life is Life.RUNNING:
            self.life = Life.FROZEN
            self._frozen_at = self.loop.time()

    def thaw(self) -> None:
        """Takes the turns it missed, and goes on."""
        if self.life is Life.FROZEN:
            self.frozen_s += self.loop.time() - self._frozen_at
            self.life = Life.RUNNING
            self.catch_up()

    def catch_up(self) -> None:
        """Schedules the turns it missed, in the order a real event loop would take them."""
        missed, self.missed = self.missed, []
        for turn in sorted(missed, key=attrgetter("rank")):
            self.loop.retake(turn)

    def frozen_for_s(self) -> float:
        """For how long it was frozen so far, the present time included."""
        now_s = self.loop.time() - self._frozen_at if self.life is Life.FROZEN else 0.0
        return self.frozen_s + now_s

    def after(self, steps: int, then: Callable[[], None]) -> None:
        """Calls `then` between two turns, after so many more of them."""
        if steps <= 0:
            then()
        else:
            self._fuse = self._steps + steps, then

    def stepped(self) -> None:
        """A turn is over."""
        self._steps += 1
        self.loop.stepped()
        if self._fuse is not None and self._steps >= self._fuse[0]:
            _, then = self._fuse
            self._fuse = None
            then()


_PROCESS: ContextVar[Process | None] = ContextVar("simulated_process", default=None)


def current_process() -> Process:
    """The process that is taking its turn."""
    process = _PROCESS.get()
    assert process is not None, "this runs outside of every simulated process"
    return process


class SimulatedLoop(VirtualLoop):
    """A virtual loop whose callbacks belong to processes. `halted` stops them all at once."""

    def __init__(self) -> None:
        super().__init__(has_sockets=False)
        self.steps = 0
        self.halted = False
        self.most_steps = 500_000
        self.on_too_many: Callable[[], None] = lambda: None
        self.outside = Context()
        """The context of what belongs to no process: the wires, the database, fate."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = 1_000

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As every loop does, but as a turn of the process that the context belongs to."""
        context = context_here() if context is None else context
        process = context.get(_PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        rank = Rank.SOON if _PROCESS.get() is process else Rank.ARRIVAL
        turn = Turn(process, callback, args, context, rank)
        turn.handle = super().call_soon(turn, context=context)
        return turn.handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As every loop does, but as a turn of the process that the context belongs to."""
        context = context_here() if context is None else context
        process = context.get(_PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        turn = Turn(process, callback, args, context, Rank.TIMER)
        handle = turn.handle = super().call_at(when, turn, context=context)
        return handle

    def stepped(self) -> None:
        """A turn is over. Past `most_steps` something runs in circles without time passing."""
        self.steps += 1
        if self.steps == self.most_steps:
            self.on_too_many()

    def retake(self, turn: Turn) -> None:
        """Lets a process take a turn that it missed."""
        super().call_soon(turn, context=turn.context)

    def outside_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Schedules what no process does."""
        return super().call_at(when, callback, *args, context=self.outside)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """A task that is kept: the collector would run the `finally` of one that died."""
        task = super().create_task(coro, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._tasks = self.unfinished()
            self._prune_at = 1_000 + 2 * len(self._tasks)
        return task

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Every task that has not ended, of the dead too."""
        return [task for task in self._tasks if not task.done()]
