"""Values as SQL stores keep them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec import structs

from longshore.model.job import JobError, JobState, Reason
from longshore.model.reports import OutboxNode
from longshore.payload.maps import grown_id
from longshore.store.rows import (
    Adder,
    bodies_or_whys,
    body_or_why,
    clean,
    grown_items,
    history_entry,
    later,
    micros,
    moment,
    pack_error,
    read_history,
    unpack_error,
    unpack_progress,
    wrong_scopes,
)
from longshore.testing.builders import a_job, new_id

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


def test_many_jobs_are_told_what_each_of_them_would_be() -> None:
    """Also if some cannot be stored, for one reason or another."""
    sound = [a_job(args=bytes([n])) for n in range(3)]
    odd = [a_job(kind="nul \0"), a_job(priority=2**20)]
    unreadable = a_job(kind="half \ud800")
    for jobs in ([], sound, [*sound, *odd], [sound[0], unreadable, *odd, sound[1]]):
        assert bodies_or_whys(jobs, 0) == [body_or_why(job, 0) for job in jobs]
    assert [type(one) for one in bodies_or_whys([sound[0], *odd, unreadable], 0)] == [
        int,
        str,
        str,
        str,
    ]


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


def test_added_jobs_get_keys_below_their_adder_and_places_after_all_others() -> None:
    adder = Adder(new_id(), 2, "sub/split", 4, rank=7)
    nodes = [OutboxNode("a", a_job()), OutboxNode("b", a_job(), (0, 0), detached=True)]
    items = grown_items(adder, nodes, first=10, index=100)
    assert not isinstance(items, str)
    assert [(one.place, one.parents) for one in items] == [(10, ()), (11, (10,))]
    assert [one.rank for one in items] == [7, 7]
    assert [(one.node.key, one.node.scope) for one in items] == [
        ("sub/split/a", 4),
        ("sub/split/b", None),
    ]
    ids = [grown_id(adder.job, 2, index) for index in (100, 101)]
    assert [one.node.job.id for one in items] == ids


def test_an_added_job_that_no_database_takes_is_told_by_its_key() -> None:
    adder = Adder(new_id(), 1, "split", 0, rank=1)
    bad = structs.replace(a_job(), kind="a\0b")
    why = grown_items(adder, [OutboxNode("odd", bad)], first=1)
    assert why == "it adds the job 'odd', and its kind holds a NUL character"


def test_only_sub_groups_that_are_not_in_themselves_are_scopes() -> None:
    group = new_id()
    assert wrong_scopes(group, {2: "a", 3: "b"}, {2: 3, 3: None}) is None
    missing = wrong_scopes(group, {2: "a"}, {3: None})
    assert missing is not None
    assert "job 'a', its scope 2 is not the place of a sub-group" in missing.message
    circle = wrong_scopes(group, {2: "a", 3: "b"}, {2: 3, 3: 2})
    assert circle is not None
    assert "its sub-group is in its own scope" in circle.message
