"""The README, walked through as a newcomer would, and the fleet of docs/operations.md."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from longshore.testing.processes import Process, run
from longshore.testing.servers import free_port

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The code blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(block: str) -> list[list[str]]:
    """The `longshore` commands of a console block."""
    typed = [line[2:] for line in block.splitlines() if line.startswith("$ longshore")]
    return [shlex.split(line)[1:] for line in typed]


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with the README's app, and ports that nobody else has."""
    (tmp_path / "tasks.py").write_text(blocks("python")[0])
    frontend = f"127.0.0.1:{free_port()}"
    return tmp_path, {
        "LONGSHORE_BACKEND": f"127.0.0.1:{free_port()}",
        "LONGSHORE_FRONTEND": frontend,
        "LONGSHORE_CONNECT": f"tcp://{frontend}",
    }


@pytest.fixture(params=["sqlite", "postgres"])
def up(
    request: pytest.FixtureRequest, place: tuple[Path, dict[str, str]]
) -> Iterator[tuple[Path, dict[str, str]]]:
    """`longshore up`, as the README types it; on PostgreSQL by changing one URL."""
    folder, env = place
    ((_, *words),) = commands(blocks("console")[1])
    if request.param == "postgres":
        words += ["--store", request.getfixturevalue("postgres_url")]
    with Process("up", *words, env=env, cwd=folder, log=folder / "up.log") as process:
        process.ready()
        yield folder, env
        assert process.terminate() == 0


def test_the_commands_do_what_the_readme_says(up: tuple[Path, dict[str, str]]) -> None:
    folder, env = up
    outputs = []
    for words in commands(blocks("console")[2]):
        done = run(*words, env=env, cwd=folder)
        assert done.returncode == 0, (words, done.stderr)
        outputs.append(done.stdout)
    submitted, _resize, jobs, why = outputs
    assert submitted == "19\n"
    assert "fetch" in jobs
    assert why.startswith("job 2")


def test_the_python_does_what_the_readme_says(up: tuple[Path, dict[str, str]]) -> None:
    folder, env = up
    script = folder / "script.py"
    script.write_text(blocks("python")[1])
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**env, "PATH": ""},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "19\n"), done.stderr


def test_the_fleet_of_the_page_on_operations_survives_a_killed_dispatcher(
    place: tuple[Path, dict[str, str]], postgres_url: str
) -> None:
    folder, _ = place
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    section = page.partition("## From one machine to several")[2].partition("\n## ")[0]
    section = section.replace("postgresql://user@localhost/jobs", postgres_url).replace(
        " &\n", "\n"
    )
    for port in ("7701", "7702", "7711", "7712"):
        section = section.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}")
    migrate, *stay, submit, dispatchers, workers, capacity = commands(section)
    (connect,) = re.findall(r"LONGSHORE_CONNECT=(\S+)", section)
    env = {"LONGSHORE_CONNECT": connect}
    assert run(*migrate).returncode == 0
    with ExitStack() as running:
        processes = [
            running.enter_context(Process(*words, cwd=folder, log=folder / f"{number}.log"))
            for number, words in enumerate(stay)
        ]
        for process in processes:
            process.ready()
        assert len(json.loads(run(*dispatchers, "--json", env=env).stdout)) == 2
        processes[0].kill()
        done = run(*submit, env=env, cwd=folder)
        assert (done.returncode, done.stdout) == (0, '"cat.jpg@800"\n'), done.stderr
        for words in (workers, capacity):
            assert "resize" in run(*words, env=env).stdout
