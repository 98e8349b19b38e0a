"""Which workers have which files at hand, as far as a dispatcher remembers."""

from uuid import UUID

import pytest

from longshore.core import files_at_hand
from longshore.core.files_at_hand import ANYWHERE, FilesSent, nearest

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
JOB = UUID(int=9)


def sent(**files: UUID) -> FilesSent:
    known = FilesSent()
    for file, worker in files.items():
        known.note(worker, [file])
    return known


def near(known: FilesSent, *needed: str, free: list[UUID], attempts: int = 0) -> UUID | None:
    return nearest(JOB, attempts, needed, known.workers, free)


def test_the_worker_that_has_most_of_what_a_job_needs_is_nearest() -> None:
    known = sent(x=A, y=B)
    known.note(B, ["z"])
    assert near(known, "x", "y", "z", free=[A, B, C]) == B
    assert near(known, "x", "y", "z", free=[A, C]) == A
    assert near(known, "other", free=[A, B, C]) is None


def test_of_those_that_have_as_much_the_first_is_taken() -> None:
    known = sent(x=A)
    known.note(B, ["x"])
    assert [near(known, "x", free=free) for free in ([A, B], [B, A], [C], [])] == [A, B, None, None]


def test_a_retry_goes_to_the_worker_that_had_the_job_last() -> None:
    known = sent(x=A)
    known.note(A, [JOB])
    known.note(B, [JOB])
    assert near(known, "x", free=[A, B], attempts=1) == B
    assert near(known, "x", free=[A], attempts=1) == A


def test_every_third_attempt_goes_anywhere() -> None:
    known = sent(x=A)
    found = [near(known, "x", free=[A, B], attempts=n) for n in range(2 * ANYWHERE)]
    assert found == [A, A, None, A, A, None]


def test_what_was_needed_last_is_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_at_hand, "MOST_FILES", 2)
    monkeypatch.setattr(files_at_hand, "MOST_WORKERS", 2)
    known = sent(x=A, y=A)
    known.note(A, ["x"])
    known.note(A, ["z"])
    assert known.workers.keys() == {"x", "z"}
    known.note(B, ["x"])
    known.note(C, ["x"])
    assert [*known.workers["x"]] == [B, C]
