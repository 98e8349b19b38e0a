"""What becomes of a crowd when new jobs come: stories as values."""

from __future__ import annotations

import pytest

from longshore.core.crowds import Dropped, Member, Replaced, Timed, crowd_of, settle
from longshore.model.job import JobState, Options
from longshore.model.limits import Debounced, Full, JobLimit, LimitRule

S = 1_000_000
NOW = 100 * S


def options(full: Full, most: int | None = 2) -> Options:
    return Options(limits=(JobLimit("x=1"), JobLimit("t=a", most, full=full)))


def waits(number: int) -> Member:
    return Member(number, JobState.READY, False)


def runs(number: int) -> Member:
    return Member(number, JobState.RUNNING, True)


def test_the_newest_is_dropped_with_the_reason() -> None:
    new = {3: options(Full.DROP_NEWEST), 4: options(Full.DROP_NEWEST)}
    crowd = [runs(1), waits(3), waits(4)]
    assert settle(crowd, new, (), NOW) == [Dropped(4, "t=a is at 2 of 2")]


def test_the_oldest_are_replaced_by_those_that_come() -> None:
    new = {5: options(Full.CANCEL_OLDEST), 6: options(Full.CANCEL_OLDEST)}
    crowd = [runs(1), waits(2), waits(5), waits(6)]
    assert settle(crowd, new, (), NOW) == [Replaced(1, 5, False), Replaced(2, 6, False)]


def test_what_runs_is_not_replaced_by_one_that_waits() -> None:
    new = {5: options(Full.REPLACE_WAITING, 1)}
    crowd = [runs(1), waits(2), waits(5)]
    assert settle(crowd, new, (), NOW) == [Replaced(2, 5, True)]


@pytest.mark.parametrize("full", Full)
def test_a_key_that_nothing_limits_is_never_full(full: Full) -> None:
    new = {3: options(full, None)}
    assert settle([runs(1), runs(2), waits(3)], new, (), NOW) == []


def test_a_limit_of_none_leaves_the_newest() -> None:
    new = {3: options(Full.CANCEL_OLDEST)}
    rules = [LimitRule("t=*", 0)]
    found = settle([waits(1), waits(2), waits(3)], new, rules, NOW)
    assert found == [Replaced(1, 3, False), Replaced(2, 3, False)]


def delayed(number: int, due_s: int, calm_by: int | None = None) -> Member:
    return Member(number, JobState.DELAYED, False, due_s * S, calm_by)


def test_a_debounce_is_put_off_up_to_its_longest_wait() -> None:
    terms = Options(debounce=Debounced("d=1", 5.0, 8.0))
    first = settle([delayed(1, 105)], {1: terms}, (), NOW)
    assert first == [Timed(1, 105 * S, 108 * S)]
    crowd = [delayed(1, 105, 108 * S), delayed(2, 109)]
    second = settle(crowd, {2: terms}, (), 104 * S)
    assert second == [Replaced(1, 2, True), Timed(2, 108 * S, 108 * S)]


def test_a_debounced_job_that_is_due_or_was_tried_is_left_alone() -> None:
    terms = Options(debounce=Debounced("d=1", 5.0))
    due, tried = delayed(1, 100), Member(2, JobState.DELAYED, True, 200 * S)
    found = settle([due, tried, delayed(3, 105)], {3: terms}, (), NOW)
    assert found == [Timed(3, 105 * S, None)]


def test_a_debounce_is_of_its_kind_and_a_limit_of_all() -> None:
    terms = Options(debounce=Debounced("t=a", 5.0))
    assert crowd_of("one", terms) != crowd_of("two", terms)
    assert crowd_of("one", options(Full.DROP_NEWEST)) == "t=a"
    assert crowd_of("one", options(Full.WAIT)) is None
