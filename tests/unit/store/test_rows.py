"""Values as SQL stores keep them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from longshore.model.job import JobError, JobState, Reason
from longshore.store.rows import (
    clean,
    history_entry,
    later,
    micros,
    moment,
    pack_error,
    read_history,
    unpack_error,
    unpack_progress,
)

NOW = datetime(2026, 5, 17, 12, 30, 15, 123_456, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)


def test_times_are_kept_to_the_microsecond_whatever_their_zone() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert moment(micros(NOW)) == NOW
    assert micros(elsewhere) == micros(NOW)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (1.5, NOW + timedelta(seconds=1.5)),
        (0, NOW),
        (-5, NOW),
        (float("nan"), NOW),
        (1e11 * 3, LATEST),
        (1e300, LATEST),
        (float("inf"), LATEST),
    ],
)
def test_durations_end_within_the_calendar(seconds: float, expected: datetime) -> None:
    assert moment(later(micros(NOW), seconds)) == expected


def test_history_loses_only_what_databases_refuse() -> None:
    entry = history_entry(JobState.FAILED, micros(NOW), "a\0b", 'späß "quoted" \ud800\0')
    [read] = read_history(f"[{entry}]")
    assert (read.state, read.at) == (JobState.FAILED, NOW)
    assert (read.by, read.info) == ("ab", 'späß "quoted" ?')


def test_clean_keeps_sound_text_as_it_is() -> None:
    text = "späß 🚢\n\ttext"
    assert clean(text) == text


def test_error_with_half_a_character_is_kept() -> None:
    error = JobError(Reason.RAISED, "bad \ud800 text", type="ValueError", traceback="line 1")
    expected = JobError(Reason.RAISED, "bad ? text", type="ValueError", traceback="line 1")
    assert unpack_error(pack_error(error)) == expected


def test_progress_that_cannot_be_read_is_no_progress() -> None:
    assert unpack_progress(b"\xc1") is None
