"""Messages between agent and host survive however their bytes are cut."""

from __future__ import annotations

import socket
import threading
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.errors import ProtocolError
from longshore.executors.frames import (
    Abort,
    Ended,
    FromHost,
    Load,
    Loaded,
    LoadFailed,
    Run,
    Said,
    Stopped,
    ToHost,
    from_host,
    pack,
    portions,
    to_host,
)
from longshore.model.job import JobError, LogEntry, LogKind, Reason, Submission
from longshore.model.reports import FailureReport, OutboxJob, SuccessReport
from longshore.model.worker import KindInfo, Parameter, Pool
from longshore.wire.messages import Assignment

JOB = UUID(int=7)

TO_HOST: list[ToHost] = [
    Load("tasks:app"),
    Run([Assignment(JOB, 1, 2, "fetch", b"\x80", 1.5, 3, True), Assignment(JOB, 2, 2, "a", b"")]),
    Abort([(JOB, 1), (JOB, -2)]),
]
FROM_HOST: list[FromHost] = [
    Loaded({"fetch": KindInfo(Pool.PROCESS, (Parameter("url"),))}),
    LoadFailed("no"),
    Ended(
        [
            SuccessReport(
                JOB,
                1,
                b"\xc0",
                outbox=(OutboxJob(Submission(JOB, "next", b"\x80", delay_s=2.0)),),
            ),
            FailureReport(JOB, 2, error=JobError(Reason.RAISED, "é", "T", "t")),
        ]
    ),
    Stopped([(JOB, 1)]),
    Said([LogEntry(JOB, 1, 1, LogKind.STEP, b"begun")]),
]


@given(st.lists(st.sampled_from(TO_HOST), max_size=5), st.integers(1, 40))
def test_what_the_agent_says_arrives(messages: list[ToHost], piece: int) -> None:
    data = b"".join(map(pack, messages))
    unpacker = to_host()
    received: list[ToHost] = []
    for first in range(0, len(data), piece):
        received += unpacker.feed(data[first : first + piece])
    assert received == messages


@given(st.lists(st.sampled_from(FROM_HOST), max_size=5), st.integers(1, 40))
def test_what_a_host_says_arrives(messages: list[FromHost], piece: int) -> None:
    data = b"".join(map(pack, messages))
    unpacker = from_host()
    received: list[FromHost] = []
    for first in range(0, len(data), piece):
        received += unpacker.feed(data[first : first + piece])
    assert received == messages


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\2\x91\x01", b"\0\0\0\0", pack(Load("a"))],
)
def test_nonsense_from_a_host_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        from_host().feed(data)


@given(st.integers(0, 200))
def test_portions_are_the_same_items_in_short_lists(count: int) -> None:
    parts = list(portions(range(count)))
    assert [item for part in parts for item in part] == list(range(count))
    assert all(len(part) <= 32 for part in parts)


def test_messages_before_a_malformed_one_are_not_lost() -> None:
    unpacker = from_host()
    good = Stopped([(JOB, 1)])
    assert unpacker.feed(pack(good) + b"\0\0\0\1x") == [Stopped([(JOB, 1)])]
    assert unpacker.is_malformed
    with pytest.raises(ProtocolError):
        unpacker.feed(b"")


def test_frames_are_read_from_a_socket_into_the_same_memory_again_and_again() -> None:
    large = Run([Assignment(JOB, 3, 2, "fetch", b"x" * 600_000)])
    ours, theirs = socket.socketpair()
    data = b"".join(map(pack, [*TO_HOST, large, *TO_HOST]))
    sending = threading.Thread(target=_send, args=(theirs, data))
    sending.start()
    unpacker, got, read = to_host(), list[ToHost](), 0
    while True:
        count, messages = unpacker.read(ours)
        if not count:
            break
        read += count
        got += messages
    sending.join()
    ours.close()
    assert (got, read) == ([*TO_HOST, large, *TO_HOST], len(data))


def _send(sock: socket.socket, data: bytes) -> None:
    with sock:
        sock.sendall(data)
