"""Which devices of a worker each attempt has: their numbers, from 0 on, the lowest free ones first.

A dispatcher counts devices; it does not know which they are. A worker gives an attempt its devices
when it starts it, and takes them back when nothing of the attempt is left. So an attempt that is
stopped and still runs keeps what it has, whatever its dispatcher believes by then.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from longshore.core.resources import NOTHING, Amounts, amounts_of, is_device
from longshore.model.attempt import HeldDevices

MOST_NUMBERED: Final = 1024
"""If a worker has more devices of a name, they are no devices that one could tell apart, but seats
of a licence or the like: they are only counted."""


class Devices:
    """The named devices of one worker, and which attempt has which, by token.

    `first` says with which number those of a name begin, if another worker has those before.
    """

    def __init__(self, total: Amounts, first: Amounts = NOTHING) -> None:
        self._all = {
            name: range(at := int(first.get(name, 0)), at + int(amount))
            for name, amount in total.items()
            if is_device(name) and amount <= MOST_NUMBERED
        }
        self._held: dict[int, tuple[HeldDevices, ...]] = {}

    def ever_fit(self, shape: str) -> bool:
        """Whether the worker has the devices that an attempt of this shape needs."""
        return all(amount <= len(self._all[name]) for name, amount in self._needed(shape))

    def fit(self, shape: str) -> bool:
        """Whether they are free now."""
        return all(len(self._free(name, amount)) == amount for name, amount in self._needed(shape))

    def take(self, token: int, shape: str) -> tuple[HeldDevices, ...]:
        """The devices of an attempt, which fit: it has them until it is released."""
        needed = self._needed(shape)
        found = tuple(HeldDevices(name, self._free(name, amount)) for name, amount in needed)
        self.hold(token, found)
        return found

    def hold(self, token: int, devices: tuple[HeldDevices, ...]) -> None:
        """An attempt has these devices."""
        if devices:
            self._held[token] = devices

    def release(self, token: int) -> bool:
        """Nothing is left of an attempt; whether it had devices, which are free now."""
        return self._held.pop(token, None) is not None

    def _needed(self, shape: str) -> list[tuple[str, int]]:
        needed = amounts_of(shape).items()
        return [(name, int(amount)) for name, amount in needed if name in self._all]

    def _free(self, name: str, most: int) -> tuple[int, ...]:
        held = (one for devices in self._held.values() for one in devices if one.name == name)
        taken = {number for one in held for number in one.numbers}
        return tuple(islice((one for one in self._all[name] if one not in taken), most))
