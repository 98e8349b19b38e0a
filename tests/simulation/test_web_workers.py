"""Web workers in storms: gateways die and freeze, HTTP loses what is said, and the promises hold.

Then each guard is taken away once, and the simulation must notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from random import Random
from typing import Final
from uuid import UUID

import pytest
from msgspec import structs

from longshore.config import DispatcherSettings, GatewaySettings
from longshore.gateway import web_proxy
from longshore.gateway.web_proxy import WebProxy
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import Submission
from longshore.model.web_worker import WebWorker
from longshore.testing.memory import MemoryStore
from longshore.testing.simulation.bodies import Behaviour
from longshore.testing.simulation.faults import Cut, Fault, Freeze, Kill, Leave, Unreliable
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import SETTINGS, is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import JobPlan, Scenario, job_id, make_web
from longshore.testing.simulation.services import Service
from longshore.testing.simulation.web_faults import WebTheme
from longshore.testing.simulation.web_plans import FETCH, Knowledge, ServicePlan, WebPlans, names
from longshore.wire import messages as m
from longshore.wire.dispatcher_side import FullSession
from longshore.wire.proxy_side import ProxiedSession

from .telling import assert_kept

MOST: Final = 20
"""So many seeds of a scene are tried until a missing guard is noticed."""


@pytest.mark.parametrize("first", range(1, 11, 5))
def test_every_promise_is_kept_of_web_workers(first: int) -> None:
    """G1, G2, G3, G6, G8."""
    for seed in range(first, first + 5):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_web(seed)), "web")


@pytest.mark.parametrize("theme", list(WebTheme))
def test_every_promise_is_kept_in_storms_of_one_theme(theme: WebTheme) -> None:
    """G1, G2, G3, G6, G8."""
    for seed in range(1002, 1004):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_web(seed, theme)), "web")


def test_storms_hold_everything_that_can_happen_to_web_workers() -> None:
    """Otherwise the checks would look at nothing."""
    scenarios = [make_web(seed) for seed in range(1, 31)]
    struck = {
        (type(fault), fault.node[0])
        for one in scenarios
        for fault in one.faults
        if isinstance(fault, Kill | Freeze | Leave)
    }
    assert {(kind, node) for kind in (Kill, Freeze, Leave) for node in "gs"} <= struck
    assert any(isinstance(fault, Unreliable) for one in scenarios for fault in one.faults)
    services = [service for one in scenarios for service in one.web.services]
    assert {service.knowledge for service in services} == set(Knowledge)
    assert {service.is_careless for service in services} == {True, False}
    assert any(service.refuses for service in services)


def test_a_seed_with_gateways_is_the_same_run_twice() -> None:
    for run, make in ((simulate, lost_answers), (simulate_on_sqlite, frozen_gateway)):
        first, second = run(make(1)), run(make(1))
        assert first.trace.digest() == second.trace.digest()


def test_jobs_go_on_when_their_gateway_dies() -> None:
    """A storm in which only gateways die: jobs outlast the loss of the one that gave them."""
    outlasting = 0
    for seed in range(1, 4):
        verdict = simulate(make_web(seed, WebTheme.GATEWAYS_DIE))
        assert_kept(verdict, "web")
        outlasting += _outlasting(list(verdict.trace.lines()))
    assert outlasting > 1


def _outlasting(lines: list[str]) -> int:
    """How many attempts were taken over by a session of another gateway."""
    return sum("attend: running → running, on s" in line for line in lines)


def test_ten_gateways_do_not_ask_one_service_ten_times() -> None:
    """Each service is asked by one of them, once in an interval."""
    services = [service(f"s{n}") for n in range(1, 11)]
    verdict = simulate(scene(1, [job(1, 5.0, 1.0)], services, [], names("g", 10), storm_s=30.0))
    assert_kept(verdict, "web")
    asked = [
        (words[1], words[3])
        for words in map(str.split, verdict.trace.lines())
        if words[2:3] == ["asks"] and words[-1] == "/health_check/" and 10 < float(words[0]) < 20
    ]
    assert len(set(asked)) == len(services), "each by one gateway"
    assert all(8 <= count <= 12 for count in Counter(asked).values()), "once a second"


# without what keeps web workers


def job(
    number: int,
    at: float,
    takes_s: float,
    *,
    cancel_after_s: float | None = None,
    retries: int = 0,
) -> JobPlan:
    """A job that ends well, unless it is cancelled."""
    submission = Submission(job_id(Random(number), number, at), FETCH, b"\x80")
    behaviour = Behaviour(takes_s=takes_s)
    return JobPlan("c1", at, submission, behaviour, cancel_after_s, retries, False)


def service(node: str, max_jobs: int = 1, knowledge: Knowledge = Knowledge.LISTS) -> ServicePlan:
    """A service that does its best."""
    return ServicePlan(node, (FETCH,), max_jobs, knowledge, False, ())


def scene(
    seed: int,
    jobs: Sequence[JobPlan],
    services: Sequence[ServicePlan],
    faults: Sequence[Fault],
    gateways: Sequence[str] = ("g1", "g2"),
    storm_s: float = 60.0,
) -> Scenario:
    """One dispatcher, these gateways and services, and what is to happen to them."""
    settings = GatewaySettings(
        web_ping_interval_s=1.0,
        web_dead_ping_interval_s=2.0,
        web_request_s=1.0,
        web_adoption_s=10.0,
    )
    return structs.replace(
        make_web(seed),
        dispatchers=("d1",),
        workers=(),
        clients=("c1",),
        jobs=tuple(jobs),
        faults=tuple(faults),
        network_delay_s=(0.0002, 0.01),
        store_delay_s=(0.0002, 0.02),
        lost_hints=0.0,
        storm_s=storm_s,
        web=WebPlans(tuple(gateways), tuple(services), settings),
    )


def hunt(
    make: Callable[[int], Scenario],
    make_store: Callable[[Callable[[], datetime]], MemoryStore] = MemoryStore,
    settings: DispatcherSettings = SETTINGS,
) -> Promise:
    """The first promise that is broken by one of some seeds, all of which are kept otherwise."""
    for seed in range(1, MOST + 1):
        broken = simulate(make(seed), make_store, settings).broken
        if broken is not None:
            return broken.promise
    raise AssertionError(f"{MOST} seeds did not notice")


def lost_gateway(seed: int) -> Scenario:
    """A dispatcher starts again and again; long after that the gateway that attends is killed."""
    restarts = [Kill(2.0 + 4 * n, "d1", 0, 0.3, is_trouble=False) for n in range(6)]
    killed = Kill(75.0, "g1", 0, 60.0, is_trouble=False)
    late = Kill(0.0, "g2", 0, 30.0, is_trouble=False)
    jobs = [job(1, 70.0, 45.0)]
    return scene(seed, jobs, [service("s1")], [late, *restarts, killed], storm_s=115.0)


def frozen_gateway(seed: int) -> Scenario:
    """A job waits at a gateway that is frozen, ends through another, and then the first goes on."""
    late = Kill(0.0, "g2", 0, 2.0, is_trouble=False)
    frozen = Freeze(5.0, "g1", 0, 18.0 + seed / 4)
    return scene(seed, [job(1, 6.0, 0.1)], [service("s1")], [late, frozen])


def adopted_job(seed: int) -> Scenario:
    """A service that says nothing of its jobs, and has no room for another, is adopted."""
    plan = structs.replace(service("s1", 1, Knowledge.SILENT), is_careless=True)
    late = Kill(0.0, "g2", 0, 2.0, is_trouble=False)
    killed = Kill(10.0, "g1", 0, 60.0, is_trouble=False)
    return scene(seed, [job(1, 5.0, 40.0)], [plan], [late, killed])


def full_service(seed: int) -> Scenario:
    """A service takes nothing for a while, though it has room."""
    plan = structs.replace(service("s1", 2), refuses=((5.0, 15.0),))
    return scene(seed, [job(1, 6.0, 0.1)], [plan], [])


def quick_jobs(seed: int) -> Scenario:
    """Jobs of a moment, whose results go to either gateway, each of which has a dispatcher."""
    jobs = [job(n, 3.0 + n / 4, 0.2) for n in range(40)]
    plan = scene(seed, jobs, [service("s1", 3)], [], storm_s=20.0)
    return structs.replace(plan, dispatchers=("d1", "d2"))


def lost_answers(seed: int) -> Scenario:
    """Jobs of a moment, while answers get lost."""
    spoilt = Unreliable(3.0, 0.0, 0.5, 0.0, 0.0, 10.0)
    return structs.replace(quick_jobs(seed), faults=(spoilt,))


def cancelled_job(seed: int) -> Scenario:
    """Jobs are given and cancelled while their gateway is frozen, and retried by hand."""
    jobs = [job(n, 6.0, 10.0, cancel_after_s=0.5, retries=1) for n in range(4)]
    frozen = Freeze(5.0, "g1", 0, 5.0)
    return scene(seed, jobs, [service("s1", 2), service("s2", 2)], [frozen], ["g1"])


def lonely_service(seed: int) -> Scenario:
    """The only gateway is away until the lease of its service has ended."""
    killed = Kill(10.0, "g1", 0, 60.0, is_trouble=False)
    return scene(seed, [job(1, 5.0, 100.0)], [service("s1")], [killed], ["g1"], 90.0)


def hasty_services(seed: int) -> Scenario:
    """Services resign as soon as they have registered."""
    services = [service(f"s{n}", 2) for n in range(1, 5)]
    random = Random(seed)
    leaves = [
        Leave(2.0 * n + random.uniform(0.0, 0.1), one.node, 1.85, is_trouble=True)
        for n in range(1, 15)
        for one in services
    ]
    jobs = [job(n, 2.0 + n / 2, 0.5) for n in range(50)]
    plan = scene(seed, jobs, services, leaves, storm_s=31.0)
    return structs.replace(plan, network_delay_s=(0.0002, 0.1))


def cut_service(seed: int) -> Scenario:
    """A service with a job is cut off from its gateways; another one could run the job."""
    ways = [("g1", "s1"), ("g2", "s1"), ("s1", "g1"), ("s1", "g2")]
    cut = Cut(10.0, frozenset(ways), False, 60.0)
    services = [service("s1", 2), service("s2", 1)]
    return scene(seed, [job(1, 5.0, 50.0)], services, [cut], storm_s=70.0)


def forgotten_job(seed: int) -> Scenario:
    """A service loses one of its jobs now and then."""
    jobs = [job(n, 3.0 + n, 5.0) for n in range(6)]
    return scene(seed, jobs, [service("s1", 2, Knowledge.FORGETS)], [], storm_s=20.0)


@pytest.mark.parametrize(
    "make",
    [
        lost_gateway,
        frozen_gateway,
        adopted_job,
        full_service,
        quick_jobs,
        lost_answers,
        cancelled_job,
        lonely_service,
        hasty_services,
        cut_service,
        forgotten_job,
    ],
)
def test_nothing_is_noticed_while_every_guard_is_there(make: Callable[[int], Scenario]) -> None:
    for seed in (1, 2):
        assert_kept(simulate(make(seed)), "web")


def test_an_adoption_that_raises_no_session_comes_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """G8: a gateway that numbers sessions from 1 is late until it has passed those before it."""
    monkeypatch.setattr(web_proxy, "SESSIONS_PER_ADOPTION", 0)
    assert hunt(lost_gateway) is Promise.NO_SPECIAL_PROCESS


def test_a_service_that_heeds_a_late_gateway_runs_an_attempt_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G2."""
    monkeypatch.setattr(Service, "_is_late", lambda self, request: False)
    assert hunt(frozen_gateway) is Promise.ONE_OWNER


