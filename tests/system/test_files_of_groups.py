"""A group of containers over a fileset, with a worker killed in the middle: the same bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore import GroupState
from longshore.cli.main import execute
from longshore.model.job import Job
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


@pytest.fixture
def yard(
    migrated_sqlite_url: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Yard]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    made = Yard(tmp_path, migrated_sqlite_url, engine)
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
