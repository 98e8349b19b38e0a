"""`longshore completion`: the scripts, and what they offer."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from click.shell_completion import ShellComplete
from tests.unit.cli.conftest import ScriptedDispatcher
from tests.unit.cli.test_fleet import VIEW

from longshore.cli.main import cli, execute
from longshore.core.capacity import capacity
from longshore.errors import Unavailable
from longshore.model.worker import QueueView
from longshore.wire import messages as m

Captured = pytest.CaptureFixture[str]


def offered(dispatcher: ScriptedDispatcher, *typed: str) -> list[str]:
    """What a shell offers for the last of the words typed."""
    *before, last = typed
    shell = ShellComplete(cli, {"obj": dispatcher.connect}, "longshore", "_X")
    return [item.value for item in shell.get_completions(before, last)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_one_that_its_shell_can_read(shell: str, capsys: Captured) -> None:
    assert execute(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_LONGSHORE_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=20)
    assert execute(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["script"] == script.removesuffix("\n")


def test_commands_and_states_are_offered_without_asking_anybody(
    dispatcher: ScriptedDispatcher,
) -> None:
    assert offered(dispatcher, "ca") == ["cancel", "capacity", "callbacks"]
    assert offered(dispatcher, "jobs", "--state", "su") == ["succeeded"]
    assert dispatcher.asked == []


def test_kinds_queues_and_workers_are_asked_for(dispatcher: ScriptedDispatcher) -> None:
    dispatcher.answers[m.ShowCapacity] = capacity([VIEW])
    dispatcher.answers[m.ListQueues] = (QueueView("mail", False, {}), QueueView("x", False, {}))
    dispatcher.answers[m.ListWorkers] = (VIEW,)
    assert offered(dispatcher, "submit", "") == ["a", "b"]
    assert offered(dispatcher, "jobs", "--kind", "b") == ["b"]
    assert offered(dispatcher, "queues", "pause", "m") == ["mail"]
    assert offered(dispatcher, "workers", "drain", "") == ["h:9"]
    assert offered(dispatcher, "jobs", "--connect", "dock:1", "--queue", "") == ["mail", "x"]
    assert dispatcher.configs[-1].connect == ("tcp://dock:1",)


def test_nothing_is_offered_while_nobody_answers(dispatcher: ScriptedDispatcher) -> None:
    dispatcher.answers[m.ShowCapacity] = Unavailable("not now")
    assert offered(dispatcher, "submit", "") == []
    assert offered(dispatcher, "jobs", "--set", "leases=1", "--kind", "") == []
