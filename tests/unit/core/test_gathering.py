"""When the ends of jobs that started together wait for each other."""

from __future__ import annotations

from longshore.core.gathering import MOST_S, Gathering


def came(gathering: Gathering, token: int, now: float) -> None:
    if gathering.came(token):
        gathering.waits_from(now)


def learned(*, any_started: bool = False) -> Gathering:
    """What a transaction with a part of the ends taught: it started dependents, or not."""
    gathering = Gathering()
    gathering.started([1, 2], 0.0)
    came(gathering, 1, 0.002)
    gathering.taken()
    came(gathering, 2, 0.003)
    gathering.recorded(any_started=any_started)
    return gathering


def test_nobody_waits_before_a_part_was_seen_to_start_nothing() -> None:
    gathering = Gathering()
    gathering.started([1, 2], 0.0)
    came(gathering, 1, 0.002)
    assert gathering.wait_s(0.002) == 0.0


def test_ends_wait_for_the_others_half_as_long_as_the_first_took() -> None:
    gathering = learned()
    gathering.started([3, 4], 1.0)
    assert gathering.wait_s(1.001) == 0.0
    came(gathering, 3, 1.002)
    assert 0.0009 < gathering.wait_s(1.002) < 0.0011
    assert gathering.wait_s(1.0031) == 0.0


def test_when_all_have_come_nobody_waits() -> None:
    gathering = learned()
    gathering.started([3, 4], 1.0)
    came(gathering, 3, 1.002)
    came(gathering, 4, 1.002)
    assert gathering.wait_s(1.002) == 0.0


def test_a_late_end_makes_no_other_wait_again() -> None:
    gathering = learned()
    gathering.started([3, 4, 5], 1.0)
    came(gathering, 3, 1.002)
    gathering.taken()
    gathering.recorded(any_started=False)
    came(gathering, 4, 1.9)
    assert gathering.wait_s(1.9) == 0.0


def test_the_ends_of_long_jobs_wait_for_a_moment_only() -> None:
    gathering = learned()
    gathering.started([3, 4], 1.0)
    came(gathering, 3, 61.0)
    assert gathering.wait_s(61.0) <= MOST_S + 1e-9


def test_where_a_part_starts_jobs_nobody_waits() -> None:
    gathering = learned(any_started=True)
    gathering.started([3, 4], 1.0)
    came(gathering, 3, 1.002)
    assert gathering.wait_s(1.002) == 0.0


def test_a_transaction_with_all_ends_teaches_nothing() -> None:
    gathering = learned()
    gathering.started([3, 4], 1.0)
    came(gathering, 3, 1.001)
    came(gathering, 4, 1.001)
    gathering.taken()
    gathering.recorded(any_started=True)
    gathering.started([5, 6], 2.0)
    came(gathering, 5, 2.002)
    assert gathering.wait_s(2.002) > 0.0


def test_only_ends_of_the_last_start_are_awaited() -> None:
    gathering = learned()
    gathering.started([3, 4], 1.0)
    gathering.started([5], 1.1)
    assert not gathering.awaits(3)
    assert gathering.awaits(5)
