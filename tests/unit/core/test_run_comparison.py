"""What is different between two runs of a group."""

from __future__ import annotations

from longshore.core.run_comparison import MOST_KEYS, JobRun, differences
from longshore.model.job import JobState as S


def run(state: S = S.SUCCEEDED, took_s: float | None = 1.0, number: int = 1) -> JobRun:
    return JobRun("work", number, state, took_s)


def told(before: dict[str, JobRun], now: dict[str, JobRun]) -> list[tuple[str, list[str], bool]]:
    return [
        (one.words, [key for key, _ in one.keys], one.grave) for one in differences(before, now)
    ]


def test_the_same_outcomes_and_times_are_no_difference() -> None:
    assert told({"a": run(took_s=10.0)}, {"a": run(took_s=11.0)}) == []


def test_what_went_worse_comes_first_then_what_is_slower_new_or_gone() -> None:
    before = {"a": run(), "b": run(S.FAILED), "c": run(took_s=2.0), "d": run(took_s=9.0)}
    now = {"b": run(), "c": run(took_s=8.0), "d": run(took_s=3.0), "a": run(S.FAILED), "e": run()}
    assert told({**before, "f": run()}, now) == [
        ("succeeded before, failed now", ["a"], True),
        ("failed before, succeeded now", ["b"], False),
        ("slower", ["c"], False),
        ("faster", ["d"], False),
        ("new in this run", ["e"], False),
        ("not in this run", ["f"], False),
    ]


def test_a_short_time_more_is_not_slower_and_what_goes_on_is_not_compared() -> None:
    before = {"a": run(took_s=0.1), "b": run(), "c": run(took_s=None)}
    now = {"a": run(took_s=0.9), "b": run(S.RUNNING, None), "c": run(took_s=60.0)}
    assert told(before, now) == []


def test_alike_ones_are_one_with_their_times_and_first_keys() -> None:
    many = [f"k{n}" for n in range(30)]
    [one] = differences(
        {key: run(took_s=2.0) for key in many},
        {key: run(took_s=4.0, number=at) for at, key in enumerate(many)},
    )
    assert (one.words, one.count, one.before_s, one.now_s) == ("slower", 30, 60.0, 120.0)
    assert one.keys == tuple((key, at) for at, key in enumerate(many[:MOST_KEYS]))
