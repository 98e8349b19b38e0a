"""Declared programs in a test kit: a command really runs."""

from __future__ import annotations

import subprocess

import pytest

import longshore
from longshore.errors import JobFailed
from longshore.testing import run_inline

app = longshore.App("harbour")
count = app.command("count", ["sh", "-c", 'wc -w > "$LONGSHORE_RESULT"'], stdin="{text}")
ends = app.command("ends", ["sh", "-c", "echo why; exit {code}"], on=longshore.exit(75).retry(2))
waits = app.command("waits", ["sleep", "600"], timeout_s=0.2)
boxed = app.container("boxed", image="busybox")


@app.job
async def double(number: int) -> int:
    return number * 2


def test_a_declared_command_runs_and_its_result_is_that_of_the_job() -> None:
    with run_inline(app) as kit:
        handle = count.submit(text="one two three")
        assert kit.drain() == 1
        assert handle.result() == 3


async def test_it_runs_in_an_asynchronous_test_too() -> None:
    with run_inline(app) as kit:
        handle = await count.submit_async(text="one two")
        await kit.drain_async()
        assert await handle.result_async() == 2


def test_its_failure_has_the_exit_code_and_the_last_lines() -> None:
    with run_inline(app) as kit:
        handle = ends.submit(code=3)
        kit.drain()
        with pytest.raises(JobFailed, match="exited with code 3"):
            handle.result()
        error = handle.job().error
        assert error is not None
        assert (error.exit_code, error.traceback) == (3, "why")


def test_its_rules_hold() -> None:
    with run_inline(app) as kit:
        handle = ends.submit(code=75)
        assert kit.drain() == 3
        assert handle.job().attempt == 3


def test_its_timeout_holds_and_other_processes_of_the_test_are_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"]) as other, run_inline(app) as kit:
        handle = waits.submit()
        kit.drain()
        assert handle.job().error is not None
        assert str(handle.job().error).count("took longer than its timeout of 0.2 s") == 1
        assert other.poll() is None
        other.kill()


def test_results_of_other_jobs_are_arguments_of_commands_in_a_group() -> None:
    with run_inline(app) as kit:
        with app.group("words") as group:
            first = group.add(count.call(text="one two three four"))
            second = group.add(double.call(number=first.result))
            last = group.add(count.call(text=second.result), key="last")
        kit.drain()
        assert group.handle.result("last") == 1
        assert last.key == "last"


def test_a_container_says_that_it_needs_a_worker() -> None:
    with run_inline(app) as kit:
        handle = boxed.submit()
        kit.drain()
        with pytest.raises(JobFailed, match="a test kit runs no containers"):
            handle.result()
