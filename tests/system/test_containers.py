"""Containers as jobs, on a real worker and a real engine: every way in which one can end."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

import longshore
from longshore.errors import InvalidArguments
from longshore.model.job import Job, JobState, Reason
from longshore.model.program import CONTAINER_KIND
from longshore.testing.engine import IMAGE, Engine, Registry
from longshore.testing.processes import Process, await_true, run, settings
from tests.system.conftest import QUICK, QUICK_WORKER, Fleet


class Ship:
    """A dispatcher, a worker with an engine, and a client."""

    def __init__(
        self, fleet: Fleet, engine: Engine, lease_s: float = QUICK["lease_s"], **more: object
    ) -> None:
        self.fleet, self.engine = fleet, engine
        self.dispatcher = fleet.dispatcher(lease_s=lease_s)
        self.worker = self.add_worker(**more)
        self.app = fleet.client(self.dispatcher)

    def add_worker(self, **more: object) -> Process:
        """A worker that runs what submitters choose, on the engine."""
        options = {**QUICK_WORKER, "engine": self.engine.url, "containers": 2, **more}
        words = ["--exec", "--connect", self.dispatcher.facts["backend"]]
        return self.fleet.start("worker", *words, *settings(**options))

    def submit(
        self, script: str, *, options: Mapping[str, Any] | None = None, **more: Any
    ) -> longshore.Handle[Any]:
        """A container that runs a shell script, submitted."""
        args = {"image": IMAGE, "command": ["sh", "-c", script], **more}
        return self.app.submit_by_name(CONTAINER_KIND, args, **(options or {}))

    def ended(self, script: str, **more: Any) -> Job:
        """The job of a container that ran to its end."""
        handle = self.submit(script, **more)
        self.app.wait_all([handle], timeout_s=60)
        return handle.job()

    def told(self, script: str, words: str, **more: Any) -> Job:
        """A job whose history says something before it has ended; it is cancelled then."""
        handle = self.submit(script, **more)
        await_true(lambda: words in str(handle.job().history), words)
        job = handle.job()
        handle.cancel()
        return job

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, asked of the dispatcher."""
        frontend = self.dispatcher.facts["frontend"]
        return run(*words, env={"LONGSHORE_CONNECT": frontend})


@pytest.fixture(scope="module")
def ship(
    engine: Engine, module_sqlite_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ship]:
    """What the tests of this file share that end nothing of it."""
    fleet = Fleet(module_sqlite_url, tmp_path_factory.mktemp("ship"))
    yield Ship(fleet, engine)
    fleet.close()


def test_exit_0_is_a_success_with_the_result_that_the_program_wrote(ship: Ship) -> None:
    job = ship.ended(
        "echo '{\"lines\": 3}' > $LONGSHORE_RESULT; echo 1/2 half > $LONGSHORE_PROGRESS"
    )
    assert job.state is JobState.SUCCEEDED
    assert ship.app.handle(job.id).result() == {"lines": 3}


def test_another_exit_code_is_a_failure_and_never_a_success(ship: Ship) -> None:
    """A defect of the seed: a non-zero code counted as success."""
    job = ship.ended("echo working; echo broken >&2; exit 3")
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert job.error.reason is Reason.EXITED
    assert (job.error.message, job.error.exit_code) == ("container exited with code 3", 3)
    assert sorted(job.error.traceback.splitlines()) == ["broken", "working"]


def test_an_exit_code_with_a_rule_is_tried_again_as_the_rule_says(ship: Ship) -> None:
    script = '[ $LONGSHORE_ATTEMPT = 3 ] || exit 75; echo "$LONGSHORE_ATTEMPT" > $LONGSHORE_RESULT'
    job = ship.ended(script, rules=["exit(75): retry(5)"], options={"backoff_s": 0.01})
    assert (job.state, job.attempt, job.failures) == (JobState.SUCCEEDED, 3, 2)


def test_exit_85_goes_on_later_and_costs_nothing(ship: Ship) -> None:
    job = ship.ended("[ $LONGSHORE_ATTEMPT = 2 ] || exit 85")
    assert (job.state, job.attempt, job.failures) == (JobState.SUCCEEDED, 2, 0)


def test_a_container_that_signals_end_three_times_is_poisonous(ship: Ship) -> None:
    job = ship.ended("sh -c 'kill -SEGV $$'; exit $?")
    assert (job.state, job.crashes) == (JobState.FAILED, 3)
    assert job.error is not None
    assert job.error.reason is Reason.POISONOUS


