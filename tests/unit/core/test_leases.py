"""Lease arithmetic: a worker always stops before another may start its jobs (G6)."""

from hypothesis import given
from hypothesis import strategies as st

from longshore.core.leases import Lease, is_lost, is_silent, ping_every_s

seconds = st.floats(0.1, 1_000)


@given(st.floats(0, 1e6), seconds, seconds, seconds, st.floats(0, 100))
def test_a_worker_kills_its_jobs_before_its_dispatcher_gives_them_away(
    sent_at: float, lease_s: float, abort_s: float, kill_s: float, on_the_way_s: float
) -> None:
    lease = Lease(sent_at, lease_s)
    received_at = sent_at + on_the_way_s
    assert lease.kill_at(kill_s) < lease.ends_at
    assert not is_lost(received_at, lease.kill_at(kill_s), lease_s)
    assert lease.abort_at(5.0) < lease.kill_at(2.0)


def test_the_default_lease_aborts_five_and_kills_two_seconds_before_its_end() -> None:
    lease = Lease(100.0, 15.0)
    assert (lease.abort_at(5.0), lease.kill_at(2.0), lease.ends_at) == (110.0, 113.0, 115.0)


def test_of_a_short_lease_two_thirds_are_for_work() -> None:
    """Otherwise the worker would abort its jobs as soon as it started them."""
    lease = Lease(100.0, 6.0)
    assert (lease.abort_at(5.0), lease.kill_at(2.0), lease.ends_at) == (104.0, 105.0, 106.0)


def test_half_a_lease_left_is_when_to_look_elsewhere() -> None:
    lease = Lease(0.0, 10.0)
    assert not lease.less_than_half_left(4.9)
    assert lease.less_than_half_left(5.1)


def test_another_dispatcher_waits_out_the_lease_and_the_margin() -> None:
    assert not is_silent(0.0, 21.9, 15.0, 7.0)
    assert is_silent(0.0, 22.0, 15.0, 7.0)


def test_a_small_fleet_pings_as_often_as_it_is_told() -> None:
    assert ping_every_s(0, 1.0, 1_000, 15.0) == 1.0
    assert ping_every_s(1_000, 1.0, 1_000, 15.0) == 1.0


def test_a_large_fleet_pings_less_often_so_that_a_dispatcher_gets_no_more_than_it_wants() -> None:
    assert ping_every_s(2_500, 1.0, 1_000, 15.0) == 2.5
    assert ping_every_s(300, 0.5, 100, 60.0) == 3.0


def test_a_lease_always_has_room_for_five_pings() -> None:
    assert ping_every_s(100_000, 1.0, 1_000, 15.0) == 3.0
    assert ping_every_s(1, 1.0, 1_000, 1.0) == 0.2


@given(st.integers(0, 10**6), seconds, st.integers(1, 10**5), seconds)
def test_pings_are_bounded_by_what_is_wanted_unless_the_lease_needs_more(
    workers: int, ping_s: float, most_per_s: int, lease_s: float
) -> None:
    every_s = ping_every_s(workers, ping_s, most_per_s, lease_s)
    assert 0 < every_s <= lease_s / 5
    assert every_s == lease_s / 5 or workers <= most_per_s * every_s * (1 + 1e-9)
