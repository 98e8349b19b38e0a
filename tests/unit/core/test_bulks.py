"""Bulks in the core: which states a search means, how counts add up, and its words."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.bulks import (
    EXAMPLES,
    advanced,
    begun,
    counted,
    page_of,
    planned,
    search_words,
    share,
    together,
    with_states,
)
from longshore.core.job_query import LIVE, parse
from longshore.core.lifecycle import TERMINAL
from longshore.model.bulk import BulkAction, BulkPage, BulkState, NewBulk
from longshore.model.job import ArgTerm, JobFilter, JobPage, JobState

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SOME = UUID(int=7)
NEW = NewBulk(SOME, BulkAction.CANCEL, JobFilter(kind="report"))


def test_a_search_without_states_means_those_that_the_action_is_for() -> None:
    meant = {
        action: set(with_states(structs.replace(NEW, action=action)).wanted.states)
        for action in BulkAction
    }
    not_begun = {JobState.WAITING, JobState.DELAYED, JobState.READY}
    assert meant == {
        BulkAction.CANCEL: set(LIVE),
        BulkAction.RETRY: TERMINAL - {JobState.SUCCEEDED},
        BulkAction.PRIORITY: not_begun,
        BulkAction.MOVE: not_begun,
        BulkAction.DELETE: TERMINAL,
    }
    named = structs.replace(NEW, wanted=JobFilter(states=(JobState.FAILED,)))
    assert with_states(named) is named


def test_a_page_that_was_looked_through_leads_on() -> None:
    """A look may stop before it found anything; the next page goes on there."""
    bulk = begun(NEW, 1, 99, NOW)
    assert page_of(bulk, JobPage((), 40), 10).cursor == 40
    assert page_of(bulk, JobPage(), 10).cursor == 0


def test_it_is_over_when_all_is_passed_and_nothing_is_left() -> None:
    bulk = begun(NEW, 1, 99, NOW)
    last = BulkPage(SOME, 1, (), 0)
    waits = advanced(bulk, last, 3, [], [SOME], NOW)
    assert (waits.state, waits.left, waits.ended_at) == (BulkState.RUNNING, (SOME,), None)
    over = advanced(waits, last, 1, [(5, "runs already")], [], NOW)
    assert (over.state, over.matched, over.done, over.ended_at) == (BulkState.DONE, 5, 4, NOW)


def test_of_many_refused_jobs_a_few_are_named() -> None:
    first = counted((), [(n, "has ended") for n in range(4)])
    [one] = counted(first, [(n, "has ended") for n in range(4, 9)])
    assert (one.count, one.examples) == (9, tuple(range(EXAMPLES)))


def test_two_looks_of_a_plan_add_up() -> None:
    none = planned(structs.replace(NEW, wanted=JobFilter(limit=5)), JobPage((), 40))
    assert (none.matched, none.go_on) == (0, 40)
    some = structs.replace(none, matched=3, would=1, states={JobState.READY: 3}, go_on=None)
    both = together(some, some)
    assert (both.matched, both.would, both.states) == (6, 2, {JobState.READY: 6})
    assert both.go_on is None


def test_how_far_it_is_goes_by_the_count_or_by_the_numbers() -> None:
    bulk = begun(NEW, 1, 99, NOW)
    assert share(bulk) == 0.0
    assert share(structs.replace(bulk, cursor=50)) == 0.5
    expected = structs.replace(bulk, new=structs.replace(NEW, expected=10), cursor=50)
    assert share(structs.replace(expected, matched=3)) == 0.3
    assert share(structs.replace(expected, matched=30)) == 0.99
    assert share(structs.replace(expected, state=BulkState.DONE)) == 1.0


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(states=LIVE, kind="report", queue="mail"),
        JobFilter(states=(JobState.FAILED, JobState.CANCELLED), error='a "b" c'),
        JobFilter(labels=("a b", "c"), args=(ArgTerm("user.id", "7"), ArgTerm("x", "y z"))),
        JobFilter(since=NOW, until=NOW, slower_s=1.5, worker=SOME, group=SOME),
    ],
)
def test_its_search_is_said_as_it_can_be_typed(wanted: JobFilter) -> None:
    read = parse(search_words(wanted))
    assert read.errors == ()
    assert (read.kind, read.queue, read.error) == (wanted.kind, wanted.queue, wanted.error)
    assert set(read.states) == set(wanted.states)
    assert (read.labels, read.args) == (wanted.labels, wanted.args)
    times = (wanted.since, wanted.until)
    assert (read.since, read.older) == tuple(at and at.isoformat() for at in times)
    assert read.slower == (None if wanted.slower_s is None else "1.5s")
    assert read.group == (None if wanted.group is None else str(wanted.group))
