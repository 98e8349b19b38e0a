"""How many attempts a worker holds ahead of its free slots."""

from __future__ import annotations

import pytest

from longshore.core.lookahead import (
    ENOUGH_RUNS,
    IN_PROCESS_S,
    LONG_RUN_S,
    MOST_PER_SLOT,
    RUNS,
    Lookahead,
)


def after(*runs: tuple[str, float]) -> Lookahead:
    """What is known after these runs."""
    lookahead = Lookahead(0.05)
    for kind, seconds in runs:
        lookahead.ran(kind, seconds)
    return lookahead


def test_nothing_is_held_ahead_before_enough_runs_have_ended() -> None:
    runs = [("fetch", 0.001)] * (ENOUGH_RUNS - 1)
    assert after(*runs).ahead(["fetch"], 2, []) == 0
    assert after(*runs, ("fetch", 0.001)).ahead(["fetch"], 2, []) == 100


def test_as_many_are_held_as_begin_within_the_time_but_not_any_number() -> None:
    assert after(*[("fetch", 0.010)] * 20).ahead(["fetch"], 4, []) == 20
    assert after(*[("fetch", 0.00001)] * 20).ahead(["fetch"], 4, []) == 4 * MOST_PER_SLOT
    assert after(*[("fetch", 0.0)] * 20).ahead(["fetch"], 4, []) == 4 * MOST_PER_SLOT


def test_a_kind_of_which_more_than_one_in_ten_is_long_is_never_held_ahead() -> None:
    mixed = [("fetch", 0.001)] * 17 + [("fetch", 2.0)] * 3
    assert after(*mixed).ahead(["fetch"], 4, []) == 0


def test_a_long_run_in_twenty_does_not_keep_the_others_from_being_held_ahead() -> None:
    mixed = [("fetch", 0.001)] * 19 + [("fetch", 2.0)]
    assert after(*mixed).ahead(["fetch"], 1, []) == 50


def test_a_slot_whose_run_is_older_than_usual_counts_for_nothing() -> None:
    lookahead = after(*[("fetch", 0.001)] * 20)
    young, old = ("fetch", LONG_RUN_S), ("fetch", LONG_RUN_S + 0.001)
    assert lookahead.ahead(["fetch"], 2, [young, young]) == 100
    assert lookahead.ahead(["fetch"], 2, [young, old]) == 50
    assert lookahead.ahead(["fetch"], 2, [old, old]) == 0


def test_a_slot_that_runs_a_long_kind_counts_for_nothing_from_the_start() -> None:
    lookahead = after(*[("fetch", 0.001), ("train", 60.0)] * 20)
    assert lookahead.short(["fetch", "train"]) == {"fetch"}
    assert lookahead.ahead(["fetch", "train"], 2, [("train", 0.0), ("new", 0.0)]) == 0


def test_the_slower_of_two_short_kinds_decides() -> None:
    lookahead = after(*[("fetch", 0.001), ("resize", 0.025)] * 20)
    assert lookahead.ahead(["fetch", "resize"], 1, []) == 2
    assert lookahead.ahead(["fetch"], 1, []) == 50


def test_after_a_hand_back_nothing_is_held_ahead_until_a_run_ends() -> None:
    lookahead = after(*[("fetch", 0.001)] * 20)
    lookahead.handed_back()
    assert lookahead.ahead(["fetch"], 1, []) == 0
    lookahead.ran("fetch", 0.001)
    assert lookahead.ahead(["fetch"], 1, []) == 50


@pytest.mark.parametrize(("seconds", "short"), [(0.05, True), (0.0501, False)])
def test_a_kind_is_short_up_to_the_time_itself(seconds: float, short: bool) -> None:
    assert bool(after(*[("fetch", seconds)] * 20).short(["fetch"])) is short


def test_a_kind_that_became_slow_is_known_for_slow_soon() -> None:
    lookahead = after(*[("fetch", 0.001)] * RUNS)
    for _ in range(2 * ENOUGH_RUNS):
        lookahead.ran("fetch", 1.0)
    assert not lookahead.short(["fetch"])


def test_an_aborted_run_tells_nothing_of_its_kind_but_frees_a_slot() -> None:
    lookahead = after(*[("train", 60.0)] * 20)
    for _ in range(RUNS):
        lookahead.ran("train", None)
    assert not lookahead.short(["train"])
    lookahead = after(*[("fetch", 0.001)] * 20)
    lookahead.handed_back()
    lookahead.ran("fetch", None)
    assert lookahead.ahead(["fetch"], 1, []) == 50


@pytest.mark.parametrize(
    ("seconds", "count"),
    [(0.00001, MOST_PER_SLOT), (0.001, 5), (IN_PROCESS_S, 1), (0.006, 1), (0.06, 0)],
)
def test_a_few_milliseconds_of_work_wait_in_a_process(seconds: float, count: int) -> None:
    assert after(*[("fetch", seconds)] * 20).in_process("fetch") == count


def test_nothing_of_an_unknown_kind_waits_in_a_process() -> None:
    assert Lookahead(0.05).in_process("fetch") == 0
