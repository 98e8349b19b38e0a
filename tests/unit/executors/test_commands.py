"""Commands as jobs: how they run, what they say, how they end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from longshore.model.job import LogKind, Progress, Reason
from longshore.model.log import LogLimits, unpack_line
from longshore.model.program import COMMAND_KIND
from longshore.model.reports import CrashReport, Report, SkipReport, SnoozeReport

from .stand import Stand, error_of, failure_in, result_of


async def run(stand: Stand, *argv: str, timeout_s: float | None = None, **more: Any) -> Report:
    """The report of a command."""
    return await stand.run(COMMAND_KIND, argv=list(argv), timeout_s=timeout_s, **more)


@pytest.fixture
async def commands(stand: Stand) -> Stand:
    """A stand that runs the commands of submitters."""
    await stand.open_command()
    return stand


def printed(stand: Stand, stream: str) -> list[str]:
    """The lines that commands printed on a stream."""
    lines = [unpack_line(entry.data) for entry in stand.logs if entry.kind is LogKind.TEXT]
    return [line.text for line in lines if line.stream == stream]


def steps(stand: Stand) -> list[str]:
    """The steps that were told, in order."""
    steps = [entry for entry in stand.logs if entry.kind is LogKind.STEP]
    return [unpack_line(entry.data).text for entry in steps]


async def test_a_command_that_exits_with_0_succeeds_without_a_result(commands: Stand) -> None:
    assert result_of(await run(commands, "true")) is None


async def test_output_is_kept_by_stream_and_steps_are_told_in_order(commands: Stand) -> None:
    await run(commands, "sh", "-c", "echo out; echo err >&2; sleep 0.2; printf tail")
    assert printed(commands, "stdout") == ["out", "tail"]
    assert printed(commands, "stderr") == ["err"]
    assert steps(commands) == ["allocated", "running", "finished"]


async def test_another_exit_code_is_a_failure_with_the_last_lines(commands: Stand) -> None:
    report = failure_in(await run(commands, "sh", "-c", "seq 30; echo no >&2; exit 3"))
    error = report.error
    assert (error.reason, error.message, error.exit_code) == (
        Reason.EXITED,
        "exited with code 3",
        3,
    )
    assert error.traceback.splitlines() == [*map(str, range(12, 31)), "no"]
    assert not report.final


async def test_a_command_that_a_signal_ends_has_crashed(commands: Stand) -> None:
    report = await run(commands, "sh", "-c", "kill -SEGV $$")
    assert isinstance(report, CrashReport)
    assert error_of(report).message == "was killed by signal 11 (SIGSEGV)"


async def test_a_program_that_is_not_there_fails_for_good_and_is_named(commands: Stand) -> None:
    report = failure_in(await run(commands, "no-such-program", "x"))
    assert report.final
    assert report.error.reason is Reason.NOT_STARTED
    assert report.error.message == (
        "'no-such-program' cannot be started: there is no such program in PATH"
    )


# what it is given


async def test_a_command_reads_its_stdin_and_runs_in_an_empty_folder(commands: Stand) -> None:
    report = await run(commands, "sh", "-c", "wc -m; pwd; ls -A | wc -l", stdin="é" * 200_000)
    assert result_of(report) is None
    read, folder, files = printed(commands, "stdout")
    assert (int(read), files) == (200_000, "0")
    assert folder.endswith("/work")


async def test_a_command_can_run_below_its_folder_if_that_is_there(commands: Stand) -> None:
    report = failure_in(await run(commands, "pwd", folder="not/there"))
    assert "No such file or directory" in report.error.message


async def test_arguments_reach_a_command_as_they_are(commands: Stand) -> None:
    odd = ["a b", "*", "$HOME", "'\"", "", "é\n"]
    await run(commands, "python3", "-c", "import sys; print(sys.argv[1:])", *odd)
    assert printed(commands, "stdout") == [repr(odd)]


async def test_a_command_has_the_workers_environment_without_its_settings(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARBOUR", "Riga")
    monkeypatch.setenv("LONGSHORE_STORE", "postgresql://secret")
    monkeypatch.setenv("LONGSHORE_CONNECT", "tcp://127.0.0.1:1")
    await stand.open_command()
    assignment = stand.start(COMMAND_KIND, argv=["env"], env={"LEVEL": "3", "HARBOUR": "Visby"})
    await stand.report_of(assignment)
    found = dict(line.split("=", 1) for line in printed(stand, "stdout"))
    assert (found["LEVEL"], found["HARBOUR"]) == ("3", "Visby")
    assert found["LONGSHORE_CONNECT"] == "tcp://127.0.0.1:1"
    assert "LONGSHORE_STORE" not in found
    assert found["LONGSHORE_JOB"] == str(assignment.job)
    assert found["LONGSHORE_TOKEN"] == str(assignment.token)
    assert found["LONGSHORE_ATTEMPT"] == "1"


async def test_a_program_is_looked_for_on_its_own_path(commands: Stand, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    await run(commands, "tool", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert printed(commands, "stdout") == ["mine"]


async def test_secrets_are_files_of_its_own_and_never_told(stand: Stand, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    await stand.open_command(secrets=str(tmp_path))
    script = 'stat -c %a "$LONGSHORE_SECRETS/password"; wc -c < "$LONGSHORE_SECRETS/password"'
    await run(stand, "sh", "-c", script, secrets=["password"])
    assert printed(stand, "stdout") == ["400", "7"]
    assert not any(b"hunter2" in entry.data for entry in stand.logs)


@pytest.mark.parametrize(
    ("name", "words"),
    [("other", "has no such file"), ("../password", "names of secrets have letters")],
)
async def test_a_secret_that_is_not_there_ends_the_job_before_it_begins(
    stand: Stand, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "password").write_text("hunter2")
    await stand.open_command(secrets=str(tmp_path / "kept"))
    report = failure_in(await run(stand, "true", secrets=[name]))
    assert report.final
    assert report.error.reason is Reason.NOT_STARTED
    assert words in report.error.message


# what it reports


async def test_the_json_in_its_result_file_is_the_result(commands: Stand) -> None:
    script = 'echo \'{"lines": 3, "of": ["a"]}\' > "$LONGSHORE_RESULT"'
    assert result_of(await run(commands, "sh", "-c", script)) == {"lines": 3, "of": ["a"]}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('echo hello > "$LONGSHORE_RESULT"', "the file LONGSHORE_RESULT is not JSON"),
        ('ln -s /etc/passwd "$LONGSHORE_RESULT"', "cannot be read"),
        ('mkfifo "$LONGSHORE_RESULT"', "cannot be read"),
        ('mkdir "$LONGSHORE_RESULT"', "cannot be read"),
        ('truncate -s 1T "$LONGSHORE_RESULT"', "has more than 16,777,216 bytes"),
        ('python3 -c "print([0]*2000000)" > "$LONGSHORE_RESULT"', "1,048,576"),
    ],
)
async def test_a_result_file_that_holds_no_result_fails_the_job(
    commands: Stand, script: str, words: str
) -> None:
    report = failure_in(await run(commands, "sh", "-c", script))
    assert report.error.reason is Reason.INVALID_RESULT
    assert words in report.error.message


async def test_lines_in_its_progress_file_are_progress(commands: Stand) -> None:
    script = (
        'echo "1/4 first" > "$LONGSHORE_PROGRESS"; while [ ! -e go ]; do sleep 0.01; done;'
        'echo nonsense >> "$LONGSHORE_PROGRESS"; printf 4/4 >> "$LONGSHORE_PROGRESS"; pwd'
    )
    assignment = commands.start(COMMAND_KIND, argv=["sh", "-c", f"pwd; {script}"])
    assert await commands.progress_of(assignment, 1) == Progress(1.0, 4.0, "first")
    (folder,) = printed(commands, "stdout")
    touch(Path(folder, "go"))
    await commands.report_of(assignment)
    assert await commands.progress_of(assignment, 4) == Progress(4.0, 4.0, "")


def touch(path: Path) -> None:
    """Makes an empty file."""
    path.touch()


async def test_a_progress_file_that_is_a_pipe_or_a_link_is_left_alone(commands: Stand) -> None:
    script = 'mkfifo "$LONGSHORE_PROGRESS"; sleep 0.5'
    assert result_of(await run(commands, "sh", "-c", script)) is None


# its output


async def test_bytes_of_any_kind_are_shown_as_text(commands: Stand) -> None:
    report = await run(commands, "bash", "-c", r"printf '\000\377a\nlast\000'; exit 1")
    assert failure_in(report).error.traceback == "\\x00\\xffa\nlast\\x00"
    assert printed(commands, "stdout") == ["\x00\\xffa", "last\x00"]


async def test_a_flood_of_output_is_bounded_and_says_so(stand: Stand) -> None:
    await stand.open_command(log_limits=LogLimits(entries=100, bytes=10_000, echo=False))
    report = await run(stand, "sh", "-c", "yes | head -c 50000000; exit 1")
    assert failure_in(report).error.traceback.splitlines() == ["y"] * 20
    assert len(printed(stand, "stdout")) == 200
    (note,) = printed(stand, "note")
    assert note.startswith("24,999,800 lines were left out")


async def test_output_is_told_while_a_command_runs(commands: Stand) -> None:
    assignment = commands.start(COMMAND_KIND, argv=["sh", "-c", "echo now; sleep 600"])
    while not printed(commands, "stdout"):
        await commands._news()
    commands.abort(assignment)
    await commands.report_of(assignment)


# limits


async def test_a_command_that_uses_more_memory_than_it_may_is_out_of_memory(
    commands: Stand,
) -> None:
    argv = ["python3", "-c", "x = b'x' * 300_000_000; import time; time.sleep(600)"]
    limits = {"memory": "100m"}
    report = failure_in(await commands.run(COMMAND_KIND, argv=argv, limits=limits))
    assert report.error.reason is Reason.OUT_OF_MEMORY
    assert report.error.message == "used more memory than its limit of 104,857,600 bytes"


async def test_cpu_time_past_its_limit_is_a_timeout(commands: Stand) -> None:
    report = failure_in(await run(commands, "sh", "-c", "while :; do :; done", limits={"cpu_s": 1}))
    assert report.error.reason is Reason.TIMED_OUT
    assert report.error.message == "used more CPU time than its limit of 1 s"


async def test_open_files_are_limited(commands: Stand) -> None:
    await run(commands, "sh", "-c", "ulimit -n", limits={"open_files": 37})
    assert printed(commands, "stdout") == ["37"]


async def test_processes_are_limited(commands: Stand) -> None:
    await run(commands, "cat", "/proc/self/limits", limits={"processes": 12_345})
    [line] = [line for line in printed(commands, "stdout") if line.startswith("Max processes")]
    assert line.split()[2:4] == ["12345", "12345"]


# rules


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("exit(3): retry(5)", {"most_attempts": 6, "final": False}),
        ("exit: retry(2)", {"most_attempts": 3}),
        ("exit(3,4): fail", {"final": True}),
    ],
)
async def test_a_rule_says_what_an_exit_code_means(
    commands: Stand, rule: str, expected: dict[str, object]
) -> None:
    report = failure_in(await run(commands, "sh", "-c", "exit 3", rules=[rule]))
    assert {name: getattr(report, name) for name in expected} == expected


async def test_a_rule_may_skip_a_job_or_try_it_again_for_free(commands: Stand) -> None:
    skipped = await run(commands, "sh", "-c", "exit 3", rules=["exit(3): skip"])
    assert isinstance(skipped, SkipReport)
    again = await run(commands, "sh", "-c", "exit 3", rules=["exit(3): retry_free"])
    assert isinstance(again, SnoozeReport)
    assert again.note == "not the job's fault (exited): exited with code 3"


async def test_with_a_rule_the_next_attempt_may_use_more_memory(commands: Stand) -> None:
    argv = ["python3", "-c", "x = b'x' * 150_000_000; import time; time.sleep(0.5)"]
    args: dict[str, Any] = {
        "argv": argv,
        "limits": {"memory": "100m"},
        "rules": ["oom: retry(3, memory=x2, most=8g)"],
    }
    first = failure_in(await commands.run(COMMAND_KIND, **args))
    assert (first.error.reason, first.most_attempts) == (Reason.OUT_OF_MEMORY, 4)
    assert result_of(await commands.run(COMMAND_KIND, failures=1, **args)) is None


async def test_a_command_that_exits_with_85_goes_on_later_at_no_cost(commands: Stand) -> None:
    report = await run(commands, "sh", "-c", "exit 85")
    assert isinstance(report, SnoozeReport)
    assert report.after_s > 0


async def test_a_signal_can_be_a_failure_by_a_rule(commands: Stand) -> None:
    report = await run(commands, "sh", "-c", "kill -USR1 $$", rules=["signal(10): retry(1)"])
    assert failure_in(report).most_attempts == 2


# what is not accepted


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"argv": []}, "argv is empty; name the program to run"),
        ({"argv": "ls -l"}, "'ls -l' is one text; give a list of words"),
        ({"argv": ["ls"], "enviroment": {}}, "it has no 'enviroment'"),
        (
            {"argv": ["ls"], "inputs": [{"fileset": "a", "vrsion": 3}]},
            "an input has no 'vrsion'; did you mean 'version'?",
        ),
        (
            {"argv": ["ls"], "outputs": [{"fileset": "a", "pattern": "*.csv"}]},
            "an output has no 'pattern'; did you mean 'patterns'?",
        ),
        ({"argv": ["ls"], "outputs": ["a@3"]}, "an output has no 'version'"),
        ({"argv": ["a\0b"]}, "argv has a zero byte in it"),
        ({"argv": ["ls"], "env": {"LONGSHORE_TOKEN": "1"}}, "env sets LONGSHORE_TOKEN"),
        ({"argv": ["ls"], "folder": "/etc"}, "folder '/etc' leads out"),
        ({"argv": ["ls"], "rules": ["exit(75) retry"]}, "rule 'exit(75) retry' is none"),
        ({"argv": ["ls"], "limits": {"memory": -1}}, "limit memory_bytes is -1"),
        ({"argv": ["ls"], "inputs": [{"fileset": "a", "path": "../b"}]}, "path '../b' leads out"),
        (
            {"argv": ["ls"], "outputs": ["../a"]},
            "fileset '../a': write parts between single slashes",
        ),
        ({"argv": ["ls"], "outputs": ["a", "b", "a"]}, "2 outputs are of the fileset 'a'"),
        ({"argv": ["ls"], "rules": ["lost: retry_free"]}, "a rule about lost is for a kind that"),
        ({"argv": ["ls"], "stdin": 3}, "stdin: Expected `str`, got `int`"),
    ],
)
async def test_a_command_that_cannot_be_is_refused_with_what_is_wrong(
    commands: Stand, args: dict[str, Any], words: str
) -> None:
    report = failure_in(await commands.run(COMMAND_KIND, **args))
    assert report.final
    assert report.error.reason is Reason.INVALID_ARGUMENTS
    assert words in report.error.message


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"inputs": ["photos"]}, Reason.INPUT_MISSING),
        ({"outputs": ["photos"]}, Reason.OUTPUT_REFUSED),
    ],
)
async def test_files_need_a_gateway_and_the_error_says_so(
    commands: Stand, files: dict[str, Any], reason: Reason
) -> None:
    report = failure_in(await run(commands, "true", **files))
    assert (report.error.reason, report.final) == (reason, True)
    assert "this worker has no files_url" in report.error.message


async def test_a_worker_without_exec_and_without_commands_starts_no_host(stand: Stand) -> None:
    executor = await stand.open_command(exec=False)
    assert not executor._hosts
    assert executor.kinds == {}


async def test_arguments_that_cannot_be_read_fail_one_job_and_no_other(commands: Stand) -> None:
    spoilt = await commands.report_of(commands.start_packed(COMMAND_KIND, b"\xc1 not a record"))
    assert error_of(spoilt).reason is Reason.INVALID_ARGUMENTS
    assert "its arguments cannot be read" in error_of(spoilt).message
    assert result_of(await run(commands, "true")) is None


# its folders


async def test_a_folder_in_which_something_was_left_is_no_other_commands(
    stand: Stand, tmp_path: Path
) -> None:
    await stand.open_command(scratch=str(tmp_path))
    for leaves in ("true", "touch x", "true", "chmod 777 .", "touch ../y", "mkdir -p a/b", "true"):
        await run(stand, "sh", "-c", f"ls -AR . ..; stat -c %a . ..; pwd; {leaves}")
    said = printed(stand, "stdout")
    clean = [".:", "", "..:", "work", "", "../work:", "700", "700"]
    runs = [said[at : at + 9] for at in range(0, len(said), 9)]
    assert [run[:8] for run in runs] == [clean] * 7
    folders = [run[8] for run in runs]
    assert folders[0] == folders[1]
    assert folders[2] == folders[3]
    assert len({*folders}) == 5


async def test_a_killed_host_leaves_no_folder(stand: Stand, tmp_path: Path) -> None:
    executor = await stand.open_command(scratch=str(tmp_path))
    (host,) = executor._hosts
    assignment = stand.start(COMMAND_KIND, argv=["sh", "-c", "touch x; echo now; sleep 600"])
    while not printed(stand, "stdout"):
        await stand._news()
    assert names(tmp_path)
    os.kill(host.pid, signal.SIGKILL)
    await stand.report_of(assignment)
    assert names(tmp_path) == []


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return os.listdir(folder)
