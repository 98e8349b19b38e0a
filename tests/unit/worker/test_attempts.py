"""What the agent does with attempts: slots, waiting, aborts, reports."""

from __future__ import annotations

from longshore.model.job import LogEntry, LogKind
from longshore.model.reports import CancelReport, SuccessReport
from longshore.model.worker import Pool
from longshore.wire import messages as m
from longshore.wire.codec import encode

from .bench import Bench, at_bench, job


def test_what_comes_while_every_slot_is_taken_waits_for_one_and_starts_in_order() -> None:
    """A dispatcher gives a slot to others once an abort is under way; its attempt may still run."""

    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1), job(2), job(3), job(4))))
        assert bench.jobs.started == [1, 2]
        bench.jobs.succeed(2)
        await bench.settle()
        assert bench.jobs.started == [1, 2, 3]
        bench.jobs.succeed(1)
        bench.jobs.succeed(3)
        await bench.settle()
        assert bench.jobs.started == [1, 2, 3, 4]
        assert bench.reports() == [(token, SuccessReport) for token in (2, 1, 3)]

    at_bench(story)


def test_pools_have_slots_of_their_own() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1), job(2), job(3), job(4, "grind"))))
        assert bench.executors[Pool.PROCESS].started == [4]
        assert bench.jobs.started == [1, 2]

    at_bench(story)


def test_a_kind_that_the_app_has_no_more_is_for_the_coroutines_host_to_refuse() -> None:
    """That host imports the whole app, and says what there is instead."""

    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1, "gone"),)))
        assert bench.jobs.started == [1]

    at_bench(story)


def test_an_abort_of_what_still_waits_is_reported_and_it_never_starts() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1), job(2), job(3), job(4))))
        link.tell(m.Abort(bench.worker, (job(3).key,), "cancelled"))
        await bench.settle()
        assert bench.reports() == [(3, CancelReport)]
        bench.jobs.succeed(1)
        await bench.settle()
        assert bench.jobs.started == [1, 2, 4]

    at_bench(story)


def test_an_abort_of_what_runs_is_reported_as_cancelled_once_it_has_stopped() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        bench.jobs.stubborn = True
        link.tell(m.Abort(bench.worker, (job(1).key,), "cancelled"))
        await bench.settle()
        [report] = bench.jobs.aborted
        assert (report.token, type(report)) == (1, CancelReport)
        assert bench.reports() == []
        bench.jobs.end(report)
        await bench.settle()
        assert bench.reports() == [(1, CancelReport)]

    at_bench(story)


def test_what_an_attempt_said_goes_out_before_its_end() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (job(1),)))
        entry = LogEntry(job(1).job, 1, 1, LogKind.TEXT, b"hello")
        bench.jobs.succeed(1)
        bench.jobs.say(entry)
        await bench.settle()
        logs, done = link.said[-2:]
        assert logs == m.Logs(bench.worker, (entry,))
        assert isinstance(done, m.Done)

    at_bench(story)


def test_a_ping_says_how_busy_the_machine_is() -> None:
    async def story(bench: Bench) -> None:
        await bench.attend()
        await bench.pass_time(1.5)
        assert bench.said(m.Ping)[-1].stats.cpu_percent == 12.5

    at_bench(story)


def test_a_message_that_cannot_be_understood_does_not_take_the_next_one_with_it() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.frames(
            [b"", b"PONG", b"\xc1"],
            [b"", b"NONSENSE", b""],
            encode(m.Jobs(bench.worker, 1, (job(1),))),
        )
        await bench.settle()
        assert bench.jobs.started == [1]

    at_bench(story)
