"""What the agent holds ahead of its slots: how much it asks for, and what becomes of it."""

from __future__ import annotations

from itertools import count

from msgspec import structs

from longshore.config import WorkerSettings
from longshore.core.lookahead import ENOUGH_RUNS, MOST_BYTES
from longshore.model.reports import CancelReport, NotBegunReport, ReleaseReport, SuccessReport
from longshore.model.worker import Ahead, Pool
from longshore.wire import messages as m
from longshore.worker.agent import REPORT_EVERY_S, REPORT_WITHIN_S

from .bench import LEASE_S, Bench, PlayedExecutor, at_bench, job

SHORT_S = 0.0024
TWO_SLOTS_AHEAD = Ahead({Pool.PROCESS.value: 40}, ("grind",))


def processes(bench: Bench) -> PlayedExecutor:
    return bench.executors[Pool.PROCESS]


async def give(bench: Bench, *jobs: m.Assignment) -> None:
    bench.link.tell(m.Jobs(bench.worker, bench.next_seq(), jobs))
    await bench.settle()


async def short_runs(bench: Bench) -> None:
    """So many short runs end that the agent knows the kind."""
    for token in range(1, ENOUGH_RUNS + 1):
        await give(bench, job(token, "grind"))
        await bench.pass_time(SHORT_S)
        processes(bench).succeed(token)
        await bench.settle()


def asked(bench: Bench) -> Ahead:
    """What the last DONE asks for."""
    return bench.said(m.Done)[-1].ahead


def test_a_worker_asks_for_attempts_ahead_once_it_knows_that_they_are_short() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        assert [done.ahead for done in bench.said(m.Done)[:-1]] == [Ahead()] * (ENOUGH_RUNS - 1)
        assert asked(bench) == TWO_SLOTS_AHEAD
        await bench.pass_time(1.5)
        assert bench.said(m.Ping)[-1].ahead == TWO_SLOTS_AHEAD

    at_bench(story)


def test_coroutines_are_never_held_ahead() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        for token in range(1, 2 * ENOUGH_RUNS):
            await give(bench, job(token))
            bench.jobs.succeed(token)
            await bench.settle()
        assert asked(bench) == Ahead()

    at_bench(story)


def test_with_no_lookahead_nothing_is_asked_for() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        assert asked(bench) == Ahead()

    at_bench(story, settings=WorkerSettings(lookahead_s=0.0))


def test_what_is_held_ahead_begins_as_slots_come_free_the_most_urgent_first() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        urgent = structs.replace(job(105, "grind"), priority=1)
        await give(bench, *(job(token, "grind") for token in (101, 102, 104, 103)), urgent)
        processes(bench).started.clear()
        for token in (101, 102, 105, 103):
            processes(bench).succeed(token)
            await bench.settle()
        assert processes(bench).started == [105, 103, 104]

    at_bench(story)


def test_what_does_not_begin_soon_goes_back_and_nothing_is_asked_for_until_a_run_ends() -> None:
    """Another worker may be idle. Without the pause it would come straight back."""

    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        await give(bench, *(job(token, "grind") for token in (101, 102, 103)))
        await bench.pass_time(0.06)
        await give(bench, job(104, "grind"))
        assert bench.reports()[ENOUGH_RUNS:] == []
        await bench.pass_time(0.05)
        assert bench.reports()[ENOUGH_RUNS:] == [(103, NotBegunReport)]
        assert asked(bench) == Ahead()
        await bench.pass_time(0.06)
        assert bench.reports()[ENOUGH_RUNS:] == [(103, NotBegunReport), (104, NotBegunReport)]
        processes(bench).succeed(101)
        await bench.settle()
        assert asked(bench).pools == {Pool.PROCESS: 20}, "the other run is taken for a long one"

    at_bench(story)


def test_a_cancel_of_what_is_held_ahead_never_starts_it() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        await give(bench, *(job(token, "grind") for token in (101, 102, 103, 104)))
        bench.link.tell(m.Abort(bench.worker, (job(103).key,), "cancelled"))
        await bench.settle()
        assert bench.reports()[ENOUGH_RUNS:] == [(103, CancelReport)]
        processes(bench).succeed(101)
        await bench.settle()
        assert processes(bench).started[-1] == 104

    at_bench(story)


def test_what_expires_while_it_is_held_ahead_never_starts() -> None:
    """It goes back as not begun, and the dispatcher ends it."""

    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        expiring = structs.replace(job(103, "grind"), begin_within_s=0.01)
        lasting = structs.replace(job(104, "grind"), begin_within_s=0.05)
        await give(bench, job(101, "grind"), job(102, "grind"), expiring, lasting)
        await bench.pass_time(0.02)
        processes(bench).succeed(101)
        await bench.settle()
        ends = {(101, SuccessReport), (103, NotBegunReport)}
        assert {*bench.reports()[ENOUGH_RUNS:]} == ends
        assert processes(bench).started[-2:] == [102, 104]

    at_bench(story)


