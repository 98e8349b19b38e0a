"""Runs commands: programs of this machine, each with a session and a process tree of its own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import Final

from longshore.executors.host.programs.pipes import Pipes
from longshore.executors.host.programs.process_tree import (
    Entry,
    Trees,
    become_subreaper,
    send_signal,
)
from longshore.executors.host.programs.runner import RunningProgram
from longshore.executors.host.programs.spawn import (
    Started,
    start_beside_others,
    start_in_folder,
)
from longshore.executors.host_process import describe_exit
from longshore.executors.left_behind import HOST_VARIABLE, kill_orphans
from longshore.executors.process_marks import process_mark
from longshore.model.program import Command, Limits, Outcome, ProgramEnd
from longshore.model.usage import Usage

LOOK_EVERY_S: Final = 0.1
"""How often the memory of a command that has a limit is measured."""
PASS_S: Final = 0.005
MOST_PASSES: Final = 2_000
"""How often it is tried to kill what is left of a command, before that is given up."""
KEPT: Final = ("LONGSHORE_CONNECT", "LONGSHORE_CURVE_SECRET", "LONGSHORE_CURVE_SERVER_KEY")
"""The settings of the worker that its commands have too: they lead to its dispatchers."""

_CANNOT: Final = frozenset(
    {errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.E2BIG, errno.ENOTDIR, errno.ELOOP}
)
_CODING: Final = sys.getfilesystemencoding()
_ERRORS: Final = sys.getfilesystemencodeerrors()
_log = logging.getLogger(__name__)


class CommandRunner:
    """Starts commands and kills them. One that is told to end has `grace_s` for it.

    It `is_alone` in a process of Longshore's own: every child of the process is a command's.
    """

    def __init__(self, grace_s: float, *, is_alone: bool = True) -> None:
        self._grace_s = grace_s
        self._is_alone = is_alone
        self._trees = Trees(is_alone=is_alone)
        self._running: dict[int, _Run] = {}
        self._environ: dict[bytes, bytes] = {}
        """What all commands have of the worker's environment, as the system takes it."""
        self._path = os.defpath

    async def open(self) -> None:
        """Becomes the heir of what commands abandon, and kills what dead hosts left."""
        inherited = _inherited(os.environ)
        self._environ = _encoded({**inherited, HOST_VARIABLE: process_mark()})
        self._path = inherited.get("PATH", os.defpath)
        if self._is_alone:
            become_subreaper()
            await asyncio.to_thread(kill_orphans)

    async def prepare(self, running: RunningProgram[Command]) -> None:
        """A command needs nothing beside its files."""

    async def discard(self, running: RunningProgram[Command]) -> None:
        """A command leaves nothing beside its folder."""

    async def run(self, running: RunningProgram[Command]) -> ProgramEnd:
        """Runs a command until nothing of it is left."""
        token = running.assignment.token
        try:
            started = self._start(running)
        except OSError as error:
            if error.errno in _CANNOT:
                return _not_started(running.program.argv[0], error.strerror or str(error))
            raise
        self._trees.add(token, started.pid)
        run = self._running[token] = _Run(started, running)
        try:
            if await run.exits_by_itself() and (end := self._end_of_whole(token, run)) is not None:
                return end
            run.rest = asyncio.create_task(self._see_through(token, run))
            return await asyncio.shield(run.rest)
        except asyncio.CancelledError:
            run.stop()
            rest = run.rest or asyncio.create_task(self._see_through(token, run))
            while not rest.done():
                # Whoever cancels again: nothing ends before the command has.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({rest})
            raise

    async def close(self) -> None:
        """Kills all commands at once."""
        for run in self._running.values():
            run.kill()
        if self._running:
            await asyncio.wait([run.over for run in self._running.values()])

    def _end_of_whole(self, token: int, run: _Run) -> ProgramEnd | None:
        """How a command has ended of which nothing is left, as of most; None if something may be.

        It takes no task.
        """
        if self._trees.has_strays():
            return None
        run.pipes.finish()
        if not run.pipes.is_drained:
            return None
        try:
            return run.end()
        finally:
            self._forget(token, run)

    async def _see_through(self, token: int, run: _Run) -> ProgramEnd:
        try:
            await self._until_it_is_to_end(token, run)
            if run.is_stopping:
                await self._ask(token, run)
            await self._kill_rest(token, run)
            run.pipes.finish()
            await run.pipes.drained()
            return run.end()
        finally:
            self._forget(token, run)

    def _forget(self, token: int, run: _Run) -> None:
        run.close()
        self._trees.forget(token)
        del self._running[token]
        run.over.set_result(None)

    async def _until_it_is_to_end(self, token: int, run: _Run) -> None:
        """Returns when it has exited, or is to end: told to, or past its limit of memory."""
        if run.is_stopping:
            return
        if run.memory_bytes is None:
            await run.wakes()
            return
        while not await run.wakes(LOOK_EVERY_S):
            members = await asyncio.to_thread(self._trees.members, token)
            run.measured(sum(entry.resident_bytes for entry in members))

    async def _ask(self, token: int, run: _Run) -> None:
        """Asks every process of a command to end, and waits for its first one as long as it may."""
        members = await asyncio.to_thread(self._trees.members, token)
        send_signal(members, signal.SIGTERM)
        await run.exits(self._grace_s)

    async def _kill_rest(self, token: int, run: _Run) -> None:
        if run.has_exited and not self._trees.has_strays():
            return
        members: list[Entry] = []
        for _ in range(MOST_PASSES):
            members = await asyncio.to_thread(self._trees.members, token)
            if not members and run.has_exited:
                return
            send_signal(members, signal.SIGKILL)
            await run.exits(PASS_S)
            await asyncio.sleep(PASS_S)
        _log.error("%d processes of job %s cannot be killed", len(members), run.job)

    def _start(self, running: RunningProgram[Command]) -> Started:
        program = running.program
        environ = {**self._environ, **_encoded(running.environ), **_encoded(program.env)}
        path = program.env.get("PATH", self._path)
        argv = [*_limited(program.limits), _found(program.argv[0], path), *program.argv[1:]]
        folder = str(running.folder / program.folder if program.folder else running.folder)
        spawn = start_in_folder if self._is_alone else start_beside_others
        return spawn(argv, environ, folder, program.stdin)


