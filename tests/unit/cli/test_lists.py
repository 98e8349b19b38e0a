"""Lists on a terminal: 80 columns hold what a person looks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec import structs
from tests.unit.cli.test_commands import job
from tests.unit.cli.test_fleet import VIEW

from longshore.cli.view import lists, show
from longshore.model.job import JobError, JobState, Reason
from longshore.model.worker import KindInfo

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
RAISED = JobError(Reason.RAISED, "no such mailbox: ada@example.org", "longshore.errors.NotFound")


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def on_screen(table: show.Table, width: int = 80) -> show.Table:
    """The table as a terminal so wide shows it."""
    return show.fitted(show.on_one_line(show.with_bars(table)), width)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (200_000, "2 d"),
    ],
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert lists.age(ago(seconds), NOW) == text


def test_jobs_at_80_columns_keep_attempt_age_and_took_and_say_what_was_raised() -> None:
    failed = job(
        kind="send_welcome_mail_to_customer",
        state=JobState.FAILED,
        attempt=3,
        created_at=ago(90),
        started_at=ago(80),
        ended_at=ago(79.5),
        error=RAISED,
    )
    long = structs.replace(failed, started_at=ago(7000), ended_at=ago(10), number=1_000_000)
    shown = on_screen(lists.jobs_screen([long, failed], NOW))
    assert shown.columns == ("number", "state", "kind", "attempt", "age", "took", "error")
    assert [row[3:6] for row in shown.rows] == [("3", "90 s", "116 min"), ("3", "90 s", "500 ms")]
    assert shown.rows[0][6].startswith("NotFound: no such")


def test_jobs_on_a_terminal_name_their_queues_if_there_is_more_than_the_default() -> None:
    mail = job(queue="mail")
    assert "queue" not in on_screen(lists.jobs_screen([job()], NOW), 120).columns
    assert "queue" in on_screen(lists.jobs_screen([job(), mail], NOW), 120).columns


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RAISED, "NotFound: no such mailbox: ada@example.org"),
        (JobError(Reason.RAISED, "one\ntwo", "ValueError"), "ValueError: one"),
        (JobError(Reason.TIMED_OUT, "took longer than 1 s"), "took longer than 1 s"),
        (JobError(Reason.RAISED, "", "KeyError"), "KeyError"),
        (JobError(Reason.CRASHED, ""), "crashed"),
    ],
)
def test_an_error_begins_with_what_tells_most(error: JobError, text: str) -> None:
    assert lists.brief_error(error) == text


def test_workers_at_80_columns_keep_slots_and_processes() -> None:
    kinds = {f"kind_{number}": info for number in range(20) for info in VIEW.info.kinds.values()}
    info = structs.replace(VIEW.info, name="dock-1:4711", kinds={**VIEW.info.kinds, **kinds})
    busy = structs.replace(VIEW, info=info, running={"a": 2, "b": 1})
    shown = on_screen(lists.workers_screen([busy], {UUID(int=6): "d:1"}, NOW))
    row = dict(zip(shown.columns, shown.rows[0], strict=True))
    assert (row["slots"], row["processes"]) == ("2/100", "1/1")
    assert (row["running"], row["cpu"], row["up"]) == ("a 2, b 1", "12 %", "0 s")


def test_a_pool_of_any_name_has_a_column() -> None:
    info = structs.replace(VIEW.info, kinds={"train": KindInfo("gpu")}, pools={"gpu": 4})
    busy = structs.replace(VIEW, info=info, running={"train": 3})
    shown = on_screen(lists.workers_screen([busy], {UUID(int=6): "d:1"}, NOW))
    row = dict(zip(shown.columns, shown.rows[0], strict=True))
    assert row["gpu slots"] == "3/4"
    assert not {"slots", "processes"} & set(shown.columns)


def test_a_gone_worker_says_why_and_when_and_nothing_that_was_true_before() -> None:
    gone = structs.replace(VIEW, alive=False, ended_why="drained", ended_at=ago(200))
    shown = on_screen(lists.workers_screen([gone], {}, NOW))
    assert shown.rows[0][-1] == "drained, 3 min ago"
    assert not {"slots", "cpu", "memory", "up", "seen"} & set(shown.columns)
