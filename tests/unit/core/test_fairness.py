"""Fairness: keys share what there is in proportion to their weights, by time and not by count."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from longshore.core.fairness import (
    LOOKED_AT,
    MOST_COST,
    Ground,
    cost_of,
    front_of,
    ran,
    settled,
    turns,
    weight_of,
    why_not_fair,
)
from longshore.core.key_limits import why_no_rule
from longshore.model.fair import Account
from longshore.model.limits import LimitRule


class Line:
    """One lane, as a store has it: jobs that wait by rank, and one worker that takes them."""

    def __init__(self, weights: Mapping[str, float] = {}, usual_s: float = 1.0) -> None:
        self.weights = weights
        self.usual_s = usual_s
        self.number = 0
        self.waiting: list[tuple[int, int, str]] = []
        self.accounts: dict[str, Account] = {}

    def account(self, key: str) -> Account:
        return self.accounts.get(key, Account())

    def submit(self, key: str, count: int = 1) -> None:
        front = self.waiting[0][0] if self.waiting else None
        last = max((rank for rank, _, whose in self.waiting if whose == key), default=None)
        ground = Ground(
            front_of(front, front, len(self.waiting)),
            self.number + 1,
            last,
            self.weights.get(key, 1.0),
            self.usual_s,
        )
        ranks, self.accounts[key] = turns(self.account(key), ground, count)
        for rank in ranks:
            self.number += 1
            heapq.heappush(self.waiting, (rank, self.number, key))

    def take(self, run_s: Mapping[str, float] = {}) -> str:
        _, _, key = heapq.heappop(self.waiting)
        seconds = run_s.get(key, self.usual_s)
        self.accounts[key] = settled(self.account(key), self.usual_s, 1, seconds)
        return key

    def serve(self, count: int, run_s: Mapping[str, float] = {}) -> Counter[str]:
        return Counter(self.take(run_s) for _ in range(count))


def jain(shares: Iterable[float]) -> float:
    some = list(shares)
    return sum(some) ** 2 / (len(some) * sum(one * one for one in some))


def test_a_flood_of_one_key_does_not_starve_another() -> None:
    line = Line()
    line.submit("flood", 20_000)
    line.serve(1000)
    line.submit("small", 10)
    assert line.serve(21)["small"] == 10


def test_keys_share_in_proportion_to_their_weights() -> None:
    line = Line({"a": 1.0, "b": 2.0, "c": 0.5})
    for key in "abc":
        line.submit(key, 2000)
    served = line.serve(700)
    assert served["b"] == pytest.approx(400, abs=3)
    assert served["a"] == pytest.approx(200, abs=3)
    assert served["c"] == pytest.approx(100, abs=3)


def test_one_that_comes_late_gets_no_credit_for_the_time_before() -> None:
    line = Line()
    line.submit("early", 2000)
    line.serve(1000)
    line.submit("late", 1000)
    assert line.serve(200)["late"] == pytest.approx(100, abs=2)


def test_an_idle_key_saves_nothing_up() -> None:
    line = Line()
    line.submit("idle", 1)
    line.submit("busy", 3000)
    line.serve(2000)
    line.submit("idle", 500)
    assert line.serve(200)["idle"] == pytest.approx(100, abs=2)


def test_who_had_the_workers_to_himself_does_not_pay_for_it_later() -> None:
    line = Line({"alone": 0.1})
    line.submit("alone", 1000)
    line.serve(1000)
    line.submit("alone", 100)
    line.submit("other", 100)
    assert line.serve(11)["alone"] >= 1, "its turns begin where those of the other begin"


def test_one_job_after_another_gets_no_more_than_all_at_once() -> None:
    line = Line()
    line.submit("batch", 500)
    for _ in range(500):
        line.submit("single")
    assert line.serve(400)["single"] == pytest.approx(200, abs=2)


def test_keys_with_long_jobs_get_as_much_time_as_others_and_fewer_jobs() -> None:
    line = Line()
    seconds = {"long": 4.0, "short": 0.5}
    for _ in range(50):
        for key in seconds:
            line.submit(key, 20)
            line.serve(20, seconds)
            known = line.account(key)
            line.accounts[key] = ran(known, 20, 20 * seconds[key])
    line.waiting.clear()
    used = Counter[str]()
    for key in seconds:
        line.submit(key, 3000)
    for _ in range(900):
        key = line.take(seconds)
        used[key] += 1
    times = [used[key] * seconds[key] for key in seconds]
    assert jain(times) > 0.99


def test_what_a_key_took_beyond_its_charge_it_pays_with_its_next_jobs() -> None:
    line = Line()
    line.submit("a", 1)
    line.submit("b", 200)
    charged = line.account("a")
    line.serve(2)
    owed = settled(charged, 1.0, 1, 51.0).owed
    assert owed == 50
    line.accounts["a"] = replace(line.account("a"), owed=owed)
    line.submit("a", 100)
    served = line.serve(50)
    assert served["a"] == 0, "it took 50 more than it was charged"
    assert line.serve(100)["a"] == pytest.approx(50, abs=2)


def test_what_a_key_took_less_makes_its_next_jobs_cheaper_but_never_free() -> None:
    account = Account(finish=100.0, owed=-3.0, open_jobs=1, open_cost=1.0)
    ranks, after = turns(account, Ground(90, 500, 100), 10)
    assert ranks == [100, 100, 101, 101, 102, 102, 103, 104, 105, 106]
    assert after.owed == 0


def test_what_a_cancelled_flood_was_charged_is_not_paid() -> None:
    line = Line()
    line.submit("a", 10_000)
    line.submit("b", 100)
    line.waiting = [one for one in line.waiting if one[2] != "a"]
    heapq.heapify(line.waiting)
    line.submit("a", 10)
    assert line.serve(22)["a"] == 10


def test_new_jobs_of_a_key_come_after_its_old_ones() -> None:
    line = Line()
    line.submit("a", 100)
    line.submit("b", 100)
    line.waiting = [one for one in line.waiting if one[2] != "a" or one[1] <= 50]
    heapq.heapify(line.waiting)
    line.submit("a", 1)
    mine = [number for _, number, key in sorted(line.waiting) if key == "a"]
    assert mine == sorted(mine)


def test_attempts_that_are_tried_again_are_charged_with_their_jobs() -> None:
    charged = Account(open_jobs=2, open_cost=2.0)
    again = settled(charged, 1.0, 0, 3.0)
    assert (again.owed, again.open_jobs) == (3.0, 2)
    assert settled(again, 1.0, 2, 2.0).owed == 3.0


def test_jobs_that_found_a_free_slot_are_not_charged_later() -> None:
    assert settled(Account(), 1.0, 100, 500.0).owed == 0


def test_a_charge_says_nothing_of_jobs_that_were_not_stored() -> None:
    account, ground = Account(finish=7.5), Ground(5, 100, 7)
    assert turns(account, ground, 0) == ([], account)


def test_a_job_that_is_tried_again_is_no_front() -> None:
    assert front_of(None, 3, 1) is None
    assert front_of(70, 70, 2) == 70
    assert front_of(None, 900, LOOKED_AT) == 900, "a backlog without fair jobs is the front"


def test_a_cost_is_bounded_and_one_while_nothing_is_known() -> None:
    assert cost_of(Account(), 5.0) == 1.0
    assert cost_of(Account(runs=10, mean_s=3.0), 0.0) == 1.0
    assert cost_of(Account(runs=1000, mean_s=1e9), 1.0) == MOST_COST
    assert 1 < cost_of(Account(runs=1, mean_s=4.0), 1.0) < 4, "one run says little"


def test_the_most_specific_rule_with_a_weight_counts() -> None:
    rules = [
        LimitRule("tenant=*", weight=2.0),
        LimitRule("tenant=ac*", weight=3.0),
        LimitRule("tenant=acme", 5),
    ]
    assert weight_of("tenant=acme", rules) == 3.0
    assert weight_of("tenant=bolt", rules) == 2.0
    assert weight_of("region=eu", rules) == 1.0


@pytest.mark.parametrize("weight", [0.0, -1.0, 1e9, float("nan")])
def test_a_weight_out_of_bounds_is_refused(weight: float) -> None:
    assert "a weight is a number" in str(why_no_rule(LimitRule("tenant=a", weight=weight)))


def test_a_fair_key_is_a_whole_key() -> None:
    assert why_not_fair("tenant=acme") is None
    assert "name=value" in str(why_not_fair("tenant"))


def test_ten_thousand_keys_get_the_same() -> None:
    line = Line()
    ground = Ground(None, 1, None)
    jobs: list[tuple[int, int, int]] = []
    for key in range(10_000):
        ranks, _ = turns(Account(), ground, 10 + key % 7)
        jobs += [(rank, len(jobs) + at, key) for at, rank in enumerate(ranks)]
        ground = Ground(1, len(jobs) + 1, None)
    served = Counter(key for _, _, key in heapq.nsmallest(50_000, jobs))
    assert jain(served[key] for key in range(10_000)) >= 0.95
    assert not line.waiting


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 30)), min_size=1, max_size=40),
    st.fixed_dictionaries({key: st.sampled_from([0.5, 1.0, 2.0, 5.0]) for key in "abcd"}),
    st.lists(st.integers(0, 20), min_size=40, max_size=40),
)
def test_a_key_with_work_never_falls_behind_its_share_by_more_than_some_jobs(
    submits: list[tuple[str, int]], weights: dict[str, float], takes: list[int]
) -> None:
    line = Line(weights)
    served = Counter[str]()
    for (key, count), taken in zip(submits, takes, strict=False):
        line.submit(key, count)
        served += line.serve(min(taken, len(line.waiting)))
    # From here on nobody submits: while two keys have work, neither is ahead of the other by more
    # than one job of each, in units of their weights, and a rank.
    front = dict.fromkeys("abcd", 0.0)
    busy = {key for _, _, key in line.waiting}
    starts = {key: min(rank for rank, _, who in line.waiting if who == key) for key in busy}
    while {key for _, _, key in line.waiting} == busy and len(busy) > 1:
        key = line.take()
        front[key] += 1 / weights[key]
        lead = {one: starts[one] + front[one] for one in busy}
        others = [lead[one] for one in busy if one != key]
        if starts[key] + front[key] - 1 / weights[key] > max(starts.values()):
            assert lead[key] - min(others) <= sum(1 / weights[one] for one in busy) + 2
