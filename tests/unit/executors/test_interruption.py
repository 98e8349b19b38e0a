"""An interruption reaches the attempt's own code, or nothing."""

from __future__ import annotations

import threading
import time

import pytest

from longshore.executors.host.context import Cancelled
from longshore.executors.host.interruption import Interruption

ROUNDS = 300


class Attempt:
    """A thread that does what a host's thread does: own code in the middle, harness around it."""

    def __init__(self) -> None:
        self.interruption = Interruption()
        self.is_marked = False
        self.was_stopped = False
        self.has_begun = threading.Event()
        self.escaped: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def mark(self) -> None:
        self.is_marked = True

    def _run(self) -> None:
        try:
            self._attempt()
            for _ in range(2000):
                pass  # the harness: an exception that comes late would be raised here
        except BaseException as error:
            self.escaped = error

    def _attempt(self) -> None:
        try:
            if self.interruption.open():
                self._work()
            self.interruption.close()
        except Cancelled:
            self.interruption.close()

    def _work(self) -> None:
        self.has_begun.set()
        try:
            for _ in range(2000):
                pass
        except Cancelled:
            self.was_stopped = True


def test_it_never_reaches_the_harness_at_whatever_moment_it_is_sent() -> None:
    stopped = 0
    for turn in range(ROUNDS):
        attempt = Attempt()
        attempt.thread.start()
        # Not to wait for anything: to send at a different moment each time.
        time.sleep(0.000002 * (turn % 50))
        attempt.interruption.send(attempt.mark)
        attempt.thread.join()
        assert attempt.escaped is None
        assert attempt.is_marked or not attempt.was_stopped
        stopped += attempt.was_stopped
    assert stopped < ROUNDS


def test_it_stops_code_that_runs() -> None:
    attempt = Attempt()
    attempt._work = lambda: _spin(attempt)  # type: ignore[method-assign]
    attempt.thread.start()
    attempt.has_begun.wait()
    attempt.interruption.send(attempt.mark)
    attempt.thread.join()
    assert attempt.is_marked
    assert attempt.escaped is None


def _spin(attempt: Attempt) -> None:
    attempt.has_begun.set()
    while True:
        pass


def test_an_attempt_that_was_interrupted_before_it_began_does_not_begin() -> None:
    interruption = Interruption()
    marks: list[int] = []
    interruption.send(lambda: marks.append(1))
    assert not interruption.open()
    interruption.close()
    assert marks == [1]


def test_what_has_ended_is_neither_marked_nor_interrupted() -> None:
    interruption = Interruption()
    assert interruption.open()
    interruption.close()
    interruption.send(lambda: pytest.fail("marked"))


def test_the_end_takes_back_what_has_not_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, type[BaseException] | None]] = []
    path = "longshore.executors.host.interruption._raise_in"
    monkeypatch.setattr(path, lambda thread, error: raised.append((thread, error)))
    interruption = Interruption()
    assert interruption.open()
    interruption.send(lambda: None)
    interruption.close()
    me = threading.get_ident()
    assert raised == [(me, Cancelled), (me, None)]


def test_it_is_sent_once() -> None:
    interruption = Interruption()
    marks: list[int] = []
    interruption.send(lambda: marks.append(1))
    interruption.send(lambda: marks.append(2))
    assert marks == [1]
