"""Starts the processes of `longshore up`, replaces those that die, and stops them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping, Sequence

from longshore.errors import AppError, InvalidInput, LongshoreError
from longshore.run.ready import note

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
HEALTHY_S = 10.0


class Supervisor:
    """`count` processes of one command.

    Each has `patience_s` to drain, and `margin_s` to end after that, before it is killed. `role`
    names them, and they inherit the descriptors in `pass_fds`. `own_words` are further words of the
    command of the first, the second, …: a process that replaces another has the same.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        count: int,
        *,
        patience_s: float,
        margin_s: float = 5.0,
        say: Callable[[str], None] = note,
        role: str = "worker",
        pass_fds: Sequence[int] = (),
        own_words: Callable[[int], Sequence[str]] = lambda number: (),
    ) -> None:
        self._command = command
        self._environ = environ
        self._count = count
        self._patience_s = patience_s
        self._margin_s = margin_s
        self._say = say
        self._role = role
        self._pass_fds = tuple(pass_fds)
        self._own_words = own_words
        self._keepers: list[asyncio.Task[None]] = []
        self._processes: set[Process] = set()
        self._leaving: dict[Process, asyncio.Task[None]] = {}

    async def start(self, *, first_alone: bool = False) -> None:
        """Returns when every process is ready; raises if one cannot start.

        With `first_alone` the others start once the first is ready, so that an error of all of them
        is reported once.
        """
        first = [await self._launch(1)] if first_alone and self._count else []
        others = range(len(first) + 1, self._count + 1)
        members = first + await asyncio.gather(*map(self._launch, others))
        self._keepers = [
            asyncio.create_task(self._keep(member, number))
            for number, member in enumerate(members, start=1)
        ]

    def pids(self) -> list[int]:
        """The processes that run."""
        return [process.pid for process in self._processes if process.returncode is None]

    async def _launch(self, number: int) -> Process:
        """A process that is ready."""
        process, is_ready = await self._spawn(number)
        if is_ready:
            return process
        code = await process.wait()
        self._processes.discard(process)
        message = f"a {self._role} could not start: it {ending(code)}; it said why above"
        is_app = code == InvalidInput.exit_code and self._role == "worker"
        raise AppError(message) if is_app else LongshoreError(message)

    async def _spawn(self, number: int) -> tuple[Process, bool]:
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *self._own_words(number),
                "--ready-fd",
                str(writing),
                pass_fds=(writing, *self._pass_fds),
                stdin=DEVNULL,
                stdout=sys.stderr,
                env=dict(self._environ),
                # A Ctrl-C in the terminal is for us; we stop them.
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._processes.add(process)
        return process, await _first_byte(reading)

    async def _keep(self, process: Process, number: int) -> None:
        """Replaces a process whenever it dies, but not one that left in good order."""
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while True:
            started_at = loop.time()
            code = await process.wait()
            self._processes.discard(process)
            if code == 0:
                left = f"{self._role} {process.pid} left in good order and is not replaced"
                self._say(f"longshore: {left}")
                return
            if loop.time() - started_at > HEALTHY_S:
                pause_s = FIRST_PAUSE_S
            what = f"{self._role} {process.pid} {ending(code)}"
            self._say(f"longshore: {what}; another starts in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            process, _ = await self._spawn(number)

    def dismiss(self) -> None:
        """Lets every process drain, without waiting for it: others can be started meanwhile."""
        for keeper in self._keepers:
            keeper.cancel()
        self._keepers = []
        for process in self._processes - self._leaving.keys():
            self._leaving[process] = asyncio.create_task(self._see_off(process))

    async def _see_off(self, process: Process) -> None:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(self._patience_s + self._margin_s):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        self._processes.discard(process)
        del self._leaving[process]

    async def stop(self) -> None:
        """Lets every process drain, and kills the slow ones. Cancelled, it aborts them."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self.dismiss()
        try:
            await self._gone(self._patience_s + self._margin_s)
        except asyncio.CancelledError:
            self._signal(signal.SIGTERM)
            await self._gone(self._margin_s)
            raise
        finally:
            self._signal(signal.SIGKILL)
            for task in self._leaving.values():
                task.cancel()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(number)

    async def _gone(self, within_s: float) -> None:
        waits = [asyncio.ensure_future(process.wait()) for process in self._processes]
        if waits:
            await asyncio.wait(waits, timeout=within_s)


async def _first_byte(descriptor: int) -> bool:
    """Whether a byte comes before the writer closes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    try:
        return await reader.read(1) != b""
    finally:
        transport.close()


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
