"""Messages become frames and messages again; junk is refused."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.errors import ProtocolError
from longshore.model.job import Ended, JobState, LogEntry, LogKind, Submission
from longshore.model.reports import SuccessReport
from longshore.model.worker import KindInfo
from longshore.wire import messages as m
from longshore.wire.codec import (
    answer_to,
    encode,
    from_client,
    from_dispatcher,
    from_worker,
    ok,
    to_client,
)
from longshore.wire.portions import MESSAGE_BYTES

JOB = UUID(int=1)


@pytest.mark.parametrize(
    "message",
    [
        m.Ready(v=2, worker=JOB, kinds={"fetch": KindInfo()}, held=((JOB, 3),)),
        m.Ping(JOB, 4, 2, ((JOB, 3),)),
        m.Done(JOB, (SuccessReport(JOB, 3, result=b"\x01"),)),
        m.Bye(JOB, "drained"),
    ],
)
def test_what_a_worker_says_arrives_as_it_was_said(message: m.WorkerMessage) -> None:
    frames = encode(message)
    assert frames[0] == b""
    assert frames[1] == type(message).__name__.upper().encode()
    assert from_worker.decode(frames) == message


def test_what_a_dispatcher_says_arrives_as_it_was_said() -> None:
    for message in (
        m.Welcome(JOB, 1, 1.0, 15.0),
        m.Pong(JOB, 3, 1.0),
        m.Gone(JOB, "lost"),
        m.Ack(JOB, ((JOB, 1),)),
    ):
        assert from_dispatcher.decode(encode(message)) == message


def test_an_answer_has_the_form_of_its_request() -> None:
    request = m.Wait(7, (JOB,), 1.0)
    answer = to_client.decode(ok(7, [Ended(JOB, JobState.SUCCEEDED, b"\x01")]))
    assert isinstance(answer, m.Ok)
    assert answer_to(request, answer) == (Ended(JOB, JobState.SUCCEEDED, b"\x01"),)


def test_every_request_has_an_answer() -> None:
    assert set(m.ANSWERS) == set(m.Request.__args__)


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"", b"PING"],
        [b"x", b"PING", b"\x80"],
        [b"", b"NONSENSE", b"\x80"],
        [b"", b"PING", b""],
        [b"", b"PING", b"\xc1"],
        [b"", b"PING", b"\x80"],
        [b"", b"PING", msgspec.msgpack.encode({"no": "one"})],
    ],
)
def test_junk_is_an_error_of_the_peer(frames: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        from_worker.decode(frames)


@pytest.mark.parametrize("verb", [b"READY", b"PING", b"BYE"])
def test_what_says_nothing_large_is_not_decoded_if_it_is(verb: bytes) -> None:
    with pytest.raises(ProtocolError, match="bytes; at most 8,388,608 are allowed"):
        from_worker.decode([b"", verb, bytes(MESSAGE_BYTES + 1)])
    with pytest.raises(ProtocolError, match="is malformed"):
        from_worker.decode([b"", verb, bytes(MESSAGE_BYTES)])


def test_results_logs_and_submits_may_be_large() -> None:
    data = bytes(MESSAGE_BYTES + 1)
    entry = LogEntry(UUID(int=1), 1, 1, LogKind.TEXT, data)
    job = Submission(UUID(int=1), "work", data)
    report = SuccessReport(UUID(int=1), 1, data)
    for said in (m.Done(JOB, (report,)), m.Logs(JOB, (entry,))):
        assert from_worker.decode(encode(said)) == said
    assert from_client.decode(encode(m.Submit(1, (job,)))) == m.Submit(1, (job,))


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_no_bytes_do_more_than_raise_a_protocol_error(frames: list[bytes]) -> None:
    for codec in (from_worker, from_client, from_dispatcher, to_client):
        with pytest.raises(ProtocolError):
            codec.decode([b"", b"NO SUCH VERB", *frames])
        for verb in (b"READY", b"SUBMIT", b"JOBS", b"OK"):
            try:
                codec.decode([b"", verb, *frames[:1]])
            except ProtocolError:
                continue
