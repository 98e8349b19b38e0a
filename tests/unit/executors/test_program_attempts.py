"""The story of an attempt at a program, where files are concerned."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from longshore.core.outcomes import parse_rule
from longshore.executors.host.programs import attempt as story
from longshore.executors.host.programs.attempt import Means, attempt
from longshore.executors.host.programs.command import CommandRunner
from longshore.executors.host.programs.folders import FolderKeeper
from longshore.executors.output.attempt_log import AttemptLog
from longshore.model.attempt import Assignment, HeldDevices
from longshore.model.checkpoint import CheckpointView
from longshore.model.fileset import NewVersion
from longshore.model.job import LogKind, Reason
from longshore.model.log import LogLimits, unpack_line
from longshore.model.program import Command, Input, Limits, Outcome, Output, PublishOn
from longshore.model.reports import (
    CrashReport,
    FailureReport,
    Report,
    SkipReport,
    SnoozeReport,
    SuccessReport,
)
from longshore.payload.values import unpack
from longshore.ports.files import FilesFailed, OnProgress, Saving

COPY = ("sh", "-c", "cat in/name > out; exit $(cat in/code)")


class Shelf:
    """Files (see `ports.files.Files`) that are one folder; an outcome may be set for each step."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.fails: dict[str, Outcome] = {}
        self.full: set[str] = set()
        self.taken: list[tuple[str, str]] = []
        self.kept: dict[str, str] = {}
        self.saves: list[int] = []

    async def bring(self, ticket: str, wanted: Input, into: Path, on_progress: OnProgress) -> None:
        """Puts two files there."""
        self._perhaps("bring")
        on_progress(1, 2)
        there = into / wanted.path
        there.mkdir()
        (there / "name").write_text(f"{wanted.fileset} {ticket}")
        (there / "code").write_text(str(self.code))

    async def take(
        self, ticket: str, made: Output, found_in: Path, on_progress: OnProgress
    ) -> NewVersion:
        """Reads what the program left."""
        self._perhaps("take")
        self.taken.append((made.fileset, (found_in / "out").read_text()))
        return NewVersion(made.fileset, b"m", 1, 2)

    async def restore(self, ticket: str, into: Path, on_progress: OnProgress) -> int | None:
        """Puts back what was saved last."""
        self._perhaps("restore")
        for name, text in self.kept.items():
            (into / name).write_text(text)
        return len(self.kept) or None

    async def save(
        self, ticket: str, saved: Saving, found_in: Path, on_progress: OnProgress
    ) -> CheckpointView:
        """Keeps what the program left."""
        self._perhaps("save")
        names = [name for name in saved.patterns if (found_in / name).exists()]
        self.kept = {name: (found_in / name).read_text() for name in names}
        self.saves.append(saved.sequence)
        return CheckpointView(files=len(names), total_bytes=0, saved_at=datetime.now(UTC))

    def _perhaps(self, step: str) -> None:
        if step in self.full:
            raise OSError(28, "No space left on device")
        if step in self.fails:
            raise FilesFailed(self.fails[step], f"fileset 'x' {self.fails[step]}")


async def run(shelf: Shelf, on: PublishOn = PublishOn.SUCCESS) -> tuple[Report, list[str]]:
    """The report of a command with an input and an output, and its steps."""
    assignment = Assignment(uuid4(), 7, 1, "copy", b"", ticket="t")
    log = AttemptLog(assignment.job, 7, lambda log: None)
    inputs, outputs = (Input("photos", path="in"),), (Output("small", on=on),)
    command = Command(argv=COPY, inputs=inputs, outputs=outputs)
    runner = CommandRunner(1.0, is_alone=False)
    await runner.open()
    report = await attempt(
        assignment, command, log, Means(runner, shelf, FolderKeeper(0), LogLimits())
    )
    return report, [unpack_line(one.data).text for one in log.take() if one.kind is LogKind.STEP]


async def test_inputs_are_there_before_and_outputs_are_taken_after_the_run() -> None:
    report, steps = await run(shelf := Shelf())
    assert isinstance(report, SuccessReport)
    assert report.versions == (NewVersion("small", b"m", 1, 2),)
    assert shelf.taken == [("small", "photos t")]
    assert steps == [
        "allocated",
        "pulling fileset: photos",
        "running",
        "pushing fileset: small",
        "finished",
    ]


