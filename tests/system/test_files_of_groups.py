"""A group of containers over a fileset, with a worker killed in the middle: the same bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore import GroupState
from longshore.cli.main import execute
from longshore.model.job import Job, Reason
from longshore.model.program import COMMAND_KIND, CONTAINER_KIND
from longshore.testing.engine import IMAGE, Engine
from longshore.testing.processes import Process, await_true, settings
from tests.system.conftest import QUICK_WORKER
from tests.system.test_files import Dock, tree

LETTERS = ("a", "b", "c")
COUNT = """
cat in/*/*.txt | tr -s ' ' '\\n' | grep "^$1" | sort > "$1.txt"
cp in/run.sh . && echo spoilt | tee in/run.sh > in/2026/one.txt
echo 1 > $LONGSHORE_PROGRESS
[ "$1" != "$2" ] || [ $LONGSHORE_ATTEMPT = 2 ] || sleep 600
"""
JOIN = """
mkdir -p out/deep
cat a/a.txt b/b.txt c/c.txt > out/all.txt
wc -l < out/all.txt | tr -d ' ' > out/deep/count
cp a/run.sh out/
"""
CHECKPOINTS = """
mkdir -p seen
echo $LONGSHORE_ATTEMPT > seen/$LONGSHORE_ATTEMPT
case $LONGSHORE_ATTEMPT in
1) exit 85 ;;
2)
    : > "$LONGSHORE_CHECKPOINT"
    while [ -e "$LONGSHORE_CHECKPOINT" ]; do sleep 0.1; done
    echo lost > seen/lost
    exit 75 ;;
esac
echo "\\"$(cat seen/* | xargs)\\"" > "$LONGSHORE_RESULT"
"""


class Yard:
    """A dispatcher with a gateway, two workers on one engine, and the fileset `words`."""

    def __init__(self, folder: Path, store: str, engine: Engine) -> None:
        self.folder, self.engine = folder, engine
        self.dock = Dock(folder, store)
        starting = [self.start_worker(f"w{n}") for n in range(2)]
        self.workers = [worker.ready() for worker in starting]
        self.app = longshore.App("client", connect=self.dock.up.facts["frontend"])
        self.pushed = self.push()

    def start_worker(self, name: str) -> Process:
        """A worker that runs any container, with a cache of its own."""
        options = {
            "engine": self.engine.url,
            "containers": 2,
            "files_url": self.dock.url,
            "files_cache": self.folder / f"cache-{name}",
        }
        words = ["--exec", "--connect", self.dock.up.facts["backend"]]
        log = self.folder / f"{name}.log"
        given = settings(**QUICK_WORKER, **options)
        return Process("worker", *words, *given, cwd=self.folder, log=log)

    def push(self) -> dict[str, bytes]:
        """Pushes the words; answers them."""
        words = self.folder / "words"
        (words / "2026").mkdir(parents=True)
        (words / "2026/one.txt").write_text("anchor berth cargo\nballast crew aft\n")
        (words / "2026/two.txt").write_text("bow\nabeam capstan\n")
        (words / "run.sh").write_text("#!/bin/sh\n")
        (words / "run.sh").chmod(0o755)
        self.dock.filesets("push", "words", str(words))
        return tree(words)

    def run(self, name: str, held: str = "-") -> longshore.GroupHandle:
        """A group: three containers read the words, a fourth one joins what they made."""
        flow = self.folder / f"{name}.json"
        jobs = [_counting(name, letter, held) for letter in LETTERS]
        flow.write_text(json.dumps({"name": name, "jobs": [*jobs, _joining(name)]}))
        return self.app.group_handle(self.ask("run", str(flow))["id"])

    def ended(self, script: str, patterns: Sequence[str] = ("**",), made: str = "made") -> Job:
        """The job of a container that reads the words, makes something, and has ended."""
        args = {
            "image": IMAGE,
            "command": ["sh", "-ec", script],
            "inputs": [{"fileset": "words", "path": "in"}],
            "outputs": [{"fileset": made, "patterns": patterns}],
        }
        handle = self.app.submit_by_name(CONTAINER_KIND, args)
        self.app.wait_all([handle], timeout_s=60)
        return handle.job()

    def pull(self, name: str) -> dict[str, bytes]:
        """What a group made."""
        into = self.folder / f"pulled-{name}"
        self.dock.filesets("pull", f"{name}/all", str(into))
        assert (into / "run.sh").stat().st_mode & 0o111, "it is still executable"
        return tree(into)

    def worker_of(self, job: Job) -> Process:
        """The process of the worker that runs a job."""
        (pid,) = (one["pid"] for one in self.ask("workers") if one["id"] == str(job.worker))
        (found,) = (one for one in self.workers if one.pid == pid)
        return found

    def ask(self, *words: str) -> Any:
        """What a command answers, as JSON."""
        said = io.StringIO()
        with redirect_stdout(said):
            assert execute([*words, "--connect", self.dock.up.facts["frontend"], "--json"]) == 0
        return json.loads(said.getvalue())

    def close(self) -> None:
        """Ends everything that was started."""
        self.app.close()
        for process in (*self.workers, self.dock.up):
            process.close()


def _counting(name: str, letter: str, held: str) -> dict[str, Any]:
    return {
        "key": letter,
        "container": {
            "image": IMAGE,
            "command": ["sh", "-c", COUNT, "-", letter, held],
            "inputs": [{"fileset": "words", "path": "in", "patterns": ["**/*.txt", "run.sh"]}],
            "outputs": [{"fileset": f"{name}/{letter}", "patterns": ["*.txt", "*.sh"]}],
        },
    }


