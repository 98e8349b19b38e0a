"""Runs programs in containers, through any engine that speaks Docker's API.

An attempt has one container, `longshore-JOB-TOKEN`, which is removed before the attempt ends. Its
labels name the process that attends it. What nobody attends any more (its process was killed, or
the engine went away and came back) is removed by a sweep, at the start and every `sweep_s`. A
container whose process may still live is never touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from typing import Any, Final

from aiodocker.containers import DockerContainer
from aiodocker.exceptions import DockerError
from aiodocker.stream import Stream
from msgspec import structs

from longshore.errors import ConfigError
from longshore.executors.host.programs import engine_errors
from longshore.executors.host.programs.container_config import (
    REPORT,
    WORK,
    Owner,
    config_of,
    name_of,
)
from longshore.executors.host.programs.container_usage import ContainerUsage
from longshore.executors.host.programs.engine import (
    CONNECTION_LOST,
    EngineTerms,
    check_answers,
    connect,
    disconnect,
    losses,
    uninterrupted,
)
from longshore.executors.host.programs.foreign_files import give_back, let_read, open_up
from longshore.executors.host.programs.pulls import Pulls
from longshore.executors.host.programs.registries import check_registries
from longshore.executors.host.programs.runner import CannotBegin, RunningProgram
from longshore.executors.host.programs.sweeps import HasEnded, sweep
from longshore.executors.process_marks import has_ended, process_mark
from longshore.model.log import ENGINE, STDERR, STDOUT
from longshore.model.program import Container, Outcome, ProgramEnd

_log = logging.getLogger(__name__)

_STDERR_NUMBER: Final = 2
_REST_S: Final = 10.0
"""How long the rest of a container's output may take to come after its end."""
_SIGNALS: Final = range(1, 65)
_LONG_PARTS: Final = ("HostConfig", "NetworkSettings")
"""Parts of the engine's description that are mostly empty: what is empty is left out."""
_OF_ENGINE: Final = "GraphDriver"
"""A part that says much about the engine's disk, and nothing of the job."""
_QUIET: Final = (DockerError, *CONNECTION_LOST)


