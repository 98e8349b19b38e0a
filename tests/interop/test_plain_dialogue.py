"""Plain workers and clients, as real processes: written from the dialogue's specification alone."""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest
import zmq

from longshore.testing.processes import run
from tests.system.conftest import await_true

from .conftest import Harbour, Hold

LANGUAGES = ["python", "c"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_jobs_flow_between_a_plain_client_and_a_plain_worker(
    harbour: Harbour, language: str
) -> None:
    dispatcher = harbour.dispatcher()
    harbour.plain_worker(language, dispatcher)
    answers = harbour.ask(dispatcher, "hello", "say READY", "say ", "x" * 100_000, "say PONG", "ü")
    assert answers == [["HELLO"], ["READY"], [""], ["X" * 100_000], ["PONG"], [answers[5][0]]]
    connect = ["--connect", dispatcher.facts["frontend"]]
    done = run("submit", "raw", "--data", "by command", "--wait", *connect)
    assert (done.returncode, done.stdout) == (0, "BY COMMAND")


def test_workers_of_all_kinds_share_one_socket(postgres_harbour: Harbour) -> None:
    harbour = postgres_harbour
    dispatcher = harbour.dispatcher()
    for language in LANGUAGES:
        harbour.plain_worker(language, dispatcher)
    harbour.worker(dispatcher)
    connect = ["--connect", dispatcher.facts["frontend"]]
    done = run("submit", "add", "a=2", "b=3", "--wait", *connect)
    assert (done.returncode, done.stdout) == (0, "5\n")
    assert harbour.ask(dispatcher, *["hello"] * 20) == [["HELLO"]] * 20
    harbour.await_workers(dispatcher, 3)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_job_of_a_killed_worker_is_run_by_another_within_seconds(
    harbour: Harbour, language: str, hold: Hold
) -> None:
    dispatcher = harbour.dispatcher()
    first = harbour.plain_worker(language, dispatcher)
    id = harbour.submit(dispatcher, hold.job)
    assert hold.starts() == first.pid
    second = harbour.plain_worker("python", dispatcher)
    harbour.await_workers(dispatcher, 2)
    first.kill()
    assert hold.starts(2, within_s=5.0) == second.pid
    hold.end()
    job = harbour.ended(dispatcher, id)
    assert (job["attempt"], job["crashes"]) == (2, 1)


def test_the_job_of_a_frozen_worker_is_run_by_another_and_its_late_result_is_refused(
    harbour: Harbour, hold: Hold
) -> None:
    """ZeroMQ's own heartbeats notice it: its connection is open, but nobody answers."""
    dispatcher = harbour.dispatcher()
    first = harbour.plain_worker("c", dispatcher)
    id = harbour.submit(dispatcher, hold.job)
    assert hold.starts() == first.pid
    os.kill(first.pid, signal.SIGSTOP)
    second = harbour.plain_worker("python", dispatcher)
    assert hold.starts(2, within_s=10.0) == second.pid
    hold.end()
    assert harbour.ended(dispatcher, id)["attempt"] == 2
    os.kill(first.pid, signal.SIGCONT)
    harbour.await_workers(dispatcher, 2)
    assert harbour.ask(dispatcher, "a", "b", "c") == [["A"], ["B"], ["C"]]
    assert harbour.ended(dispatcher, id)["attempt"] == 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_restarted_worker_that_named_itself_has_its_job_run_again(
    harbour: Harbour, language: str, hold: Hold
) -> None:
    dispatcher = harbour.dispatcher(plain_probe_s=60)
    first = harbour.plain_worker(language, dispatcher, name="press-3")
    id = harbour.submit(dispatcher, hold.job)
    assert hold.starts() == first.pid
    first.kill()
    again = harbour.plain_worker(language, dispatcher, name="press-3")
    assert hold.starts(2) == again.pid
    hold.end()
    assert harbour.ended(dispatcher, id)["crashes"] == 1
    assert harbour.workers(dispatcher) == [f"plain-{b'press-3'.hex()}"]


def test_workers_go_on_after_their_dispatcher_was_killed_and_started_again(
    harbour: Harbour,
) -> None:
    dispatcher = harbour.dispatcher()
    workers = [harbour.plain_worker(language, dispatcher) for language in LANGUAGES]
    harbour.await_workers(dispatcher, 2)
    dispatcher.kill()
    await_true(lambda: all("reconnecting" in worker.said for worker in workers), "they noticed")
    again = harbour.again(dispatcher)
    assert harbour.ask(again, "hello", "world") == [["HELLO"], ["WORLD"]]


def test_a_job_accepted_before_every_process_died_is_run_afterwards(
    harbour: Harbour, hold: Hold
) -> None:
    """G1: a raw job is as durable as any."""
    dispatcher = harbour.dispatcher()
    worker = harbour.plain_worker("c", dispatcher)
    id = harbour.submit(dispatcher, hold.job)
    hold.starts()
    worker.kill()
    dispatcher.kill()
    again = harbour.again(dispatcher, lease_s=0.5)
    harbour.plain_worker("python", again)
    hold.starts(2)
    hold.end()
    harbour.ended(again, id)


def test_a_dispatcher_that_stops_hands_the_jobs_of_its_plain_workers_back(
    harbour: Harbour, hold: Hold
) -> None:
    dispatcher = harbour.dispatcher()
    harbour.plain_worker("python", dispatcher)
    id = harbour.submit(dispatcher, hold.job)
    hold.starts()
    assert dispatcher.terminate() == 0
    hold.end()
    job = harbour.ended(harbour.again(dispatcher), id)
    assert (job["attempt"], job["crashes"]) == (2, 0)


def test_strangers_change_nothing(harbour: Harbour) -> None:
    dispatcher = harbour.dispatcher()
    harbour.plain_worker("python", dispatcher)
    harbour.await_workers(dispatcher, 1)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    junk: list[list[bytes]] = [
        [b""],
        [b"", b""],
        [b"", b"result of nothing"],
        [b"", b"PONG"],
        [b"READY"],
        [b"x", b"READY"],
        [b"", b"READY", b""],
        [b"", b"READY", b"\xc1"],
        [b"", b"DONE", b"\x81\xa7reports\x90"],
        [b"", b"NONSENSE", b"\x80"],
        [b""] * 300,
        [os.urandom(100) for _ in range(5)],
    ]
    stranger = context.socket(zmq.DEALER)
    stranger.connect(dispatcher.facts["backend"])
    for frames in junk:
        stranger.send_multipart(frames)
    host, _, port = dispatcher.facts["backend"].removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(os.urandom(1000))
    assert harbour.ask(dispatcher, "hello") == [["HELLO"]]
    assert len(harbour.workers(dispatcher)) == 1
    assert not stranger.poll(0)
    context.destroy(linger=0)


def test_a_plain_client_may_be_a_dealer_with_many_jobs_under_way(harbour: Harbour) -> None:
    dispatcher = harbour.dispatcher()
    for language in LANGUAGES:
        harbour.plain_worker(language, dispatcher)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    client = context.socket(zmq.DEALER)
    client.rcvtimeo = 30_000
    client.connect(dispatcher.facts["frontend"])
    for number in range(100):
        client.send_multipart([b"", b"say %d" % number])
    answers = [client.recv_multipart() for _ in range(100)]
    assert sorted(answers) == sorted([b"", b"%d" % number] for number in range(100))
    context.destroy(linger=0)


def test_a_job_without_a_result_answers_with_an_error(harbour: Harbour) -> None:
    dispatcher = harbour.dispatcher(max_value_bytes=100)
    harbour.plain_worker("python", dispatcher)
    answers = harbour.ask(dispatcher, "x" * 101, "PONG", "short")
    assert [answer[0] for answer in answers] == ["ERROR", "ERROR", "SHORT"]
    assert [json.loads(answer[1])["reason"] for answer in answers[:2]] == [
        "too_large",
        "invalid_input",
    ]
