"""A host process as its agent sees it: started or found, spoken to, killed, reaped.

A host leads a session and a process group of its own: Ctrl-C at the agent's terminal does not reach
it, and what its jobs started dies with it. The agent kills the group before it reaps the dead
leader: until then no other group can have that number.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from longshore.errors import AppError, Unavailable
from longshore.executors.attempt_queue import AttemptQueue
from longshore.executors.channel import Channel
from longshore.executors.frames import Close, FromHost, Load, Loaded, LoadFailed, ToHost, from_host
from longshore.executors.process_marks import process_mark
from longshore.model.worker import KindInfo, Pool

DEAF_GRACE_S = 0.5

OnMessages = Callable[["HostProcess", list[FromHost]], None]
OnExit = Callable[["HostProcess"], None]


class Spawned(Protocol):
    """The process itself, whoever started it."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """How it ended; None if that is not known, or it has not."""

    def await_exit(self) -> None:
        """Blocks until it has ended."""

    def kill(self) -> None:
        """Kills it and everything its jobs started. It must not have been reaped."""

    def reap(self) -> None:
        """It has ended, and nobody needs its number any more."""


class Child:
    """A process that this one started. It leads its own group."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended."""
        return self._process.returncode

    def await_exit(self) -> None:
        """Leaves it to be reaped: until then its number stays its own."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """Kills its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Takes its exit code."""
        self._process.wait()


class HostProcess:
    """One host process. `on_exit` is called once, after everything it said has been handled.

    With a `queue`, attempts can wait in it.
    """

    def __init__(
        self,
        process: Spawned,
        sock: socket.socket,
        on_messages: OnMessages,
        on_exit: OnExit,
        queue: AttemptQueue | None = None,
    ) -> None:
        self._app = ""
        self._on_messages = on_messages
        self._on_exit = on_exit
        self.queue = queue
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[dict[str, KindInfo]] = self._loop.create_future()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._process = process
        self.mark = process_mark(process.pid)
        """By which it is known, also when it has ended."""
        self._channel = Channel(sock, from_host(), self._receive, self._go_deaf)
        self._deaf_timer: asyncio.TimerHandle | None = None
        self._was_deaf = False
        self.was_killed = False
        threading.Thread(target=self._watch, daemon=True, name=f"host-{self.pid}").start()

    @property
    def pid(self) -> int:
        """The id of the process and of its group."""
        return self._process.pid

    @property
    def exited(self) -> asyncio.Future[None]:
        """Done when it has ended, and all that it said has been handled."""
        return self._exited

    @property
    def ending(self) -> str:
        """How it ended, as the rest of a sentence."""
        code = self._process.returncode or 0
        if self._was_deaf and code == -signal.SIGKILL:
            return "lost its connection to the worker: did a job close a descriptor not its own?"
        if self.was_killed:
            return "was killed by its worker"
        if self._process.returncode is None:
            return "ended"
        return describe_exit(code)

    async def load(self, load: Load, timeout_s: float) -> dict[str, KindInfo]:
        """Has the host import the app; answers its kinds. If that fails, ends the process."""
        self._app = load.app
        self._channel.send(load)
        try:
            async with asyncio.timeout(timeout_s):
                kinds = await self._loaded
            if self._exited.done():
                raise self._death_while_loading()
        except TimeoutError:
            await self.end()
            raise AppError(
                f"importing '{self._app}' and its start-up hooks took longer than start_timeout_s "
                f"({timeout_s:g} s); does the module start work when it is imported? If it needs "
                "the time, set start_timeout_s higher"
            ) from None
        except BaseException:
            await self.end()
            raise
        return kinds

    def send(self, *messages: ToHost) -> bool:
        """Sends messages; False if the process is gone, even if its exit was not seen yet."""
        return self._channel.send(*messages)

    def interrupt(self) -> None:
        """Makes a child host look at its socket, even while a job runs in it."""
        if not self._exited.done():
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kills the process and everything its jobs started."""
        if not self._exited.done():
            self.was_killed = True
            self._process.kill()

    def put_down(self, within_s: float) -> None:
        """Has the process kill what it runs and end; kills it too, if that takes too long."""
        self.was_killed = True
        if self.send(Close()):
            self._loop.call_later(within_s, self.kill)
        else:
            self.kill()

    def let_go(self) -> None:
        """Leaves the process to whoever comes next; nothing of it is heard any more."""
        self._channel.close()

    async def end(self) -> None:
        """Kills the process and waits until it is gone."""
        self.kill()
        await asyncio.shield(self._exited)

    async def finish(self, within_s: float) -> None:
        """Asks the process to end in good order; kills it if that takes too long."""
        if self.send(Close()):
            await asyncio.wait([self._exited], timeout=within_s)
        await self.end()

    def _receive(self, messages: list[FromHost]) -> None:
        if not self._loaded.done():
            match messages[0]:
                case Loaded(kinds=kinds):
                    self._loaded.set_result(kinds)
                case LoadFailed(message=message):
                    self._fail_load(AppError(message))
        self._on_messages(self, messages)

    def _watch(self) -> None:
        self._process.await_exit()
        with contextlib.suppress(RuntimeError):  # the event loop is closed already
            self._loop.call_soon_threadsafe(self._see_exit)

    def _see_exit(self) -> None:
        self._channel.read_rest()
        if self._deaf_timer is not None:
            self._deaf_timer.cancel()
        self._channel.close()
        self._process.kill()
        self._process.reap()
        self._exited.set_result(None)
        self._fail_load(self._death_while_loading())
        self._on_exit(self)
        if self.queue is not None:
            self.queue.close()

    def _go_deaf(self) -> None:
        """Waits a moment: most likely the process died, and its exit is seen soon."""
        self._deaf_timer = self._loop.call_later(DEAF_GRACE_S, self._kill_deaf)

    def _kill_deaf(self) -> None:
        self._was_deaf = True
        self._process.kill()

    def _death_while_loading(self) -> AppError:
        return AppError(f"the process that imports '{self._app}' {self.ending}")

    def _fail_load(self, error: AppError) -> None:
        if not self._loaded.done():
            self._loaded.set_exception(error)
            self._loaded.exception()  # asyncio would complain if nobody waits for it


