"""Rules for kinds and queues: which lanes they limit, and what starts there."""

from __future__ import annotations

import pytest

from longshore.core.lane_estimates import LaneEstimates
from longshore.core.lane_rules import lane_keys, names_in
from longshore.core.limited_starts import Behind, Closed, KeyState, Start, Starts
from longshore.model.limits import JobLimit, LimitRule, Rate
from longshore.model.worker import Claim
from longshore.testing.builders import lane

KIND, QUEUE = "kind=work", "queue=mail-a"


@pytest.mark.parametrize(
    ("patterns", "keys"),
    [
        ([], ()),
        (["tenant=*", "api=maps"], ()),
        (["kind=work"], (KIND,)),
        (["kind=other", "queue=mail-*"], (QUEUE,)),
        (["queue=mail-a", "kind=*", "queue=*"], (KIND, QUEUE)),
    ],
)
def test_a_lane_has_the_keys_for_which_there_are_rules(
    patterns: list[str], keys: tuple[str, ...]
) -> None:
    rules = [LimitRule(pattern, 1) for pattern in patterns]
    assert lane_keys("mail-a", "work", rules) == keys
    assert names_in(keys) == (["work"] * (KIND in keys), ["mail-a"] * (QUEUE in keys))


def test_what_runs_in_its_lanes_counts_and_takes_no_slot() -> None:
    starts = Starts([LimitRule(KIND, 3)], {KIND: KeyState({1}, others=1)}, 0)
    assert starts.of((), [KIND]) == Start(())
    assert starts.of((), [KIND]) == Behind(KIND)
    assert starts.closed([KIND]) == Closed()


def test_a_job_that_names_the_key_of_its_lane_counts_once_and_has_a_slot() -> None:
    starts = Starts([LimitRule(KIND, 2)], {KIND: KeyState()}, 0)
    assert starts.of([JobLimit(KIND, 9)], [KIND]) == Start(((KIND, 1),))
    assert starts.closed([KIND]) is None
    assert starts.of([JobLimit(KIND, 9)], [KIND]) == Start(((KIND, 2),))
    assert starts.of((), [KIND]) == Behind(KIND)


def test_a_job_that_finds_no_room_of_its_own_key_leaves_that_of_its_lane() -> None:
    rules = [LimitRule(KIND, 1), LimitRule("t=a", 0)]
    starts = Starts(rules, {KIND: KeyState(), "t=a": KeyState()}, 0)
    assert starts.of([JobLimit("t=a")], [KIND]) == Behind("t=a")
    assert starts.closed([KIND]) is None
    assert starts.of((), [KIND]) == Start(())


def test_a_rate_closes_a_lane_until_it_has_room() -> None:
    rule = LimitRule(QUEUE, rate=Rate(1, 1.0, 2))
    starts = Starts([rule], {QUEUE: KeyState()}, 0)
    assert [starts.of((), [QUEUE]) for _ in range(2)] == [Start(())] * 2
    assert starts.closed([QUEUE]) == Closed(until=1_000_000)
    assert starts.passed == {QUEUE: 2_000_000}


def test_a_closed_lane_is_not_claimed_again_unless_something_is_new() -> None:
    lanes = LaneEstimates()
    full, other = lane(kind="full"), lane(kind="other")
    lanes.mark_ready([full, other])
    lanes.claim_sent()
    lanes.claimed([Claim((full, other), ())], {other: 1}, closed={full})
    assert lanes.ready({full, other}).keys() == {other}
    lanes.mark_ready([full])
    lanes.claim_sent()
    lanes.add_ready({full: 1})
    lanes.claimed([], {}, closed={full})
    assert full in lanes.ready({full}), "a job came while the claim was under way"
