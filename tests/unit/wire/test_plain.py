"""The plain dialogue: what a frame means, and what a plain worker owes."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.model.attempt import Attempt
from longshore.model.job import Ended, JobError, JobState, Options, Reason
from longshore.model.reports import SuccessReport
from longshore.model.worker import Attended, Pool
from longshore.wire import messages as m
from longshore.wire import plain
from longshore.wire.plain import Meaning, PlainSession

WORKER = UUID(int=100)
AUTOMATIC = b"\x00\x6b\x8b\x45\x67"
OWN_NAME = b"press-3"
EVERYBODY = [(busy, automatic) for busy in (False, True) for automatic in (False, True)]


def claimed(number: int, args: bytes = b"a job", raw: bool = True) -> Attempt:
    job = UUID(int=number)
    return Attempt(job, number, number, "raw", args, Options(raw=raw), WORKER, 1, 1, 0, 0)


def attempt(one: Attempt) -> m.AttemptKey:
    return one.id, one.token


@pytest.fixture
def worker() -> PlainSession:
    return PlainSession(AUTOMATIC, plain.describe(WORKER, AUTOMATIC), Attended(1), 0.0)


# what a frame means


@pytest.mark.parametrize(("busy", "automatic"), EVERYBODY)
def test_a_ping_is_always_a_ping(busy: bool, automatic: bool) -> None:
    assert plain.understand(b"PING", busy=busy, automatic=automatic) is Meaning.ALIVE


@pytest.mark.parametrize(
    ("busy", "automatic", "meaning"),
    [
        (False, True, Meaning.IDLE),
        (False, False, Meaning.IDLE),
        (True, True, Meaning.RESULT),
        (True, False, Meaning.RESTARTED),
    ],
)
def test_ready_is_a_result_of_a_busy_worker_unless_it_named_itself(
    busy: bool, automatic: bool, meaning: Meaning
) -> None:
    assert plain.understand(b"READY", busy=busy, automatic=automatic) is meaning


@pytest.mark.parametrize(
    "frame", [b"", b"PONG", b"ERROR", b"EXIT", b"ready", b"READY\0", b"\0" * 9]
)
@pytest.mark.parametrize("automatic", [False, True])
def test_anything_else_is_the_result_of_a_busy_worker_and_nothing_of_an_idle_one(
    frame: bytes, automatic: bool
) -> None:
    assert plain.understand(frame, busy=True, automatic=automatic) is Meaning.RESULT
    assert plain.understand(frame, busy=False, automatic=automatic) is None


@given(st.binary(), st.booleans(), st.booleans())
def test_every_frame_of_a_busy_worker_but_ping_ends_its_job(
    frame: bytes, busy: bool, automatic: bool
) -> None:
    meaning = plain.understand(frame, busy=busy, automatic=automatic)
    ends = meaning in (Meaning.RESULT, Meaning.RESTARTED)
    assert ends == (busy and frame != b"PING")


def test_zeromq_names_begin_with_a_zero_byte() -> None:
    assert plain.is_automatic(AUTOMATIC)
    assert not plain.is_automatic(OWN_NAME)
    assert not plain.is_automatic(b"")


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([b"", b"PING"], b"PING"),
        ([b"", b""], b""),
        ([b"x", b"PING"], None),
        ([b"PING"], None),
        ([], None),
        ([b"", b"PING", b"\x80"], None),
    ],
)
def test_the_plain_dialogue_is_two_frames_and_the_first_is_empty(
    frames: list[bytes], said: bytes | None
) -> None:
    assert plain.only(frames) == said


# one job at a time


def test_a_name_that_the_library_made_is_not_shown_because_it_could_be_taken_over() -> None:
    id = UUID("018f0000-0000-7000-8000-0000abcdef12")
    assert plain.describe(id, b"press-3").name == f"plain-{b'press-3'.hex()}"
    assert plain.describe(id, bytes.fromhex("006b8b4567")).name == "plain-00abcdef12"


def test_a_plain_worker_has_one_slot_for_raw_jobs(worker: PlainSession) -> None:
    assert list(worker.info.kinds) == ["raw"]
    assert worker.open_slots == {Pool.COROUTINE: 1}


def test_the_longest_name_is_cut() -> None:
    assert len(plain.describe(WORKER, b"x" * 255).name) < 50


def test_a_job_goes_out_as_its_bytes_and_the_answer_is_its_report(worker: PlainSession) -> None:
    one = claimed(1, b"\x00\xffbytes")
    [work] = worker.assign([one])
    assert plain.frames_of(work) == [b"", b"\x00\xffbytes"]
    assert worker.busy
    assert worker.open_slots == {}
    report = worker.answered(b"done")
    assert report == SuccessReport(one.id, one.token, result=b"done")
    sent = worker.sent(*report.key)
    assert sent is not None
    worker.ended(sent)
    assert worker.open_slots[Pool.COROUTINE] == 1


def test_a_ping_in_flight_does_not_make_a_busy_worker_ready(worker: PlainSession) -> None:
    worker.assign([claimed(1)])
    assert not worker.pinged()
    assert worker.open_slots == {}


def test_a_job_that_was_sent_is_never_sent_again(worker: PlainSession) -> None:
    """A plain worker cannot recognise a repeated job."""
    one = claimed(1)
    worker.assign([one])
    assert worker.assign([one]) == []
    worker.settled(worker.answered(b"done").key)
    assert worker.assign([one]) == []
    assert not worker.busy


def test_a_drained_worker_is_given_nothing_and_told_nothing(worker: PlainSession) -> None:
    worker.draining = True
    assert worker.open_slots == {}
    assert worker.abort([(WORKER, 1)], "cancelled") == []
    assert worker.acknowledge(m.Ack(WORKER, ((WORKER, 1),))) == []


# a job that was taken away


def test_a_worker_whose_job_was_taken_away_owes_its_answer(worker: PlainSession) -> None:
    one = claimed(1)
    worker.assign([one])
    worker.settled(attempt(one))
    assert worker.busy
    assert worker.open_slots == {}
    assert worker.answered(b"late").key == attempt(one)
    assert worker.sent(*attempt(one)) is None
    assert worker.open_slots[Pool.COROUTINE] == 1


def test_a_ping_after_its_job_was_taken_away_says_that_it_is_idle(worker: PlainSession) -> None:
    one = claimed(1)
    worker.assign([one])
    for _ in range(plain.PINGS_IN_FLIGHT):
        assert not worker.pinged()
    worker.settled(attempt(one))
    assert worker.pinged()
    assert worker.open_slots[Pool.COROUTINE] == 1
    assert not worker.pinged()


def test_one_that_pings_at_work_must_answer_before_it_is_given_more(
    worker: PlainSession,
) -> None:
    """The dispatcher would take its late result for that of its next job."""
    one = claimed(1)
    worker.assign([one])
    for _ in range(plain.PINGS_IN_FLIGHT + 1):
        worker.pinged()
    worker.settled(attempt(one))
    assert not worker.pinged()
    assert worker.open_slots == {}
    worker.answered(b"late")
    assert worker.open_slots[Pool.COROUTINE] == 1
    two = claimed(2)
    worker.assign([two])
    worker.settled(attempt(two))
    assert worker.pinged(), "it worked on this one in silence"


# silence


def test_only_an_idle_worker_expires(worker: PlainSession) -> None:
    assert not worker.is_expired(2.9, 3.0)
    assert worker.is_expired(3.0, 3.0)
    worker.assign([claimed(1)])
    assert not worker.is_expired(1e9, 3.0)
    assert not worker.is_lost(1e9, 15.0)


def test_what_was_heard_last_counts(worker: PlainSession) -> None:
    worker.heard_at = 2.0
    assert not worker.is_expired(4.9, 3.0)
    assert worker.is_expired(5.0, 3.0)


def test_a_long_job_is_probed_less_often(worker: PlainSession) -> None:
    worker.assign([claimed(1)])
    worker.probe_from(100.0, 5.0)
    assert worker.probe_at == 105.0
    now, probes, month_s = 105.0, 0, 30 * 24 * 3600.0
    while now < month_s:
        worker.probed(now, 5.0)
        now, probes = worker.probe_at, probes + 1
    assert probes < 10_000
    assert now - month_s < month_s / 1000


# what cannot be said


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (claimed(1, b""), "a job of no bytes means nothing"),
        (claimed(1, b"PONG"), "would take a job that reads PONG for a PONG"),
        (claimed(1, b"\x80", raw=False), "submit it as a raw job"),
    ],
)
def test_a_job_that_a_plain_worker_would_not_understand_is_not_sent(
    job: Attempt, words: str
) -> None:
    error = plain.unfit(job)
    assert error is not None
    assert error.reason is Reason.INVALID_ARGUMENTS
    assert words in error.message


@pytest.mark.parametrize("args", [b"x", b"READY", b"PING", b"EXIT", b"PONG "])
def test_any_other_job_is_sent(args: bytes) -> None:
    assert plain.unfit(claimed(1, args)) is None


# clients


def test_a_client_is_told_the_result_alone() -> None:
    assert plain.outcome(Ended(WORKER, JobState.SUCCEEDED, b"ERROR")) == [b"", b"ERROR"]
    assert plain.outcome(Ended(WORKER, JobState.SUCCEEDED)) == [b"", b""]


def test_a_client_is_told_why_there_is_no_result() -> None:
    error = JobError(Reason.TIMED_OUT, "took longer than its timeout of 5 s", "TimeoutError")
    delimiter, verb, body = plain.outcome(Ended(WORKER, JobState.FAILED, error=error))
    assert (delimiter, verb) == (b"", b"ERROR")
    assert msgspec.json.decode(body) == {
        "reason": "timed_out",
        "type": "TimeoutError",
        "message": "took longer than its timeout of 5 s",
        "traceback": "",
    }


def test_a_client_is_told_that_its_job_was_cancelled() -> None:
    frames = plain.outcome(Ended(WORKER, JobState.CANCELLED))
    assert msgspec.json.decode(frames[2])["reason"] == "cancelled"
