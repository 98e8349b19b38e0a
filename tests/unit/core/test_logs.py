"""A job's log as it is shown: gaps are losses, and each attempt has its number."""

from __future__ import annotations

from datetime import UTC, datetime

from longshore.core.logs import MOST_PAGE_BYTES, page, shown
from longshore.model.job import Job, JobState, LogKind, Options
from longshore.model.log import KeptEntry, Line, as_text, pack_line
from longshore.model.log_archive import LogPart
from longshore.testing.builders import new_id

AT = datetime(2026, 1, 1, tzinfo=UTC)


def a_job(attempt: int, token: int) -> Job:
    return Job(
        id=new_id(),
        number=1,
        kind="k",
        queue="default",
        target="",
        priority=0,
        state=JobState.RUNNING,
        args=b"",
        options=Options(),
        unique_key=None,
        created_at=AT,
        run_at=None,
        started_at=None,
        ended_at=None,
        round=1,
        attempt=attempt,
        failures=0,
        crashes=0,
        token=token,
        worker=None,
        result=None,
        error=None,
    )


def text(token: int, seq: int, attempt: int = 0) -> KeptEntry:
    data = pack_line(Line(f"{token}.{seq}", "stdout", attempt=attempt)) if attempt else b"raw \xff"
    return KeptEntry(token, seq, LogKind.TEXT, AT, data)


def test_a_gap_between_numbers_is_said_to_be_a_loss() -> None:
    entries = [text(5, 1, 1), text(5, 4, 1), text(9, 2, 2)]
    lines = [line.text for line in shown(entries, a_job(2, 9), (0, 0), None)]
    lost = "lost on the way from the worker"
    assert lines == ["5.1", f"2 entries were {lost}", "5.4", f"1 entry was {lost}", "9.2"]


def test_a_page_goes_on_where_the_one_before_ended() -> None:
    assert [line.text for line in shown([text(5, 4, 1)], a_job(1, 5), (5, 3), None)] == ["5.4"]


def test_a_page_says_where_it_ends_and_whether_more_may_follow() -> None:
    """There may be more if the store gave all it was asked for, or the message is full."""
    some = [text(5, 1, 1), text(5, 2, 1)]
    full = page(some, 2, a_job(1, 5), (0, 0), None)
    assert (full.more, full.after) == (True, (5, 2))
    last = page(some, 3, a_job(1, 5), (0, 0), None)
    assert (last.more, last.after) == (False, (5, 2))
    none = page([], 3, a_job(1, 5), (5, 2), None)
    assert (none.more, none.after, none.lines) == (False, (5, 2), ())


def test_a_page_is_no_longer_than_a_message_and_has_at_least_one_line() -> None:
    large = [KeptEntry(5, seq, LogKind.STEP, AT, bytes(MOST_PAGE_BYTES)) for seq in (1, 2)]
    found = page(large, 10, a_job(1, 5), (0, 0), None)
    assert (len(found.lines), found.more, found.after) == (1, True, (5, 1))


def test_one_attempt_alone() -> None:
    entries = [text(5, 1, 1), text(9, 1, 2), text(9, 2, 2)]
    lines = shown(entries, a_job(2, 9), (0, 0), 2)
    assert [(line.attempt, line.text) for line in lines] == [(2, "9.1"), (2, "9.2")]


def test_steps_belong_to_the_attempt_whose_lines_are_around_them() -> None:
    entries = [KeptEntry(5, 1, LogKind.STEP, AT, b"first"), text(5, 2, 1), text(9, 1, 2)]
    lines = shown(entries, a_job(2, 9), (0, 0), 1)
    assert [(line.attempt, line.text) for line in lines] == [(1, "first"), (1, "5.2")]


def test_plain_text_of_other_workers_and_steps_are_shown_progress_is_not() -> None:
    entries = [
        text(5, 1),
        KeptEntry(5, 2, LogKind.PROGRESS, AT, b""),
        KeptEntry(5, 3, LogKind.STEP, AT, b"on"),
    ]
    lines = list(shown(entries, a_job(4, 5), (0, 0), None))
    assert [(line.stream, line.attempt, line.text, line.at) for line in lines] == [
        ("", 4, "raw \\xff", AT),
        ("step", 4, "on", AT),
    ]


def test_bytes_that_are_no_text_show_as_escapes() -> None:
    for data in (b"a\xffb", b"\xe2\x82", b"\xed\xa0\x80", "\N{SNOWMAN}".encode() + b"\x80"):
        assert as_text(data) == data.decode("utf-8", "backslashreplace")


def a_part(token: int, seq: int) -> LogPart:
    return LogPart(
        up_to=(token, seq),
        lines=seq,
        archive=b"a" * 32,
        generation=1,
        start=0,
        size=9,
        archived_at=AT,
    )


def test_entries_that_are_archived_too_are_not_shown_twice() -> None:
    entries = [text(5, 1, 1), text(5, 2, 1), text(5, 3, 1)]
    parts = [a_part(5, 1), a_part(5, 2)]
    found = page(entries, 10, a_job(1, 5), (0, 0), None, parts)
    assert [line.text for line in found.lines] == ["5.3"]
    assert found.archived == tuple(parts)
    assert (found.after, found.more) == ((5, 3), False)
    later = page(entries[1:], 10, a_job(1, 5), (5, 1), None, parts)
    assert (later.archived, len(later.lines)) == ((parts[1],), 1)


def test_a_page_of_archived_entries_alone_goes_on_behind_the_archive() -> None:
    entries = [text(5, 1, 1), text(5, 2, 1)]
    found = page(entries, 2, a_job(1, 5), (0, 0), None, [a_part(5, 9)])
    assert (found.lines, found.after, found.more) == ((), (5, 9), True)
    gone = page([], 2, a_job(1, 5), (0, 0), None, [a_part(5, 9)])
    assert (gone.lines, gone.after, gone.more) == ((), (5, 9), False)