def test_a_container_out_of_memory_fails_and_a_rule_gives_it_more(ship: Ship) -> None:
    script = "head -c 24000000 /dev/zero | tail -c 24000000 > /dev/null"
    limits = {"memory": "16m"}
    job = ship.ended(script, limits=limits)
    assert job.error is not None
    assert job.error.reason is Reason.OUT_OF_MEMORY
    assert "its limit is 16,777,216 bytes" in job.error.message
    rules = ["oom: retry(3, memory=x4, most=1g)"]
    again = ship.ended(script, limits=limits, rules=rules, options={"backoff_s": 0.01})
    assert (again.state, again.attempt) == (JobState.SUCCEEDED, 2)


def test_a_container_past_its_time_is_killed_and_gone(ship: Ship) -> None:
    job = ship.ended("sleep 600", options={"timeout_s": 0.5})
    assert job.error is not None
    assert job.error.reason is Reason.TIMED_OUT
    assert names(ship, job) == []


def test_a_program_that_is_not_in_the_image_fails_for_good(ship: Ship) -> None:
    job = ship.ended("", command=["no-such-program"], options={"retries": 5})
    assert (job.state, job.attempt) == (JobState.FAILED, 1)
    assert job.error is not None
    assert job.error.reason is Reason.NOT_STARTED


def test_an_image_that_nobody_has_fails_for_good(ship: Ship) -> None:
    with Registry() as registry:
        image = f"{registry.address}/nobody:1"
        job = ship.ended("true", image=image, options={"retries": 5})
    assert (job.state, job.attempt) == (JobState.FAILED, 1)
    assert job.error is not None
    assert job.error.reason is Reason.IMAGE_MISSING
    assert image in job.error.message


def test_a_registry_that_is_down_is_tried_again_and_costs_nothing(ship: Ship) -> None:
    with Registry() as registry:
        image = registry.push(ship.engine, IMAGE, "down:1")
        registry.stop()
        job = ship.told("true", "pull_failed", image=image)
    assert job.failures == 0
    assert any("not the job's fault (pull_failed)" in entry.info for entry in job.history)


def test_a_cancelled_container_is_killed_and_gone(ship: Ship) -> None:
    handle = ship.submit("echo 1 > $LONGSHORE_PROGRESS; trap '' TERM; sleep 600")
    await_true(lambda: handle.job().progress is not None, "it runs")
    handle.cancel()
    ship.app.wait_all([handle], timeout_s=60)
    job = handle.job()
    assert job.state is JobState.CANCELLED
    await_true(lambda: names(ship, job) == [], "it is gone")


def test_what_is_not_possible_is_refused_by_its_name(ship: Ship) -> None:
    for field in ("privileged", "mounts", "volumes", "pid_mode", "cap_add", "devices"):
        with pytest.raises(InvalidArguments, match=f"has no '{field}'"):
            ship.submit("true", options=None, **{field: True})


