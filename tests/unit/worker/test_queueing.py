"""What waits in an executor, close to where it runs: the agent can take it back until it begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import structs

from longshore.config import WorkerSettings
from longshore.core.lookahead import ENOUGH_RUNS
from longshore.model.reports import CancelReport, NotBegunReport, ReleaseReport, SuccessReport
from longshore.model.worker import Pool
from longshore.wire import messages as m

from .bench import LEASE_S, Bench, PlayedQueueingExecutor, at_bench, job

SHORT_S = 0.0024
IN_PROCESS = 2
"""So many runs of that length are within the few milliseconds that a process gets ahead."""


def processes(bench: Bench) -> PlayedQueueingExecutor:
    executor = bench.executors[Pool.PROCESS]
    assert isinstance(executor, PlayedQueueingExecutor)
    return executor


async def give(bench: Bench, *jobs: m.Assignment) -> None:
    bench.link.tell(m.Jobs(bench.worker, bench.next_seq(), jobs))
    await bench.settle()


async def with_short_runs(bench: Bench) -> PlayedQueueingExecutor:
    """So many short runs end that the agent knows the kind."""
    await bench.attend()
    for token in range(1, ENOUGH_RUNS + 1):
        await give(bench, job(token, "grind"))
        await bench.pass_time(SHORT_S)
        processes(bench).succeed(token)
        await bench.settle()
    return processes(bench)


def grinds(*tokens: int) -> list[m.Assignment]:
    return [job(token, "grind") for token in tokens]


def tell(
    story: Callable[[Bench], Awaitable[None]],
    slots: int = 2,
    settings: WorkerSettings | None = None,
) -> None:
    at_bench(story, slots=slots, settings=settings, executor=PlayedQueueingExecutor)


def ends(bench: Bench) -> list[tuple[int, type[m.Report]]]:
    return bench.reports()[ENOUGH_RUNS:]


def test_a_few_milliseconds_of_work_wait_in_the_executor_the_rest_in_the_line() -> None:
    async def story(bench: Bench) -> None:
        executor = await with_short_runs(bench)
        await give(bench, *grinds(*range(101, 120)))
        assert list(executor.running) == [101, 102]
        assert list(executor.waiting) == [103, 104, 105, 106][: 2 * IN_PROCESS]
        executor.succeed(101)
        executor.begin(103)
        await bench.settle()
        assert list(executor.waiting) == [104, 105, 106, 107]

    tell(story)


def test_nothing_of_a_kind_that_is_not_known_to_be_short_waits_there() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await give(bench, *grinds(*range(101, 120)))
        assert list(processes(bench).running) == [101, 102]
        assert not processes(bench).waiting

    tell(story)


def test_an_urgent_job_goes_before_what_has_not_begun() -> None:
    async def story(bench: Bench) -> None:
        executor = await with_short_runs(bench)
        await give(bench, *grinds(*range(101, 110)))
        await give(bench, structs.replace(job(110, "grind"), priority=1))
        assert list(executor.running) == [101, 102]
        assert list(executor.waiting) == [110, 103, 104, 105]

    tell(story)


def test_a_cancel_of_what_waits_there_takes_it_back() -> None:
    async def story(bench: Bench) -> None:
        executor = await with_short_runs(bench)
        await give(bench, *grinds(*range(101, 108)))
        bench.link.tell(m.Abort(bench.worker, (job(103).key, job(107).key), "cancelled"))
        await bench.settle()
        await bench.pass_time(0.01)
        assert ends(bench) == [(103, CancelReport), (107, CancelReport)]
        assert executor.aborted == []
        assert list(executor.waiting) == [104, 105, 106]

    tell(story)


def test_a_cancel_of_what_has_begun_unheard_aborts_it() -> None:
    async def story(bench: Bench) -> None:
        executor = await with_short_runs(bench)
        await give(bench, *grinds(101, 102, 103, 104))
        executor.succeed(101)
        await bench.settle()
        executor.begin(103, tell=False)
        bench.link.tell(m.Abort(bench.worker, (job(103).key,), "cancelled"))
        await bench.settle()
        assert [report.token for report in executor.aborted] == [103]
        await bench.pass_time(0.01)
        assert ends(bench) == [(101, SuccessReport), (103, CancelReport)]

    tell(story)


def test_a_drain_hands_back_what_waits_there() -> None:
    async def story(bench: Bench) -> None:
        executor = await with_short_runs(bench)
        await give(bench, *grinds(101, 102, 103, 104))
        bench.agent.drain()
        await bench.settle()
        assert ends(bench) == [(103, NotBegunReport), (104, NotBegunReport)]
        assert list(executor.running) == [101, 102]

    tell(story)


def test_what_does_not_begin_there_soon_goes_back() -> None:
    async def story(bench: Bench) -> None:
        executor = await with_short_runs(bench)
        await give(bench, *grinds(101, 102, 103))
        await bench.pass_time(0.06)
        await give(bench, *grinds(104))
        await bench.pass_time(0.05)
        assert ends(bench) == [(103, NotBegunReport)]
        assert list(executor.waiting) == [104]
        await bench.pass_time(0.06)
        assert ends(bench) == [(103, NotBegunReport), (104, NotBegunReport)]

    tell(story)


def test_a_worker_that_stops_itself_hands_back_what_waits_there() -> None:
    async def story(bench: Bench) -> None:
        executor = await with_short_runs(bench)
        await give(bench, *grinds(101, 102, 103))
        await bench.pass_time(LEASE_S, answering=False)
        assert not executor.waiting
        assert {report.token for report in executor.aborted} == {101, 102}
        assert {type(report) for report in executor.aborted} == {ReleaseReport}

    tell(story, settings=WorkerSettings(drain_s=10.0, lookahead_s=30.0))


def test_the_age_of_a_run_counts_from_its_real_start() -> None:
    async def story(bench: Bench) -> None:
        executor = await with_short_runs(bench)
        await give(bench, *grinds(101, 102, 103))
        executor.succeed(101)
        await bench.pass_time(0.05)
        executor.begin(103, ago_s=0.02)
        begun = bench.agent._begun[Pool.PROCESS]
        assert round(bench.clock.now() - begun[103].at, 6) == 0.02
        assert bench.clock.now() - begun[102].at >= 0.05

    tell(story)


def test_ends_are_gathered_while_there_is_more_to_run_and_sent_at_once_otherwise() -> None:
    async def story(bench: Bench) -> None:
        executor = await with_short_runs(bench)
        await give(bench, *grinds(101, 102, 103, 104))
        before = len(bench.said(m.Done))
        executor.succeed(101)
        executor.begin(103)
        await bench.settle()
        assert len(bench.said(m.Done)) == before
        executor.succeed(102)
        executor.begin(104)
        await bench.settle()
        assert [len(done.reports) for done in bench.said(m.Done)[before:]] == [2]

    tell(story)
