"""The shape of a group: which orders are legal, and what the errors say."""

from __future__ import annotations

from random import Random

import pytest

from longshore.core import graph
from longshore.core.graph import longest_chain, places, start_order
from longshore.errors import InvalidInput


def edges(text: str) -> dict[str, list[str]]:
    """`a: b c` says that a depends on b and c; jobs are divided by semicolons."""
    pairs = (one.split(":") for one in text.split(";"))
    return {key.strip(): after.split() for key, after in pairs}


def test_each_job_comes_after_those_it_depends_on() -> None:
    random = Random(1)
    for _ in range(200):
        keys = [f"k{n}" for n in range(random.randint(1, 30))]
        after = {
            key: random.sample(keys[:place], random.randint(0, min(place, 4)))
            for place, key in enumerate(keys)
        }
        shuffled = {key: after[key] for key in random.sample(keys, len(keys))}
        order = start_order(shuffled)
        assert sorted(order) == sorted(keys)
        at = {key: place for place, key in enumerate(order)}
        assert all(at[other] < at[key] for key, wanted in after.items() for other in wanted)


def test_of_two_that_can_run_the_longer_path_comes_first() -> None:
    order = start_order(edges("short: ; long: ; b: long; c: b; end: short c"))
    assert order == ["long", "b", "short", "c", "end"]


def test_alike_jobs_keep_the_order_in_which_they_were_given() -> None:
    assert start_order(edges("c: ; a: ; b:")) == ["c", "a", "b"]


def test_no_jobs_have_an_order_too() -> None:
    assert start_order({}) == []


def test_a_dependency_named_twice_counts_once() -> None:
    after = edges("a: ; b: a a")
    order = start_order(after)
    assert places(order, after) == [(), (0,)]


BAD = {
    "a: a": "job 'a' depends on itself; remove it from its `after`",
    "fetch: ; b: fetsh": "job 'b' depends on 'fetsh', which the group does not have "
    "(nearest: 'fetch')",
    "a: b; b: a": "these jobs wait for each other: 'a' after 'b' after 'a'",
    "a: b; b: c; c: a; d: a": "these jobs wait for each other: 'a' after 'b' after 'c' after 'a'",
    "a: b; b: c; c: d; d: a b; x: y; y: x": "these jobs wait for each other: 'x' after 'y' "
    "after 'x'",
}


@pytest.mark.parametrize("text", BAD)
def test_a_group_that_could_not_run_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        start_order(edges(text))
    assert str(raised.value) == BAD[text]


def test_a_long_cycle_is_told_in_part() -> None:
    ring = {f"k{n}": [f"k{(n + 1) % 100}"] for n in range(100)}
    with pytest.raises(InvalidInput, match=r"'k19' after … \(80 more\) after 'k0'$"):
        start_order(ring)


def test_the_search_for_the_shortest_cycle_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MAX_STEPS", 10)
    long = {f"k{n}": [f"k{(n + 1) % 50}"] for n in range(50)}
    with pytest.raises(InvalidInput, match="wait for each other: 'k0' after 'k1'"):
        start_order({**long, "x": ["y"], "y": ["x"]})


def test_the_longest_chain_goes_from_a_root_to_a_leaf() -> None:
    assert longest_chain(edges("a: ; b: ; c: b; d: a c; e: a")) == ["b", "c", "d"]
    assert longest_chain(edges("a: gone; b: gone")) == ["a"]
    assert longest_chain({}) == []
