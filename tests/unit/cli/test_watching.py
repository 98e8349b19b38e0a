"""`--watch`: on a terminal, in a pipe, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable

import pytest
from tests.unit.cli.conftest import ScriptedDispatcher
from tests.unit.cli.test_commands import job

from longshore.errors import Unavailable
from longshore.model.job import Job, JobPage, JobState, Progress
from longshore.model.worker import QueueView
from longshore.wire import messages as m

Captured = pytest.CaptureFixture[str]
QUICK = ("--every", "100ms")
OnTerminal = Callable[..., tuple[int, str]]


class Terminal(io.StringIO):
    """Standard output that says it is a terminal, and keeps what is written."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, dispatcher: ScriptedDispatcher) -> OnTerminal:
    """Runs a command on a terminal of 80 columns; answers its exit code and what it wrote."""
    for variable, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(variable, value)
    for variable in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)

    def run(*words: str) -> tuple[int, str]:
        with monkeypatch.context() as patch:
            written = Terminal()
            patch.setattr(sys, "stdout", written)
            return dispatcher.run(*words), written.getvalue()

    return run


def interrupted_at(look: int, answer: Callable[[int], object]) -> Callable[[object], object]:
    """Answers by the number of the look; at one of them somebody presses Ctrl-C."""
    looks = iter(range(1, 1000))

    def ask(request: object) -> object:
        number = next(looks)
        if number == look:
            os.kill(os.getpid(), signal.SIGINT)
        return answer(number)

    return ask


def queue(look: int) -> tuple[QueueView, ...]:
    return (QueueView(f"look{look}", False, {}),)


def test_in_a_pipe_every_look_is_a_line_of_json_until_ctrl_c(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ListQueues] = interrupted_at(3, queue)
    assert dispatcher.run("queues", "--json", *QUICK) == 0
    printed = [json.loads(line)[0]["name"] for line in capsys.readouterr().out.splitlines()]
    assert printed[:2] == ["look1", "look2"]


def test_on_a_terminal_it_is_redrawn_and_the_last_look_stays(
    dispatcher: ScriptedDispatcher, terminal: OnTerminal
) -> None:
    dispatcher.answers[m.ListQueues] = interrupted_at(3, queue)
    code, written = terminal("queues", "--watch", *QUICK)
    assert code == 0
    screen, _, after = written.partition("\x1b[?1049l")
    assert "longshore queues: every 0.1 s, Ctrl-C ends it" in screen
    assert "look1" in screen
    assert "look1" not in after
    assert "look2" in after


def test_a_dispatcher_out_of_reach_is_said_and_waited_for(
    dispatcher: ScriptedDispatcher, terminal: OnTerminal
) -> None:
    def answer(look: int) -> object:
        return Unavailable("the store is away") if 1 < look < 9 else queue(look)

    dispatcher.answers[m.ListQueues] = interrupted_at(10, answer)
    code, written = terminal("queues", *QUICK)
    assert code == 0
    assert "the store is away" in written
    assert "look9" in written


def test_watching_a_job_ends_with_the_job(
    dispatcher: ScriptedDispatcher, terminal: OnTerminal
) -> None:
    shown: list[Job] = [
        job(state=JobState.RUNNING, worker=None, progress=Progress(1, 4, "pages")),
        job(state=JobState.RUNNING, worker=None, progress=Progress(3, 4, "pages")),
        job(worker=None),
    ]
    looks = iter(shown)
    dispatcher.answers[m.Show] = lambda request: next(looks)
    dispatcher.answers[m.ListWorkers] = ()
    code, written = terminal("job", "42", *QUICK)
    assert code == 0
    screen, _, after = written.partition("\x1b[?1049l")
    assert "1/4 (25%) pages" in screen
    assert "3/4 (75%) pages" in screen
    assert "succeeded" in after


def test_nobody_there_at_first_is_an_error(
    dispatcher: ScriptedDispatcher, terminal: OnTerminal
) -> None:
    dispatcher.answers[m.ListQueues] = Unavailable("the store is away")
    code, written = terminal("queues", *QUICK)
    assert code == 4
    assert written == ""


@pytest.mark.parametrize("colours", [True, False])
def test_no_color_is_honoured(
    colours: bool,
    dispatcher: ScriptedDispatcher,
    terminal: OnTerminal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    dispatcher.answers[m.ListJobs] = JobPage((job(),))
    code, written = terminal("jobs")
    assert code == 0
    assert ("\x1b[32m" in written) is colours
