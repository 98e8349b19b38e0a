"""Dispatchers that fall silent, cannot renew, or have given the worker up."""

from __future__ import annotations

from longshore.model.reports import ReleaseReport, SuccessReport
from longshore.wire import messages as m

from .bench import PING_S, Bench, at_bench, job

RELEASED, SUCCEEDED = ReleaseReport, SuccessReport


def test_an_agent_whose_dispatcher_falls_silent_takes_all_it_holds_to_the_next() -> None:
    async def story(bench: Bench) -> None:
        first = await bench.attend()
        first.tell(m.Jobs(bench.worker, 1, (job(1), job(2), job(3))))
        bench.jobs.succeed(1)
        await bench.settle()
        await bench.pass_time(4.5, answering=False)
        assert (first.is_open, bench.link.address) == (False, "d2")
        [ready] = bench.said(m.Ready)
        assert sorted(ready.held) == [job(2).key, job(3).key]
        assert ready.unacknowledged == (job(1).key,)
        await bench.attend()
        assert bench.reports() == [(1, SUCCEEDED)]
        assert bench.ids == [ready.worker]

    at_bench(story, addresses=("d1", "d2"))


def test_dispatchers_are_tried_in_turn() -> None:
    async def story(bench: Bench) -> None:
        await bench.pass_time(10.0)
        assert [link.address for link in bench.links] == ["d1", "d2", "d1", "d2"]
        assert [link.is_open for link in bench.links] == [False, False, False, True]

    at_bench(story, addresses=("d1", "d2"))


def test_what_comes_behind_the_message_that_made_an_agent_leave_is_not_heard() -> None:
    """G8: a GONE of the dispatcher it left must not end what the next one will adopt."""

    async def story(bench: Bench) -> None:
        first = await bench.attend()
        first.tell(m.Jobs(bench.worker, 1, (job(1),)))
        await bench.pass_time(1.5)
        renewed_at = bench.clock.now()
        while bench.clock.now() < renewed_at + 8.0:
            await bench.pass_time(0.1, answering=False)
            first.tell(m.Abort(bench.worker, (), ""))
        last = bench.said(m.Ping)[-1]
        first.tell(
            m.Pong(bench.worker, last.no, PING_S),
            m.Gone(bench.worker, "not heard of for 15 s"),
            m.Exit(bench.worker, ""),
        )
        await bench.settle()
        assert bench.link.address == "d2"
        assert len(bench.ids) == 1
        assert (*bench.jobs.running,) == (1,)
        assert bench.said(m.Ready)[0].held == (job(1).key,)
        assert not bench.said(m.Ready)[0].draining

    at_bench(story, addresses=("d1", "d2"))


def test_an_agent_that_is_given_up_kills_everything_and_comes_back_as_another() -> None:
    """G2: what it held is somebody else's, what waited too."""

    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1), job(2), job(3))))
        link.tell(m.Gone(bench.worker, "not heard of for 15 s"))
        await bench.settle()
        assert not bench.jobs.running
        assert bench.jobs.started == [1, 2]
        ready = bench.said(m.Ready)[-1]
        assert (ready.held, ready.unacknowledged) == ((), ())
        assert [one.worker for one in bench.said(m.Ready)] == bench.ids
        assert len(set(bench.ids)) == 2
        await bench.attend()
        assert bench.reports() == []

    at_bench(story)


def test_after_everything_was_killed_the_next_job_waits_for_the_slot_and_no_longer() -> None:
    """A host takes a moment to die, and its attempts count until it has."""

    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        killed = bench.jobs.running[1]
        bench.jobs.kill = lambda: None  # type: ignore[method-assign]
        link.tell(m.Gone(bench.worker, "not heard of for 15 s"))
        await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(2),)))
        await bench.settle()
        assert bench.jobs.started == [1]
        bench.jobs.end(RELEASED(killed.job, 1))
        await bench.settle()
        assert bench.jobs.started == [1, 2]
        assert bench.reports() == []
        bench.jobs.succeed(2)
        await bench.settle()
        assert bench.reports() == [(2, SUCCEEDED)]

    at_bench(story, slots=1)


def test_an_agent_that_nobody_renews_stops_its_jobs_first_politely_then_for_good() -> None:
    """G6: aborted 5 s, killed 2 s before its lease ends."""

    async def story(bench: Bench) -> None:
        link = await bench.attend()
        bench.jobs.stubborn = True
        link.tell(m.Jobs(bench.worker, 1, (job(1), job(2), job(3))))
        await bench.pass_time(9.9, answering=False)
        assert not bench.jobs.aborted
        await bench.pass_time(0.3, answering=False)
        aborted = {(one.token, type(one)) for one in bench.jobs.aborted}
        assert aborted == {(1, RELEASED), (2, RELEASED)}
        assert (*bench.jobs.running,) == (1, 2)
        await bench.pass_time(2.9, answering=False)
        assert not bench.jobs.running
        assert bench.jobs.started == [1, 2]
        assert len(set(bench.ids)) == 2
        assert bench.said(m.Ready)[-1].held == ()

    at_bench(story)
