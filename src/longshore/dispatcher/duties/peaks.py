"""Peaks: writes to the store how much the attempts of each kind used at most."""

from __future__ import annotations

from longshore.core.usage import Period
from longshore.model.usage import Usage
from longshore.ports import Store


class Peaks:
    """Gathers what workers report, and now and then writes it for all kinds at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kinds: dict[str, Period] = {}

    def used(self, kind: str, usage: Usage) -> None:
        """An attempt of this kind used so much."""
        before = self._kinds.get(kind, Period())
        self._kinds[kind] = before.joined(Period(1, usage.memory_bytes, usage.cpu_s))

    async def write(self) -> None:
        """Writes what came since the last time. What the store may not have taken is dropped."""
        kinds, self._kinds = self._kinds, {}
        if kinds:
            await self._store.note_peaks([period.of(kind) for kind, period in kinds.items()])