def test_what_had_expired_when_it_came_never_starts() -> None:
    """As after a claim whose answer was lost, and read again later."""

    async def story(bench: Bench) -> None:
        await bench.attend()
        late = structs.replace(job(1, "grind"), begin_within_s=-0.5)
        await give(bench, late, structs.replace(job(2, "grind"), begin_within_s=0.5))
        assert bench.reports() == [(1, NotBegunReport)]
        assert processes(bench).started == [2]

    at_bench(story)


def test_a_drain_hands_back_what_is_held_ahead_and_asks_for_no_more() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        await give(bench, *(job(token, "grind") for token in (101, 102, 103)))
        bench.agent.drain()
        await bench.settle()
        assert bench.reports()[ENOUGH_RUNS:] == [(103, NotBegunReport)]
        processes(bench).succeed(101)
        await bench.settle()
        assert bench.reports()[-1] == (101, SuccessReport)
        assert asked(bench) == Ahead()

    at_bench(story)


def test_large_arguments_that_wait_are_bounded_in_bytes() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        tokens = count(101)
        large = bytes(MOST_BYTES // 2)
        for _ in range(4):
            await give(bench, structs.replace(job(next(tokens), "grind"), args=large))
        await give(bench, job(next(tokens)))
        bench.jobs.succeed(105)
        await bench.settle()
        assert asked(bench) == Ahead()

    at_bench(story)


def test_a_ping_says_what_runs_and_for_how_long_but_nothing_of_what_waits() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await give(bench, job(1), job(101, "grind"), job(102, "grind"))
        await give(bench, job(103, "grind"))
        await bench.pass_time(0.05)
        bench.agent._session.drain(bench.clock.now())
        bench.agent._flush()
        ping = bench.said(m.Ping)[-1]
        assert len(ping.held) == 4
        assert ping.begun is not None
        runs = {pool: [run.token for run in runs] for pool, runs in ping.begun.items()}
        assert runs == {Pool.COROUTINE: [1], Pool.PROCESS: [101, 102]}
        assert {round(run.age_s, 6) for runs in ping.begun.values() for run in runs} == {0.05}

    at_bench(story)


def test_a_report_says_how_long_its_attempt_ran_not_how_long_it_was_held() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        await give(bench, *(job(token, "grind") for token in (101, 102, 103)))
        await bench.pass_time(0.05)
        processes(bench).succeed(101)
        await bench.settle()
        await bench.pass_time(0.02)
        processes(bench).succeed(103)
        await bench.settle()
        reports = {one.token: one for done in bench.said(m.Done) for one in done.reports}
        first, held = reports[101], reports[103]
        assert isinstance(first, SuccessReport)
        assert isinstance(held, SuccessReport)
        assert first.ran_s is not None
        assert held.ran_s is not None
        assert (round(first.ran_s, 6), round(held.ran_s, 6)) == (0.05, 0.02)

    at_bench(story)


def test_nothing_is_asked_for_on_a_slot_that_an_aborted_attempt_still_holds() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        await give(bench, job(101, "grind"), job(102, "grind"))
        processes(bench).stubborn = True
        bench.link.tell(m.Abort(bench.worker, (job(101).key, job(102).key), "cancelled"))
        await give(bench, job(201))
        bench.jobs.succeed(201)
        await bench.settle()
        assert asked(bench) == Ahead()
        processes(bench).succeed(101)
        await bench.settle()
        assert asked(bench).pools == {Pool.PROCESS: 20}

    at_bench(story)


def test_a_worker_that_stops_itself_hands_back_what_it_holds_ahead_as_not_begun() -> None:
    """G6: it costs the job nothing, not even an attempt."""

    async def story(bench: Bench) -> None:
        await bench.attend()
        await give(bench, *(job(token, "grind") for token in (101, 102, 103)))
        await bench.pass_time(LEASE_S - 4.0, answering=False)
        ends = {one.token: type(one) for one in bench.agent._session._reports._reports.values()}
        assert ends == {101: ReleaseReport, 102: ReleaseReport, 103: NotBegunReport}

    at_bench(story, settings=WorkerSettings(drain_s=10.0, lookahead_s=60.0))


def test_ends_are_gathered_while_enough_is_held_ahead() -> None:
    """Two slots with ten runs of 2.4 ms each before them: ends wait for each other for 8 ms."""

    async def story(bench: Bench) -> None:
        await bench.attend()
        await short_runs(bench)
        first = ENOUGH_RUNS + 1
        await give(bench, *[job(token, "grind") for token in range(first, first + 22)])
        said = len(bench.said(m.Done))
        for token in (first, first + 1):
            processes(bench).succeed(token)
            await bench.pass_time(REPORT_EVERY_S)
        assert len(bench.said(m.Done)) == said
        await bench.pass_time(REPORT_WITHIN_S)
        [done] = bench.said(m.Done)[said:]
        assert [report.token for report in done.reports] == [first, first + 1]

    at_bench(story)
