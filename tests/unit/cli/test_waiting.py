"""`submit --wait`, `logs --follow`: what a job says is shown as it runs, apart from its result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from tests.unit.cli.conftest import ScriptedDispatcher
from tests.unit.cli.test_commands import ID, accept, job
from tests.unit.cli.test_watching import Terminal

from longshore.cli.view import waiting
from longshore.client import logs as client_logs
from longshore.errors import Unavailable
from longshore.model.job import Ended, JobState, Progress
from longshore.model.log import STDOUT, STEP, LogLine, LogPage
from longshore.payload.values import pack
from longshore.wire import messages as m

Captured = pytest.CaptureFixture[str]
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
HEAD = "2026-01-31 12:00:00.000Z stdout   "
S = JobState


def line(seq: int, text: str, *, token: int = 7, attempt: int = 1) -> LogLine:
    return LogLine(token=token, seq=seq, attempt=attempt, at=AT, stream=STDOUT, text=text)


def log_of(
    pages: Sequence[Sequence[LogLine]], state: JobState = S.RUNNING, last: JobState = S.SUCCEEDED
) -> Callable[[m.ReadLogs], LogPage]:
    """A log that grows by a page at each look; the job has ended when the last one is read."""
    said = [one for page in pages for one in page]
    looks = iter(range(1, len(pages) + 1))
    now = 0

    def answer(request: m.ReadLogs) -> LogPage:
        nonlocal now
        now = next(looks, now)
        there = said[: sum(len(page) for page in pages[:now])]
        lines = tuple(one for one in there if (one.token, one.seq) > request.after)
        after = (lines[-1].token, lines[-1].seq) if lines else request.after
        is_over = now == len(pages)
        return LogPage(
            lines=lines, after=after, more=False, state=last if is_over else state, attempt=1
        )

    return answer


def ends_at(look: int, outcome: Ended) -> Callable[[m.Wait], tuple[Ended, ...]]:
    """The outcome is there at this look, not before."""
    looks = iter(range(1, 1000))
    return lambda request: (outcome,) if next(looks) == look else ()


SUCCEEDED = Ended(ID, S.SUCCEEDED, pack("done", "result"))
SUBMIT = ("submit", "press", "--id", str(ID), "--wait")


def test_what_a_job_says_goes_to_standard_error_and_its_result_to_standard_output(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = ends_at(3, SUCCEEDED)
    dispatcher.answers[m.Show] = job(state=S.RUNNING)
    dispatcher.answers[m.ReadLogs] = log_of(
        [[line(1, "one")], [line(2, "two")], [line(1, "again", token=8, attempt=2)]]
    )
    assert dispatcher.run(*SUBMIT) == 0
    printed = capsys.readouterr()
    assert printed.out == '"done"\n'
    assert printed.err.splitlines() == [
        f"submitted job 42 ({ID})",
        f"{HEAD}one",
        "job 42: running",
        f"{HEAD}two",
        "--- attempt 2",
        f"{HEAD}again",
    ]


def test_a_wait_says_the_last_step_and_not_every_one(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    """All of them are in the log."""
    steps = [
        LogLine(token=7, seq=seq, attempt=1, at=AT, stream=STEP, text=f"page {seq}")
        for seq in range(1, 201)
    ]
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = ends_at(3, SUCCEEDED)
    dispatcher.answers[m.Show] = job(state=S.RUNNING, step="page 200")
    dispatcher.answers[m.ReadLogs] = log_of([[*steps, line(201, "read")]])
    assert dispatcher.run(*SUBMIT) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"submitted job 42 ({ID})",
        f"{HEAD}read",
        "job 42: running page 200",
    ]


def test_json_of_a_wait_is_one_document_whatever_the_job_says(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = ends_at(1, SUCCEEDED)
    dispatcher.answers[m.ReadLogs] = log_of([[line(1, "{")]])
    assert dispatcher.run(*SUBMIT, "--json") == 0
    assert json.loads(capsys.readouterr().out)["result"] == "done"


def test_a_wait_reads_a_long_log_to_its_end(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    def page(request: m.ReadLogs) -> LogPage:
        seq = request.after[1] + 1
        return LogPage(
            lines=(line(seq, f"line {seq}"),),
            after=(7, seq),
            more=seq < 5,
            state=S.SUCCEEDED,
            attempt=1,
        )

    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = ends_at(1, SUCCEEDED)
    dispatcher.answers[m.ReadLogs] = page
    assert dispatcher.run(*SUBMIT) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [f"{HEAD}line {n}" for n in range(1, 6)]


def test_on_a_terminal_the_log_is_above_a_bar_and_the_bar_is_gone_at_the_end(
    dispatcher: ScriptedDispatcher, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(variable, value)
    written = Terminal()
    monkeypatch.setattr(sys, "stderr", written)
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = ends_at(2, SUCCEEDED)
    dispatcher.answers[m.Show] = job(state=S.RUNNING, progress=Progress(1, 4, "sheets"))
    dispatcher.answers[m.ReadLogs] = log_of([[line(1, "one\x1b[31m")], [line(2, "two")]])
    assert dispatcher.run(*SUBMIT) == 0
    assert capsys.readouterr().out == '"done"\n'
    shown = written.getvalue()
    assert "one\\x1b[31m" in shown
    assert shown.index("one") < shown.index("two")
    assert shown.rstrip().endswith("\x1b[2K"), "the bar's line is erased"


def test_a_wait_says_why_a_job_stays_ready_and_again_only_when_that_changes(
    dispatcher: ScriptedDispatcher, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "STUCK_S", 0)
    reasons = iter(["all busy; 12 jobs before it", "all busy; 9 jobs before it", "queue is paused"])
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = ends_at(4, SUCCEEDED)
    dispatcher.answers[m.Show] = job(state=S.READY)
    dispatcher.answers[m.Why] = lambda request: m.WhyAnswer(ID, 42, "ready", next(reasons))
    assert dispatcher.run(*SUBMIT) == 0
    printed = capsys.readouterr()
    assert printed.out == '"done"\n'
    assert printed.err.splitlines()[1:] == [
        "job 42: ready",
        "job 42 (ready): all busy; 12 jobs before it",
        "job 42 (ready): queue is paused",
    ]


def test_a_wait_does_not_ask_why_of_a_job_that_was_ready_for_a_moment_or_runs(
    dispatcher: ScriptedDispatcher,
) -> None:
    looks = iter([job(state=S.READY), job(state=S.RUNNING), job(state=S.READY)])
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = ends_at(4, SUCCEEDED)
    dispatcher.answers[m.Show] = lambda request: next(looks)
    assert dispatcher.run(*SUBMIT) == 0
    assert not [request for request in dispatcher.asked if isinstance(request, m.Why)]


def test_no_dispatcher_any_more_says_that_the_job_goes_on(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = Unavailable("the store is away")
    assert dispatcher.run(*SUBMIT) == 4
    said = capsys.readouterr().err.splitlines()
    assert said[1].startswith("job 42 goes on; `longshore cancel 42` cancels it, `longshore logs")
    assert said[2].startswith("error: the store is away")


@pytest.mark.parametrize("last", [S.SUCCEEDED, S.FAILED, S.CANCELLED])
def test_following_ends_with_the_job_and_leaves_nothing_out(
    last: JobState,
    dispatcher: ScriptedDispatcher,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_logs, "FOLLOW_S", 0)
    dispatcher.answers[m.ReadLogs] = log_of(
        [[], [line(1, "one")], [], [line(2, "two"), line(3, "three")]], last=last
    )
    assert dispatcher.run("logs", "42", "--follow") == 0
    said = [f"{HEAD}{text}" for text in ("one", "two", "three")]
    assert capsys.readouterr().out.splitlines() == said


@pytest.mark.parametrize(
    ("words", "had", "said"),
    [
        ([], 1, "job 42 has no log: it said nothing that was kept"),
        (["--attempt", "1"], 1, "job 42 has no log: attempt 1 said nothing that was kept"),
        (["--attempt", "7"], 1, "job 42 has no attempt 7: it had 1 attempt"),
        (["--attempt", "7"], 3, "job 42 has no attempt 7: it had 3 attempts"),
        (["--attempt", "1"], 0, "job 42 has no attempt 1: it did not run yet"),
    ],
)
def test_a_log_of_nothing_says_why(
    dispatcher: ScriptedDispatcher, capsys: Captured, words: list[str], had: int, said: str
) -> None:
    dispatcher.answers[m.Show] = job(attempt=had)
    assert dispatcher.run("logs", "42", *words) == 0
    assert capsys.readouterr().err == f"{said}\n"


def test_following_one_attempt_ends_when_the_next_has_begun(
    dispatcher: ScriptedDispatcher, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_logs, "FOLLOW_S", 0)
    attempts = iter([1, 2])

    def page(request: m.ReadLogs) -> LogPage:
        assert request.attempt == 1
        attempt = next(attempts)
        return LogPage(
            lines=(line(attempt, f"look {attempt}"),),
            after=(7, attempt),
            more=False,
            state=S.RUNNING,
            attempt=attempt,
        )

    dispatcher.answers[m.ReadLogs] = page
    assert dispatcher.run("logs", "42", "--follow", "--attempt", "1") == 0
    assert capsys.readouterr().out.splitlines() == [f"{HEAD}look 1", f"{HEAD}look 2"]