def test_steps_are_told_in_order_and_the_engines_description_is_kept(ship: Ship) -> None:
    job = ship.ended("echo hello")
    log = json.loads(ship.cli("logs", str(job.number), "--json").stdout)
    steps = [line["text"] for line in log if line["stream"] == "step"]
    assert steps == ["allocated", "creating container", "running", "finished"]
    [described] = [json.loads(line["text"]) for line in log if line["stream"] == "engine"]
    assert described["State"]["ExitCode"] == 0
    assert described["HostConfig"]["NetworkMode"] == "none"
    assert "ExitCode" not in ship.cli("logs", str(job.number)).stdout
    shown = ship.cli("job", str(job.number)).stdout
    timeline = shown.partition("\nsteps\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split("  ")[-1].strip() for line in timeline] == ["STEP", *steps]
    times = [line["at"] for line in log if line["stream"] == "step"]
    assert len(set(times)) == len(steps)
    assert sorted(times) == times


def test_an_input_that_cannot_be_brought_ends_the_attempt_before_it_runs(ship: Ship) -> None:
    job = ship.ended("true", inputs=["nowhere"], options={"retries": 5})
    assert (job.state, job.attempt) == (JobState.FAILED, 1)
    assert job.error is not None
    assert job.error.reason is Reason.INPUT_MISSING
    assert "'nowhere'" in job.error.message
    log = json.loads(ship.cli("logs", str(job.number), "--json").stdout)
    assert [line["text"] for line in log if line["stream"] == "step"] == [
        "allocated",
        "creating container",
        "pulling fileset: nowhere",
        "finished",
    ]
    assert names(ship, job) == []


def test_container_run_shows_the_output_and_ends_as_the_container_does(ship: Ship) -> None:
    done = ship.cli("container", "run", IMAGE, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err\n" in done.stderr
    assert "Config" not in done.stderr


def test_a_worker_without_exec_runs_only_the_containers_of_its_app(
    fleet: Fleet, engine: Engine
) -> None:
    dispatcher = fleet.dispatcher()
    words = ["--app", "lab:app", "--connect", dispatcher.facts["backend"]]
    fleet.start("worker", *words, *settings(**QUICK_WORKER, engine=engine.url))
    app = fleet.client(dispatcher)
    # One argument is one word, whatever is in it: the submitter cannot change what runs.
    name = "Ada'; touch /tmp/x; $(id)"
    assert app.submit_by_name("greet", {"name": name}).result(60) == f"hello {name}"
    chosen = app.submit_by_name(CONTAINER_KIND, {"image": IMAGE, "command": ["true"]})
    assert chosen.job().state is JobState.READY
    assert "--exec" in chosen.why()


# what dies


def test_a_killed_workers_container_is_removed_and_its_job_runs_elsewhere(
    fleet: Fleet, engine: Engine
) -> None:
    ship = Ship(fleet, engine)
    script = "echo 1 > $LONGSHORE_PROGRESS; [ $LONGSHORE_ATTEMPT = 2 ] || sleep 600"
    handle = ship.submit(script)
    await_true(lambda: handle.job().progress is not None, "it runs")
    first = handle.job()
    assert names(ship, first) != []
    ship.worker.kill()
    await_true(lambda: names(ship, first) == [], "its host has removed it")
    ship.add_worker()
    ship.app.wait_all([handle], timeout_s=60)
    job = handle.job()
    assert (job.state, job.attempt, job.crashes) == (JobState.SUCCEEDED, 2, 1)


def test_what_a_killed_worker_and_its_host_left_the_next_one_removes(
    fleet: Fleet, engine: Engine
) -> None:
    ship = Ship(fleet, engine)
    handle = ship.submit("echo 1 > $LONGSHORE_PROGRESS; [ $LONGSHORE_ATTEMPT = 2 ] || sleep 600")
    await_true(lambda: handle.job().progress is not None, "it runs")
    first = handle.job()
    hosts = psutil.Process(ship.worker.pid).children()
    for host in hosts:
        host.suspend()
    ship.worker.kill()
    for host in hosts:
        host.kill()
    assert names(ship, first) != []
    ship.add_worker()
    assert names(ship, first) == []
    ship.app.wait_all([handle], timeout_s=60)
    assert handle.job().state is JobState.SUCCEEDED


def test_a_stale_attempt_changes_nothing(fleet: Fleet, engine: Engine, tmp_path: Path) -> None:
    """A defect of the seed: a revived dead worker wrote over what the new owner had done."""
    ship = Ship(fleet, engine)
    script = "echo 1 > $LONGSHORE_PROGRESS; [ $LONGSHORE_ATTEMPT = 2 ] || sleep 600; exit 0"
    handle = ship.submit(script)
    await_true(lambda: handle.job().progress is not None, "it runs")
    ship.worker.signal(signal.SIGSTOP)
    ship.add_worker()
    ship.app.wait_all([handle], timeout_s=60)
    ended = handle.job()
    ship.worker.signal(signal.SIGCONT)
    await_true(lambda: names(ship, ended, token=1) == [], "the stale one is killed")
    assert handle.job() == ended


def test_an_engine_that_dies_costs_the_job_nothing(fleet: Fleet) -> None:
    with Engine() as engine:
        engine.add_image()
        ship = Ship(fleet, engine)
        handle = ship.submit("echo 1 > $LONGSHORE_PROGRESS; sleep 600")
        await_true(lambda: handle.job().progress is not None, "it runs")
        engine.kill()
        await_true(lambda: "engine_gone" in str(handle.job().history), "it is told")
        job = handle.job()
        assert (job.failures, job.crashes) == (0, 0)
        assert job.state is not JobState.FAILED
        handle.cancel()


def test_an_engine_that_is_not_there_is_said_when_the_worker_starts(
    fleet: Fleet, tmp_path: Path
) -> None:
    backend = fleet.dispatcher().facts["backend"]
    words = settings(engine=f"unix://{tmp_path}/docker.sock")
    done = run("worker", "--exec", "--connect", backend, *words)
    assert done.returncode != 0
    assert "no container engine answers at unix://" in done.stderr


def names(ship: Ship, job: Job, token: int | None = None) -> list[str]:
    """The containers of a job's attempt that the engine still has."""
    return ship.engine.containers(f"name=longshore-{job.id}-{token or job.token}")
