"""A full worker and client on bare pyzmq and msgpack, written from docs/protocol.md alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any
from uuid import UUID, uuid4

import msgpack  # type: ignore[import-untyped]
import pytest

from longshore.testing.processes import run
from tests.interop.programs.full_client import Refused
from tests.system.conftest import await_true

from .conftest import END_S, PROGRAMS, Harbour, Hold


class Pier:
    """A dispatcher, and a full worker there that was written by hand."""

    def __init__(self, harbour: Harbour, lease_s: float = 1.5) -> None:
        self.harbour = harbour
        self.dispatcher = harbour.dispatcher(lease_s=lease_s)
        self.worker = harbour.full_worker(self.dispatcher)
        self.client = harbour.at(self.dispatcher)
        harbour.await_workers(self.dispatcher, 1)

    def submit(self, kind: str, options: dict[str, Any] | None = None, **args: object) -> UUID:
        """Submits a job; answers its id."""
        return self.client.submit(kind, msgpack.packb(args), **(options or {}))

    def error(self, kind: str, options: dict[str, Any] | None = None, **args: object) -> Any:
        """The error that a job ends with."""
        return self.client.ended(self.submit(kind, options, **args))["error"]

    def hold(self, hold: Hold) -> UUID:
        """Submits a job that has begun when this returns."""
        id = self.submit("hold", started=str(hold.started), until=str(hold.until))
        hold.starts()
        return id

    def ended(self, id: UUID) -> dict[str, Any]:
        """The job as it is shown, once it has succeeded."""
        return self.harbour.ended(self.dispatcher, id)


@pytest.fixture
def pier(harbour: Harbour) -> Pier:
    return Pier(harbour)


def test_jobs_run_fail_and_say_how_far_they_are(pier: Pier, hold: Hold) -> None:
    frontend = pier.dispatcher.facts["frontend"]
    done = run("submit", "double", "n=21", "--wait", "--connect", frontend)
    assert (done.returncode, done.stdout) == (0, "42\n")
    by_hand = [sys.executable, str(PROGRAMS / "full_client.py"), frontend, "double", "n=21"]
    assert subprocess.run(by_hand, capture_output=True, check=True, text=True).stdout == "42\n"
    error = pier.error("explode", {"retry": {"attempts": 2, "backoff_s": 0.01}})
    assert (error["type"], error["message"]) == ("ValueError", "it went off")
    assert "explode" in error["traceback"]
    late = pier.error("hold", {"timeout_s": 0.2}, started=str(hold.started), until="never")
    assert late["reason"] == "timed_out"
    with pytest.raises(Refused, match="no parameter 'm'"):
        pier.submit("double", m=1)
    counted = pier.submit("count", to=3)
    await_true(lambda: pier.ended(counted).get("step") == "counting 3", "the last step")
    assert pier.ended(counted)["progress"]["done"] == 3


def test_a_running_job_is_cancelled(pier: Pier, hold: Hold) -> None:
    id = pier.hold(hold)
    (answer,) = pier.client.ask("CANCEL", id=uuid4().bytes, jobs=[id.bytes])
    assert answer["verdict"] == "cancelling"
    assert pier.client.ended(id)["state"] == "cancelled"


def test_a_running_job_goes_on_while_its_dispatcher_is_killed_and_started_again(
    harbour: Harbour, hold: Hold
) -> None:
    """G8: its result counts, and it was run once."""
    pier = Pier(harbour, lease_s=10)
    id = pier.hold(hold)
    pier.dispatcher.kill()
    again = harbour.again(pier.dispatcher, lease_s=10)
    hold.end()
    assert harbour.ended(again, id)["attempt"] == 1
    assert "moving" in pier.worker.said


def test_a_worker_that_is_cut_off_stops_its_jobs_by_itself(pier: Pier, hold: Hold) -> None:
    """G6: before its lease ends, so before anybody else may start them."""
    id = pier.hold(hold)
    pier.dispatcher.signal(signal.SIGSTOP)
    await_true(lambda: "stopping everything" in pier.worker.said, "it stopped its job", 5.0)
    pier.dispatcher.signal(signal.SIGCONT)
    hold.starts(2)
    hold.end()
    assert pier.ended(id)["attempt"] == 2


def test_a_worker_that_was_given_up_hears_so_and_comes_back_as_another(
    pier: Pier, hold: Hold
) -> None:
    """G2: what it still reports under its old token changes nothing."""
    id = pier.hold(hold)
    pier.worker.process.send_signal(signal.SIGSTOP)
    pier.harbour.await_workers(pier.dispatcher, 0)
    pier.worker.process.send_signal(signal.SIGCONT)
    assert hold.starts(2) == 2
    hold.end()
    job = pier.ended(id)
    assert (job["attempt"], job["crashes"]) == (2, 1)


def test_a_worker_that_is_told_to_leave_finishes_its_job_first(pier: Pier, hold: Hold) -> None:
    id = pier.hold(hold)
    pier.worker.process.terminate()
    hold.end()
    assert pier.worker.process.wait(END_S) == 0
    assert pier.ended(id)["attempt"] == 1
    pier.harbour.await_workers(pier.dispatcher, 0)
