"""The shape of a group: which orders are legal, and what the errors say."""

from __future__ import annotations

from random import Random

import pytest

from longshore.core import graph
from longshore.core.graph import longest_chain, makespan, places, start_order
from longshore.core.run_times import weight
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


# expected run times


def test_each_job_comes_after_those_it_depends_on_whatever_they_weigh() -> None:
    """Also if one of them weighs so little that a float would lose it beside the others."""
    random = Random(2)
    for _ in range(200):
        keys = [f"k{n}" for n in range(random.randint(1, 30))]
        after = {
            key: random.sample(keys[:place], random.randint(0, min(place, 4)))
            for place, key in enumerate(keys)
        }
        shuffled = {key: after[key] for key in random.sample(keys, len(keys))}
        weights = {key: random.choice([1, 7, 10**6, 10**20]) for key in keys}
        at = {key: place for place, key in enumerate(start_order(shuffled, weights))}
        assert all(at[other] < at[key] for key, wanted in after.items() for other in wanted)


def test_of_two_that_can_run_the_heavier_path_comes_first() -> None:
    after = edges("a: ; b: a; c: b; long:")
    assert start_order(after) == ["a", "b", "c", "long"]
    assert start_order(after, {"long": 10}) == ["long", "a", "b", "c"]


def test_the_longest_chain_is_the_heaviest_one() -> None:
    after = edges("a: ; b: a; c: b; long: a")
    assert longest_chain(after) == ["a", "b", "c"]
    assert longest_chain(after, {"long": 10}) == ["a", "long"]


def test_a_makespan_is_that_of_the_slots() -> None:
    after = edges("a: ; b: ; c: a b; d: gone")
    seconds = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 4.0}
    assert makespan(after, seconds, 1) == 10.0
    assert makespan(after, seconds, 2) == 5.0
    assert makespan(after, seconds, 3) == 5.0
    assert makespan({}, {}, 2) == 0.0


def test_long_jobs_that_nothing_depends_on_begin_early_by_expected_run_time() -> None:
    """Two reports of two minutes beside eight chains of small steps: by count they begin last."""
    after = {f"step-{n}": [f"step-{n - 8}"] if n >= 8 else [] for n in range(80)}
    after |= {f"report-{n}": [] for n in range(2)}
    seconds = {key: 120.0 if key.startswith("report") else 6.0 for key in after}
    weights = {key: weight(took_s) for key, took_s in seconds.items()}
    by_count = {key: after[key] for key in start_order(after)}
    by_time = {key: after[key] for key in start_order(after, weights)}
    assert makespan(by_count, seconds, 4) == 240.0
    assert makespan(by_time, seconds, 4) == 180.0