def start_host(
    pool: Pool,
    on_messages: OnMessages,
    on_exit: OnExit,
    *,
    has_queue: bool = False,
    inherits: Sequence[int] = (),
) -> HostProcess:
    """Starts a host. With `has_queue`, its host class takes a second socket.

    It keeps the descriptors in `inherits` open for as long as it lives.
    """
    queue = AttemptQueue() if has_queue else None
    process, sock = _start(pool, queue, inherits)
    return HostProcess(Child(process), sock, on_messages, on_exit, queue)


def _start(
    pool: Pool, queue: AttemptQueue | None, inherits: Sequence[int]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    fds = [theirs.fileno()] if queue is None else [theirs.fileno(), queue.fd]
    # -P: files in the current folder must not stand in for the modules that a host itself needs.
    command = [sys.executable, "-P", "-m", "longshore.executors.host.main"]
    try:
        process = subprocess.Popen(
            [*command, pool, str(os.getpid()), *map(str, fds)],
            stdin=subprocess.DEVNULL,
            pass_fds=[*fds, *inherits],
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        if queue is not None:
            queue.close()
        raise Unavailable(f"a process to run jobs in cannot be started: {error}") from error
    finally:
        theirs.close()
    return process, ours


def describe_exit(code: int) -> str:
    """How a process ended, as the rest of a sentence: "was killed by signal 11 (SIGSEGV)"."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unnamed"
    hint = "; if nobody did that, the machine ran out of memory" if -code == signal.SIGKILL else ""
    return f"was killed by signal {-code} ({name}){hint}"
