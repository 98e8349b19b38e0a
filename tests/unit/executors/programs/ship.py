"""A runner of containers on a real engine, and attempts for it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

from msgspec import structs

from longshore.executors.host.programs.container import ContainerRunner
from longshore.executors.host.programs.container_config import name_of
from longshore.executors.host.programs.engine import EngineTerms
from longshore.executors.host.programs.output import ProgramOutput
from longshore.executors.host.programs.runner import CannotBegin, RunningProgram
from longshore.executors.output.attempt_log import AttemptLog
from longshore.model.attempt import Assignment
from longshore.model.job import LogKind
from longshore.model.log import Line, LogLimits, unpack_line
from longshore.model.program import Container, ProgramEnd
from longshore.testing.engine import IMAGE

_tokens = itertools.count(1)
NEVER: Callable[[str], bool] = lambda mark: False  # noqa: E731
HERE = "this process"


class Attempt:
    """One attempt at a container, with its folders and what it said."""

    def __init__(
        self,
        folder: Path,
        program: Container,
        limits: LogLimits | None = None,
        secrets: Path | None = None,
    ) -> None:
        self.folder, self.report = folder / "work", folder / "report"
        for one in (self.folder, self.report):
            one.mkdir(parents=True, exist_ok=True)
        self.assignment = Assignment(uuid4(), next(_tokens), 1, "longshore.container", b"")
        self.name = name_of(*self.assignment.key)
        self.log = AttemptLog(*self.assignment.key, lambda log: None, limits=limits)
        self.running = RunningProgram(
            assignment=self.assignment,
            program=program,
            folder=self.folder,
            report=self.report,
            secrets=secrets,
            environ={
                "LONGSHORE_RESULT": str(self.report / "result"),
                **({} if secrets is None else {"LONGSHORE_SECRETS": str(secrets)}),
            },
            log=self.log,
            output=ProgramOutput(self.log, 1, LogLimits(echo=False)),
            memory_bytes=program.limits.memory_bytes,
        )
        self._entries: list[tuple[LogKind, bytes]] = []

    @property
    def steps(self) -> list[str]:
        """The steps that it told."""
        return [unpack_line(data).text for kind, data in self._said() if kind is LogKind.STEP]

    @property
    def lines(self) -> list[Line]:
        """The lines that it printed."""
        return [unpack_line(data) for kind, data in self._said() if kind is LogKind.TEXT]

    def printed(self, stream: str = "stdout") -> list[str]:
        """What it printed to one stream."""
        return [line.text for line in self.lines if line.stream == stream]

    def _said(self) -> list[tuple[LogKind, bytes]]:
        self._entries += [(entry.kind, entry.data) for entry in self.log.take()]
        return self._entries


def shell(script: str, **more: object) -> Container:
    """A container that runs a shell script."""
    fields = {"image": IMAGE, "command": ("sh", "-c", script), **more}
    return Container(**fields)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def runner(
    url: str,
    *,
    process: str = HERE,
    has_ended: Callable[[str], bool] = NEVER,
    registries: str = "",
    grace_s: float = 5.0,
    answer_s: float = 20.0,
    sweep_s: float = 3600.0,
) -> AsyncIterator[ContainerRunner]:
    """A runner that is open."""
    terms = EngineTerms(
        url=url,
        registries=registries,
        grace_s=grace_s,
        answer_s=answer_s,
        sweep_s=sweep_s,
        worker="worker-1",
        fleet="fleet-1",
    )
    made = ContainerRunner(terms, process, has_ended)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def whole(made: ContainerRunner, attempt: Attempt) -> ProgramEnd:
    """An attempt from its image to its removal, as a host calls the runner."""
    try:
        await made.prepare(attempt.running)
        return await made.run(attempt.running)
    except CannotBegin as error:
        return error.end
    finally:
        await made.discard(attempt.running)


async def run(url: str, attempt: Attempt) -> ProgramEnd:
    """Runs one attempt to its end."""
    async with runner(url) as made:
        end = await whole(made, attempt)
    attempt.log.end()
    return end


def unmeasured(end: ProgramEnd) -> ProgramEnd:
    """How a container ended. Whether one that soon ends was measured is luck."""
    return structs.replace(end, usage=None)


async def began(attempt: Attempt) -> None:
    """Waits until the program in the container says that it is up, by a file."""
    await until((attempt.folder / "began").exists)


async def until(is_so: Callable[[], object]) -> None:
    """Waits until something is so; the loop turns meanwhile."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
