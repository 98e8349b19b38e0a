"""What all parts of a dispatcher share."""

from __future__ import annotations

from random import Random
from typing import NamedTuple
from uuid import UUID

from longshore.config import DispatcherSettings
from longshore.model.ids import make_id
from longshore.ports import Clock, Store


class Environment(NamedTuple):
    """A dispatcher's id, its store, its settings, a clock and a source of chance."""

    id: UUID
    store: Store
    settings: DispatcherSettings
    clock: Clock
    random: Random

    def new_id(self) -> UUID:
        """A new id."""
        unix_ms = int(self.clock.utc().timestamp() * 1000)
        return make_id(unix_ms, self.random.randbytes(10))