@pytest.mark.parametrize(
    ("code", "on", "is_taken"),
    [
        (0, PublishOn.FAILURE, False),
        (0, PublishOn.ALWAYS, True),
        (3, PublishOn.SUCCESS, False),
        (3, PublishOn.FAILURE, True),
        (3, PublishOn.ALWAYS, True),
    ],
)
async def test_outputs_are_published_after_the_ends_that_they_are_for(
    code: int, on: PublishOn, is_taken: bool
) -> None:
    report, _ = await run(shelf := Shelf(code), on)
    assert isinstance(report, SuccessReport | FailureReport)
    assert bool(shelf.taken) == is_taken
    assert [version.partial for version in report.versions] == [code != 0] * is_taken


async def ended(
    command: Command,
    shelf: Shelf,
    timeout_s: float | None = None,
    devices: tuple[HeldDevices, ...] = (),
) -> Report:
    """The report of a command without inputs."""
    assignment = Assignment(
        uuid4(), 7, 1, "work", b"", timeout_s=timeout_s, ticket="t", devices=devices
    )
    log = AttemptLog(assignment.job, 7, lambda log: None)
    runner = CommandRunner(1.0, is_alone=False)
    await runner.open()
    means = Means(runner, shelf, FolderKeeper(0), LogLimits())
    return await attempt(assignment, command, log, means)


@pytest.mark.parametrize("on", [PublishOn.FAILURE, PublishOn.ALWAYS])
async def test_what_a_crash_a_timeout_and_too_much_memory_leave_is_taken(on: PublishOn) -> None:
    grown = "import time; a = b'x' * 200_000_000; time.sleep(600)"
    script = "echo half > out; "
    stories = [
        (script + "kill -SEGV $$", None, None, Reason.CRASHED),
        (script + "sleep 600", None, 0.3, Reason.TIMED_OUT),
        (f'{script} exec {sys.executable} -c "{grown}"', 64 << 20, None, Reason.OUT_OF_MEMORY),
    ]
    for text, memory, timeout_s, reason in stories:
        limits = Limits(memory_bytes=memory)
        outputs = (Output("small", on=on),)
        command = Command(argv=("sh", "-c", text), limits=limits, outputs=outputs)
        report = await ended(command, shelf := Shelf(), timeout_s)
        assert isinstance(report, FailureReport | CrashReport)
        assert report.error.reason is reason
        assert shelf.taken == [("small", "half\n")]
        assert [(one.fileset, one.partial) for one in report.versions] == [("small", True)]


@pytest.mark.parametrize(
    ("on", "is_taken"),
    [(PublishOn.SUCCESS, False), (PublishOn.FAILURE, False), (PublishOn.ALWAYS, True)],
)
async def test_of_a_skip_only_what_is_always_published_is_taken(
    on: PublishOn, is_taken: bool
) -> None:
    rules = (parse_rule("exit(3): skip"),)
    argv = ("sh", "-c", "echo half > out; exit 3")
    command = Command(argv=argv, rules=rules, outputs=(Output("small", on=on),))
    report = await ended(command, shelf := Shelf())
    assert isinstance(report, SkipReport)
    assert bool(shelf.taken) == is_taken
    assert [version.partial for version in report.versions] == [True] * is_taken


async def test_a_program_is_told_which_devices_it_has() -> None:
    words = '"$LONGSHORE_DEVICE_GPU $CUDA_VISIBLE_DEVICES $LONGSHORE_DEVICE_PAGE_PRESS"'
    command = Command(argv=("sh", "-c", f"printf '\"%s\"' {words} > $LONGSHORE_RESULT"))
    devices = (HeldDevices("gpu", (0, 2)), HeldDevices("page-press", (1,)))
    report = await ended(command, Shelf(), devices=devices)
    assert isinstance(report, SuccessReport)
    assert unpack(report.result or b"") == "0,2 0,2 1"


async def test_what_is_tried_again_at_no_cost_uploads_nothing() -> None:
    rules = (parse_rule("signal: retry_free"),)
    argv = ("sh", "-c", "echo half > out; kill -SEGV $$")
    outputs = (Output("small", on=PublishOn.ALWAYS),)
    command = Command(argv=argv, rules=rules, outputs=outputs)
    report = await ended(command, shelf := Shelf())
    assert isinstance(report, SnoozeReport)
    assert shelf.taken == []


@pytest.mark.parametrize(
    ("step", "outcome", "reason"),
    [
        ("bring", Outcome.INPUT_MISSING, Reason.INPUT_MISSING),
        ("take", Outcome.OUTPUT_MISSING, Reason.OUTPUT_MISSING),
        ("take", Outcome.OUTPUT_REFUSED, Reason.OUTPUT_REFUSED),
    ],
)
async def test_files_that_cannot_be_had_end_the_attempt_with_their_own_reason(
    step: str, outcome: Outcome, reason: Reason
) -> None:
    shelf = Shelf()
    shelf.fails[step] = outcome
    report, steps = await run(shelf)
    assert isinstance(report, FailureReport)
    assert (report.error.reason, report.versions) == (reason, ())
    assert ("running" in steps) == (step == "take")
    assert steps[-1] == "finished"


