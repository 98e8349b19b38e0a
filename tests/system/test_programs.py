"""Commands as jobs, with real dispatchers, workers and processes."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from longshore.testing.processes import Process, await_true, command, run, settings
from tests.system.apps import tools
from tests.system.conftest import ANY, APPS, QUICK, QUICK_WORKER, Fleet, lines
from tests.system.test_security import call
from tests.unit.executors.stand import is_alive

FREE = {"kind": "longshore.command", "args": {"argv": ["echo", "hi"]}}


def serving(fleet: Fleet, *dispatchers: Process, **more: object) -> Process:
    """A worker that runs the commands of anybody, and no app."""
    addresses = ",".join(one.facts["backend"] for one in dispatchers)
    own = {**QUICK_WORKER, "engine": "off", **more}
    return fleet.start("worker", "--exec", "--connect", addresses, *settings(**own))


def with_tools(fleet: Fleet, dispatcher: Process, **more: object) -> Process:
    """A worker of the app whose jobs are commands."""
    own = {**QUICK_WORKER, "engine": "off", **more}
    words = ["--app", "tools:app", "--connect", dispatcher.facts["backend"]]
    return fleet.start("worker", *words, *settings(**own))


def execute(dispatcher: Process, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `longshore exec`."""
    return run("exec", "--connect", dispatcher.facts["frontend"], *words)


@pytest.fixture(scope="module")
def shared(module_fleet: Fleet) -> Process:
    """A dispatcher with a worker that runs any command, for tests that end neither."""
    dispatcher = module_fleet.processes[0]
    serving(module_fleet, dispatcher)
    return dispatcher


def test_exec_shows_each_stream_and_ends_with_the_commands_own_code(shared: Process) -> None:
    done = execute(shared, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    first, last = done.stderr.splitlines()
    assert first == "err"
    assert last.endswith("failed, exited with code 7")


def test_a_command_that_had_nothing_to_do_was_skipped_and_did_not_fail(shared: Process) -> None:
    done = execute(shared, "--on", "exit(3): skip", "--", "sh", "-c", "exit 3")
    assert done.returncode == 1
    assert re.fullmatch(r"job \d+ was skipped\n", done.stderr)


def test_exec_passes_arguments_variables_and_input_on_as_they_are(shared: Process) -> None:
    words = ["-e", "A=x y", "--stdin", "in", "--", "sh", "-c", 'cat; echo "$A|$1"', "-", "--not; *"]
    done = execute(shared, *words)
    assert (done.returncode, done.stdout) == (0, "inx y|--not; *\n")


def test_exec_with_json_prints_one_document_and_the_output_beside_it(shared: Process) -> None:
    done = execute(shared, "--json", "--", "sh", "-c", 'echo out; echo 4 > "$LONGSHORE_RESULT"')
    outcome = json.loads(done.stdout)
    assert (outcome["state"], outcome["result"]) == ("succeeded", 4)
    assert done.stderr == "out\n"


def test_exec_says_why_a_command_does_not_run(shared: Process) -> None:
    done = execute(shared, "--resources", "crane=1", "--within", "4", "--", "true")
    assert done.returncode == 5
    first = done.stderr.splitlines()[0]
    assert re.fullmatch(r"job \d+ \(ready\): .*crane 1 is needed, crane 0 is there.*", first)


def test_exec_says_why_a_command_is_tried_again_later(shared: Process) -> None:
    rule = ["--on", "exit(9): retry_free"]
    done = execute(shared, *rule, "--within", "4", "--", "sh", "-c", "exit 9")
    assert done.returncode == 5
    assert "exited with code 9" in done.stderr


def test_exec_follows_a_command_while_it_runs(shared: Process, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo first; while [ ! -e {go} ]; do sleep 0.01; done; echo last"
    words = command("exec", "--connect", shared.facts["frontend"], "--", "sh", "-c", script)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "first\n"
        go.touch()
        assert following.stdout.read() == "last\n"
    assert following.returncode == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "name a command, like: longshore exec -- echo hello"),
        (["-e", "A", "--", "true"], "give a name and a value, like -e LEVEL=3"),
        (["--on", "exit 75", "--", "true"], "rule 'exit 75' is none"),
        (["--memory", "lots", "--", "true"], "'lots' is no size; write it like 512m or 8g"),
        (["--folder", "/etc", "--", "true"], "leads out of the program's own folder"),
        (["-e", "LONGSHORE_JOB=1", "--", "true"], "names that begin with LONGSHORE_"),
    ],
)
def test_exec_refuses_what_cannot_be_before_it_asks_anybody(words: list[str], error: str) -> None:
    done = run("exec", "--connect", "tcp://127.0.0.1:1", *words)
    assert done.returncode == 2
    assert error in done.stderr


