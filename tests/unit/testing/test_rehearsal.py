"""Rules of limits on a trace: what a rehearsal says is what the real decisions lead to."""

from __future__ import annotations

import pytest

from longshore.errors import InvalidInput
from longshore.model.limits import JobLimit, LimitRule, Rate
from longshore.testing.rehearsal import Arrival, Fleet, Rehearsed, rehearse
from longshore.testing.rehearsed import trial_of

ONE = LimitRule("tenant=*", 1)


def come(*times: float, run_s: float = 2.0, key: str = "tenant=a", units: int = 1) -> list[Arrival]:
    return [Arrival(at, run_s, (JobLimit(key, units=units),)) for at in times]


def waits(done: Rehearsed, key: str = "tenant=a") -> list[float]:
    """How long each job waited for a key, in the order of the trace."""
    by_number = {
        job.number: sum(part.s for part in job.waited if part.key == key) for job in done.jobs
    }
    return [round(by_number[number], 3) for number in sorted(by_number)]


def most_at_once(done: Rehearsed, key: str) -> int:
    runs = [
        (job.started_at, job.ended_at)
        for job in done.jobs
        if any(limit.key == key for limit in done.arrivals[job.number - 1].limits)
    ]
    assert all(began is not None for began, _ in runs)
    return max(sum(a <= began < b for a, b in runs if a and b) for began, _ in runs if began)


def test_jobs_of_a_key_follow_each_other_and_others_go_past() -> None:
    done = rehearse([ONE], [*come(0, 0, 1), *come(0, key="tenant=b")])
    assert waits(done) == [0, 2, 0, 3]
    assert done.longest == {"tenant=a": 2}
    assert (done.never, done.end_s) == (0, 6)


def test_a_rate_lets_its_burst_begin_and_then_one_after_the_other() -> None:
    rule = LimitRule("tenant=a", rate=Rate(1, 10.0, 2))
    done = rehearse([rule], come(0, 0, 0, 0, run_s=0.1))
    assert waits(done) == [0, 0, 10, 20]
    assert done.end_s == pytest.approx(20.1)


def test_units_count_for_the_rate() -> None:
    rule = LimitRule("tenant=a", rate=Rate(1, 1.0, 5))
    assert waits(rehearse([rule], come(0, 0, units=5))) == [0, 5]


def test_a_fleet_without_free_slots_is_waited_for_by_everybody() -> None:
    trial = trial_of(rehearse([ONE], come(0, 0, 0, key="tenant=b"), Fleet(1, 1)), [ONE])
    assert trial.slots.max_s == pytest.approx(4.0)
    two = Fleet(workers=2, slots=1)
    free = rehearse([], [*come(0, key="tenant=a"), *come(0, key="tenant=b")], two)
    assert free.end_s == 2


def test_never_more_than_a_rule_lets_and_the_same_each_time() -> None:
    rules = [LimitRule("tenant=*", 2), LimitRule("tenant=0", 3), LimitRule("api=x", 4)]
    trace = [
        Arrival(
            (n * 37 % 50) / 10,
            1 + n % 3,
            (JobLimit(f"tenant={n % 3}"), JobLimit("api=x")) if n % 2 else (JobLimit("tenant=1"),),
            priority=n % 4,
        )
        for n in range(60)
    ]
    done = rehearse(rules, trace, Fleet(2, 5))
    assert len(done.jobs) == len(trace)
    assert most_at_once(done, "tenant=0") <= 3
    assert (most_at_once(done, "tenant=1"), most_at_once(done, "api=x")) == (2, 4)
    assert rehearse(rules, trace, Fleet(2, 5)) == done


def test_a_rule_that_lets_nothing_begin_is_told() -> None:
    rule = LimitRule("tenant=a", 0)
    done = rehearse([rule], [*come(0, 1), *come(0, key="tenant=b")])
    trial = trial_of(done, [rule])
    assert (trial.never, trial.rules[0].never) == (2, 2)
    assert [(one.key, one.never) for one in trial.keys] == [("tenant=a", 2), ("tenant=b", 0)]
    assert trial.keys[0].waits.share == 1.0


