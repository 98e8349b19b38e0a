"""What a verdict measures: stalls, recoveries, repeats."""

from __future__ import annotations

from longshore.testing.chaos import history as h
from longshore.testing.chaos.checker import judge


def heard(*times: float) -> list[h.AnyEvent]:
    """Outcomes that clients heard of, in a storm from 0 to 100."""
    seen = [h.Seen(at=at, job=f"job of {at}", state="succeeded") for at in times]
    return [h.Phase(at=0.001, name="storm"), *seen, h.Phase(at=100, name="calm")]


def test_a_recovery_lasts_from_the_end_of_a_fault_to_the_next_outcome() -> None:
    fault = h.Struck(at=10, fault=1, deed="kill", whom="dispatcher-1")
    verdict = judge([*heard(9, 11, 18.5, 99), fault, h.Healed(at=17, fault=1)])
    (recovery,) = verdict.recoveries
    assert (recovery.lasted_s, recovery.recovered_s, recovery.stalled_s) == (7, 1.5, 7.5)


def test_a_fault_after_which_nothing_was_heard_has_no_recovery() -> None:
    fault = h.Struck(at=10, fault=1, deed="kill", whom="dispatcher-1")
    (recovery,) = judge([*heard(9), fault, h.Healed(at=17, fault=1)]).recoveries
    assert recovery.recovered_s is None


def test_the_longest_stall_is_one_of_the_storm() -> None:
    verdict = judge(heard(30, 70, 80, 300))
    assert (round(verdict.longest_stall_s), round(verdict.longest_stall_at_s)) == (40, 30)


def test_what_was_never_heard_to_be_accepted_is_counted_and_not_lost() -> None:
    verdict = judge([*heard(1), h.Called(at=2, job="a", sort="async")])
    assert (verdict.unheard, verdict.accepted) == (1, 0)
    assert verdict.counts["lost"] == 1, "an outcome was heard of a job that is not there"


def test_processes_that_ended_by_themselves_are_counted_by_code() -> None:
    ends = [h.Ended(at=3, whom=f"dispatcher-1.{n}", code=4) for n in (1, 2)]
    assert judge([*heard(1), *ends]).ended == {"dispatcher-1 (4)": 2}