def test_a_detached_command_is_cancelled_with_its_tree(shared: Process, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"setsid sh -c 'echo $$ >> {pids}; exec sleep 600' & echo $$ >> {pids}; sleep 600"
    submitted = json.loads(execute(shared, "--json", "--detach", "--", "sh", "-c", script).stdout)
    await_true(lambda: len(lines(pids)) == 2, "both run")
    to = ["--connect", shared.facts["frontend"]]
    assert run("cancel", str(submitted["number"]), *to).returncode == 0
    await_true(lambda: not any(is_alive(int(pid)) for pid in lines(pids)), "both are gone")
    job = json.loads(run("job", str(submitted["number"]), "--json", *to).stdout)
    assert job["state"] in ("cancelled", "cancelling")


def test_a_program_that_cannot_be_is_refused_at_the_submit(shared: Process) -> None:
    to = ["--connect", shared.facts["frontend"]]
    done = run("submit", "longshore.command", "--args", '{"argv": "ls -l"}', *to)
    assert done.returncode == 2
    assert "'ls -l' is one text; give a list of words" in done.stderr
    other = run("submit", "longshore.other", *to)
    assert "begins with 'longshore.', which is reserved" in other.stderr


def test_commands_of_a_file_take_results_of_each_other(shared: Process, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        """
name: lines
jobs:
  - key: count
    command: {argv: [sh, -c, 'wc -l > "$LONGSHORE_RESULT"'], stdin: "a\\nb\\nc\\n"}
  - key: times
    command: [sh, -c, 'echo $(( $1 * 2 )) > "$LONGSHORE_RESULT"', "-", {$result: {job: count}}]
  - {key: last, command: {argv: [test, {$result: {job: times}}, -eq, 6]}, after: count}
"""
    )
    done = run("run", str(flow), "--wait", "--connect", shared.facts["frontend"])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("job", "error"),
    [
        ("{command: [ls], kind: add}", "a job has either `kind` or `command`"),
        ("{command: {argv: ls -l}}", "'ls -l' is one text"),
        ("{command: {arg: [ls]}}", "it has no 'arg'; did you mean 'argv'?"),
        ("{container: {command: [ls]}}", "missing required field `image`"),
        ("{command: {argv: [ls], rules: ['exit: perish']}}", "action 'perish' is unknown"),
    ],
)
def test_a_file_with_a_program_that_cannot_be_names_the_line(
    tmp_path: Path, job: str, error: str
) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(f"name: x\njobs:\n  - {job}\n")
    done = run("run", str(flow), "--connect", "tcp://127.0.0.1:1")
    assert done.returncode == 2
    assert f"{flow}, line 3: " in done.stderr
    assert error in done.stderr


# an app's own commands


