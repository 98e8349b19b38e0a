"""A host of containers that outlives its agent, and the agent that comes after: a real engine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from uuid import uuid4

from longshore.executors.container import ContainerExecutor
from longshore.executors.frames import ProgramTerms
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import Hosting
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import LogEntry, LogKind
from longshore.model.log import unpack_line
from longshore.model.program import CONTAINER_KIND
from longshore.model.reports import CancelReport, ReleaseReport, Report, SuccessReport
from longshore.payload.values import pack
from longshore.testing.engine import IMAGE, Engine

WAIT = "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after"


class Agent(ContainerExecutor):
    """An executor as an agent has it. It can die: then nobody ends its host."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        (folder / "state").mkdir(exist_ok=True)
        (folder / "room").mkdir(exist_ok=True)
        terms = ProgramTerms(exec=True, engine=engine.url, grace_s=0.2, state=str(folder / "state"))
        hosting = Hosting("", scratch=str(folder / "room"), programs=terms)
        super().__init__(hosting, 2, self._on_report, self._on_log)
        self.reports: list[Report] = []
        self.entries: dict[int, LogEntry] = {}
        self._said = asyncio.Event()

    def _on_report(self, report: Report, took_s: float | None = None, /) -> None:
        self.reports.append(report)
        self._said.set()

    def _on_log(self, entry: LogEntry) -> None:
        self.entries[entry.seq] = entry
        self._said.set()

    async def born(self) -> list[AttemptKey]:
        """It opens and takes over what is there: answers that."""
        await self.open()
        held = [one.assignment.key for one in self.held()]
        self.resume()
        self.leased(60)
        return held

    def leased(self, seconds: float) -> None:
        """It has a lease for so long from now on."""
        until = time.clock_gettime(time.CLOCK_BOOTTIME) + seconds
        self.extend(until - seconds / 3, until)

    def die(self) -> list[HostProcess]:
        """It is gone, as if it was killed; answers its hosts."""
        hosts = list(self._hosts)
        self._hosts.clear()
        for host in hosts:
            host.let_go()
        return hosts

    @property
    def printed(self) -> list[str]:
        """What its attempts printed, as far as it was told, in the order of the numbers."""
        told = [self.entries[seq] for seq in sorted(self.entries)]
        lines = [unpack_line(one.data) for one in told if one.kind is LogKind.TEXT]
        return [line.text for line in lines if line.stream == "stdout"]

    async def told(self, happened: str) -> None:
        """It was told of a printed line, or of an end."""
        async with asyncio.timeout(30):
            while not (happened in self.printed or (happened == "end" and self.reports)):
                self._said.clear()
                await self._said.wait()

    async def runs(self, script: str) -> Assignment:
        """A container that runs a script has printed its first line."""
        args = pack({"image": IMAGE, "command": ["sh", "-c", script]}, "")
        assignment = Assignment(uuid4(), time.monotonic_ns(), 1, CONTAINER_KIND, args)
        self.start(assignment)
        await self.told("before")
        return assignment


async def ended(hosts: list[HostProcess]) -> None:
    """These processes have ended."""
    async with asyncio.timeout(30):
        await asyncio.gather(*(asyncio.shield(host.exited) for host in hosts))


async def test_agents_come_and_go_and_a_container_runs_once(engine: Engine, tmp_path: Path) -> None:
    first = Agent(engine, tmp_path)
    assert await first.born() == []
    assignment = await first.runs(WAIT)
    hosts = first.die()
    second = Agent(engine, tmp_path)
    assert await second.born() == [assignment.key]
    (tmp_path / "room" / f"{assignment.job}-{assignment.token}" / "work/go").touch()
    await second.told("end")
    # It dies before the store has the report: the next one is told again.
    hosts += second.die()
    third = Agent(engine, tmp_path)
    await third.open()
    [held] = third.held()
    assert (held.assignment.key, held.agents) == (assignment.key, 3)
    third.resume()
    await third.told("end")
    assert third.reports == second.reports
    assert isinstance(third.reports[0], SuccessReport)
    assert third.printed == ["before", "after"]
    third.recorded([assignment.token])
    await ended(hosts)
    # Of what is recorded a host keeps nothing: it does not go on for it.
    third.leased(60)
    third.reports.clear()
    short = await third.runs("echo before")
    await third.told("end")
    third.recorded([short.token])
    await ended(third.die())


async def test_the_next_agent_can_stop_what_it_took_over(engine: Engine, tmp_path: Path) -> None:
    first = Agent(engine, tmp_path)
    await first.born()
    assignment = await first.runs(WAIT)
    hosts = first.die()
    second = Agent(engine, tmp_path)
    await second.born()
    second.abort(CancelReport(*assignment.key))
    await second.told("end")
    assert second.reports == [CancelReport(*assignment.key)]
    assert engine.containers(f"name=longshore-{assignment.job}") == []
    await second.close()
    await ended(hosts)


async def test_a_host_alone_stops_its_containers_when_the_lease_ends(
    engine: Engine, tmp_path: Path
) -> None:
    """G6: nobody else may start them before they are gone."""
    agent = Agent(engine, tmp_path)
    await agent.born()
    assignment = await agent.runs(f"trap '' TERM; {WAIT}")
    agent.leased(0.3)
    await ended(agent.die())
    assert engine.containers(f"name=longshore-{assignment.job}") == []
    assert list((tmp_path / "state/hosts").iterdir()) == []


async def test_a_host_keeps_to_the_lease_though_its_agent_is_there(
    engine: Engine, tmp_path: Path
) -> None:
    """G6: an agent that is frozen stops nothing."""
    agent = Agent(engine, tmp_path)
    await agent.born()
    assignment = await agent.runs(f"trap '' TERM; {WAIT}")
    agent.leased(0.3)
    await agent.told("end")
    assert agent.reports == [ReleaseReport(*assignment.key)]
    assert engine.containers(f"name=longshore-{assignment.job}") == []
    await agent.close()


async def test_without_a_lease_a_host_ends_with_its_agent(engine: Engine, tmp_path: Path) -> None:
    agent = Agent(engine, tmp_path)
    await agent.open()
    assignment = await agent.runs(WAIT)
    await ended(agent.die())
    assert engine.containers(f"name=longshore-{assignment.job}") == []
