"""Keys and rules: what is sound, and which rule wins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.core.key_limits import (
    MOST_KEYS,
    Bounds,
    bounds_of,
    matches,
    rule_for,
    why_no_key,
    why_no_pattern,
    why_no_rule,
    why_not,
)
from longshore.model.limits import JobLimit, LimitRule, Rate

VALUES = st.text("abc", min_size=1, max_size=4)
PATTERNS = st.one_of(VALUES, st.text("abc", max_size=4).map("{}*".format)).map("t={}".format)


@pytest.mark.parametrize("key", ["tenant=acme", "a.b-c_1=x y", "t=ä", "t=a=b"])
def test_a_key_is_a_name_and_a_value(key: str) -> None:
    assert why_no_key(key) is None


@pytest.mark.parametrize(
    "key", ["", "tenant", "=a", "tenant=", "1t=a", "t=a\nb", "t=a*", "t=" + "x" * 200]
)
def test_what_is_no_key_is_refused_with_the_reason(key: str) -> None:
    assert why_no_key(key)


@pytest.mark.parametrize("pattern", ["tenant=*", "tenant=ac*", "tenant=acme"])
def test_a_pattern_is_a_key_or_ends_with_a_star(pattern: str) -> None:
    assert why_no_pattern(pattern) is None


@pytest.mark.parametrize("pattern", ["*", "tenant*", "tenant=a*b", "tenant=**", ""])
def test_no_other_pattern_is_taken(pattern: str) -> None:
    assert why_no_pattern(pattern)


@given(VALUES.map("t={}".format), st.lists(PATTERNS, unique=True, max_size=8))
def test_the_most_specific_rule_wins(key: str, patterns: list[str]) -> None:
    rule = rule_for(key, [LimitRule(one, 1) for one in patterns])
    about = [one for one in patterns if matches(one, key)]
    assert (rule is None) == (not about)
    if rule is not None:
        assert rule.pattern in about
        if key in patterns:
            assert rule.pattern == key
        else:
            assert all(len(one) <= len(rule.pattern) for one in about)


def test_a_rule_goes_before_what_the_job_brings() -> None:
    job = JobLimit("t=a", 3, Rate(1, 1.0))
    assert bounds_of(job, []) == Bounds(3, Rate(1, 1.0))
    assert bounds_of(job, [LimitRule("t=*", 5)]) == Bounds(5, None, "t=*")
    assert bounds_of(job, [LimitRule("t=*", 5), LimitRule("t=a", 7)]) == Bounds(7, None, "t=a")
    assert bounds_of(job, [LimitRule("t=b", 7)]) == Bounds(3, Rate(1, 1.0))


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ([JobLimit(f"t={n}", 1) for n in range(MOST_KEYS + 1)], "at most 8"),
        ([JobLimit("t=a", 1), JobLimit("t=a", 2)], "twice"),
        ([JobLimit("t", 1)], "name=value"),
        ([JobLimit("t=a", -1)], "concurrency"),
        ([JobLimit("t=a", rate=Rate(0, 1.0))], "rate"),
        ([JobLimit("t=a", rate=Rate(1, 0.0))], "rate"),
        ([JobLimit("t=a", rate=Rate(1, 1.0, 0))], "burst"),
        ([JobLimit("t=a", rate=Rate(1, 1.0, 2), units=3)], "never begin"),
        ([JobLimit("t=a", 1, units=0)], "at least one unit"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(limits: list[JobLimit], word: str) -> None:
    assert word in (why_not(limits) or "")


def test_sound_limits_are_taken() -> None:
    assert why_not([]) is None
    assert why_not([JobLimit("t=a", 3), JobLimit("u=b", rate=Rate(100, 60.0, 20), units=5)]) is None


def test_a_rule_limits_something() -> None:
    assert "needs a concurrency, a rate or a weight" in (why_no_rule(LimitRule("t=*")) or "")
    assert why_no_rule(LimitRule("t=*", 0)) is None
