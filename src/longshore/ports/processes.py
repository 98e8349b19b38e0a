"""What the engine needs of links, clocks, apps and executors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, runtime_checkable
from uuid import UUID

from longshore.core.takeback import BegunAttempt
from longshore.model.attempt import Assignment, HeldAttempt
from longshore.model.batch import Batch as Batch  # stores and dispatchers take them from here
from longshore.model.batch import BatchResult as BatchResult
from longshore.model.job import (
    LogEntry,
)
from longshore.model.program import AnyProgram
from longshore.model.reports import Report
from longshore.model.upkeep import Harvested as Harvested
from longshore.model.upkeep import Promoted as Promoted
from longshore.model.upkeep import Settled as Settled
from longshore.model.upkeep import Tended as Tended
from longshore.model.worker import (
    KindInfo,
    LostWorker,
    Pool,
)


class Link(Protocol):
    """One socket of a dispatcher, or a worker's or client's connection to one."""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Sends a message to a peer; False if there is no such peer or no room."""

    def key_of(self, peer: bytes) -> str:
        """The key that opened the connection of a peer, while its message is being delivered.

        Empty if the socket asks for no keys.
        """

    def close(self) -> None:
        """Closes the socket at once, and drops what was not sent."""


OnMessages = Callable[[list[tuple[bytes, list[bytes]]]], None]
"""Called with all messages that have arrived, each with its peer (b"" if there is only one)."""


class Clock(Protocol):
    """Time. A simulation has its own."""

    def now(self) -> float:
        """Seconds on a clock that never jumps, and that counts while the machine sleeps."""

    def utc(self) -> datetime:
        """The wall clock, for people. No lease depends on it."""


class Handler(Protocol):
    """A kind's code, for the process that runs it."""

    @property
    def kind(self) -> str:
        """Its kind."""

    @property
    def info(self) -> KindInfo:
        """What a worker advertises of it."""

    @property
    def function(self) -> Callable[..., object]:
        """The job's body."""

    @property
    def is_async(self) -> bool:
        """Whether the caller must await what the body returns."""

    def bind(self, args: bytes) -> dict[str, object]:
        """The keyword arguments of the body; raises `InvalidArguments` naming the parameter."""

    def pack_result(self, value: object) -> bytes:
        """The result as the store keeps it; raises `NotSerialisable` or `TooLarge`."""

    def is_final(self, error: BaseException) -> bool:
        """Whether an attempt that raised this is not tried again, by what was declared."""


@runtime_checkable
class ProgramHandler(Protocol):
    """A kind whose jobs are commands or containers."""

    def program(self, args: bytes) -> AnyProgram:
        """What to run for a job with these arguments; raises `InvalidInput` if they do not fit."""


Handlers = Mapping[str, Handler]


class App(Protocol):
    """What `module:attribute` must lead to."""

    def handlers(self) -> Handlers:
        """The kinds it serves."""

    def lifespan(self, pool: Pool) -> AbstractAsyncContextManager[None] | None:
        """What runs around all jobs of a process of this pool, if anything."""


class Executor(Protocol):
    """Runs attempts in a pool of its own. Events come back through the callbacks it was made with.

    Every attempt that was started is reported exactly once, whatever happens to it: `on_report` is
    called on the worker's event loop, never from within one of these methods. `start` is never
    called past `slots` running attempts.
    """

    slots: int
    kinds: dict[str, KindInfo]

    async def open(self) -> None:
        """Starts what must run before the first attempt can, and learns the app's kinds.

        Raises `AppError` if the app cannot be loaded.
        """

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt."""

    def abort(self, report: Report) -> None:
        """Stops the attempt that `report` names, and reports it so once it has stopped.

        The executor asks it first (cancellation, SIGTERM) and kills it after the abort grace. An
        attempt that ended by itself meanwhile is reported as it ended.
        """

    def kill(self) -> None:
        """Kills everything at once; each attempt is reported as handed back."""

    async def close(self) -> None:
        """Kills whatever is left, without reporting it."""


OnBegun = Callable[[int, float], None]
"""Called with an attempt's token, and how many seconds ago the attempt began."""


@runtime_checkable
class BeginsLate(Protocol):
    """An executor that says when an attempt begins, if that is not when it was started."""

    on_begun: OnBegun


@runtime_checkable
class GathersBatches(Protocol):
    """An executor in which attempts may wait for others, to share a run with them."""

    def no_more(self) -> None:
        """No others come for now: begins those that wait."""


@runtime_checkable
class QueueingExecutor(Executor, Protocol):
    """An executor in which short attempts wait, close to where they run, until they begin.

    They may be started past `slots`. It calls `on_begun` when an attempt begins. If the attempt is
    taken back all the same, it had not begun.
    """

    on_begun: OnBegun

    def start_short(self, assignment: Assignment) -> None:
        """Begins an attempt, or puts it behind another short one that runs."""

    def take_back(self, tokens: Collection[int]) -> list[int]:
        """Gives up those of these attempts that have not begun; does not report them.

        Answers which they are.
        """


@runtime_checkable
class ResumingExecutor(Executor, Protocol):
    """An executor whose attempts may outlive the agent, for the next one to resume."""

    @property
    def outlives_agent(self) -> bool:
        """Whether they do, once the executor is open."""

    def held(self) -> Sequence[HeldAttempt]:
        """What the attempts of an earlier agent are that go on, once it is open."""

    def resume(self) -> None:
        """Takes them over: from now on, they are reported like those that it started."""

    def extend(self, stop_at: float, kill_at: float) -> None:
        """The worker's lease lasts longer. If no agent says so, attempts stop at these times."""

    def recorded(self, tokens: Collection[int]) -> None:
        """The store has the ends of these attempts, among others."""


class WorkerState(Protocol):
    """What a worker keeps for the agent after this one. All of it is kept before it is used."""

    @property
    def worker(self) -> UUID | None:
        """The id of the worker that an earlier agent was, if it can be believed."""

    @property
    def session(self) -> int:
        """The last session that it asked for."""

    @property
    def begun(self) -> Sequence[BegunAttempt]:
        """What it had begun, and may not have seen recorded."""

    def joining(self, worker: UUID, session: int) -> None:
        """The agent asks for a session."""

    def began(self, assignment: Assignment) -> None:
        """An attempt begins."""

    def ended(self, token: int) -> None:
        """An attempt has ended."""

    def recorded(self, tokens: Iterable[int]) -> None:
        """The store has the ends of these."""

    def forget(self) -> None:
        """The worker has lost its id, and with it all its attempts."""


OnLost = Callable[[LostWorker], None]
"""Called once for a lost session, by the dispatcher that declared it lost; must return at once."""

HasEnded = Callable[[str], bool]
"""Whether a worker's `process` is known to have ended; never so of a process elsewhere."""


class OnReport(Protocol):
    """Called with the end of an attempt, and how long it took, if the executor measured that."""

    def __call__(self, report: Report, took_s: float | None = None, /) -> None:
        """An attempt ended."""


OnLog = Callable[[LogEntry], None]
