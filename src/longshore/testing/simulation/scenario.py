"""A scenario: who is there, what is to be done, and what goes wrong when. All of it from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from longshore.model.ids import make_id
from longshore.model.job import Options, RetryPolicy, Submission
from longshore.model.limits import JobLimit
from longshore.model.worker import KindInfo, Pool
from longshore.testing.simulation.actor_plans import ActorPlans, random_actors
from longshore.testing.simulation.bodies import Behaviour
from longshore.testing.simulation.faults import Fate, Fault, Nodes, Theme
from longshore.testing.simulation.group_plans import GroupPlan, gated, growing, random_group, rerun
from longshore.testing.simulation.limit_plans import (
    FAIR_KEYS,
    RulePlan,
    limit_of_a_group,
    limits_of_a_job,
    random_limits,
    random_rules,
)
from longshore.testing.simulation.schedule_plans import SchedulePlan, random_schedule
from longshore.testing.simulation.web_faults import WebFate, WebTheme
from longshore.testing.simulation.web_plans import FETCH, WebPlans, random_web
from longshore.wire.plain import KIND

LONG: Final = "slog"
"""A kind in the pool of processes of which no run is short."""
_USUAL: Final = ("work", "grind")
_TURNS: Final = {"work": "diary@1", "grind": "archive@1"}
"""The turns that workers serve who serve the usual kinds."""
KINDS: Final = {
    "diary@1": KindInfo(Pool.COROUTINE),
    "archive@1": KindInfo(Pool.PROCESS, recovers=True),
    "work": KindInfo(Pool.COROUTINE),
    "grind": KindInfo(Pool.PROCESS),
    LONG: KindInfo(Pool.PROCESS),
}
UNIX_MS: Final = 1_893_456_000_000
STORM_S: Final = (20.0, 90.0)
MOST_JOBS: Final = 40
RUSH_JOBS: Final = 60
RUSH_LONG_JOBS: Final = 15
MOST_GROUPS: Final = 4
MOST_SCHEDULES: Final = 3
FEW_JOBS: Final = 5
"""How many single jobs run beside groups or actors."""


class WorkerPlan(Struct, frozen=True):
    """A worker: what it can run at once, and whom it tries to attend in which order."""

    node: str
    slots: int
    processes: int
    kinds: tuple[str, ...]
    dispatchers: tuple[str, ...]


class JobPlan(Struct, frozen=True):
    """A job: who submits it when, how it behaves, and what is done to it afterwards."""

    client: str
    at: float
    submission: Submission
    behaviour: Behaviour
    cancel_after_s: float | None
    retries: int
    """How often its submitter retries it by hand when it did not succeed."""
    asks_why: bool


class Scenario(Struct, frozen=True):
    """Everything that is decided before anything happens."""

    seed: int
    theme: Theme
    dispatchers: tuple[str, ...]
    workers: tuple[WorkerPlan, ...]
    plain_workers: tuple[str, ...]
    clients: tuple[str, ...]
    jobs: tuple[JobPlan, ...]
    faults: tuple[Fault, ...]
    network_delay_s: tuple[float, float]
    heartbeat_s: float | None
    store_delay_s: tuple[float, float]
    lost_hints: float
    storm_s: float
    lookahead_s: float = 0.05
    groups: tuple[GroupPlan, ...] = ()
    actors: ActorPlans = ActorPlans()
    web: WebPlans = WebPlans()
    rules: tuple[RulePlan, ...] = ()
    schedules: tuple[SchedulePlan, ...] = ()

    @property
    def work_s(self) -> float:
        """How long it would take one slot to run every job once."""
        of_groups = sum(plan.work_s for plan in self.groups)
        of_schedules = sum(plan.work_s for plan in self.schedules)
        of_jobs = sum(plan.behaviour.takes_s for plan in self.jobs)
        return of_groups + of_schedules + self.actors.work_s + of_jobs

    @property
    def words(self) -> str:
        """How large it is, in a few words."""
        groups = f"{_count(self.groups, 'group')}, " if self.groups else ""
        names = self.actors.names
        actors = f"{_count(names, 'actor')}, " if names else ""
        gateways, services = self.web.gateways, self.web.services
        web = f"{_count(gateways, 'gateway')}, {_count(services, 'service')}, " if gateways else ""
        schedules = f"{_count(self.schedules, 'schedule')}, " if self.schedules else ""
        return (
            f"{_count(self.dispatchers, 'dispatcher')}, "
            f"{_count((*self.workers, *self.plain_workers), 'worker')}, "
            f"{_count(self.jobs, 'job')}, {groups}{schedules}{actors}{web}"
            f"{_count(self.faults, 'fault')}"
        )


def make_scenario(seed: int, theme: Theme | None = None) -> Scenario:
    """The scenario of a seed: always the same one. It chooses its theme, unless one is given."""
    random = Random(f"{seed}/scenario")
    chosen = random.choice((*[Theme.ANYTHING] * 7, *list(Theme)))
    theme = theme or chosen
    dispatchers = _names("d", random.choice((1, 2, 2, 3, 3)))
    clients = _names("c", random.randint(1, 3))
    storm_s = random.uniform(*STORM_S)
    workers = _workers(random, dispatchers)
    plain_workers = _names("p", random.choice((0, 0, 1, 2)))
    jobs = _jobs(random, clients, storm_s, theme, bool(plain_workers))
    working = (*(worker.node for worker in workers), *plain_workers)
    nodes = Nodes(dispatchers, working, clients)
    return Scenario(
        seed=seed,
        theme=theme,
        dispatchers=dispatchers,
        workers=workers,
        plain_workers=plain_workers,
        clients=clients,
        jobs=jobs,
        faults=Fate(random, nodes, storm_s, theme).faults(),
        network_delay_s=(0.0002, random.choice((0.001, 0.01, 0.1))),
        heartbeat_s=random.choice((None, 3.0)),
        store_delay_s=(0.0002, random.choice((0.002, 0.02, 0.2))),
        lost_hints=random.choice((0.0, 0.0, 0.2, 1.0)),
        storm_s=storm_s,
    )


def make_rush(seed: int, theme: Theme | None = None) -> Scenario:
    """The scenario of a seed, with a rush of short jobs: workers hold some of them ahead.

    Among them are jobs of a kind that is always long: those must not be held ahead.
    """
    scenario = make_scenario(seed, theme)
    random = Random(f"{seed}/rush")
    begins_at = random.uniform(0.0, scenario.storm_s)
    times = (begins_at + random.uniform(0.0, 10.0) for _ in range(RUSH_JOBS))
    first = len(scenario.jobs)
    rush = [_short_job(random, first + n, at, scenario) for n, at in enumerate(sorted(times))]
    long_times = [begins_at + random.uniform(0.0, 10.0) for _ in range(RUSH_LONG_JOBS)]
    first += len(rush)
    rush += [_long_job(random, first + n, at, scenario) for n, at in enumerate(long_times)]
    return structs.replace(
        scenario,
        workers=tuple(map(_serving_long_jobs, scenario.workers)),
        jobs=(*scenario.jobs, *rush),
        lookahead_s=1.0,
    )


def _serving_long_jobs(plan: WorkerPlan) -> WorkerPlan:
    kinds = (*plan.kinds, LONG) if "grind" in plan.kinds else plan.kinds
    return structs.replace(plan, kinds=kinds)


def _long_job(random: Random, index: int, at: float, scenario: Scenario) -> JobPlan:
    plan = _job(random, index, at, random.choice(scenario.clients), 0.2)
    behaviour = structs.replace(plan.behaviour, takes_s=random.uniform(3.0, 8.0), hangs=False)
    options = structs.replace(plan.submission.options, timeout_s=None)
    submission = structs.replace(plan.submission, kind=LONG, delay_s=None, options=options)
    return structs.replace(plan, submission=submission, behaviour=behaviour)


def make_hurry(seed: int, theme: Theme | None = None) -> Scenario:
    """The rush of a seed, in which most jobs expire soon."""
    rush = make_rush(seed, theme)
    random = Random(f"{seed}/hurry")
    jobs = [structs.replace(plan, submission=_hurried(random, plan)) for plan in rush.jobs]
    return structs.replace(rush, jobs=tuple(jobs))


def make_limits(seed: int, theme: Theme | None = None) -> Scenario:
    """The scenario of a seed, whose jobs have limits; rules come and go.

    Some jobs share by a fair key. In some there are groups, with limits of their own.
    """
    scenario = make_scenario(seed, theme)
    random = Random(f"{seed}/limits")
    brought = random_limits(random)
    jobs = tuple(_limited(random, plan, brought) for plan in scenario.jobs)
    rules = random_rules(random, scenario.clients, scenario.storm_s)
    groups = make_growth(seed, theme).groups if random.random() < 0.5 else ()
    limited = tuple(_limited_group(random, plan) for plan in groups)
    return structs.replace(scenario, jobs=jobs, rules=rules, groups=limited)


def _limited_group(random: Random, plan: GroupPlan) -> GroupPlan:
    head = structs.replace(plan.head, limit=limit_of_a_group(random))
    return structs.replace(plan, head=head)


def _limited(random: Random, plan: JobPlan, brought: Sequence[JobLimit]) -> JobPlan:
    if plan.submission.kind == KIND:
        return plan
    limits, fair = limits_of_a_job(random, brought), random.choice(FAIR_KEYS)
    options = structs.replace(plan.submission.options, limits=limits, fair=fair)
    return structs.replace(plan, submission=structs.replace(plan.submission, options=options))


def make_schedules(seed: int, theme: Theme | None = None) -> Scenario:
    """The scenario of a seed, with a few schedules in place of most of its jobs."""
    scenario = make_scenario(seed, theme)
    random = Random(f"{seed}/schedules")
    ends_at = datetime.fromtimestamp(UNIX_MS / 1000, UTC) + timedelta(seconds=scenario.storm_s)
    made = [
        random_schedule(random, f"s{number}", random.choice(scenario.clients), ends_at)
        for number in range(1, random.randint(1, MOST_SCHEDULES) + 1)
    ]
    return structs.replace(scenario, jobs=scenario.jobs[:FEW_JOBS], schedules=tuple(made))


def make_groups(seed: int, theme: Theme | None = None) -> Scenario:
    """The scenario of a seed, with a few groups in place of most of its jobs."""
    scenario = make_scenario(seed, theme)
    random = Random(f"{seed}/groups")
    groups = []
    for number in range(random.randint(1, MOST_GROUPS)):
        at = random.uniform(0.0, scenario.storm_s * 0.8)
        group = job_id(random, 1_000_000 + number, at)
        groups.append(random_group(random, group, random.choice(scenario.clients), at))
    return structs.replace(scenario, jobs=scenario.jobs[:FEW_JOBS], groups=tuple(groups))


def make_growth(seed: int, theme: Theme | None = None) -> Scenario:
    """The groups of a seed, which grow: jobs add others, and there are maps and sub-groups."""
    scenario = make_groups(seed, theme)
    random = Random(f"{seed}/growth")
    groups = tuple(growing(random, plan) for plan in scenario.groups)
    return structs.replace(scenario, groups=groups)


def make_gates(seed: int, theme: Theme | None = None) -> Scenario:
    """The groups of a seed, which grow and have gates: clients open them, or they expire."""
    scenario = make_growth(seed, theme)
    random = Random(f"{seed}/gates")
    groups = tuple(gated(random, plan) for plan in scenario.groups)
    return structs.replace(scenario, groups=groups)


def make_reruns(seed: int, theme: Theme | None = None) -> Scenario:
    """The groups of a seed, which grow and have gates; each is run anew when it has ended."""
    scenario = make_gates(seed, theme)
    random = Random(f"{seed}/reruns")
    groups = tuple(rerun(random, plan) for plan in scenario.groups)
    return structs.replace(scenario, groups=groups)


def make_actors(seed: int, theme: Theme | None = None) -> Scenario:
    """The scenario of a seed, with a few actors in place of most of its jobs."""
    scenario = make_scenario(seed, theme)
    random = Random(f"{seed}/actors")
    actors = random_actors(random, scenario.clients, scenario.storm_s, UNIX_MS)
    workers = tuple(map(_taking_turns, scenario.workers))
    return structs.replace(scenario, jobs=scenario.jobs[:FEW_JOBS], workers=workers, actors=actors)


def _taking_turns(plan: WorkerPlan) -> WorkerPlan:
    turns = [_TURNS[kind] for kind in plan.kinds]
    return structs.replace(plan, kinds=(*plan.kinds, *turns))


def make_web(seed: int, theme: WebTheme | None = None) -> Scenario:
    """The scenario of a seed, with gateways, and web services that run most of its jobs."""
    scenario = make_scenario(seed)
    random = Random(f"{seed}/web")
    chosen = random.choice((*[WebTheme.ANYTHING] * 5, *WebTheme))
    theme = theme or chosen
    storm_s = random.uniform(60.0, 120.0)
    is_long = theme in (WebTheme.GATEWAYS_DIE, WebTheme.GATEWAYS_FREEZE)
    web = random_web(random, random.choice((2, 3) if is_long else (1, 2, 3)), storm_s)
    workers = tuple(one.node for one in scenario.workers[:2])
    nodes = Nodes(scenario.dispatchers, workers, scenario.clients)
    services = [one.node for one in web.services]
    return structs.replace(
        scenario,
        plain_workers=(),
        workers=scenario.workers[:2],
        jobs=tuple(_web_jobs(random, scenario.clients, storm_s, 60.0 if is_long else 10.0)),
        faults=WebFate(random, nodes, web.gateways, services, storm_s, theme).faults(),
        storm_s=storm_s,
        web=web,
    )


def _web_jobs(
    random: Random, clients: Sequence[str], storm_s: float, long_s: float
) -> Iterable[JobPlan]:
    """Jobs that web workers can run: they cannot submit others, log, or say that they crashed."""
    times = sorted(random.uniform(0.0, storm_s) for _ in range(random.randint(5, MOST_JOBS)))
    for index, at in enumerate(times):
        plan = _job(random, index, at, random.choice(clients), long_s)
        kind = FETCH if random.random() < 0.7 else "work"
        yield structs.replace(
            plan,
            submission=structs.replace(plan.submission, kind=kind),
            behaviour=structs.replace(plan.behaviour, crashes=0, logs=0, children=0),
        )


SCENARIOS: Final[Mapping[str, Callable[[int], Scenario]]] = {
    "jobs": make_scenario,
    "rush": make_rush,
    "expiry": make_hurry,
    "groups": make_groups,
    "growth": make_growth,
    "gates": make_gates,
    "reruns": make_reruns,
    "actors": make_actors,
    "web": make_web,
    "limits": make_limits,
    "schedules": make_schedules,
}
"""What a seed may be made into."""


def scenario_of(seed: int) -> str:
    """What a seed is made into, unless somebody says otherwise: they take turns, four seeds each.

    One of four seeds runs on SQLite, so each of them does.
    """
    return list(SCENARIOS)[seed // 4 % len(SCENARIOS)]


def _hurried(random: Random, plan: JobPlan) -> Submission:
    expires_s = random.choice((None, 0.05, random.uniform(0.0, 1.0), random.uniform(0.0, 10.0)))
    options = structs.replace(plan.submission.options, expires_s=expires_s)
    return structs.replace(plan.submission, options=options)


def _short_job(random: Random, index: int, at: float, scenario: Scenario) -> JobPlan:
    plan = _job(random, index, at, random.choice(scenario.clients), 0.2)
    takes_s = random.choice((*[random.uniform(0.0, 0.2)] * 19, 20.0))
    behaviour = structs.replace(plan.behaviour, takes_s=takes_s)
    submission = structs.replace(plan.submission, kind="grind", delay_s=None)
    return structs.replace(plan, submission=submission, behaviour=behaviour)


def _names(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{number}" for number in range(1, count + 1))


def _count(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


# who is there


def _workers(random: Random, dispatchers: Sequence[str]) -> tuple[WorkerPlan, ...]:
    plans = []
    for node in _names("w", random.randint(1, 5)):
        serves_all = node == "w1" or random.random() < 0.7
        plans.append(
            WorkerPlan(
                node,
                random.randint(1, 4),
                random.randint(1, 2),
                _USUAL if serves_all else (random.choice(_USUAL),),
                tuple(random.sample(dispatchers, len(dispatchers))),
            )
        )
    return tuple(plans)


# what is to be done


def _jobs(
    random: Random, clients: Sequence[str], storm_s: float, theme: Theme, plain: bool
) -> tuple[JobPlan, ...]:
    times = sorted(random.uniform(0.0, storm_s) for _ in range(random.randint(3, MOST_JOBS)))
    long_s = random.choice((0.5, 5.0, 30.0))
    if theme in (Theme.DROWNING, Theme.DISPATCHERS_DIE, Theme.BELATED):
        times, long_s = times[:15], 60.0
    return tuple(
        _plain_job(random, index, at, random.choice(clients), long_s)
        if plain and random.random() < 0.2
        else _job(random, index, at, random.choice(clients), long_s)
        for index, at in enumerate(times)
    )


def _job(random: Random, index: int, at: float, client: str, long_s: float) -> JobPlan:
    hangs = random.random() < 0.05
    behaviour = Behaviour(
        takes_s=random.choice((0.0, random.uniform(0.0, 0.2), random.uniform(0.0, long_s))),
        fails=random.choice((0, 0, 0, 0, 1, 2, 4)),
        crashes=random.choice((0, 0, 0, 0, 0, 0, 0, 1, 3)),
        kills=random.choice((*[0] * 30, 1)),
        hangs=hangs,
        stubborn=random.random() < 0.15,
        logs=random.choice((0, 0, 0, 2)),
        children=random.choice((0, 0, 0, 0, 1, 2)),
    )
    cancelled = random.random() < 0.15
    return JobPlan(
        client,
        at,
        _submission(random, index, at, hangs),
        behaviour,
        random.choice((0.0, random.uniform(0, 1), random.uniform(0, 20))) if cancelled else None,
        random.choice((0, 0, 1, 2)),
        random.random() < 0.1,
    )


def _plain_job(random: Random, index: int, at: float, client: str, long_s: float) -> JobPlan:
    """A job for plain workers: they cannot say that it failed, and cannot be told to stop."""
    job = job_id(random, index, at)
    takes_s = random.choice((0.0, random.uniform(0.0, 0.2), random.uniform(0.0, long_s)))
    kills = random.choice((*[0] * 15, 1, 5))
    options = Options(timeout_s=random.choice((None, 10.0, 60.0)), raw=True)
    return JobPlan(
        client,
        at,
        Submission(job, KIND, job.bytes, options=options),
        Behaviour(takes_s=takes_s, kills=kills),
        random.uniform(0, 20) if random.random() < 0.1 else None,
        random.choice((0, 0, 1)),
        random.random() < 0.1,
    )


def _submission(random: Random, index: int, at: float, hangs: bool) -> Submission:
    times_out = hangs or random.random() < 0.2
    retry = RetryPolicy(attempts=random.randint(1, 4), backoff_s=random.choice((0.1, 1.0, 5.0)))
    return Submission(
        id=job_id(random, index, at),
        kind=random.choice(("work", "work", "grind")),
        args=b"\x80",
        priority=random.choice((0, 0, 0, 5, -5)),
        delay_s=random.choice((None, None, None, random.uniform(0.0, 10.0))),
        unique_key=random.choice((None, None, None, None, f"key-{random.randint(1, 3)}")),
        options=Options(timeout_s=random.uniform(0.5, 15.0) if times_out else None, retry=retry),
    )


def job_id(random: Random, index: int, at: float) -> UUID:
    """An id like a client's, without its randomness."""
    return make_id(UNIX_MS + int(at * 1000), index.to_bytes(4, "big") + random.randbytes(6))