@pytest.mark.parametrize("step", ["bring", "take"])
async def test_a_broken_transfer_or_a_full_disk_costs_the_job_nothing(step: str) -> None:
    broken, full = Shelf(), Shelf()
    broken.fails[step] = Outcome.TRANSFER_FAILED
    full.full.add(step)
    for shelf, words in ((broken, "transfer_failed"), (full, "disk_full")):
        report, _ = await run(shelf)
        assert isinstance(report, SnoozeReport)
        assert f"not the job's fault ({words})" in report.note


async def test_what_went_wrong_first_is_what_the_error_says() -> None:
    shelf = Shelf(code=3)
    shelf.fails["take"] = Outcome.OUTPUT_MISSING
    report, _ = await run(shelf, PublishOn.ALWAYS)
    assert isinstance(report, FailureReport)
    assert report.error.exit_code == 3
    assert "output_missing" in report.error.traceback


async def test_a_program_whose_files_take_long_tells_when_it_really_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(story, "LATE_S", 0.0)
    begun: list[int] = []
    assignment = Assignment(uuid4(), 7, 1, "true", b"")
    runner = CommandRunner(1.0, is_alone=False)
    await runner.open()
    means = Means(runner, Shelf(), FolderKeeper(0), LogLimits(), on_begun=begun.append)
    log = AttemptLog(assignment.job, 7, lambda log: None)
    await attempt(assignment, Command(argv=("true",)), log, means)
    assert begun == [7]


# checkpoints


async def step_by_step(shelf: Shelf, script: str) -> tuple[Report, list[str]]:
    """The report of a command whose checkpoint is the file `at`, and its steps."""
    assignment = Assignment(uuid4(), 7, 1, "count", b"", ticket="t")
    log = AttemptLog(assignment.job, 7, lambda log: None)
    command = Command(argv=("sh", "-c", script), checkpoint=("at",))
    runner = CommandRunner(1.0, is_alone=False)
    await runner.open()
    means = Means(runner, shelf, FolderKeeper(0), LogLimits())
    report = await attempt(assignment, command, log, means)
    return report, [unpack_line(one.data).text for one in log.take() if one.kind is LogKind.STEP]


async def test_exit_85_saves_what_the_next_attempt_begins_with() -> None:
    shelf = Shelf()
    script = "echo x >> at; test $(wc -l < at) -ge 2 || exit 85"
    first, steps = await step_by_step(shelf, script)
    assert isinstance(first, SnoozeReport)
    assert "from its checkpoint (1 files)" in first.note
    assert steps == [
        "allocated",
        "restoring checkpoint",
        "running",
        "saving checkpoint",
        "finished",
    ]
    assert shelf.kept == {"at": "x\n"}
    second, _ = await step_by_step(shelf, script)
    assert isinstance(second, SuccessReport)


async def test_program_may_ask_while_it_runs_and_waits_until_it_is_saved() -> None:
    script = """for n in 1 2; do
        echo $n > at; : > $LONGSHORE_CHECKPOINT
        while [ -e $LONGSHORE_CHECKPOINT ]; do sleep 0.02; done
    done; echo lost > at; kill -9 $$"""
    report, steps = await step_by_step(shelf := Shelf(), script)
    assert isinstance(report, CrashReport)
    assert (shelf.kept, shelf.saves) == ({"at": "2\n"}, [1, 2])
    assert steps.count("saving checkpoint") == 2


async def test_checkpoint_that_cannot_be_saved_is_told_and_never_hangs_the_program() -> None:
    shelf = Shelf()
    shelf.fails["save"] = Outcome.OUTPUT_MISSING
    script = """: > $LONGSHORE_CHECKPOINT
        while [ -e $LONGSHORE_CHECKPOINT ]; do sleep 0.02; done; exit 3"""
    report, _ = await step_by_step(shelf, script)
    assert isinstance(report, FailureReport)
    assert report.error.exit_code == 3
    assert "no checkpoint was saved" in report.error.traceback


@pytest.mark.parametrize(
    ("step", "reason"), [("restore", "input_missing"), ("save", "output_missing")]
)
async def test_checkpoint_that_is_lost_or_missing_ends_the_attempt(step: str, reason: str) -> None:
    shelf = Shelf()
    shelf.fails[step] = Outcome(reason)
    report, _ = await step_by_step(shelf, "exit 85")
    assert isinstance(report, FailureReport)
    assert report.error.reason == reason
