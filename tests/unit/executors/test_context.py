"""What a job's code sees, without a process around it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

import longshore
from longshore.core.limits import MAX_SNOOZE_S
from longshore.errors import Conflict, InvalidInput, NotSerialisable, WrongState
from longshore.executors.host.context import Retry, RunningContext, current
from longshore.executors.output.attempt_log import STEPS_KEPT, AttemptLog
from longshore.executors.text import bounded, bounded_middle
from longshore.model.attempt import HeldDevices
from longshore.model.ids import derive_id, submitted_id
from longshore.model.job import LogKind, Options, Progress, Submission
from longshore.model.log import unpack_line
from longshore.model.reports import OutboxJob
from longshore.payload.maps import grown_id
from longshore.wire.messages import Assignment

DOCS = Path(__file__).parents[3] / "docs"
JOB = UUID(int=9)


def a_context(woken: list[AttemptLog]) -> RunningContext:
    return RunningContext(Assignment(JOB, 5, 42, "fetch", b""), woken.append)


def test_there_is_no_current_job_outside_one() -> None:
    with pytest.raises(WrongState, match=r"no current job.*longshore\.testing\.run_inline"):
        current()


def test_a_job_sees_which_devices_it_has() -> None:
    devices = (HeldDevices("gpu", (0, 2)), HeldDevices("press", (1,)))
    assignment = Assignment(JOB, 5, 42, "fetch", b"", devices=devices)
    found = RunningContext(assignment, lambda log: None).devices
    assert found == {"gpu": (0, 2), "press": (1,)}
    assert a_context([]).devices == {}


def test_of_many_progresses_the_last_is_told_after_one_wake() -> None:
    woken: list[AttemptLog] = []
    context = a_context(woken)
    for done in range(100):
        context.progress(done, 100)
    assert len(woken) == 1
    (entry,) = context.unsaid()
    assert (entry.job, entry.token, entry.seq, entry.kind) == (JOB, 5, 1, LogKind.PROGRESS)
    assert msgspec.msgpack.decode(entry.data, type=Progress) == Progress(99.0, 100.0)
    context.progress(100)
    assert len(woken) == 2
    assert context.unsaid()[0].seq == 2


def test_of_too_many_steps_the_newest_are_told() -> None:
    context = a_context([])
    for number in range(1000):
        context.step(str(number))
    told = [int(unpack_line(entry.data).text) for entry in context.unsaid()]
    assert told == list(range(1000 - STEPS_KEPT, 1000))


def test_a_silent_job_has_nothing_unsaid() -> None:
    assert a_context([]).unsaid() == []


@pytest.mark.parametrize(
    "amounts", [(float("nan"), None), (1, float("inf")), (10**400, None), (1, "many"), (None, 1)]
)
def test_progress_is_a_finite_number(amounts: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidInput, match="give finite numbers"):
        a_context([]).progress(*amounts)


def test_a_submission_that_cannot_be_sent_is_refused_at_once() -> None:
    context = a_context([])
    with pytest.raises(NotSerialisable, match="'next' job cannot be submitted"):
        context.submit(Submission(JOB, "next", b"", options=Options(labels=("\ud800",))))
    assert context.outbox() == ()


APP = longshore.App("context")


@APP.job
def send(text: str) -> None:
    """Does nothing."""


def job_ids(context: RunningContext) -> list[UUID]:
    """The ids of the jobs that a context submits."""
    return [item.job.id for item in context.outbox() if isinstance(item, OutboxJob)]


def test_a_call_has_the_id_of_the_job_that_it_becomes() -> None:
    """Run again, the job submits the same jobs: their ids follow from its own."""
    first, second = (a_context([]) for _ in range(2))
    for context in (first, second):
        call = send.call("a")
        assert context.submit(call) == call.id == derive_id(JOB, 0)
        assert job_ids(context) == [call.id]
    assert first.outbox() == second.outbox()


def test_in_a_new_round_a_job_submits_new_jobs() -> None:
    """An id meets none of another round, and none of what the job adds to its group."""
    ids = [submitted_id(JOB, round, index) for round in (1, 2, 3) for index in (0, 1)]
    added = [grown_id(JOB, round, index) for round in (1, 2, 3) for index in (0, 1)]
    assert len({*ids, *added}) == 12
    again = RunningContext(Assignment(JOB, 9, 42, "fetch", b"", round=2), lambda attempt_log: None)
    assert [again.submit(send.call("a")), again.submit(send.call("b"))] == ids[2:4]


def test_an_id_that_was_given_is_kept() -> None:
    context, given = a_context([]), UUID(int=7)
    call = send.options(id=given).call("a")
    plain = Submission(UUID(int=8), "next", b"")
    assert context.submit(call) == call.id == given
    assert context.submit(plain) == plain.id
    assert context.submit(send.call("b")) == derive_id(JOB, 2)
    assert job_ids(context) == [given, plain.id, derive_id(JOB, 2)]


def test_the_same_call_submitted_twice_is_one_job() -> None:
    context, call = a_context([]), send.call("a")
    assert context.submit(call) == context.submit(call)
    assert len(context.outbox()) == 1


def test_a_call_that_two_jobs_submit_is_a_job_of_each() -> None:
    one = a_context([])
    two = RunningContext(Assignment(UUID(int=10), 6, 43, "fetch", b""), lambda attempt_log: None)
    call = send.call("a")
    assert one.submit(call) != two.submit(call)


def test_two_different_jobs_under_one_id_are_refused() -> None:
    context, same = a_context([]), UUID(int=7)
    context.submit(send.options(id=same).call("a"))
    with pytest.raises(Conflict, match=f"job 42 submits two different jobs under the id {same}"):
        context.submit(send.options(id=same).call("b"))
    assert len(context.outbox()) == 1


@pytest.mark.parametrize("odd", [send, "send", None])
def test_what_is_no_call_is_refused_with_what_to_give(odd: Any) -> None:
    with pytest.raises(InvalidInput, match=r"is not a call; give what job\.call\(…\) makes"):
        a_context([]).submit(odd)


def test_bounded_text_is_valid_and_within_the_limit() -> None:
    for text in ("short", "é" * 100, "\ud800" * 100, "🚢" * 50):
        for cut in (bounded(text, 64), bounded_middle(text, 64)):
            assert len(cut.encode()) <= 64
    assert bounded_middle("a" * 100 + "b" * 100, 64).endswith("b")
    assert bounded_middle("a" * 100 + "b" * 100, 64).startswith("a")


def test_the_public_context_has_what_a_job_may_use_and_nothing_else() -> None:
    public = {name for name in dir(longshore.Context) if not name.startswith("_")}
    told = (DOCS / "jobs.md").read_text()
    assert all(f"`{name}" in told for name in public), public
    assert {"id", "number", "kind", "attempt", "token", "cancelled", "scratch"} <= public
    assert public.isdisjoint({"mark_cancelled", "outbox", "unsaid", "leftover"})


def test_a_scratch_folder_outside_a_worker_is_a_temporary_one() -> None:
    context = a_context([])
    assert context.leftover() is None
    folder = context.scratch
    assert folder.is_dir()
    assert folder == context.scratch == context.leftover()
    folder.rmdir()


@pytest.mark.parametrize("after", [90, 90.0, timedelta(minutes=1, seconds=30)])
def test_retry_takes_seconds_or_a_timedelta(after: timedelta | float) -> None:
    assert Retry(after=after).after_s == Retry(after_s=90).after_s == 90.0


def test_retry_refuses_what_is_no_time() -> None:
    with pytest.raises(InvalidInput, match=r"Retry\(after=-1.0\): give a timedelta or a number"):
        Retry(after=timedelta(seconds=-1))
    with pytest.raises(InvalidInput, match="give one of the two"):
        Retry(after=1, after_s=1)
    for much in (float("nan"), float("inf"), 1e308, timedelta.max, MAX_SNOOZE_S + 1):
        with pytest.raises(InvalidInput, match=r"from 0 to 31,622,400 \(MAX_SNOOZE_S\)"):
            Retry(after=much)
    assert Retry(after=MAX_SNOOZE_S).after_s == MAX_SNOOZE_S
    with pytest.raises(InvalidInput, match=r"Retry\(after='soon'\): give a timedelta or a"):
        Retry(after_s="soon")  # type: ignore[arg-type]
