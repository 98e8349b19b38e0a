"""`longshore prune` on real stores, and the commands of docs/operations.md about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from longshore.testing.processes import run
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
SECTION = PAGE.partition("## What is kept, and for how long")[2].partition("\n## ")[0]


def test_ended_jobs_go_by_command_and_in_the_background(fleet: Fleet) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    env = {"LONGSHORE_CONNECT": dispatcher.facts["frontend"]}
    client = fleet.client(dispatcher)
    handles = client.submit_many([harbour.add.call(i, 1) for i in range(5)])
    client.wait_all(handles, timeout_s=60)
    [block] = re.findall(r"```console\n(.*?)```", SECTION, re.DOTALL)
    for line in block.splitlines():
        done = run(*line.removeprefix("$ longshore ").split(), env=env)
        assert done.returncode == 0, (line, done.stderr)
        assert " 0 jobs" in done.stdout
    done = run("prune", "--keep", "2", "--json", env=env)
    assert json.loads(done.stdout)["states"] == {"succeeded": 3}, done.stderr
    assert run("job", str(handles[0].id), env=env).returncode == 3
    assert run("job", str(handles[4].id), env=env).returncode == 0
    fleet.dispatcher(keep_succeeded_s=0.1, prune_s=0.2)

    def are_gone() -> bool:
        queues = json.loads(run("queues", "--json", env=env).stdout)
        return not any(count for queue in queues for count in queue["counts"].values())

    await_true(are_gone, "the rest is pruned in the background")
