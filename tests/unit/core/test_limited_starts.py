"""Jobs with limits: never more than there is room for, in order, and as many as there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from longshore.core.limited_starts import (
    NOT_NOW,
    Behind,
    KeyState,
    Start,
    Starts,
    keys_text,
    soonest,
)
from longshore.model.limits import JobLimit, LimitRule, Rate

NOW = 1_000_000_000
KEYS = ["t=a", "t=b", "u=c"]
JOBS = st.lists(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True), max_size=30)


def starts(rules: list[LimitRule], **slots: set[int]) -> Starts:
    return Starts(rules, {key.replace("_", "="): KeyState(has) for key, has in slots.items()}, NOW)


def test_jobs_start_while_there_is_room_and_hold_the_first_free_slots() -> None:
    decide = starts([], t_a={2})
    limit = [JobLimit("t=a", 3)]
    assert decide.of(limit) == Start((("t=a", 1),))
    assert decide.of(limit) == Start((("t=a", 3),))
    assert decide.of(limit) == Behind("t=a")


def test_a_lowered_limit_lets_nothing_begin_until_enough_have_ended() -> None:
    assert starts([LimitRule("t=*", 2)], t_a={1, 2, 3}).of([JobLimit("t=a", 5)]) == Behind("t=a")
    decide = starts([LimitRule("t=*", 2)], t_a={3})
    assert decide.room(JobLimit("t=a", 5)) == 1
    assert decide.of([JobLimit("t=a", 5)]) == Start((("t=a", 1),))


def test_a_job_takes_of_all_its_keys_or_of_none() -> None:
    decide = starts([], t_a=set(), t_b={1})
    assert decide.of([JobLimit("t=a", 1), JobLimit("t=b", 1)]) == Behind("t=b")
    assert decide.of([JobLimit("t=a", 1)]) == Start((("t=a", 1),))


def test_a_key_that_another_has_is_not_judged() -> None:
    assert starts([], t_a=set()).of([JobLimit("t=a", 1), JobLimit("t=b", 1)]) is NOT_NOW


def test_a_key_that_nothing_limits_counts_too_as_a_rule_may_come() -> None:
    decide = starts([], t_a=set())
    assert decide.of([JobLimit("t=a")]) == Start((("t=a", 1),))
    assert decide.of([JobLimit("t=a")]) == Start((("t=a", 2),))


def test_a_rate_says_until_when() -> None:
    decide = starts([], t_a=set())
    limit = [JobLimit("t=a", rate=Rate(1, 2.0))]
    assert decide.until(limit[0]) is None
    assert decide.of(limit) == Start((("t=a", 1),))
    assert decide.of(limit) == Behind("t=a", NOW + 2_000_000)
    assert decide.passed == {"t=a": NOW + 2_000_000}
    assert decide.room(limit[0]) == 0
    assert decide.until(limit[0]) == NOW + 2_000_000


@given(JOBS, st.integers(0, 4))
def test_never_above_and_no_room_is_left_while_a_job_waits_for_it(
    jobs: list[list[str]], most: int
) -> None:
    states = {key: KeyState() for key in KEYS}
    decide = Starts([LimitRule("t=*", most), LimitRule("u=*", most)], states, NOW)
    held: list[tuple[str, int]] = []
    for keys in jobs:
        found = decide.of([JobLimit(key) for key in keys])
        if isinstance(found, Start):
            assert [key for key, _ in found.slots] == keys
            held += found.slots
        else:
            assert isinstance(found, Behind)
            assert sum(key == found.key for key, _ in held) == most
    assert len(set(held)) == len(held)
    assert all(1 <= slot <= most for _, slot in held)


def test_keys_are_kept_as_one_text() -> None:
    assert keys_text([]) is None
    assert keys_text([JobLimit("t=a"), JobLimit("u=b")]) == "t=a\nu=b"


def test_the_soonest_of_some_times() -> None:
    assert soonest([None, 3, 2]) == 2
    assert soonest([None]) is None