def test_the_figures_of_keys_and_rules() -> None:
    jobs = [*come(0, 0, 0, 0), *come(0, key="tenant=b")]
    trial = trial_of(rehearse([ONE], jobs), [ONE])
    [rule] = trial.rules
    assert (rule.rule, rule.keys, rule.waits.jobs, rule.longest) == ("tenant=*", 2, 5, 3)
    assert rule.waits.share == pytest.approx(3 / 5)
    a, b = trial.keys
    times = a.waits.p50_s, a.waits.p95_s, a.waits.max_s
    assert times == pytest.approx((2.0, 6.0, 6.0))
    assert a.key == "tenant=a"
    assert (a.used, b.used) == pytest.approx((1.0, 0.25))
    assert b.waits.share == 0


def test_a_key_that_no_rule_limits_is_told_without_a_share() -> None:
    [key] = trial_of(rehearse([], come(0, 0)), []).keys
    assert (key.rule, key.used, key.waits.max_s) == ("", None, 0)


def test_an_empty_trace_says_nothing() -> None:
    trial = trial_of(rehearse([ONE], []), [ONE])
    assert (trial.jobs, trial.took_s, trial.keys) == (0, 0, ())


def test_a_trace_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"3 jobs, and at most 2 are tried \(--max-arrivals\)"):
        rehearse([ONE], come(0, 1, 2), most=2)


def of_queue(
    *times: float, queue: str = "mail", kind: str = "work", fair: str = ""
) -> list[Arrival]:
    return [Arrival(at, 2.0, kind=kind, queue=queue, fair=fair) for at in times]


def test_rules_for_queues_and_kinds_count_jobs_that_name_no_key() -> None:
    rules = [LimitRule("queue=mail", 1), LimitRule("kind=*", 5)]
    jobs = [*of_queue(0, 0, 0), *of_queue(0, queue="other")]
    trial = trial_of(rehearse(rules, jobs), rules)
    assert trial.took_s == pytest.approx(6.0)
    mail, kinds = trial.rules
    assert (mail.rule, mail.keys, mail.waits.jobs, mail.longest) == ("queue=mail", 1, 3, 2)
    assert mail.waits.share == pytest.approx(2 / 3)
    assert (mail.waits.p50_s, mail.waits.max_s, mail.used) == pytest.approx((2.0, 4.0, 1.0))
    assert (kinds.keys, kinds.waits.jobs, kinds.waits.share) == (1, 4, 0)
    assert trial.slots.max_s == 0, "what a rule closes is no free slot that is missing"
    assert [one.key for one in trial.keys] == ["queue=mail", "kind=work"]


def test_a_rate_of_a_queue_and_a_queue_that_lets_nothing_begin() -> None:
    rate = LimitRule("queue=mail", rate=Rate(1, 10.0, 1))
    trial = trial_of(rehearse([rate], of_queue(0, 0, 0)), [rate])
    assert trial.rules[0].waits.max_s == pytest.approx(20.0)
    none = LimitRule("queue=mail", 0)
    trial = trial_of(rehearse([none], of_queue(0, 0)), [none])
    assert (trial.never, trial.rules[0].never, trial.rules[0].longest) == (2, 2, 2)


def test_a_job_that_waits_for_its_key_and_then_for_its_queue_says_both() -> None:
    """Its key is free at 2 s, its queue at 3 s."""
    rules = [ONE, LimitRule("queue=mail", 1)]
    key = (JobLimit("tenant=a"),)
    jobs = [Arrival(0, 2.0, key), Arrival(1, 2.0, queue="mail"), Arrival(1, 2.0, key, queue="mail")]
    trial = trial_of(rehearse(rules, jobs), rules)
    assert sum(one.waits.max_s for one in trial.rules) == pytest.approx(2.0)
    assert trial.slots.max_s == 0


def test_weights_are_tried_too() -> None:
    """Two keys come with the same jobs, to one slot; the one with the larger weight waits less."""
    rules = [LimitRule("t=a", weight=3.0), LimitRule("t=*", weight=1.0)]
    both = [*of_queue(*[0] * 40, fair="t=a"), *of_queue(*[0] * 40, fair="t=b")]
    trial = trial_of(rehearse(rules, both, Fleet(1, 1)), rules)
    assert trial.rules == (), "they limit nothing"
    b, a = trial.fair
    assert [(one.key, one.rule, one.weight) for one in (a, b)] == [
        ("t=a", "t=a", 3.0),
        ("t=b", "t=*", 1.0),
    ]
    assert a.waits.max_s < 0.75 * b.waits.max_s
    even = trial_of(rehearse([], both, Fleet(1, 1)), []).fair
    assert even[1].waits.max_s > 0.95 * even[0].waits.max_s
