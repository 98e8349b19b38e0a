"""docs/callbacks.md, block by block: its receiver hears what the page says."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from longshore.config import load
from longshore.core.addresses import allowed
from longshore.testing.processes import Process, await_true, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import SERVED, bash, blocks, matches, succeed

PAGE = "callbacks.md"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_every_block_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    app, receiver, client = (block.text for block in blocks(PAGE, "python"))
    start, *consoles = (list(block.commands()) for block in blocks(PAGE, "console"))
    port = str(free_port())
    (tmp_path / "shop.py").write_text(app)
    (tmp_path / "receiver.py").write_text(receiver.replace("8080", port))
    heard = tmp_path / "heard"
    words = ["--app", "shop:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    with Process("up", *words, *settings(**QUICK), cwd=tmp_path, log=tmp_path / "up.log") as up:
        facts = up.ready().facts
        folder = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "PATH": folder, "LONGSHORE_CONNECT": facts["frontend"]}

        def typed(command: str) -> str:
            text = command.replace(SERVED, facts["http"]).replace("8080", port)
            return bash(text, tmp_path, env)

        [(command, _)] = start
        with heard.open("wb") as output:
            serving = subprocess.Popen(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=env,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            await_true(lambda: answers(int(port)), "the receiver listens")
            for command, shown in consoles[0]:
                assert typed(command).strip() == shown.strip()
            python = client.replace("8080", port)
            assert succeed(python, env, tmp_path) == ["succeeded"]
            for command, shown in consoles[1]:
                assert matches(shown, typed(command))
            wanted = {"job.succeeded order 7 paid", "job.succeeded order 8 paid"}
            wanted |= {"group.succeeded None", "job.succeeded order 11 paid"}
            await_true(lambda: wanted <= set(heard.read_text().splitlines()), "all is heard")
            for command, shown in consoles[2]:
                assert matches(shown.replace("8080", port), typed(command)), typed(command)
        finally:
            os.killpg(serving.pid, signal.SIGTERM)
            serving.wait()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_what_the_page_says_is_sent_and_allowed_can_be(tmp_path: Path) -> None:
    [body] = blocks(PAGE, "json")
    assert json.loads(body.text)["data"].keys() >= {"id", "round", "number", "kind", "state"}
    [file] = blocks(PAGE, "toml")
    (tmp_path / "longshore.toml").write_text(file.text)
    some = allowed(load(file=str(tmp_path / "longshore.toml")).http_allow, loopback=False)
    assert some.refusal("10.1.2.3") is None
    assert some.refusal("10.9.9.9", "a.svc.cluster.local") is None
    assert msgspec.structs.asdict(some)["hosts"] == ("hooks.internal", "*.svc.cluster.local")