class ContainerRunner:
    """Runs containers of one engine, any number at once."""

    def __init__(
        self, terms: EngineTerms, mark: str | None = None, has_ended: HasEnded = has_ended
    ) -> None:
        self._terms = terms
        own = process_mark() if mark is None else mark
        self._owner = Owner(own, terms.worker, terms.fleet)
        self._has_ended = has_ended
        self._attended: dict[int, DockerContainer] = {}
        self._stop_signals: dict[int, str] = {}
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Finds the engine, and removes the containers that dead processes left there.

        Raises `ConfigError` if no engine answers.
        """
        check_registries(self._terms.registries)
        self._docker = connect(self._terms.url)
        self._pulls = Pulls(self._docker, self._terms.registries)
        try:
            with losses():
                await self._sweep()
        except (CannotBegin, DockerError) as error:
            await disconnect(self._docker)
            raise ConfigError(
                f"no container engine answers at {self._terms.url}: {error}; start it, or set "
                "engine to its address, or to off"
            ) from None
        self._sweeping = asyncio.create_task(self._sweep_now_and_then())

    async def close(self) -> None:
        """Kills and removes all containers that it still has, and leaves the engine."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        attended, self._attended = self._attended, {}
        await asyncio.gather(*(self._remove(container) for container in attended.values()))
        await disconnect(self._docker)

    async def prepare(self, running: RunningProgram[Container]) -> None:
        """Pulls the image, if it is not there, and makes the container."""
        token = running.assignment.token
        image = await self._pulls.present(running.program.image, running.log)
        self._stop_signals[token] = image.get("Config", {}).get("StopSignal") or "SIGTERM"
        running.log.step("creating container")
        open_up(running.folder, running.report)
        if running.secrets is not None:
            let_read(running.secrets)
        name = name_of(*running.assignment.key)
        self._attended[token] = self._docker.containers.container(name)
        config = config_of(running, self._owner, gpus=self._terms.gpus)
        try:
            with losses():
                # To its end: a container that is made after its removal would stay.
                await uninterrupted(self._docker.containers.create(config, name=name))
        except DockerError as error:
            raise CannotBegin(engine_errors.not_started(error.status, error.message)) from None

    async def run(self, running: RunningProgram[Container]) -> ProgramEnd:
        """Runs a container, removes it, and answers how its program ended."""
        container = self._attended[running.assignment.token]
        try:
            with losses():
                return await self._attend(container, running)
        except CannotBegin as error:
            return error.end
        except DockerError as error:
            return engine_errors.not_started(error.status, error.message)
        except asyncio.CancelledError:
            await uninterrupted(self._stop(container, running.assignment.token))
            raise
        finally:
            await uninterrupted(self._give_back(container, running))

    async def discard(self, running: RunningProgram[Container]) -> None:
        """Removes the container. If the engine is gone, a sweep does so when it is back."""
        token = running.assignment.token
        self._stop_signals.pop(token, None)
        container = self._attended.pop(token, None)
        if container is not None:
            await uninterrupted(self._remove(container))

    async def _attend(
        self, container: DockerContainer, running: RunningProgram[Container]
    ) -> ProgramEnd:
        async with container.attach(stdin=False, stdout=True, stderr=True) as output:
            await container.start()
            reading = asyncio.create_task(_read(output, running))
            name = name_of(*running.assignment.key)
            try:
                with ContainerUsage(self._docker, name).measured() as usage:
                    await container.wait()
                await asyncio.wait([reading], timeout=_REST_S)
            finally:
                reading.cancel()
        description = await container.show()
        running.log.document(ENGINE, _packed(description))
        end = end_of(description, running.memory_bytes)
        if end.outcome is Outcome.SIGNAL:
            # An engine that stops ends its containers first: then it is no crash of theirs.
            await check_answers(self._terms.url)
        return structs.replace(end, usage=usage.most)

    async def _stop(self, container: DockerContainer, token: int) -> None:
        """Asks a container to end, and kills it when its grace is over."""
        with contextlib.suppress(*_QUIET):
            async with asyncio.timeout(self._terms.grace_s):
                await container.kill(signal=self._stop_signals.get(token, "SIGTERM"))
                await container.wait()
        with contextlib.suppress(*_QUIET):
            async with asyncio.timeout(self._terms.answer_s):
                await container.kill()

    async def _give_back(
        self, container: DockerContainer, running: RunningProgram[Container]
    ) -> None:
        with contextlib.suppress(*_QUIET):
            async with asyncio.timeout(self._terms.answer_s):
                await give_back(container, {running.folder: WORK, running.report: REPORT})

    async def _remove(self, container: DockerContainer) -> None:
        with contextlib.suppress(*_QUIET):
            async with asyncio.timeout(self._terms.answer_s):
                await container.delete(force=True, v=True)

    async def _sweep_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._terms.sweep_s)
            try:
                with losses():
                    await self._sweep()
            except (CannotBegin, DockerError) as error:
                _log.warning("containers could not be looked through: %s", error)

    async def _sweep(self) -> None:
        await sweep(self._docker, self._owner.process, self._attended.keys(), self._has_ended)


async def _read(output: Stream, running: RunningProgram[Container]) -> None:
    """Passes on what a container prints. That some of it is lost does not fail the job."""
    try:
        while (message := await output.read_out()) is not None:
            stream = STDERR if message.stream == _STDERR_NUMBER else STDOUT
            running.output.write(stream, message.data)
    except CONNECTION_LOST as error:
        words = f"the rest of the output is lost: {str(error) or type(error).__name__}"
        running.log.logged("WARNING", "longshore", words)


def _packed(description: dict[str, Any]) -> str:
    """The engine's description of a container, without a line break."""
    kept = {key: value for key, value in description.items() if key != _OF_ENGINE}
    for part in _LONG_PARTS:
        kept[part] = {key: value for key, value in (kept.get(part) or {}).items() if value}
    return json.dumps(kept, separators=(",", ":"))


def end_of(description: dict[str, Any], memory_bytes: int | None = None) -> ProgramEnd:
    """How a container ended, by the engine's description of it."""
    state = description["State"]
    code = int(state["ExitCode"])
    if code != 0 and state.get("OOMKilled"):
        of = "" if memory_bytes is None else f" (its limit is {memory_bytes:,} bytes)"
        return ProgramEnd(Outcome.OUT_OF_MEMORY, words=f"container ran out of memory{of}")
    if code - 128 in _SIGNALS:
        return ProgramEnd(Outcome.SIGNAL, code - 128, f"container {_killed_by(code - 128)}")
    return ProgramEnd(Outcome.EXIT, code, f"container exited with code {code}")


def _killed_by(number: int) -> str:
    try:
        return f"was killed by signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"was killed by signal {number}"
