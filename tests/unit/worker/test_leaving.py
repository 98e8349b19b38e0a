"""How an agent drains, hurries and leaves."""

from __future__ import annotations

import logging

import pytest

from longshore.model.reports import NotBegunReport, ReleaseReport, SuccessReport
from longshore.wire import messages as m

from .bench import Bench, at_bench, job

NOT_BEGUN, RELEASED, SUCCEEDED = NotBegunReport, ReleaseReport, SuccessReport


def test_a_drained_agent_says_so_finishes_what_it_runs_and_leaves() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        bench.agent.drain()
        await bench.settle()
        assert bench.said(m.Ping)[-1].draining
        await bench.pass_time(5.0)
        bench.jobs.succeed(1)
        await bench.settle()
        assert not bench.said(m.Bye)
        bench.acknowledge()
        await bench.task
        assert bench.reports() == [(1, SUCCEEDED)]
        assert [type(message) for message in link.said[-2:]] == [m.Done, m.Bye]
        assert not link.is_open
        assert all(executor.is_closed for executor in bench.executors.values())
        assert bench.clock.now() < 6.0

    at_bench(story)


def test_a_draining_agent_hands_back_what_waits_and_what_still_comes() -> None:
    """Neither costs the job anything, and both are somebody else's at once."""

    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1), job(2), job(3))))
        bench.agent.drain()
        await bench.settle()
        assert bench.reports() == [(3, NOT_BEGUN)]
        link.tell(m.Jobs(bench.worker, 2, (job(4),)))
        await bench.settle()
        assert bench.reports() == [(3, NOT_BEGUN), (4, NOT_BEGUN)]
        bench.jobs.succeed(1)
        bench.jobs.succeed(2)
        await bench.settle()
        assert bench.jobs.started == [1, 2]

    at_bench(story)


def test_what_does_not_end_within_the_drain_is_handed_back() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        bench.agent.drain()
        await bench.pass_time(9.9)
        assert not bench.jobs.aborted
        await bench.pass_time(0.3)
        assert bench.reports() == [(1, RELEASED)]
        bench.acknowledge()
        await bench.task

    at_bench(story)


def test_an_agent_in_a_hurry_kills_what_runs_and_hands_it_back_at_once() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        bench.jobs.stubborn = True
        bench.agent.drain()
        await bench.pass_time(1.0)
        bench.agent.hurry()
        await bench.settle()
        assert bench.reports() == [(1, RELEASED)]
        bench.acknowledge()
        await bench.task
        assert bench.clock.now() < 1.5

    at_bench(story)


def test_an_agent_leaves_though_nobody_took_note_of_what_it_handed_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        bench.agent.drain()
        await bench.pass_time(16.9)
        assert not bench.task.done()
        await bench.pass_time(0.4)
        assert bench.task.done()

    with caplog.at_level(logging.WARNING, "longshore.worker"):
        at_bench(story)
    assert "leaving before a dispatcher recorded" in caplog.text


def test_a_refused_result_is_no_reason_to_stay(caplog: pytest.LogCaptureFixture) -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        bench.agent.drain()
        bench.jobs.succeed(1)
        await bench.settle()
        link.tell(m.Ack(bench.worker, (), stale=(job(1).key,)))
        await bench.task
        assert bench.clock.now() < 1.0

    at_bench(story)
    assert f"the result of job {job(1).job} (token 1) was refused: stale" in caplog.text


def test_an_agent_that_is_told_to_leave_drains() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Exit(bench.worker, "it is to be drained"))
        await bench.task
        assert isinstance(link.said[-1], m.Bye)

    at_bench(story)


def test_an_agent_that_is_drained_while_the_app_is_imported_attends_nobody() -> None:
    async def story(bench: Bench) -> None:
        bench.jobs.opened.clear()
        await bench.settle()
        bench.agent.drain()
        await bench.task
        assert not bench.links
        assert all(executor.is_closed for executor in bench.executors.values())

    at_bench(story)


def test_a_draining_agent_that_is_declared_lost_holds_nothing_and_leaves_at_once() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        bench.agent.drain()
        await bench.settle()
        link.tell(m.Gone(bench.worker, "not heard of for 15 s"))
        await bench.task
        assert bench.clock.now() < 1.0

    at_bench(story)
