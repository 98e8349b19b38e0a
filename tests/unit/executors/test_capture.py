"""What jobs print and log is caught line by line, for the attempt that says it, within bounds."""

from __future__ import annotations

import contextvars
import io
import threading
from pathlib import Path
from typing import TextIO, cast
from uuid import UUID

import pytest

from longshore.executors.frames import ITEMS_PER_FRAME, FromHost, Said
from longshore.executors.host.context import RunningContext, enter
from longshore.executors.host_process import HostProcess
from longshore.executors.output.capture import _Catching, _Text
from longshore.executors.output.quota import LAST_LINES, LineQuota
from longshore.executors.process import ProcessExecutor
from longshore.model.job import LogKind
from longshore.model.log import LogLimits, unpack_line
from longshore.wire.messages import Assignment

from .stand import Stand, result_of


def texts(quota: LineQuota) -> list[str]:
    quota.end()
    return [one.line(1).text for one in quota.take()]


def said(stand: Stand, assignment: Assignment) -> list[tuple[str, str, str]]:
    """Stream, level and text of every line."""
    lines = [unpack_line(entry.data) for entry in stand.said_by(assignment, LogKind.TEXT)]
    return [(line.stream, line.level, line.text) for line in lines]


def test_pieces_become_lines_and_the_last_needs_no_end() -> None:
    quota = LineQuota(LogLimits())
    assert not quota.write("stdout", b"one ")
    assert quota.write("stdout", b"line\ntwo\n\nthree")
    assert texts(quota) == ["one line", "two", "", "three"]


def test_nothing_printed_is_no_line() -> None:
    """As `print("one\\n", end="")` does, which writes the text and then no end."""
    quota = LineQuota(LogLimits())
    for text in (b"one\n", b"", b"two", b"", b"\n", b""):
        quota.write("stdout", text)
    assert texts(quota) == ["one", "two"]


def test_streams_and_threads_do_not_mix_their_lines() -> None:
    quota = LineQuota(LogLimits())
    quota.write("stdout", b"out ")
    quota.write("stderr", b"err ")
    thread = threading.Thread(target=lambda: quota.write("stdout", b"thread "))
    thread.start()
    thread.join()
    quota.write("stdout", b"put\n")
    quota.write("stderr", b"or\n")
    assert texts(quota) == ["out put", "err or", "thread "]


def test_a_long_line_is_cut_between_characters_and_never_gathered_whole() -> None:
    quota = LineQuota(LogLimits(line_bytes=100))
    for _ in range(10_000):
        quota.write("stdout", "ä".encode() * 100)
    (piece,) = quota._pieces.values()
    assert len(piece) <= 101
    (text,) = texts(quota)
    assert text == "ä" * 48 + "…"


def test_bytes_that_are_no_text_are_shown_and_characters_may_come_in_halves() -> None:
    quota = LineQuota(LogLimits())
    quota.write("stdout", b"\xff\x00 \xc3")
    quota.write("stdout", b"\xa4\n")
    assert texts(quota) == ["\\xff\x00 ä"]


def test_what_a_progress_bar_wrote_over_is_gone() -> None:
    quota = LineQuota(LogLimits())
    for percent in range(0, 101, 10):
        quota.write("stderr", f"\r{percent}%".encode())
    quota.write("stderr", b"\nnext\r\n")
    assert texts(quota) == ["100%", "next"]


def test_past_the_bound_lines_are_counted_and_the_last_kept() -> None:
    quota = LineQuota(LogLimits(entries=10))
    for number in range(1000):
        quota.write("stdout", b"%d\n" % number)
    kept = texts(quota)
    left_out = 1000 - 10 - LAST_LINES
    assert kept[:10] == [str(number) for number in range(10)]
    assert kept[10].startswith(f"{left_out} lines were left out")
    assert kept[11:] == [str(number) for number in range(1000 - LAST_LINES, 1000)]


def test_bytes_are_bounded_too() -> None:
    quota = LineQuota(LogLimits(bytes=1000))
    for _ in range(1000):
        quota.write("stdout", b"x" * 99 + b"\n")
    assert len(texts(quota)) == 11 + 1 + LAST_LINES


class Gone(io.StringIO):
    """An output that nobody reads any more."""

    def write(self, text: str, /) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


def test_a_job_does_not_fail_because_its_workers_output_is_gone() -> None:
    context = RunningContext(
        Assignment(UUID(int=1), 1, 1, "k", b"", None, 1), lambda attempt_log: None
    )
    stream = _Text(Gone(), _Catching("stdout", echo=True))

    def job() -> None:
        enter(context)
        print("kept", file=cast(TextIO, stream), flush=True)

    contextvars.copy_context().run(job)
    assert [unpack_line(entry.data).text for entry in context.unsaid()] == ["kept"]
    with pytest.raises(BrokenPipeError):
        print("not of a job", file=cast(TextIO, stream))


def test_a_text_of_millions_of_lines_is_counted_not_taken_apart() -> None:
    quota = LineQuota(LogLimits(entries=10))
    quota.write("stdout", b"be")
    quota.write("stdout", b"gin\n" + b"x\n" * 5_000_000 + b"rest")
    assert len(quota._last) == LAST_LINES
    kept = texts(quota)
    assert kept[:2] == ["begin", "x"]
    assert kept[10].startswith(f"{5_000_002 - 10 - LAST_LINES:,} lines were left out")
    assert kept[-2:] == ["x", "rest"]


