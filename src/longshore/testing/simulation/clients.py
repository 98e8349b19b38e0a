"""Clients: submit jobs, cancel some, wait for all of them, and retry by hand what did not succeed.

They do the same with groups, and pause some of them. `actor_clients` is what they do with actors.
Each speaks through the real connection. One that gets no answer asks again, with the same ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from random import Random
from uuid import UUID

from longshore.client.connection import Connection
from longshore.errors import WrongState
from longshore.model.group import GateVerdict, GroupState, GroupVerdict, RunPlan
from longshore.model.ids import derive_id
from longshore.model.job import CancelVerdict, Ended, JobState, RetryVerdict
from longshore.testing.simulation.actor_clients import ActorClient, OnActors, patiently
from longshore.testing.simulation.actor_plans import ActorPlans
from longshore.testing.simulation.cluster import Node, World, clients_at
from longshore.testing.simulation.database import RemoteStore
from longshore.testing.simulation.group_plans import (
    Act,
    AdditionPlan,
    GatePlan,
    GroupPlan,
    RerunPlan,
)
from longshore.testing.simulation.loop import Process
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.scenario import JobPlan

Work = Callable[[Connection], Awaitable[None]]
"""Something else that a client does, with its connection."""

WAIT_S = 20.0
OPEN_EVERY_S = 2.0


class ClientNode(Node):
    """Runs one client and its jobs."""

    def __init__(
        self,
        world: World,
        name: str,
        dispatchers: list[str],
        jobs: list[JobPlan],
        groups: list[GroupPlan],
        on_accepted: Callable[[UUID], None],
        on_told: Callable[[Ended], None],
        on_open: Callable[[UUID], None],
        actors: ActorPlans,
        on_actors: OnActors,
        works: Sequence[Work],
    ) -> None:
        super().__init__(world, name)
        self._dispatchers = dispatchers
        self._jobs = jobs
        self._groups = groups
        self._on_accepted = on_accepted
        self._on_told = on_told
        self._on_open = on_open
        self._over: set[UUID] = set()
        self._works = works
        self._actors = ActorClient(name, actors, on_actors, self._note)
        self.done = False
        self._waiting: dict[UUID, None] = {}
        self._ids = Random(f"{name}/requests")

    def waits_for(self) -> UUID | None:
        """One of the jobs whose end it was not told of yet."""
        return next(iter(self._waiting), None)

    async def live(self, process: Process) -> None:
        """Sees all its jobs through."""
        connect = self.world.network.connect_as(process)
        addresses = [clients_at(name) for name in self._dispatchers]
        async with Connection(addresses, connect=connect, new_id=self._new_id) as connection:
            keepers = asyncio.gather(*self._actors.keepers(connection))
            await asyncio.gather(
                *(self._see_through(connection, plan) for plan in self._jobs),
                *(self._see_group_through(connection, plan) for plan in self._groups),
                *self._actors.works(connection),
                *(work(connection) for work in self._works),
            )
            self.done = True
            await keepers

    def _new_id(self) -> UUID:
        return UUID(bytes=self._ids.randbytes(16))

    async def _see_through(self, connection: Connection, plan: JobPlan) -> None:
        await asyncio.sleep(plan.at)
        job = await self._submit(connection, plan)
        if plan.asks_why:
            await patiently(lambda: connection.why(job))
        if plan.cancel_after_s is not None:
            await asyncio.sleep(plan.cancel_after_s)
            await self._cancel(connection, job)
        for rounds_left in range(plan.retries, -1, -1):
            ended = await self._wait(connection, job)
            if ended.state is JobState.SUCCEEDED or not rounds_left:
                return
            await self._retry(connection, job)

    async def _submit(self, connection: Connection, plan: JobPlan) -> UUID:
        """The job that came of it: another one, if that has the unique key."""
        submission = plan.submission
        self._note("submits it", submission.id)
        (answer,) = await patiently(lambda: connection.submit((submission,)))
        if answer.code or (answer.existing and submission.unique_key is None):
            text = f"a sound submit was answered {answer.code or 'existing'}: {answer.message}"
            raise BrokenPromise(Promise.SOUND, text, submission.id)
        self._note(f"has it accepted as number {answer.number}", submission.id, answer.id)
        self._on_accepted(answer.id)
        return answer.id

    async def _cancel(self, connection: Connection, job: UUID) -> None:
        self._note("cancels it", job)
        (answer,) = await patiently(lambda: connection.cancel([job]))
        self._note(f"is told {answer.verdict}", job)
        if answer.verdict is CancelVerdict.NOT_FOUND:
            raise BrokenPromise(Promise.DURABLE, "there is nothing to cancel", job)

    async def _retry(self, connection: Connection, job: UUID) -> None:
        self._note("retries it", job)
        (answer,) = await patiently(lambda: connection.retry([job]))
        self._note(f"is told {answer.verdict}", job)
        if answer.verdict is RetryVerdict.NOT_FOUND:
            raise BrokenPromise(Promise.DURABLE, "there is nothing to retry", job)

    # groups

    async def _see_group_through(self, connection: Connection, plan: GroupPlan) -> None:
        await asyncio.sleep(plan.at)
        await self._submit_group(connection, plan)
        gates = self._gatekeepers(connection, plan, plan.id)
        more = [self._add_later(connection, plan, one) for one in plan.additions]
        await asyncio.gather(self._act_on(connection, plan), *gates, *more)

    def _gatekeepers(
        self, connection: Connection, plan: GroupPlan, group: UUID
    ) -> list[Coroutine[object, object, None]]:
        """Open the gates of a group, or of a new run of it, until that has ended for good."""
        places = {node.key: place for place, node in enumerate(plan.nodes)}
        return [
            self._keep_open(connection, group, derive_id(group, places[gate.key]), gate)
            for gate in plan.gates
        ]

    async def _act_on(self, connection: Connection, plan: GroupPlan) -> None:
        """Does what is to be done to a group, and waits until it has ended for good."""
        for after_s, act in plan.acts:
            await asyncio.sleep(after_s)
            await self._do(connection, plan, act)
        for rounds_left in range(plan.retries, -1, -1):
            ended = await self._wait(connection, plan.id)
            if ended.state is JobState.SUCCEEDED or not rounds_left:
                break
            await self._do(connection, plan, Act.RETRY)
        self._over.add(plan.id)
        if plan.rerun is not None:
            await self._see_run_through(connection, plan, plan.rerun)

    async def _see_run_through(
        self, connection: Connection, plan: GroupPlan, rerun: RerunPlan
    ) -> None:
        """Makes a new run of a group that has ended, if anything would run, and waits for it."""
        await asyncio.sleep(rerun.after_s)
        self._note("asks to run it anew", plan.id)
        made = await patiently(partial(self._run_anew, connection, plan.id, rerun))
        self._note(f"is told {made}", plan.id)
        if made.run is not None:
            gates = asyncio.gather(*self._gatekeepers(connection, plan, made.run.id))
            await self._wait(connection, made.run.id)
            self._over.add(made.run.id)
            await gates

    async def _run_anew(self, connection: Connection, group: UUID, rerun: RerunPlan) -> RunPlan:
        """All steps towards a new run: a dispatcher's, or smaller ones by the store itself."""
        if not rerun.most:
            return await connection.rerun_group(group, rerun.keys, run=rerun.run)
        store = RemoteStore(self.world.database)
        while True:
            step = partial(store.rerun_group, group, rerun.run, keys=rerun.keys, most=rerun.most)
            plan = await patiently(step)
            if plan is None:
                raise BrokenPromise(Promise.DURABLE, "there is no group to run anew", group)
            if plan.run is None or plan.run.state is not GroupState.STAGING:
                return plan

    async def _add_later(
        self, connection: Connection, plan: GroupPlan, addition: AdditionPlan
    ) -> None:
        """Adds jobs to a group, unless that has ended, or is being cancelled."""
        await asyncio.sleep(addition.after_s)
        ask = partial(connection.add_to_group, addition.request, plan.id, addition.nodes)
        try:
            await patiently(ask)
        except WrongState as error:
            self._note(f"is told {error}", plan.id)
            return
        for at in range(len(addition.nodes)):
            self._on_accepted(derive_id(addition.request, at))

    async def _keep_open(
        self, connection: Connection, group: UUID, job: UUID, gate: GatePlan
    ) -> None:
        """Opens a gate, in each round of its group, as soon as it can be."""
        await asyncio.sleep(gate.after_s)
        while group not in self._over:
            ask = partial(connection.open_gate, group, gate.key, gate.value)
            verdict = await patiently(ask)
            if verdict in (GateVerdict.OPENED, GateVerdict.ALREADY_OPEN):
                self._on_open(job)
            elif verdict in (GateVerdict.NOT_FOUND, GateVerdict.NOT_A_GATE):
                raise BrokenPromise(Promise.DURABLE, "there is no gate to open", job)
            if verdict is GateVerdict.OPENED:
                self._note("has opened it", job)
            await asyncio.sleep(OPEN_EVERY_S)

    async def _submit_group(self, connection: Connection, plan: GroupPlan) -> None:
        for part in plan.parts:
            jobs = [node.job.id for node in part.nodes]
            self._note(f"submits {len(jobs)} jobs of it", plan.id, *jobs)
            answer = await patiently(partial(connection.submit_group, part, plan.edges))
            self._note(f"has it accepted as {answer.state}", plan.id)
            for job in jobs:
                self._on_accepted(job)

    async def _do(self, connection: Connection, plan: GroupPlan, act: Act) -> None:
        """Pauses and retries go to the store itself: dispatchers find them when they look."""
        store, group = RemoteStore(self.world.database), plan.id
        self._note(f"asks to {act} it", group)
        answer: object
        match act:
            case Act.CANCEL:
                answer = await patiently(lambda: connection.cancel_group(group))
            case Act.PAUSE | Act.RESUME:
                paused = act is Act.PAUSE
                answer = await patiently(lambda: store.pause_group(group, paused))
            case Act.RETRY:
                keys = [self._ids.choice(plan.nodes).key] * self._ids.randint(0, 1)
                again = partial(store.retry_group, group, self.name, self._new_id(), keys=keys)
                answer = await patiently(again)
        self._note(f"is told {answer}", group)
        if answer in (None, GroupVerdict.NOT_FOUND):
            raise BrokenPromise(Promise.DURABLE, f"there is no group to {act}", group)

    async def _wait(self, connection: Connection, job: UUID) -> Ended:
        self._waiting[job] = None
        while True:
            ended = await patiently(lambda: connection.wait([job], WAIT_S))
            for one in ended:
                self._note(f"is told that it is {one.state}", job)
                self._waiting.pop(job, None)
                self._on_told(one)
                return one

    def _note(self, text: str, *jobs: UUID) -> None:
        self.world.note(self.name, text, *jobs)
