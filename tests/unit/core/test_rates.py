"""Rates as texts, and what limits a key in words."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.core.key_views import MOST_COUNTED
from longshore.core.key_words import bounds_words, full_words, key_words
from longshore.core.rates import parse_rate, rate_text
from longshore.errors import InvalidInput
from longshore.model.limits import KeyView, Rate


@pytest.mark.parametrize(
    ("text", "rate", "shown"),
    [
        ("100/min", Rate(100, 60.0), "100/min"),
        ("5/s", Rate(5, 1.0), "5/s"),
        ("3 / hour", Rate(3, 3600.0), "3/h"),
        ("1/day", Rate(1, 86_400.0), "1/d"),
        ("10/30s", Rate(10, 30.0), "10/30s"),
        ("2/0.5s", Rate(2, 0.5), "2/0.5s"),
    ],
)
def test_a_rate_is_read_and_shown(text: str, rate: Rate, shown: str) -> None:
    assert parse_rate(text) == rate
    assert rate_text(rate) == shown
    assert parse_rate(shown) == rate


@pytest.mark.parametrize("text", ["", "100", "100/", "/min", "100/week", "0/s", "-1/s", "1/0s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_rate(text)


def test_bounds_in_words() -> None:
    assert bounds_words(5, Rate(100, 60.0, 20)) == "at most 5 at once, 100/min with a burst of 20"
    assert bounds_words(None, None) == "no limit"


def test_why_a_key_is_full() -> None:
    at_once = KeyView("tenant=acme", 5, held=5, holders=(7, 9))
    assert full_words(at_once) == "tenant=acme is at 5 of 5, held by jobs 7, 9, …"
    long = KeyView("tenant=acme", 5, held=5, holders=(7, 9), full_s=12.0)
    assert full_words(long) == "tenant=acme is at 5 of 5 since 12 s, held by jobs 7, 9, …"
    rate = KeyView("tenant=acme", rate=Rate(100, 60.0), next_s=3.2)
    assert full_words(rate) == "tenant=acme: next in 3.2 s (100/min)"


def test_a_key_in_words() -> None:
    view = KeyView("t=a", 2, held=1, holders=(7,), pattern="t=*", is_waited_for=True)
    head = "t=a: at most 2 at once by the rule for t=*; 1 running, held by job 7; "
    one = structs.replace(view, waiting=1, waiting_s=3.0, stays=1, waited_s=62.0)
    said = "1 job waits for it, 3.0 s so far; others waited 1 min 2 s for it, once"
    assert key_words(one) == head + said
    many = structs.replace(view, waiting=MOST_COUNTED, waiting_s=3.0)
    assert key_words(many) == head + "10,000 or more jobs wait for it, 3.0 s so far"
    assert key_words(KeyView("t=a")) == "t=a: no limit; 0 running; no job waits for it"