async def test_much_that_is_said_at_once_comes_in_portions(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that hears more at once than it keeps would lose the oldest of it."""
    receive, sizes = ProcessExecutor._receive, list[int]()

    def count(executor: ProcessExecutor, host: HostProcess, messages: list[FromHost]) -> None:
        sizes.extend(len(one.entries) for one in messages if isinstance(one, Said))
        receive(executor, host, messages)

    monkeypatch.setattr(ProcessExecutor, "_receive", count)
    await stand.open_child()
    assignment = stand.start("print_lines", count=5000)
    result_of(await stand.report_of(assignment))
    assert [int(text) for _, _, text in said(stand, assignment)] == list(range(5000))
    assert max(sizes) <= ITEMS_PER_FRAME


async def test_any_text_can_be_printed(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:strict")
    await stand.open_child()
    assignment = stand.start("print_oddly")
    assert result_of(await stand.report_of(assignment)) is None
    assert said(stand, assignment) == [("stdout", "", "ä \\udcff")]


async def test_a_job_that_puts_another_output_in_place_does_so_for_itself(stand: Stand) -> None:
    await stand.open_child()
    assert await stand.result("swap_output") is None
    assignment = stand.start("speak")
    assert result_of(await stand.report_of(assignment)) is None
    assert said(stand, assignment)[:2] == [("stdout", "", "printed"), ("stderr", "", "to stderr")]


async def test_a_job_that_closes_its_output_closes_it_for_nobody_else(stand: Stand) -> None:
    await stand.open_child()
    assert await stand.result("close_output") is None
    assert await stand.result("speak") is None


async def test_a_plain_job_is_heard_on_every_way(stand: Stand) -> None:
    await stand.open_child()
    assignment = stand.start("speak")
    result_of(await stand.report_of(assignment))
    assert said(stand, assignment) == [
        ("stdout", "", "printed"),
        ("stderr", "", "to stderr"),
        ("log", "WARNING", "logged 1"),
        ("log", "INFO", "bound"),
        ("stdout", "", "\\xff bytes"),
        ("stdout", "", "no end"),
    ]


async def test_coroutines_of_one_process_are_kept_apart(stand: Stand) -> None:
    await stand.open_coroutine()
    both = [stand.start("speak_in_turns", name=name) for name in ("one", "two")]
    for assignment, name in zip(both, ("one", "two"), strict=True):
        result_of(await stand.report_of(assignment))
        wanted = [("stdout", "", f"{name} {turn}") for turn in range(3)]
        assert said(stand, assignment) == [*wanted, ("stdout", "", f"{name} in a thread")]


async def test_what_handlers_print_is_heard_once(stand: Stand) -> None:
    await stand.open_child()
    assignment = stand.start("configure_and_log")
    result_of(await stand.report_of(assignment))
    assert said(stand, assignment) == [("log", "ERROR", "only once")]


@pytest.mark.parametrize("kind", ["log_under_odd_names", "log_under_odd_names_async"])
async def test_names_that_are_no_text_are_kept_as_what_they_are(stand: Stand, kind: str) -> None:
    await (stand.open_coroutine() if kind.endswith("async") else stand.open_child())
    assignment = stand.start(kind)
    assert result_of(await stand.report_of(assignment)) is None
    assert said(stand, assignment) == [("log", "\\udcff", "odd")]
    assert len(stand.said_by(assignment)[0].data) < 1000


async def test_a_record_that_cannot_be_shown_raises_nothing(stand: Stand) -> None:
    await stand.open_child()
    assignment = stand.start("log_spitefully")
    assert result_of(await stand.report_of(assignment)) is None
    ((_, _, text),) = said(stand, assignment)
    assert text.startswith("a record of log_spitefully, line ")


async def test_a_crashed_job_is_heard_up_to_its_death(stand: Stand, tmp_path: Path) -> None:
    await stand.open_child()
    heard = tmp_path / "heard"
    assignment = stand.start("speak_and_die", heard=str(heard))
    await stand.words_of(assignment)
    heard.touch()
    await stand.report_of(assignment)
    assert said(stand, assignment)[0] == ("stdout", "", "last words")


@pytest.mark.parametrize("kind", ["print_from_a_copy", "print_from_a_copy_async"])
async def test_what_a_forked_copy_says_goes_where_it_went_before(
    stand: Stand, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody would take it out of the copy's memory: kept there, it would be lost."""
    quiet = LogLimits(echo=False)
    if kind.endswith("async"):
        await stand.open_coroutine(log_limits=quiet)
    else:
        await stand.open_child(log_limits=quiet)
    assignment = stand.start(kind)
    assert result_of(await stand.report_of(assignment)) is None
    assert said(stand, assignment) == [("stdout", "", "printed by the original")]
    out, err = capfd.readouterr()
    assert out.splitlines() == ["printed by the copy", "bytes of the copy"]
    assert err == "logged by the copy\n"