def test_what_is_posted_unasked_after_an_adoption_is_handed_back_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G3: a service that looks for room first refuses a job that it runs."""
    start = WebProxy._start

    def unasked(self: WebProxy, one: Assignment) -> None:
        self._may_have = False
        start(self, one)

    monkeypatch.setattr(WebProxy, "_start", unasked)
    assert hunt(adopted_job) is Promise.ONE_OUTCOME


def test_a_slot_that_is_not_closed_brings_a_refused_job_back_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProxiedSession, "close_slot", lambda self, now: None)
    assert hunt(full_service) is Promise.HEEDED


def test_ends_through_other_gateways_that_are_not_read_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G2."""
    pinged = FullSession.pinged

    def sends_at_once(
        self: FullSession, now: float, ping: m.Ping, ping_s: float, lease_s: float | None
    ) -> list[m.DispatcherMessage]:
        messages = pinged(self, now, ping, ping_s, lease_s)
        lost, self.in_doubt = self.in_doubt, []
        return [*messages, *self._jobs(lost)]

    monkeypatch.setattr(FullSession, "pinged", sends_at_once)
    seldom = structs.replace(SETTINGS, web_poll_s=30.0)
    assert hunt(quick_jobs, settings=seldom) is Promise.ONE_OWNER


def test_what_is_not_there_after_a_lost_202_may_have_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """G2: posting it at once, without the dispatcher's look into the store, runs it again."""
    ask_for = WebProxy._ask_for

    async def posts_at_once(self: WebProxy, one: Assignment, tries: int) -> None:
        await ask_for(self, one, tries)
        if self._absent.pop(one.token, None) is not None:
            await self._give(one, tries)

    monkeypatch.setattr(WebProxy, "_ask_for", posts_at_once)
    assert hunt(lost_answers) is Promise.ONE_OWNER


