"""Runs one seed from its first callback to the last check."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from random import Random
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from longshore.config import DispatcherSettings, WorkerSettings
from longshore.core.why import why
from longshore.dispatcher.limit_service import facts_of
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.group import NodeView
from longshore.model.ids import derive_id
from longshore.model.reports import Report
from longshore.store.rows import micros
from longshore.testing.memory import MemoryStore
from longshore.testing.simulation.actor_check import ActorCheck
from longshore.testing.simulation.agreement import disagreement
from longshore.testing.simulation.bodies import Script, child_of
from longshore.testing.simulation.clients import ClientNode, Work
from longshore.testing.simulation.cluster import DispatcherNode, Node, WorkerNode, World
from longshore.testing.simulation.database import Committed, Database, Weather, at_once
from longshore.testing.simulation.fairness import LOOK_S, Fairness
from longshore.testing.simulation.group_check import GroupCheck
from longshore.testing.simulation.group_plans import GroupPlan
from longshore.testing.simulation.http_link import HttpLink
from longshore.testing.simulation.ledger import Ledger
from longshore.testing.simulation.limit_clients import set_rules
from longshore.testing.simulation.limit_progress import LimitProgress
from longshore.testing.simulation.loop import Life, Process, SimulatedLoop
from longshore.testing.simulation.nemesis import Nemesis
from longshore.testing.simulation.network import Network
from longshore.testing.simulation.plain import PlainNode
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.running_bodies import RunningBodies
from longshore.testing.simulation.scenario import Scenario
from longshore.testing.simulation.schedule_check import ScheduleCheck
from longshore.testing.simulation.schedule_clients import keep_schedule
from longshore.testing.simulation.stores import ModelStores, SqliteStores, Stores, Utc
from longshore.testing.simulation.trace import Trace
from longshore.testing.simulation.turn_bodies import input_of, is_turn
from longshore.testing.simulation.web_check import WebCheck
from longshore.testing.simulation.web_cluster import WebCluster
from longshore.testing.simulation.why_check import WhyCheck
from longshore.testing.virtual import VirtualClock

CALM_S: Final = 300.0
"""Within so long after the storm every job must have ended, if there is little to do."""
AGREE_S: Final = 120.0
"""Within so long after that everybody must agree."""
EXCUSED_S: Final = 1.5
"""A worker that was frozen for less must still stop in time: it kills its jobs 2 s early."""
REVIVAL_S: Final = 2.0
TEARDOWN_S: Final = 100.0

SETTINGS: Final = DispatcherSettings(overlap_from=1)
"""Transactions overlap whenever they can, not only under load."""

StoreMaker = Callable[[Utc], MemoryStore]


class Verdict(Struct, frozen=True):
    """What became of a seed."""

    scenario: Scenario
    broken: BrokenPromise | None
    seconds: float
    steps: int
    faults: int
    """How much went wrong: faults that struck, messages that got lost, calls that failed."""
    trace: Trace


def simulate(
    scenario: Scenario,
    make_store: StoreMaker = MemoryStore,
    settings: DispatcherSettings = SETTINGS,
) -> Verdict:
    """Acts a scenario out over the model, and says whether every promise was kept."""
    return _simulate(scenario, lambda utc: ModelStores(make_store(utc)), settings)


def is_for_sqlite(seed: int) -> bool:
    """Whether a seed runs on SQLite, unless somebody says otherwise: one in four does."""
    return seed % 4 == 0


def simulate_on_sqlite(scenario: Scenario, settings: DispatcherSettings = SETTINGS) -> Verdict:
    """Acts a scenario out over the real SQLite store, and says whether every promise was kept."""
    return _simulate(scenario, SqliteStores, settings)


def _simulate(
    scenario: Scenario, make_stores: Callable[[Utc], Stores], settings: DispatcherSettings
) -> Verdict:
    with _silence():
        return Simulation(scenario, make_stores, settings).run()


@contextmanager
def _silence() -> Iterator[None]:
    """Nobody reads the logs of a simulation: the trace says more."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class Simulation:
    """One scenario, from its first callback to the last check."""

    def __init__(
        self,
        scenario: Scenario,
        make_stores: Callable[[Utc], Stores],
        settings: DispatcherSettings = SETTINGS,
    ) -> None:
        self._scenario = scenario
        self._loop = SimulatedLoop()
        self._loop.on_too_many = self._too_many
        self._loop.set_exception_handler(self._unforeseen)
        self._trace = Trace()
        self._broken: BrokenPromise | None = None
        self._over = asyncio.Event()
        self._watching = True
        self._settings = settings
        self._stores = make_stores(VirtualClock(self._loop).utc)
        self._store = self._stores.open()
        self._bodies = RunningBodies(self._trace, EXCUSED_S, self._is_fair)
        self._groups = GroupCheck(scenario.groups, self._nodes_of)
        utc = VirtualClock(self._loop).utc
        self._actors = ActorCheck(self._trace, lambda: micros(utc()), self._say)
        web = WebCheck(self._trace, self._is_blameless)
        self._web_check = web if scenario.web.gateways else None
        asks = self._groups, self._actors, self._web_check
        self._ledger = Ledger(self._stores, self._loop, self._trace, self._bodies, *asks)
        self._schedules = ScheduleCheck(scenario.schedules, self._store)
        self._world = self._make_grounds()
        self._world.on_broken = self._broke
        self._script = Script(self._random("bodies"), self._die)
        self._dispatchers = self._make_dispatchers()
        self._workers = self._make_workers()
        self._plain_workers = self._make_plain_workers()
        self._web = self._make_web(web)
        self._clients = self._make_clients()
        workers = (*self._workers, *self._plain_workers)
        everybody: list[Node] = [*self._dispatchers, *workers, *self._clients, *self._web.nodes]
        self._nodes = {node.name: node for node in everybody}
        self._nemesis = Nemesis(self._world, self._nodes)
        self._fairness = Fairness(self._dispatchers, self._workers, scenario.lookahead_s)
        self._progress = LimitProgress(self._ledger, self._fairness, self._settings.poll_s)
        self._reasons = WhyCheck(self._ledger, self._groups, self._stores, self._store)

    def _random(self, what: str) -> Random:
        return Random(f"{self._scenario.seed}/{what}")

    def _make_grounds(self) -> World:
        scenario, loop = self._scenario, self._loop
        weather = Weather(scenario.store_delay_s, lost_hints=scenario.lost_hints, away={}, late={})
        store_random = self._random("database")
        database = Database(self._stores.open, loop, store_random, weather, self._committed)
        delay_s = scenario.network_delay_s
        network = Network(loop, self._random("network"), self._trace, delay_s, scenario.heartbeat_s)
        http = HttpLink(network, self._random("http"), self._trace)
        return World(loop, scenario.seed, self._trace, network, database, http)

    def _make_dispatchers(self) -> list[DispatcherNode]:
        names = self._scenario.dispatchers
        return [DispatcherNode(self._world, name, self._settings) for name in names]

    def _make_workers(self) -> list[WorkerNode]:
        lookahead_s = self._scenario.lookahead_s
        settings = WorkerSettings(drain_s=10.0, lookahead_s=lookahead_s, lookahead_runs=3)
        return [
            WorkerNode(self._world, plan, settings, self._script, self)
            for plan in self._scenario.workers
        ]

    def _make_plain_workers(self) -> list[PlainNode]:
        dispatchers = self._scenario.dispatchers
        return [
            PlainNode(self._world, name, dispatchers, self._script, self._bodies)
            for name in self._scenario.plain_workers
        ]

    def _make_web(self, check: WebCheck) -> WebCluster:
        def checked(service: str, refused: bool) -> None:
            self._watch(lambda: check.answered(service, web.slots(service), refused))

        dispatchers, lease_s = self._scenario.dispatchers, self._settings.lease_s
        run = self._script, self, checked
        web = WebCluster(self._world, self._scenario.web, dispatchers, lease_s, *run)
        check.gateways = web.gateways
        return web

    def _make_clients(self) -> list[ClientNode]:
        for number, plan in enumerate(self._scenario.jobs, start=1):
            job, behaviour = plan.submission.id, plan.behaviour
            self._trace.names[job] = f"j{number}"
            self._script.behaviours[job] = behaviour
            for round, index in product(range(1, plan.retries + 2), range(behaviour.children)):
                name = f"j{number}/{index}" if round == 1 else f"j{number}.{round}/{index}"
                self._trace.names[child_of(job, round, index).id] = name
        for number, group in enumerate(self._scenario.groups, start=1):
            self._trace.names[group.id] = f"g{number}"
            for node, behaviour in zip(group.nodes, group.behaviours, strict=True):
                self._trace.names[node.job.id] = f"g{number}/{node.key}"
                self._script.behaviours[node.job.id] = behaviour
            if group.rerun is not None:
                self._name_run(f"g{number}'", group, group.rerun.run)
        for number, start in enumerate(self._scenario.actors.starts, start=1):
            self._trace.names[start.actor.id] = f"a{number}"
        self._script.tempers.update(self._scenario.actors.tempers)
        return [self._make_client(name) for name in self._scenario.clients]

    def _name_run(self, name: str, group: GroupPlan, run: UUID) -> None:
        """Jobs of a new run behave as those of the group did when they ran first."""
        self._trace.names[run] = name
        for place, (node, behaviour) in enumerate(zip(group.nodes, group.behaviours, strict=True)):
            job = derive_id(run, place)
            self._trace.names[job] = f"{name}/{node.key}"
            self._script.behaviours[job] = behaviour

    def _make_client(self, name: str) -> ClientNode:
        jobs = [plan for plan in self._scenario.jobs if plan.client == name]
        groups = [plan for plan in self._scenario.groups if plan.client == name]
        dispatchers = list(self._scenario.dispatchers)
        self._random(name).shuffle(dispatchers)
        return ClientNode(
            self._world,
            name,
            dispatchers,
            jobs,
            groups,
            self._ledger.accepted,
            self._ledger.told,
            self._groups.told_open,
            self._scenario.actors,
            self._actors,
            self._works(name),
        )

    def _works(self, name: str) -> list[Work]:
        """What a client does beside jobs, groups and actors."""
        note = partial(self._world.note, name)
        rules = [plan for plan in self._scenario.rules if plan.client == name]
        schedules = [plan for plan in self._scenario.schedules if plan.client == name]
        keepers = [partial(keep_schedule, plan, self._schedules, note) for plan in schedules]
        return [partial(set_rules, rules, note), *keepers]

    def _nodes_of(self, group: UUID) -> list[NodeView]:
        return at_once(self._store.nodes(group))

    def _say(self, who: str, text: str, about: UUID) -> None:
        self._trace.note(self._loop.time(), who, text, about)

    # the course of events

    def run(self) -> Verdict:
        """Acts the scenario out."""
        try:
            main = self._loop.create_task(self._main(), context=self._loop.outside)
            self._loop.run_until_complete(main)
            self._watching = False
            self._trace.close()
            seconds, steps, faults = self._loop.time(), self._loop.steps, self._faults()
            self._loop.run_until_complete(self._tear_down())
        finally:
            self._loop.close()
            self._stores.close()
        return Verdict(self._scenario, self._broken, seconds, steps, faults, self._trace)

    def _faults(self) -> int:
        world = self._world
        return self._nemesis.struck + self._trace.lost + world.database.spoilt + world.http.spoilt

    async def _main(self) -> None:
        for node in self._nodes.values():
            node.start()
        self._nemesis.unleash(self._scenario.faults)
        acting = asyncio.ensure_future(self._act())
        looking = asyncio.ensure_future(self._look_for_fairness())
        over = asyncio.ensure_future(self._over.wait())
        await asyncio.wait([acting, over], return_when=asyncio.FIRST_COMPLETED)
        for task in (acting, looking, over):
            task.cancel()

    async def _look_for_fairness(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._watch(self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self._fairness.look(now)
        self._progress.look(now, calm=self._is_fair())
        self._reasons.look(now)

    async def _act(self) -> None:
        try:
            scenario = self._scenario
            await asyncio.sleep(scenario.storm_s)
            self._nemesis.end()
            await self._until(self._all_ended, CALM_S + 10 * scenario.work_s, Promise.DURABLE)
            self._ledger.check_end(self._children())
            self._schedules.check_end()
            await self._until(self._disagreement, AGREE_S, Promise.AGREEMENT)
        except Exception as error:
            self._broke(error)

    async def _until(
        self,
        missing: Callable[[], tuple[str, UUID | None] | None],
        within_s: float,
        promise: Promise,
    ) -> None:
        """Waits until nothing is missing any more."""
        deadline = self._loop.time() + within_s
        while (found := missing()) is not None:
            if self._loop.time() >= deadline:
                promise = Promise.ORDER if self._groups.is_group(found[1]) else promise
                promise = Promise.ACTORS if self._actors.has(found[1]) else promise
                raise BrokenPromise(promise, f"{found[0]} {within_s:g} s later", found[1])
            await asyncio.sleep(1.0)

    def _all_ended(self) -> tuple[str, UUID | None] | None:
        for job in self._ledger.open_jobs():
            return self._why(job), job
        if (group := self._groups.open_group()) is not None:
            return group
        if (actor := self._ledger.unsettled_actor()) is not None:
            return actor
        if (words := self._schedules.unsettled()) is not None:
            return words, None
        for client in self._clients:
            if not client.done:
                return f"{client.name} still waits", client.waits_for()
        return None

    def _disagreement(self) -> tuple[str, UUID | None] | None:
        plain = len(self._plain_workers)
        found = disagreement(self._store, self._dispatchers, self._workers, plain)
        found = found or self._web.disagreement(self._store, self._dispatchers)
        return (found, None) if found is not None else None

    def _why(self, job: UUID) -> str:
        view = at_once(self._store.job(job))
        if view is None:
            return "it is gone"
        return f"it is {view.state}: {why(view, at_once(facts_of(self._store, view)))}; still so"

    def _children(self) -> dict[UUID, list[UUID]]:
        found: dict[UUID, list[UUID]] = {}
        for plan in self._scenario.jobs:
            job = plan.submission.id
            if round := self._ledger.round_of(job):
                count = plan.behaviour.children
                found[job] = [child_of(job, round, index).id for index in range(count)]
        return found

    async def _tear_down(self) -> None:
        """Everybody is cancelled, the dead too: their coroutines must not outlive the loop."""
        self._loop.halted, self._loop.steps = False, 0
        for process in self._world.processes:
            process.life = Life.RUNNING
            process.catch_up()
        tasks = [task for task in self._loop.unfinished() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=TEARDOWN_S)

    # what is watched

    def _broke(self, error: Exception) -> None:
        """Something was not as it must be: everything stops where it is."""
        if not self._watching or self._broken is not None:
            return
        if isinstance(error, BrokenPromise):
            self._broken = error
        else:
            self._broken = BrokenPromise(Promise.SOUND, f"{type(error).__name__}: {error}")
            self._broken.__cause__ = error
        self._loop.halted = True
        self._over.set()

    def _too_many(self) -> None:
        self._loop.halted = True
        self._broke(BrokenPromise(Promise.SOUND, "it runs in circles"))

    def _unforeseen(self, _loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._broke(error if isinstance(error, Exception) else RuntimeError(context["message"]))

    def _committed(self, commit: Committed) -> None:
        self._watch(lambda: self._ledger.committed(commit))
        if self._scenario.schedules:
            self._watch(lambda: self._schedules.check(self._ledger.shots))

    def started(self, process: Process, assignment: Assignment, stubborn: bool) -> None:
        """A body begins to run."""
        self._watch(lambda: self._bodies.started(process, assignment, stubborn))
        if is_turn(assignment.kind):
            turn = input_of(assignment)
            self._watch(lambda: self._actors.begins(turn, assignment.token))

    def stopped(self, process: Process, attempt: AttemptKey, how: str) -> None:
        """A body runs no more."""
        self._watch(lambda: self._bodies.stopped(process, attempt, how))

    def reported(self, process: Process, report: Report) -> None:
        """This is what is said of a body that ran."""
        self._watch(lambda: self._bodies.reported(process, report))

    def forgot(self, attempt: AttemptKey) -> None:
        """A web worker lost an attempt."""
        self._bodies.forgot(attempt)

    def _watch(self, look: Callable[[], None]) -> None:
        if self._watching and self._broken is None:
            try:
                look()
            except BrokenPromise as error:
                self._broke(error)

    def _is_fair(self) -> bool:
        """Whether a worker had every chance to keep its jobs: nothing but dispatchers died."""
        settings, now = self._settings, self._loop.time()
        settled_s = 2 * settings.lease_s + settings.takeover_margin_s
        up_s = max(
            (now - node.up_since for node in self._dispatchers if node.up_since is not None),
            default=0.0,
        )
        if self._nemesis.calm_for_s() <= settled_s or up_s <= 2 * settings.lease_s:
            return False
        return self._web.is_fair(self._dispatchers)

    def _is_blameless(self) -> bool:
        """Whether no service may be lost: for longer than its lease, no process died but others."""
        longest_s = 2 * self._web.promised_s + self._settings.lease_s
        return self._nemesis.calm_for_s() > longest_s

    def _die(self, process: Process, why: str) -> None:
        """A job takes its whole worker down; somebody starts it again."""
        node = self._nodes[process.node]
        if node.process is process:
            node.kill(why)
            self._loop.outside_at(self._loop.time() + REVIVAL_S, node.start)
