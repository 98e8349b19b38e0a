"""What all parts of one dispatcher share."""

from __future__ import annotations

from random import Random
from typing import NamedTuple
from uuid import UUID

from longshore.config import DispatcherSettings
from longshore.model.ids import make_id
from longshore.ports import Clock, Store


class Environment(NamedTuple):
    """Who a dispatcher is, how it is set, the store it serves, time and luck."""

    id: UUID
    store: Store
    settings: DispatcherSettings
    clock: Clock
    random: Random

    def new_id(self) -> UUID:
        """An id that nothing had before."""
        unix_ms = int(self.clock.utc().timestamp() * 1000)
        return make_id(unix_ms, self.random.randbytes(10))
