"""One web service and its gateway, with a service that is scripted and time that stands still."""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from longshore.config import GatewaySettings
from longshore.gateway.service_client import Failing, Health, Held
from longshore.gateway.web_proxy import WebProxy
from longshore.links.outbound import Answer
from longshore.model.attempt import Assignment
from longshore.model.reports import CancelReport, FailureReport, NotBegunReport
from longshore.model.web_worker import WebRegistration, WebState, WebWorker
from longshore.testing.builders import new_id
from longshore.wire import messages as m
from longshore.wire.worker_side import Patience

SETTINGS = GatewaySettings()
LEASE_S = 15.0
PROMISED_S = 90.0


class ScriptedClient:
    """Answers from its scripts; health is good and jobs are taken where it has none."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.healths: deque[Health | Failing] = deque()
        self.gives: deque[Answer | Failing] = deque()
        self.having: deque[bool | Failing] = deque()
        self.stops: deque[Answer | Failing] = deque()
        self.defects: set[str] = set()
        """The calls that raise what no call should."""
        self.while_posted: Callable[[], Coroutine[None, None, None]] | None = None
        self.late_stops = 0
        """The answers to so many stops come only when their callers are made to go on."""

    async def health(self, check: int, counted: int, lease_s: float) -> Health | Failing:
        self.asked.append(("health", check, counted, lease_s))
        self._raise_in("health")
        return self.healths.popleft() if self.healths else Health()

    async def give(self, one: Assignment, counted: int, lease_s: float) -> Answer | Failing:
        self.asked.append(("give", one.token, counted, lease_s))
        self._raise_in("give")
        if self.while_posted is not None:
            await self.while_posted()
        return self.gives.popleft() if self.gives else Answer(202, {}, b"")

    async def has(self, job: UUID, token: int) -> bool | Failing:
        self.asked.append(("has", token))
        self._raise_in("has")
        return self.having.popleft() if self.having else False

    async def stop(self, job: UUID, token: int) -> Answer | Failing:
        self.asked.append(("stop", token))
        answer = self.stops.popleft() if self.stops else Answer(200, {}, b"")
        if self.late_stops:
            self.late_stops -= 1
            await _pause()
        return answer

    def _raise_in(self, call: str) -> None:
        if call in self.defects:
            raise ValueError("a defect")

    def calls(self, what: str) -> int:
        return sum(one[0] == what for one in self.asked)


class StillClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def utc(self) -> datetime:
        return datetime.now(UTC)


class Scene:
    """A proxy, and the dispatcher that it talks to, which answers each PING."""

    is_attended = False

    def __init__(self, adoptions: int = 1) -> None:
        self.clock, self.client = StillClock(), ScriptedClient()
        self.said: list[m.WorkerMessage] = []
        self.pings: list[m.Ping] = []
        self.granted_s: float | None = 120.0
        """The lease in each PONG."""
        self.work: deque[Coroutine[None, None, None]] = deque()
        said = WebRegistration(host="127.0.0.1", port=1, kinds=("work",), max_jobs=2)
        id = new_id()
        self.web = WebWorker(
            id=id,
            number=1,
            registration=said,
            worker=id,
            registered_at=datetime.now(UTC),
            adoptions=adoptions,
        )
        self.proxy = WebProxy(
            self.web,
            SETTINGS,
            LEASE_S,
            self.client,  # type: ignore[arg-type]
            self.clock,
            patience=Patience(),
            say=self.said.extend,
            spawn=self.work.append,
            new_id=new_id,
        )
        self.proxy.connect()

    def run(self) -> None:
        """Does all that was begun, at this moment."""
        while self.work:
            asyncio.run(_run(self.work.popleft()))

    def tick(self, after_s: float = 0.0) -> None:
        self.clock.at += after_s
        self.proxy.tick(self.clock.now())
        self.run()
        if self.is_attended:
            self.answer_pings()

    def join(self, jobs: Sequence[m.Assignment] = ()) -> None:
        """The service answers, and a dispatcher attends it."""
        self.tick()
        ready = next(one for one in self.said if isinstance(one, m.Ready))
        self.said.clear()
        self.is_attended = True
        self.tell(m.Welcome(self.proxy.worker, ready.session, 1.0, 120.0))
        if jobs:
            self.give(*jobs)
        self.answer_pings()
        self.tick()

    def tell(self, message: m.DispatcherMessage) -> None:
        self.proxy.receive(message)
        self.run()

    def give(self, *jobs: m.Assignment) -> None:
        self.tell(m.Jobs(self.proxy.worker, 1, jobs))

    def lacks(self, *jobs: m.Assignment) -> None:
        """The dispatcher hears that the service does not have them, and gives them once more."""
        self.tick()
        self.answer_pings()
        assert self.pings[-1].held == ()
        self.give(*jobs)

    def answer_pings(self) -> None:
        pings = [one for one in self.said if isinstance(one, m.Ping)]
        self.pings += pings
        self.said[:] = [one for one in self.said if not isinstance(one, m.Ping)]
        for ping in pings:
            self.tell(m.Pong(self.proxy.worker, ping.no, 1.0, self.granted_s))

    def fail_checks(self, count: int) -> None:
        for _ in range(count):
            self.client.healths.append(Failing("refused", reached=False))
            self.tick(max(0.0, self.proxy.check_at - self.clock.now()))

    def reports(self) -> list[object]:
        done = [one for one in self.said if isinstance(one, m.Done)]
        return [report for one in done for report in one.reports]


@types.coroutine
def _pause() -> Generator[None, None, None]:
    """Waits until whoever runs the coroutine goes on with it."""
    yield


async def _run(work: Coroutine[None, None, None]) -> None:
    await work


def a_job(token: int = 7) -> m.Assignment:
    return m.Assignment(new_id(), token, token, "work", b"\x80")


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.join()
    return scene


def test_it_says_ready_only_once_the_service_has_answered() -> None:
    scene = Scene(adoptions=2)
    scene.client.healths.append(Failing("refused"))
    scene.tick()
    assert scene.said == []
    held = Held(new_id(), 9)
    scene.client.healths.append(Health((held,)))
    scene.tick(30.0)
    [ready] = scene.said
    assert isinstance(ready, m.Ready)
    assert ready.session == (2 << 32) + 1
    assert (ready.held, ready.service) == (((held.id, 9),), scene.web.id)
    assert (ready.lease_s, ready.pools) == (120.0, {"web": 2})


def test_the_lease_is_told_only_after_a_pong_with_a_lease(scene: Scene) -> None:
    scene.granted_s = None
    scene.tick(30.0)
    scene.granted_s = 120.0
    scene.tick(30.0)
    scene.tick(30.0)
    first, *_, third, fourth, fifth = [one for one in scene.client.asked if one[0] == "health"]
    assert first[2] == 0
    assert third[1:3] == (3, 2), "the answer to the second check counted"
    assert fourth[1:3] == (4, 2), "the dispatcher gave no lease for the third"
    assert fifth[1:] == (5, 4, PROMISED_S)


def test_the_first_job_comes_with_the_lease_of_the_answer_before_ready() -> None:
    scene = Scene()
    scene.tick()
    [ready] = [one for one in scene.said if isinstance(one, m.Ready)]
    scene.tell(m.Welcome(scene.proxy.worker, ready.session, 1.0, 120.0))
    scene.give(a_job(7))
    assert [one for one in scene.client.asked if one[0] == "give"] == [("give", 7, 1, PROMISED_S)]


def test_three_failed_checks_make_it_dead_and_its_jobs_are_freed_after_its_lease(
    scene: Scene,
) -> None:
    scene.give(a_job())
    scene.fail_checks(2)
    states = [scene.proxy.state]
    scene.fail_checks(1)
    states.append(scene.proxy.state)
    assert states == [WebState.ALIVE, WebState.DEAD]
    note = scene.proxy.take_note()
    assert note is not None
    assert (note.state, note.failed_pings, note.last_error) == (WebState.DEAD, 3, "refused")
    scene.tick()
    byes = [one for one in scene.said if isinstance(one, m.Bye)]
    assert [bye.lost for bye in byes] == [True]


def test_no_job_is_freed_before_the_lease_that_the_service_was_promised(scene: Scene) -> None:
    scene.fail_checks(2)
    scene.proxy.check_at = scene.clock.now()
    scene.fail_checks(1)
    assert scene.proxy.state is WebState.DEAD
    scene.tick(29.0)
    assert not [one for one in scene.said if isinstance(one, m.Bye)]
    scene.tick(1.0)
    assert [one.lost for one in scene.said if isinstance(one, m.Bye)] == [True]


def test_the_dead_are_asked_less_often_and_removed_in_the_end(scene: Scene) -> None:
    scene.fail_checks(3)
    assert scene.proxy.check_at - scene.clock.now() == 60.0
    scene.fail_checks(4)
    assert scene.proxy.state is WebState.DEAD
    scene.fail_checks(1)
    note = scene.proxy.take_note()
    assert note is not None
    assert (note.state, note.failed_pings) == (WebState.REMOVED, 8)
    asked = scene.client.calls("health")
    scene.tick(1000.0)
    assert scene.client.calls("health") == asked


def test_it_is_not_removed_before_the_lease_that_it_was_promised(scene: Scene) -> None:
    scene.give(a_job())
    for _ in range(9):
        scene.proxy.check_at = scene.clock.now() + 1.0
        scene.fail_checks(1)
    states = [scene.proxy.state]
    assert not [one for one in scene.said if isinstance(one, m.Bye)]
    scene.proxy.check_at = scene.clock.now() + PROMISED_S
    scene.fail_checks(1)
    states.append(scene.proxy.state)
    assert states == [WebState.DEAD, WebState.REMOVED]
    assert [one.lost for one in scene.said if isinstance(one, m.Bye)] == [True]


def test_a_success_revives_it_as_another_worker(scene: Scene) -> None:
    scene.fail_checks(3)
    scene.tick()
    old, note = scene.proxy.worker, scene.proxy.take_note()
    assert note is not None
    assert note.worker is not None
    assert note.worker != old
    scene.proxy.become(note.worker)
    scene.said.clear()
    scene.tick(60.0)
    assert scene.proxy.state is WebState.ALIVE
    [ready] = scene.said
    assert isinstance(ready, m.Ready)
    assert ready.worker == note.worker
    assert ready.held == ()


def test_a_success_before_its_lease_ended_revives_it_as_it_was(scene: Scene) -> None:
    worker = scene.proxy.worker
    scene.fail_checks(2)
    scene.proxy.check_at = scene.clock.now()
    scene.fail_checks(1)
    scene.proxy.check_at = scene.clock.now()
    scene.tick()
    assert (scene.proxy.state, scene.proxy.worker) == (WebState.ALIVE, worker)
    assert not [one for one in scene.said if isinstance(one, m.Bye)]


def test_a_note_that_was_not_heard_is_told_again(scene: Scene) -> None:
    scene.proxy.take_note()
    scene.fail_checks(1)
    note = scene.proxy.take_note()
    assert note is not None
    assert scene.proxy.take_note() is None
    scene.proxy.keep_note(note)
    assert scene.proxy.take_note() == note


def test_what_was_noted_is_said_once_more_for_a_note_before_it_may_come_late(scene: Scene) -> None:
    scene.proxy.take_note()
    scene.fail_checks(1)
    scene.tick(30.0)
    note = scene.proxy.take_note()
    assert note is not None
    assert note.state is WebState.ALIVE
    for _ in range(4):
        scene.tick(30.0)
    assert scene.proxy.take_note() == note
    scene.tick(100.0)
    assert scene.proxy.take_note() is None


def test_after_an_adoption_it_asks_before_it_posts() -> None:
    scene, job = Scene(adoptions=2), a_job()
    scene.client.having.append(True)
    scene.join([job])
    assert scene.client.calls("has") == 1
    assert scene.client.calls("give") == 0


def test_after_an_adoption_what_is_not_there_is_posted_if_it_is_given_once_more() -> None:
    """It may have ended through another gateway: the dispatcher looks into the store first."""
    scene, job = Scene(adoptions=2), a_job()
    scene.join([job])
    assert (scene.client.calls("has"), scene.client.calls("give")) == (1, 0)
    scene.lacks(job)
    assert (scene.client.calls("has"), scene.client.calls("give")) == (1, 1)


def test_a_dispatcher_that_does_not_hear_what_is_lacking_is_told_again() -> None:
    scene = Scene(adoptions=2)
    scene.join([a_job()])
    before = len(scene.pings)
    for _ in range(20):
        scene.tick(1.0)
    assert 2 <= len(scene.pings) - before <= 4, "for a while"


def test_a_job_that_ended_elsewhere_after_its_202_got_lost_is_not_posted_again(
    scene: Scene,
) -> None:
    scene.client.gives.append(Failing("it broke off"))
    scene.give(a_job())
    scene.tick(30.0)
    scene.tick(30.0)
    assert (scene.client.calls("has"), scene.client.calls("give")) == (1, 1)
    assert scene.reports() == []


def test_a_lost_202_is_asked_for_at_the_next_answer(scene: Scene) -> None:
    scene.client.gives.append(Failing("it broke off"))
    scene.give(a_job())
    assert scene.client.calls("has") == 0
    scene.client.having.append(True)
    scene.tick(30.0)
    assert (scene.client.calls("has"), scene.client.calls("give")) == (1, 1)


def test_a_defect_of_a_check_is_a_check_without_an_answer(scene: Scene) -> None:
    scene.client.defects.add("health")
    for _ in range(SETTINGS.web_max_retries):
        scene.tick(max(0.0, scene.proxy.check_at - scene.clock.now()))
    assert scene.proxy.state is WebState.DEAD


def test_a_defect_of_a_post_leaves_the_attempt_in_doubt(scene: Scene) -> None:
    job = a_job()
    scene.client.defects |= {"give", "has"}
    scene.give(job)
    scene.tick(30.0)
    assert (scene.client.calls("has"), scene.client.calls("give")) == (1, 1)
    scene.client.defects.clear()
    scene.tick(30.0)
    scene.lacks(job)
    assert (scene.client.calls("has"), scene.client.calls("give")) == (2, 2)
    assert scene.reports() == []


def test_what_it_neither_takes_nor_refuses_goes_back(scene: Scene) -> None:
    job = a_job()
    scene.client.gives.extend([Failing("it broke off")] * 3)
    scene.give(job)
    for _ in range(2):
        scene.tick(30.0)
        scene.lacks(job)
    assert scene.reports() == []
    scene.tick(30.0)
    assert scene.client.calls("give") == 3
    assert scene.reports() == [NotBegunReport(*job.key)]


def test_what_it_may_have_does_not_go_back(scene: Scene) -> None:
    job = a_job()
    scene.client.gives.extend([Failing("it broke off")] * 3)
    scene.client.having.extend([False, False, Failing("it broke off"), True])
    scene.give(job)
    for _ in range(2):
        scene.tick(30.0)
        scene.lacks(job)
    for _ in range(3):
        scene.tick(30.0)
    assert scene.client.calls("has") == 4
    assert scene.reports() == []


@pytest.mark.parametrize("while_posted", ["deleted", "checked"])
def test_a_delete_that_overtakes_its_post_is_sent_again(scene: Scene, while_posted: str) -> None:
    job = a_job()
    is_checked = while_posted == "checked"
    scene.client.healths.append(Health(()))
    scene.client.stops.append(Failing("it broke off") if is_checked else Answer(404, {}, b""))

    async def abort() -> None:
        scene.proxy.receive(m.Abort(scene.proxy.worker, (job.key,), "cancelled"))
        if is_checked:
            scene.proxy.check_at = scene.clock.now()
            scene.proxy.tick(scene.clock.now())
        while scene.work:
            await scene.work.popleft()

    scene.client.while_posted = abort
    scene.give(job)
    assert scene.client.calls("stop") == 2
    assert scene.client.asked[-1] == ("stop", 7), "once it was posted"
    assert scene.reports() == [CancelReport(*job.key)]


def test_a_delete_that_overtook_its_post_and_is_answered_after_it_has_stopped_nothing(
    scene: Scene,
) -> None:
    job, deleting = a_job(), list[Coroutine[None, None, None]]()
    scene.client.stops.extend([Answer(404, {}, b""), Answer(202, {}, b"")])
    scene.client.late_stops = 1

    async def abort() -> None:
        scene.proxy.receive(m.Abort(scene.proxy.worker, (job.key,), "cancelled"))
        deleting.append(scene.work.popleft())
        deleting[0].send(None)

    scene.client.while_posted = abort
    scene.give(job)
    with suppress(StopIteration):
        deleting[0].send(None)
    assert scene.client.calls("stop") == 2
    assert scene.reports() == []


def test_a_stop_that_broke_off_is_sent_again_to_a_service_that_does_not_say_what_it_runs(
    scene: Scene,
) -> None:
    job = a_job()
    scene.give(job)
    scene.client.stops.append(Failing("it broke off"))
    scene.tell(m.Abort(scene.proxy.worker, (job.key,), "cancelled"))
    scene.tick(30.0)
    assert scene.client.calls("stop") == 2
    assert scene.reports() == [CancelReport(*job.key)]


@pytest.mark.parametrize("answer", [Answer(409, {}, b""), Failing("nobody", reached=False)])
def test_a_busy_service_hands_back_and_its_slot_is_closed(
    scene: Scene, answer: Answer | Failing
) -> None:
    job = a_job()
    scene.client.gives.append(answer)
    scene.give(job)
    pings = [one for one in scene.said if isinstance(one, m.Ping)]
    assert [len(ping.begun["web"]) for ping in pings if ping.begun] == [1]
    assert scene.said.index(pings[0]) < len(scene.said) - 1, "the slot is closed first"
    assert scene.reports() == [NotBegunReport(*job.key)]


def test_a_health_answer_from_before_its_post_does_not_say_that_an_attempt_has_stopped(
    scene: Scene,
) -> None:
    """It may come late, when the gateway was frozen: the service has begun the job since then."""
    job = a_job()
    scene.give(job)
    scene.client.stops.append(Answer(202, {}, b""))
    scene.tell(m.Abort(scene.proxy.worker, (job.key,), "cancelled"))
    scene.proxy._settle_stops(Health(()), scene.clock.now() - 1.0)
    assert scene.reports() == []
    scene.proxy._settle_stops(Health(()), scene.clock.now() + 1.0)
    assert scene.reports() == [CancelReport(*job.key)]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_service_that_is_not_available_now_costs_the_job_nothing(
    scene: Scene, status: int
) -> None:
    """A proxy before a service that restarts answers so."""
    job = a_job()
    scene.client.gives.append(Answer(status, {}, b""))
    scene.client.having.append(False)
    scene.give(job)
    assert scene.reports() == [NotBegunReport(*job.key)]


def test_a_closed_slot_is_open_again_when_the_service_ends_another_attempt(scene: Scene) -> None:
    running, refused = a_job(7), a_job(8)
    scene.give(running)
    scene.client.gives.append(Answer(409, {}, b""))
    scene.give(refused)
    scene.tell(m.Abort(scene.proxy.worker, (running.key,), "cancelled"))
    pings = [one for one in scene.said if isinstance(one, m.Ping)]
    assert [len(ping.begun["web"]) for ping in pings[-2:] if ping.begun] == [2, 0]


def test_a_refusal_fails_the_attempt_with_the_words_of_the_service(scene: Scene) -> None:
    scene.client.gives.append(Answer(400, {}, b'{"detail": "no such thing"}'))
    scene.give(a_job())
    [report] = scene.reports()
    assert isinstance(report, FailureReport)
    assert "400: no such thing" in report.error.message


def test_a_server_error_fails_the_attempt_unless_the_service_runs_it(scene: Scene) -> None:
    scene.client.gives.append(Answer(500, {}, b"oops"))
    scene.client.having.append(True)
    scene.give(a_job(7))
    assert scene.reports() == []
    scene.client.gives.append(Answer(500, {}, b"oops"))
    scene.give(a_job(8))
    [report] = scene.reports()
    assert isinstance(report, FailureReport)


def test_an_abort_that_takes_a_moment_is_reported_once_the_service_stopped(scene: Scene) -> None:
    job = a_job()
    scene.give(job)
    scene.client.stops.append(Answer(202, {}, b""))
    scene.tell(m.Abort(scene.proxy.worker, (job.key,), "cancelled"))
    assert scene.reports() == []
    held = Held(*job.key)
    scene.client.healths.append(Health((held,)))
    scene.client.stops.append(Answer(202, {}, b""))
    scene.tick(30.0)
    assert scene.client.calls("stop") == 2, "it is told again"
    scene.client.healths.append(Health(()))
    scene.tick(30.0)
    assert scene.reports() == [CancelReport(*job.key)]


def test_a_dead_service_is_given_nothing(scene: Scene) -> None:
    scene.fail_checks(2)
    scene.proxy.check_at = scene.clock.now()
    scene.fail_checks(1)
    job = a_job()
    scene.give(job)
    assert scene.client.calls("give") == 0
    assert scene.reports() == [NotBegunReport(*job.key)]


def test_a_ready_that_nobody_answers_is_said_again() -> None:
    scene = Scene()
    scene.tick()
    scene.tick(3.1)
    sessions = [one.session for one in scene.said if isinstance(one, m.Ready)]
    assert sessions == [(1 << 32) + 1, (1 << 32) + 2]


def test_gone_means_that_its_jobs_are_stopped_and_it_comes_back_as_another(scene: Scene) -> None:
    scene.give(a_job())
    old = scene.proxy.worker
    scene.tell(m.Gone(old, "declared lost"))
    assert scene.client.calls("stop") == 1
    note = scene.proxy.take_note()
    assert note is not None
    assert note.worker not in (None, old)


def test_gone_stops_nothing_that_the_service_has_from_elsewhere(scene: Scene) -> None:
    """Another gateway may attend it by now, and have given it that."""
    scene.client.healths.append(Health((Held(new_id(), 9),)))
    scene.tick(30.0)
    scene.tell(m.Gone(scene.proxy.worker, "declared lost"))
    assert scene.client.calls("stop") == 0


def test_a_drained_service_finishes_what_it_runs_and_is_removed(scene: Scene) -> None:
    job = a_job()
    scene.give(job)
    scene.tell(m.Exit(scene.proxy.worker, "the worker is to drain"))
    scene.tick()
    assert scene.proxy.state is WebState.ALIVE
    assert scene.pings[-1].draining
    scene.client.stops.append(Answer(200, {}, b""))
    scene.tell(m.Abort(scene.proxy.worker, (job.key,), "cancelled"))
    scene.tell(m.Ack(scene.proxy.worker, (job.key,)))
    scene.tick()
    note = scene.proxy.take_note()
    assert note is not None
    assert note.state is WebState.REMOVED
    assert m.Bye(scene.proxy.worker, "drained") in scene.said
