"""What jobs print to the worker's own output is marked with the number of the job."""

from __future__ import annotations

import io
import threading
from uuid import UUID

import pytest

from longshore.executors.output.attempt_log import AttemptLog
from longshore.executors.output.marks import LineMarks
from longshore.model.job import LogKind
from longshore.model.log import LogLimits, unpack_line

from .stand import Stand, result_of

ONE, TWO = (AttemptLog(UUID(int=n), n, lambda attempt_log: None) for n in (1, 2))


def printed(*pieces: tuple[AttemptLog, str]) -> str:
    marks = LineMarks()
    numbered = [(who, 1 if who is ONE else 2, text) for who, text in pieces]
    return "".join(piece for one in numbered for piece in marks.marked(*one))


@pytest.mark.parametrize(
    ("pieces", "output"),
    [
        ([(ONE, "a\n")], "[1] a\n"),
        ([(ONE, "a"), (ONE, " "), (ONE, "b"), (ONE, "\n")], "[1] a b\n"),
        ([(ONE, "a\nb\n\nc")], "[1] a\n[1] b\n[1] \n[1] c"),
        ([(ONE, "\n"), (ONE, "\n")], "[1] \n[1] \n"),
        ([(ONE, ""), (TWO, "b\n"), (ONE, "")], "[2] b\n"),
        ([(ONE, "a\n"), (TWO, "b\n")], "[1] a\n[2] b\n"),
        ([(ONE, "\r10%"), (ONE, "\r20%\n")], "[1] \r10%\r20%\n"),
    ],
)
def test_each_line_has_one_mark(pieces: list[tuple[AttemptLog, str]], output: str) -> None:
    assert printed(*pieces) == output


def test_an_open_line_is_ended_before_another_job_prints_and_its_own_end_is_not_repeated() -> None:
    assert printed((ONE, "a"), (TWO, "b"), (ONE, "\n"), (TWO, "\n")) == "[1] a\n[2] b\n"
    assert printed((ONE, "a"), (TWO, "b\n"), (ONE, "c\n")) == "[1] a\n[2] b\n[1] c\n"
    assert printed((ONE, "a"), (TWO, "b\n"), (ONE, "\n\n")) == "[1] a\n[2] b\n[1] \n"


def test_bytes_are_marked_too() -> None:
    marks = LineMarks()
    assert marks.marked(ONE, 1, b"\xff\nb") == [b"[1] \xff\n[1] b"]
    assert marks.marked(TWO, 2, "c") == ["\n", "[2] c"]


def test_after_what_no_job_printed_comes_a_mark() -> None:
    marks = LineMarks()
    marks.marked(ONE, 1, "a")
    marks.forget_line()
    assert marks.marked(ONE, 1, "b\n") == ["[1] b\n"]


def test_lines_of_many_threads_stay_whole() -> None:
    marks, output = LineMarks(), io.StringIO()

    def job(number: int) -> None:
        attempt = AttemptLog(UUID(int=number), number, lambda attempt_log: None)
        for _ in range(200):
            for piece in (f"line {number}", "\n"):
                with marks.lock:
                    output.writelines(marks.marked(attempt, number, piece))

    threads = [threading.Thread(target=job, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [f"[{n}] line {n}" for n in range(8) for _ in range(200)]
    assert sorted(output.getvalue().splitlines()) == expected


@pytest.mark.parametrize("kind", ["print_marked", "print_marked_async"])
@pytest.mark.parametrize("echo", [True, False])
async def test_the_output_is_marked_and_the_log_is_not(
    stand: Stand, kind: str, echo: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    opened = stand.open_coroutine if kind.endswith("async") else stand.open_child
    await opened(log_limits=LogLimits(echo=echo))
    assignment = stand.start(kind)
    assert result_of(await stand.report_of(assignment)) is None
    entries = stand.said_by(assignment, LogKind.TEXT)
    assert [unpack_line(entry.data).text for entry in entries] == ["one", "two", "bytes", "warned"]
    out, err = capfd.readouterr()
    number = assignment.number
    assert out == (f"[{number}] one\n[{number}] two\n[{number}] bytes\n" if echo else "")
    assert err == (f"[{number}] warned\n" if echo else "")