def test_a_delete_that_overtakes_its_post_has_stopped_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G6: the job is over for the dispatcher, while the service runs it."""
    delete = WebProxy._delete

    async def believes_404(self: WebProxy, attempt: AttemptKey) -> None:
        self._posting.discard(attempt[1])
        await delete(self, attempt)

    monkeypatch.setattr(WebProxy, "_delete", believes_404)
    assert hunt(cancelled_job) is Promise.SELF_STOP


class Stealing(MemoryStore):
    """Gives a gateway services that others attend."""

    async def adopt_web_workers(self, gateway: UUID, most: int = 100) -> list[WebWorker]:
        for one in self._live_web():
            if one.gateway != gateway:
                self._web[one.id] = structs.replace(one, gateway=None)
        return await super().adopt_web_workers(gateway, most)


def test_a_service_that_is_taken_from_its_gateway_is_noticed() -> None:
    assert hunt(quick_jobs, Stealing) is Promise.ATTENDED


class Blaming(MemoryStore):
    """Counts the loss of a service without a gateway as a crash of its jobs."""

    def _is_unattended(self, worker: UUID) -> bool:
        return False


def test_a_gateways_loss_that_is_blamed_on_jobs_is_noticed() -> None:
    assert hunt(lonely_service, Blaming) is Promise.BLAME


class Attending(MemoryStore):
    """Attends whatever worker a gateway names, also one of a registration that has ended."""

    def _is_registered(self, id: UUID, worker: UUID) -> bool:
        return True


def test_a_late_ready_of_a_service_that_resigned_is_noticed() -> None:
    """A job that is given to it waits for the end of its lease, and is blamed for that."""
    assert hunt(hasty_services, Attending) in (Promise.BLAME, Promise.DURABLE)


def test_jobs_of_a_dead_service_that_are_freed_before_its_lease_run_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G6."""
    tick = WebProxy.tick

    def impatient(self: WebProxy, now: float) -> None:
        self._heard_at = float("-inf")
        tick(self, now)

    monkeypatch.setattr(WebProxy, "tick", impatient)
    assert hunt(cut_service) is Promise.SELF_STOP


def test_what_a_service_forgot_waits_for_ever_unless_its_gateway_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G1."""
    monkeypatch.setattr(ProxiedSession, "forget", lambda self, token: None)
    assert hunt(forgotten_job) is Promise.DURABLE