def test_an_apps_commands_run_on_a_worker_that_runs_no_others(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher()
    with_tools(fleet, dispatcher)
    client = fleet.client(dispatcher)
    marks = tmp_path / "marks"
    handles = client.submit_many(
        [tools.words.call(text="a b c"), tools.flaky.call(marks=str(marks))]
    )
    assert handles[0].result(20) == 3
    assert handles[1].result(20) is None
    assert len(lines(marks)) == 3
    assert handles[1].job().failures == 2
    done = run("exec", "--detach", "--connect", dispatcher.facts["frontend"], "--", "true")
    number = done.stdout.split()[2]
    why = run("why", number, "--connect", dispatcher.facts["frontend"])
    assert "no worker runs 'longshore.command' jobs: start one with --exec" in why.stdout
    wrong = run("submit", "words", "txt=a", "--connect", dispatcher.facts["frontend"])
    assert wrong.returncode == 2
    assert "'txt'" in wrong.stderr


def test_a_command_that_is_killed_again_and_again_is_poisonous(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    with_tools(fleet, dispatcher)
    marks = tmp_path / "marks"
    (handle,) = fleet.client(dispatcher).submit_many([tools.crashes.call(marks=str(marks))])
    handle.wait(30)
    error = handle.job().error
    assert error is not None
    assert error.reason == "poisonous"
    assert len(lines(marks)) == 3


# when something dies


def test_a_killed_agent_leaves_no_command_and_its_job_runs_elsewhere(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    first = serving(fleet, dispatcher)
    pids, go = tmp_path / "pids", tmp_path / "go"
    daemon = f"(setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &) ; "
    script = f"{daemon} echo $$ >> {pids}; [ -e {go} ] || sleep 600"
    done = execute(dispatcher, "--json", "--detach", "--", "bash", "-c", script)
    number = json.loads(done.stdout)["number"]
    await_true(lambda: len(lines(pids)) == 2, "it runs")
    killed = [int(pid) for pid in lines(pids)]
    first.kill()
    await_true(lambda: not any(map(is_alive, killed)), "nothing of it is left")
    go.touch()
    serving(fleet, dispatcher)
    to = ["--connect", dispatcher.facts["frontend"]]
    await_true(
        lambda: json.loads(run("job", str(number), "--json", *to).stdout)["state"] == "succeeded",
        "it runs again",
    )


def test_losses_of_workers_use_up_no_retry_and_are_shown_apart(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Neither job has a retry: a failure would have ended it."""
    dispatcher = fleet.dispatcher()
    calls = {tools.lasting: tmp_path / "lasting", tools.free: tmp_path / "free"}
    handles = fleet.client(dispatcher).submit_many(
        [kind.call(marks=str(marks)) for kind, marks in calls.items()]
    )

    def have_begun(times: int) -> bool:
        return {len(lines(marks)) for marks in calls.values()} == {times}

    for lost in (1, 2):
        worker = with_tools(fleet, dispatcher)
        await_true(partial(have_begun, lost), "both run")
        worker.kill()
    with_tools(fleet, dispatcher)
    for handle, crashes in zip(handles, (2, 0), strict=True):
        handle.result(60)
        job = handle.job()
        assert (job.attempt, job.failures, job.crashes) == (3, 0, crashes)
        assert job.options.retry.attempts == 1
        shown = run("job", str(job.number), "--connect", dispatcher.facts["frontend"]).stdout
        assert ("2 crashed" in shown) == bool(crashes)
        assert "failed" not in shown


def test_what_a_killed_worker_and_its_host_left_is_gone_after_the_next_start(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    first = serving(fleet, dispatcher)
    pids = tmp_path / "pids"
    execute(dispatcher, "--detach", "--", "sh", "-c", f"echo $PPID $$ >> {pids}; sleep 600")
    await_true(lambda: len(lines(pids)) == 1, "it runs")
    host, left = map(int, lines(pids)[0].split())
    os.kill(host, signal.SIGSTOP)
    first.kill()
    os.kill(host, signal.SIGKILL)
    await_true(lambda: not is_alive(host), "the host is dead")
    assert is_alive(left)
    serving(fleet, dispatcher, queues="another")
    assert not is_alive(left)


def test_a_drain_lets_a_command_end_and_hands_back_one_that_does_not(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    worker = serving(fleet, dispatcher, drain_s=1)
    pids = tmp_path / "pids"
    script = f"trap '' TERM; echo $$ >> {pids}; while :; do sleep 0.01; done"
    done = execute(dispatcher, "--json", "--detach", "--", "bash", "-c", script)
    number = json.loads(done.stdout)["number"]
    await_true(lambda: len(lines(pids)) == 1, "it runs")
    assert worker.terminate() == 0
    assert not is_alive(int(lines(pids)[0]))
    shown = run("job", str(number), "--json", "--connect", dispatcher.facts["frontend"])
    job = json.loads(shown.stdout)
    assert (job["state"], job["failures"], job["crashes"]) == ("ready", 0, 0)


# over HTTP


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Process]:
    """Everything on this machine, for any command, with HTTP."""
    words = ["--exec", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    own = settings(**{**QUICK, **QUICK_WORKER, "engine": "off"})
    with Process("up", *words, *own, cwd=tmp_path, log=tmp_path / "up.log") as process:
        yield process.ready()


def test_over_http_a_command_needs_the_token_in_the_folder_of_up(
    up: Process, tmp_path: Path
) -> None:
    url = up.facts["http"]
    status, problem = call(url, "POST", "/dispatcher/jobs/", FREE)
    assert (status, problem["code"]) == (401, "not_authenticated")
    assert ".longshore/token" in problem["detail"]
    group = {"name": "g", "jobs": [{"command": ["true"]}]}
    assert call(url, "POST", "/dispatcher/groups/", group)[0] == 401
    mapped = {"command": {"argv": ["cat"]}, "map": {"over": ["a"], "parameter": "stdin"}}
    assert call(url, "POST", "/dispatcher/groups/", {"name": "g", "jobs": [mapped]})[0] == 401
    assert run("exec", "--connect", url, "--", "true").returncode == 2

    file = tmp_path / ".longshore" / "token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    own = {"Authorization": f"Bearer {file.read_text().strip()}"}
    assert call(url, "POST", "/dispatcher/jobs/", FREE, headers=own)[0] == 201
    assert call(url, "POST", "/dispatcher/groups/", group, headers=own)[0] == 201
    done = run(
        "exec",
        "--connect",
        url,
        "--",
        "echo",
        "hi",
        env={"LONGSHORE_TOKEN": file.read_text().strip()},
    )
    assert (done.returncode, done.stdout) == (0, "hi\n")


def test_a_submitters_token_must_name_the_kind_of_commands(up: Process) -> None:
    url, to = up.facts["http"], ["--connect", up.facts["frontend"], "--json"]

    def token(*words: str) -> dict[str, str]:
        made = run("token", "create", "--role", "submit", "--name", *words, *to)
        return {"Authorization": f"Bearer {json.loads(made.stdout)['token']}"}

    plain, named = token("plain"), token("named", "--kind", "longshore.command")
    status, problem = call(url, "POST", "/dispatcher/jobs/", FREE, headers=plain)
    assert (status, problem["code"]) == (403, "not_allowed")
    assert "--kind longshore.command" in problem["detail"]
    assert call(url, "POST", "/dispatcher/jobs/", FREE, headers=named)[0] == 201


def test_a_command_can_ask_a_gateway_although_its_attempt_has_a_number(up: Process) -> None:
    url, to = up.facts["http"], ["--connect", up.facts["frontend"]]
    for words in (["jobs", "--json"], ["filesets", "ls", "--json"]):
        done = run("exec", *to, "--", *command(*words, "--connect", url))
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)


def test_a_worker_without_an_app_and_without_exec_says_what_it_needs() -> None:
    done = run("worker", "--connect", "tcp://127.0.0.1:1", env={"PWD": str(APPS)})
    assert done.returncode == 2
    assert "--app module:app; or --exec" in done.stderr
