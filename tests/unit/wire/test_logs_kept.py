"""Log entries go out in portions, and again until the end of their attempt is acknowledged."""

from __future__ import annotations

from uuid import UUID

from longshore.model.job import LogEntry, LogKind
from longshore.wire.logs import (
    BYTES_PER_MESSAGE,
    ENTRIES_PER_MESSAGE,
    MOST_SENT,
    MOST_SENT_EACH,
    UnackedLogs,
)

JOB = UUID(int=7)


def entry(token: int, seq: int, data: bytes = b"") -> LogEntry:
    return LogEntry(JOB, token, seq, LogKind.TEXT, data)


def numbers(portions: list[tuple[LogEntry, ...]]) -> list[tuple[int, int]]:
    return [(one.token, one.seq) for part in portions for one in part]


def test_what_was_sent_is_sent_again_until_its_end_is_acknowledged() -> None:
    said = UnackedLogs()
    said.add(entry(1, 1))
    said.add(entry(2, 1))
    said.take()
    said.forget(1)
    said.add(entry(2, 2))
    said.repeat_all()
    assert numbers(said.take()) == [(2, 1), (2, 2)]
    assert not said.fresh


def test_portions_are_bounded_in_number_and_in_bytes() -> None:
    said = UnackedLogs()
    for seq in range(2 * ENTRIES_PER_MESSAGE + 1):
        said.add(entry(1, seq))
    assert [len(part) for part in said.take()] == [ENTRIES_PER_MESSAGE, ENTRIES_PER_MESSAGE, 1]
    for seq in range(3):
        said.add(entry(2, seq, bytes(BYTES_PER_MESSAGE // 2)))
    assert [len(part) for part in said.take()] == [2, 1]


def test_of_one_attempt_the_newest_are_kept_to_be_sent_again() -> None:
    said = UnackedLogs()
    for seq in range(MOST_SENT_EACH + 5):
        said.add(entry(1, seq))
    said.take()
    said.repeat_all()
    assert numbers(said.take())[0] == (1, 5)


def test_an_attempt_that_says_very_much_does_not_cost_the_others_what_they_said() -> None:
    """Only its newest entries are kept, so that the entries of others have room."""
    said = UnackedLogs()
    said.add(entry(1, 1))
    for seq in range(MOST_SENT + 5):
        said.add(entry(2, seq))
        if seq % ENTRIES_PER_MESSAGE == 0:
            said.take()
    said.take()
    said.repeat_all()
    assert numbers(said.take())[0] == (1, 1)
