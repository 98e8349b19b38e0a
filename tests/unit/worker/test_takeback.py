"""An agent is killed, and another one comes with the same state folder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from longshore.model.attempt import HeldAttempt
from longshore.model.reports import CrashReport, ReleaseReport, SuccessReport
from longshore.run.worker_state import StateFolder
from longshore.wire import messages as m

from .bench import LEASE_S, Bench, PlayedExecutor, at_bench, job


class LastingExecutor(PlayedExecutor):
    """Its attempts go on in `outside` when the agent is gone."""

    outside: dict[int, HeldAttempt]
    outlives_agent = True
    times: tuple[float, float] | None = None

    def held(self) -> Sequence[HeldAttempt]:
        grind = "grind" in self.kinds
        return [one for one in self.outside.values() if (one.assignment.kind == "grind") == grind]

    def resume(self) -> None:
        self.running |= {one.assignment.token: one.assignment for one in self.held()}

    def extend(self, stop_at: float, kill_at: float) -> None:
        self.times = stop_at, kill_at

    def recorded(self, tokens: Collection[int]) -> None:
        for token in tokens:
            self.outside.pop(token, None)


@pytest.fixture
def lasting() -> type[LastingExecutor]:
    return type("Lasting", (LastingExecutor,), {"outside": {}})


def test_the_next_agent_goes_on_with_what_is_held_and_reports_what_is_not(
    tmp_path: Path, lasting: type[LastingExecutor]
) -> None:
    """G2, G3: the same worker in a later session; every attempt is accounted for."""

    async def first(bench: Bench) -> None:
        link = await bench.attend()
        begun = (job(1), job(2), job(3, "grind"), job(4, "grind"))
        link.tell(m.Jobs(bench.worker, 1, begun))
        await bench.settle()
        bench.executors["process"].succeed(3)
        await bench.settle()
        bench.ids.append(bench.worker)

    async def second(bench: Bench) -> None:
        await bench.settle()
        [ready] = bench.said(m.Ready)
        assert (ready.session, ready.process, bench.ids) == (2, "", [])
        assert (ready.held, set(ready.unacknowledged)) == (
            (job(1).key,),
            {job(2).key, job(3).key, job(4).key},
        )
        link = await bench.attend()
        assert bench.reports() == [(2, CrashReport), (3, ReleaseReport), (4, CrashReport)]
        # What comes again is not begun again.
        link.tell(m.Jobs(bench.worker, 1, (job(1), job(2), job(5))))
        await bench.settle()
        assert bench.jobs.started == [5]
        bench.jobs.succeed(1)
        await bench.settle()
        assert (1, SuccessReport) in bench.reports()
        bench.acknowledge()
        await bench.settle()
        assert lasting.outside == {}

    at_bench(first, executor=lasting, state=StateFolder(tmp_path, "here"))
    lasting.outside[1] = HeldAttempt(job(1), 3.0, 2)
    at_bench(second, executor=lasting, state=StateFolder(tmp_path, "here"))
    third = StateFolder(tmp_path, "here")
    assert ([one.token for one in third.begun], third.session) == ([5], 2)


def test_what_the_store_gives_to_others_by_now_is_stopped(
    tmp_path: Path, lasting: type[LastingExecutor]
) -> None:
    async def first(bench: Bench) -> None:
        await bench.attend()

    async def second(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Abort(bench.worker, (job(1).key,), "the job is not this worker's any more"))
        await bench.settle()
        assert [one.key for one in bench.jobs.aborted] == [job(1).key]

    at_bench(first, executor=lasting, state=StateFolder(tmp_path, "here"))
    lasting.outside[1] = HeldAttempt(job(1), 3.0, 2)
    at_bench(second, executor=lasting, state=StateFolder(tmp_path, "here"))


def test_a_worker_that_was_declared_lost_kills_what_is_held_and_is_another_one(
    tmp_path: Path, lasting: type[LastingExecutor]
) -> None:
    """G2: an old token changes nothing."""

    async def first(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1), job(2))))
        await bench.settle()

    async def second(bench: Bench) -> None:
        await bench.settle()
        old = bench.worker
        bench.link.tell(m.Gone(old, "not heard of for 15 s"))
        await bench.attend()
        assert bench.worker != old
        assert bench.jobs.running == {}
        assert bench.said(m.Ready)[-1].held == ()
        assert bench.reports() == [(2, CrashReport)]

    at_bench(first, executor=lasting, state=StateFolder(tmp_path, "here"))
    lasting.outside[1] = HeldAttempt(job(1), 3.0, 2)
    at_bench(second, executor=lasting, state=StateFolder(tmp_path, "here"))
    assert list(StateFolder(tmp_path, "here").begun) == []


def test_an_attempt_that_killed_agent_after_agent_is_stopped_and_counts_as_crashed(
    tmp_path: Path, lasting: type[LastingExecutor]
) -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        assert bench.reports() == [(1, CrashReport)]

    lasting.outside[1] = HeldAttempt(job(1), 3.0, 5)
    at_bench(story, executor=lasting, state=StateFolder(tmp_path, "here"))


def test_executors_hear_of_every_lease(tmp_path: Path, lasting: type[LastingExecutor]) -> None:
    """G6: without an agent, they stop what they run at these times."""

    async def story(bench: Bench) -> None:
        await bench.attend()
        await bench.pass_time(2.5)
        asked_at = bench.clock.now() - 0.5
        executor = bench.jobs
        assert isinstance(executor, LastingExecutor)
        assert executor.times == pytest.approx(
            (asked_at + LEASE_S - 5, asked_at + LEASE_S - 2), abs=0.2
        )

    at_bench(story, executor=lasting, state=StateFolder(tmp_path, "here"))


def test_a_worker_without_containers_keeps_nothing(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        await bench.settle()

    at_bench(story, state=StateFolder(tmp_path, "here"))
    assert StateFolder(tmp_path, "here").worker is None
