"""Which devices of a worker an attempt has."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from longshore.core.devices import MOST_NUMBERED, Devices
from longshore.model.attempt import HeldDevices


def gpus(*numbers: int) -> tuple[HeldDevices, ...]:
    return (HeldDevices("gpu", numbers),)


def test_attempts_that_run_side_by_side_have_devices_of_their_own() -> None:
    devices = Devices({"cpu": 8.0, "gpu": 3.0, "press": 1.0})
    assert devices.take(1, "cpu=1;gpu=1;memory=4096m") == gpus(0)
    assert devices.take(2, "gpu=2;press=1") == (*gpus(1, 2), HeldDevices("press", (0,)))
    assert not devices.fit("gpu=1")
    assert devices.fit("cpu=2"), "CPUs have no numbers"
    assert devices.release(1)
    assert not devices.release(1)
    assert devices.take(3, "gpu=1") == gpus(0)


def test_what_an_earlier_agent_gave_stays_given() -> None:
    devices = Devices({"gpu": 2.0})
    devices.hold(7, gpus(0, 5))
    assert devices.take(8, "gpu=1") == gpus(1)


def test_worker_may_have_the_later_devices_of_its_machine() -> None:
    assert Devices({"gpu": 2.0}, {"gpu": 4.0}).take(1, "gpu=2") == gpus(4, 5)


def test_attempt_that_needs_more_than_there_is_never_fits() -> None:
    devices = Devices({"gpu": 2.0})
    assert devices.ever_fit("gpu=2")
    assert not devices.ever_fit("gpu=3")


def test_what_there_are_very_many_of_is_only_counted() -> None:
    devices = Devices({"seat": MOST_NUMBERED + 1.0})
    assert devices.ever_fit("seat=5")
    assert devices.take(1, "seat=5") == ()


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=40))
def test_no_device_is_ever_given_twice(steps: list[tuple[int, bool]]) -> None:
    devices, held = Devices({"gpu": 4.0}), dict[int, tuple[int, ...]]()
    for token, (amount, ends) in enumerate(steps):
        shape = f"gpu={amount}"
        assert devices.fit(shape) == (4 - sum(map(len, held.values())) >= amount)
        if devices.fit(shape):
            [one] = devices.take(token, shape)
            held[token] = one.numbers
        if ends and held:
            devices.release(oldest := next(iter(held)))
            del held[oldest]
        numbers = [number for some in held.values() for number in some]
        assert len(numbers) == len(set(numbers))
        assert set(numbers) <= set(range(4))