class _Run:
    """One command that runs: its first process, its output, and why it is to end."""

    def __init__(self, started: Started, running: RunningProgram[Command]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pid = started.pid
        self._limits = running.program.limits
        self._is_out_of_memory = False
        self._peak_bytes = 0
        self.memory_bytes = running.memory_bytes
        self._wake: asyncio.Future[None] = self._loop.create_future()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._descriptor = os.pidfd_open(started.pid)
        self._loop.add_reader(self._descriptor, self._see_exit)
        self.job = running.assignment.job
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing of it is left."""
        self.pipes = Pipes(started.stdout, started.stderr, running.output)
        self.is_stopping = False
        self.rest: asyncio.Task[ProgramEnd] | None = None
        """What sees it through if it does not simply exit."""

    @property
    def has_exited(self) -> bool:
        """Whether its first process has ended."""
        return self._exited.done()

    def stop(self) -> None:
        """It is to end, in good order."""
        self.is_stopping = True
        self._wake_up()

    def kill(self) -> None:
        """It is to end at once."""
        self._wake_up()

    async def exits_by_itself(self) -> bool:
        """Whether it exits before anything else is to be done about it.

        If this is cancelled, `wakes` is as well: then it must be told to stop.
        """
        if self.memory_bytes is not None:
            return False
        await self._wake
        return self.has_exited

    async def wakes(self, within_s: float | None = None) -> bool:
        """Returns when it has exited, or is to end, or after so long; whether it was in time."""
        if within_s is None:
            await self._wake
        else:
            await asyncio.wait({self._wake}, timeout=within_s)
        return self._wake.done()

    def measured(self, used_bytes: int) -> None:
        """Its processes use so much memory now: more than it may have kills it."""
        self._peak_bytes = max(self._peak_bytes, used_bytes)
        if self.memory_bytes is not None and used_bytes > self.memory_bytes:
            self._is_out_of_memory = True
            self.kill()

    async def exits(self, within_s: float) -> None:
        """Returns when it has exited, or after so long."""
        await asyncio.wait({self._exited}, timeout=within_s)

    def end(self) -> ProgramEnd:
        """How it ended; it has exited."""
        _, status, usage = os.wait4(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        memory_bytes = max(self._peak_bytes, usage.ru_maxrss * 1024)
        used = Usage(memory_bytes, usage.ru_utime + usage.ru_stime)
        if self._is_out_of_memory:
            words = f"used more memory than its limit of {self.memory_bytes:,} bytes"
            return ProgramEnd(Outcome.OUT_OF_MEMORY, None, words, used)
        if code >= 0:
            return ProgramEnd(Outcome.EXIT, code, describe_exit(code), used)
        if -code == signal.SIGXCPU and self._limits.cpu_s is not None:
            words = f"used more CPU time than its limit of {self._limits.cpu_s:g} s"
            return ProgramEnd(Outcome.TIMED_OUT, None, words, used)
        return ProgramEnd(Outcome.SIGNAL, -code, describe_exit(code), used)

    def close(self) -> None:
        """Lets go of its output."""
        self._forget_descriptor()
        self.pipes.close()

    def _see_exit(self) -> None:
        self._forget_descriptor()
        self._exited.set_result(None)
        self._wake_up()

    def _forget_descriptor(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _wake_up(self) -> None:
        if not self._wake.done():
            self._wake.set_result(None)


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What a command has of the worker's environment: all but Longshore's own variables."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("LONGSHORE_") or name in KEPT
    }


def _encoded(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    return {
        name.encode(_CODING, _ERRORS): value.encode(_CODING, _ERRORS)
        for name, value in environ.items()
    }


def _found(name: str, path: str) -> str:
    """The file of a program: a path, from the folder it runs in, or a name on its own PATH."""
    if "/" in name:
        return name
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such program in PATH")
    return os.path.abspath(found)


def _limited(limits: Limits) -> list[str]:
    """What to put in front of a command so that its limits hold from its first instruction on."""
    given = []
    if limits.cpu_s is not None:
        # The second number kills what ignores the signal of the first.
        given.append(f"--cpu={max(1, round(limits.cpu_s))}:{max(1, round(limits.cpu_s)) + 2}")
    if limits.open_files is not None:
        given.append(f"--nofile={limits.open_files}")
    if limits.processes is not None:
        given.append(f"--nproc={limits.processes}")
    if not given:
        return []
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        raise FileNotFoundError(errno.ENOENT, "its limits need the program prlimit (util-linux)")
    return [prlimit, *given]


def _not_started(name: str, why: str) -> ProgramEnd:
    return ProgramEnd(Outcome.NOT_STARTED, None, f"'{name}' cannot be started: {why}")
