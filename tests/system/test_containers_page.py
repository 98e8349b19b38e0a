"""The part of docs/containers.md about containers, against a real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longshore.executors.host.programs.registries import credentials_for
from longshore.testing.engine import PASSWORD, USER, Engine
from longshore.testing.processes import Process, command, settings
from tests.system.conftest import ANY, QUICK, QUICK_WORKER
from tests.system.pages import Block, blocks

PAGE = "containers.md"
TRAIN = b'#!/bin/sh\necho "trained $3 epochs at $LEVEL"; echo "$3" > $LONGSHORE_RESULT\n'


def block(language: str, words: str) -> Block:
    """The block of the page that has these words."""
    (found,) = [one for one in blocks(PAGE, language) if words in one.text]
    return found


@pytest.fixture(scope="module")
def up(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """What `longshore up --exec` starts, with the app of the page and its images."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "lab.py").write_text(block("python", "app.container").text)
    engine.add_image("busybox:latest")
    engine.add_image("trainer:1", more={"bin/python": TRAIN})
    words = ["--backend", ANY, "--frontend", ANY, "--app", "lab:app", "--exec"]
    options = {**QUICK, **QUICK_WORKER, "engine": engine.url}
    with Process("up", *words, *settings(**options), cwd=folder, log=folder / "up.log") as up:
        yield up.ready()


def typed(up: Process, line: str, folder: Path) -> str:
    """What a command of the page answers."""
    program, *words = line.split()
    words = command(*words) if program == "longshore" else [program, *words]
    env = {**os.environ, "LONGSHORE_CONNECT": up.facts["frontend"]}
    done = subprocess.run(
        words, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_container_is_run_as_the_page_shows(up: Process, tmp_path: Path) -> None:
    (started, _), (line, shown) = block("console", "container run").commands()
    assert started == "longshore up --exec"
    assert typed(up, line, tmp_path) == shown.rstrip("\n") + "\n"


def test_the_app_of_the_page_runs_its_container(up: Process, tmp_path: Path) -> None:
    (tmp_path / "lab.py").write_text(block("python", "app.container").text)
    env = {**os.environ, "LONGSHORE_CONNECT": up.facts["frontend"]}
    done = subprocess.run(
        [sys.executable, "lab.py"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr


def test_a_document_of_the_etcd_job_queue_is_run_and_shown(up: Process, tmp_path: Path) -> None:
    (_, document), (submit, said), (show, _), (workers, _) = block("console", "etcdq").commands()
    (tmp_path / "job.json").write_text(document)
    answered = typed(up, f"{submit} --wait", tmp_path) or "null"
    assert json.loads(answered) is None
    assert said.startswith("submitted job ")
    number = typed(up, "longshore jobs --kind longshore.container --limit 1 --json", tmp_path)
    job = json.loads(number)[0]["number"]
    shown: dict[str, Any] = json.loads(typed(up, show.replace(" 1 ", f" {job} "), tmp_path))
    assert shown.keys() == {"Container", "Fileset", "Owner", "States", "Result"}
    assert shown["Result"]["Status"] == "SUCCESS"
    assert [one["Step"] for one in shown["States"]] == [
        "",
        "",
        "allocated",
        "creating container",
        "running",
        "finished",
        "",
    ]
    (worker,) = json.loads(typed(up, workers, tmp_path))
    assert (worker["Name"], worker["Status"]) == (shown["Owner"], "ALIVE")


def test_the_credentials_of_the_page_open_its_registry(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(block("json", "auths").text)
    assert credentials_for(str(file), "registry.example.com") == {
        "username": USER,
        "password": PASSWORD,
        "serveraddress": "registry.example.com",
    }
