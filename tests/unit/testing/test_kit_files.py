"""Commands with files in a test kit: what they read, what they make, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import longshore
from longshore.errors import InvalidInput, JobFailed, NotFound
from longshore.model.job import Reason
from longshore.testing import run_inline

app = longshore.App("mill")
total = app.command(
    "total",
    ["sh", "-c", "mkdir out; cat in/*.csv | sort > out/all; echo spoilt | tee in/*.csv"],
    inputs=[{"fileset": "{table}", "patterns": ["**/*.csv"], "path": "in"}],
    outputs=[{"fileset": "totals", "patterns": ["out/"]}],
)
wrong = app.command(
    "wrong",
    ["sh", "-c", "echo half > log; exit 3"],
    outputs=[{"fileset": "logs", "on": "always"}, {"fileset": "never"}],
)
lazy = app.command("lazy", ["true"], outputs=[{"fileset": "made", "patterns": ["*.txt"]}])
later = app.command(
    "later",
    ["cp", "in/out/all", "copy"],
    inputs=[{"from": "make", "path": "in"}],
    outputs=[{"fileset": "copies", "patterns": ["copy"]}],
)
steps = app.command(
    "steps",
    ["sh", "-c", "echo $LONGSHORE_ATTEMPT >> seen; [ $LONGSHORE_ATTEMPT = 3 ] || exit 85"],
    outputs=["seen"],
    checkpoint=["seen"],
)


def test_a_command_reads_a_version_and_makes_another() -> None:
    with run_inline(app) as kit:
        assert kit.filesets.push("may", {"a.csv": "3\n", "deep/b.csv": b"1\n", "notes": "-"}) == 1
        assert kit.filesets.push("may", {"a.csv": "5\n"}) == 2
        first, newest = total.submit(table="may@1"), total.submit(table="may")
        kit.drain()
        assert (first.status(), newest.status()) == ("failed", "succeeded"), "@ is part of a name"
        assert kit.filesets.pull("totals") == {"out/all": b"5\n"}
        assert kit.filesets.pull("may") == {"a.csv": b"5\n"}, "a job has a copy"


async def test_it_does_in_an_asynchronous_test_too() -> None:
    with run_inline(app) as kit:
        kit.filesets.push("may", {"a.csv": "3\n"})
        handle = await total.submit_async(table="may")
        await kit.drain_async()
        assert (await handle.status_async()) == "succeeded"
        assert kit.filesets.pull("totals", 1) == {"out/all": b"3\n"}


def test_a_folder_can_be_pushed(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("true")
    with run_inline(app) as kit:
        kit.filesets.push("tools", tmp_path)
        assert kit.filesets.pull("tools") == {"run.sh": b"true"}
        (tmp_path / "link").symlink_to("run.sh")
        with pytest.raises(InvalidInput, match="fileset 'tools': 'link' is a link"):
            kit.filesets.push("tools", tmp_path)


def test_inputs_that_are_not_there_fail_as_on_a_worker() -> None:
    with run_inline(app) as kit:
        kit.filesets.push("may", {"notes": "-"})
        handles = total.submit(table="june"), total.submit(table="may")
        kit.drain()
        for handle, words in zip(handles, ("kit.filesets.push", "nothing matches"), strict=True):
            with pytest.raises(JobFailed, match=words):
                handle.result()
            error = handle.job().error
            assert error is not None
            assert error.reason is Reason.INPUT_MISSING


def test_outputs_are_published_as_a_worker_would() -> None:
    with run_inline(app) as kit:
        failed, missing = wrong.submit(), lazy.submit()
        kit.drain()
        assert kit.filesets.pull("logs", 1) == {"log": b"half\n"}
        with pytest.raises(NotFound, match="no version of a fileset"):
            kit.filesets.pull("logs")  # the newest that is not partial
        with pytest.raises(NotFound):
            kit.filesets.pull("never", 1)
        assert failed.status() == "failed"
        error = missing.job().error
        assert error is not None
        assert error.reason is Reason.OUTPUT_MISSING
        assert "*.txt" in error.message


def test_checkpoints_are_there_at_the_next_attempt() -> None:
    with run_inline(app) as kit:
        handle = steps.submit()
        kit.drain()
        assert handle.status() == "succeeded"
        assert kit.filesets.pull("seen") == {"seen": b"1\n2\n3\n"}


def test_files_go_from_job_to_job_in_a_group() -> None:
    with run_inline(app) as kit:
        kit.filesets.push("may", {"a.csv": "3\n"})
        with app.group("tables") as group:
            group.add(total.call(table="may"), key="make")
            group.add(later.call(), key="use", after="make")
        kit.filesets.push("totals", {"out/all": "pushed by hand"})
        kit.drain()
        assert group.handle.wait() == "succeeded"
        assert kit.filesets.pull("copies") == {"copy": b"3\n"}


def test_names_that_no_fileset_can_have_are_refused() -> None:
    with run_inline(app) as kit:
        for name, files in (("../x", {"a": ""}), ("x", {"../a": ""})):
            with pytest.raises(InvalidInput):
                kit.filesets.push(name, files)