def _joining(name: str) -> dict[str, Any]:
    inputs = [{"fileset": f"{name}/{letter}", "path": letter} for letter in LETTERS]
    outputs = [{"fileset": f"{name}/all", "path": "out"}]
    command = ["sh", "-ec", JOIN]
    container = {"image": IMAGE, "command": command, "inputs": inputs, "outputs": outputs}
    return {"key": "join", "after": list(LETTERS), "container": container}


@pytest.fixture(scope="module")
def yard(
    module_sqlite_url: str, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    """What the tests of this file share. One of its workers may be gone."""
    folder = tmp_path_factory.mktemp("yard")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "home"))
        made = Yard(folder, module_sqlite_url, engine)
        yield made
        made.close()


def test_a_group_of_containers_makes_the_same_bytes_though_a_worker_is_killed(yard: Yard) -> None:
    """G1, G3: what was published before the kill counts once, and the rest is made elsewhere."""
    assert yard.run("quiet").wait(60) is GroupState.SUCCEEDED
    made = yard.pull("quiet")
    words = "abeam aft anchor ballast berth bow capstan cargo crew"
    assert made["all.txt"].decode().split() == words.split()
    assert made["deep/count"] == b"9\n"

    stormy = yard.run("stormy", held="b")
    middle = stormy.job("b")
    await_true(lambda: middle.job().progress is not None, "it runs")
    yard.worker_of(middle.job()).kill()
    assert stormy.wait(60) is GroupState.SUCCEEDED
    assert (middle.job().attempt, middle.job().crashes) == (2, 1)
    assert yard.pull("stormy") == made
    for name in (*LETTERS, "all"):
        versions = yard.dock.filesets("ls", f"stormy/{name}")["versions"]
        assert [one["version"] for one in versions] == [1]
    yard.dock.filesets("pull", "words", str(yard.folder / "untouched"))
    assert tree(yard.folder / "untouched") == yard.pushed


def test_a_container_tells_the_steps_of_its_files_in_order(yard: Yard) -> None:
    job = yard.ended("cp in/run.sh made", patterns=["made"])
    told = [entry.text for entry in yard.app.handle(job.id).logs() if entry.stream == "step"]
    assert told == [
        "allocated",
        "creating container",
        "pulling fileset: words",
        "running",
        "pushing fileset: made",
        "finished",
    ]


def test_a_container_goes_on_from_its_checkpoint(yard: Yard) -> None:
    """Attempt 1 asks by its exit code, attempt 2 while it runs; what it does after that is lost."""
    args = {
        "image": IMAGE,
        "command": ["sh", "-ec", CHECKPOINTS],
        "checkpoint": ["seen/**"],
        "rules": ["exit(75): retry(1)"],
    }
    handle = yard.app.submit_by_name(CONTAINER_KIND, args)
    assert handle.result(60) == "1 2 3"
    assert (handle.job().attempt, handle.job().failures) == (3, 1)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("ln -s /etc/passwd evil", "'evil' is a link"),
        ("mkfifo evil", "'evil' is a FIFO"),
        (f"truncate -s {2**41} evil", "holes counted"),
        ("touch evil EVIL", "'EVIL'"),
        ("mkdir -p $(seq -s / 1 80)/", "64"),
    ],
)
def test_what_a_container_leaves_to_harm_its_worker_is_refused(
    yard: Yard, script: str, words: str
) -> None:
    job = yard.ended(script, made="harm")
    assert job.error is not None
    assert (job.error.reason, job.attempt) == (Reason.OUTPUT_REFUSED, 1)
    assert words in job.error.message
    assert "no fileset 'harm'" in yard.dock.filesets("ls", "harm", code=3)


def test_outputs_are_taken_when_all_that_a_command_left_is_dead(yard: Yard) -> None:
    """A process that goes on writing would change a file while it is read."""
    script = "(trap '' TERM; while true; do echo more >> log; done) & sleep 0.05"
    args = {"argv": ["sh", "-c", script], "outputs": [{"fileset": "log", "patterns": ["log"]}]}
    yard.app.submit_by_name(COMMAND_KIND, args).result(60)
    (version,) = yard.dock.filesets("ls", "log")["versions"]
    assert version["files"] == 1
