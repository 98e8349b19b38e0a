"""Run times: writes to the store how long the jobs of each kind ran."""

from __future__ import annotations

from longshore.model.run_time import RunTime
from longshore.ports import Store


class RunTimes:
    """Sums up what workers report, and now and then writes it for all kinds at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[str, tuple[int, float]] = {}

    def ran(self, kind: str, seconds: float) -> None:
        """A job of this kind succeeded after so long."""
        runs, total_s = self._runs.get(kind, (0, 0.0))
        self._runs[kind] = runs + 1, total_s + seconds

    async def write(self) -> None:
        """Writes what came since the last time. What the store may not have taken is dropped."""
        ran, self._runs = self._runs, {}
        if ran:
            times = [RunTime(kind, runs, total_s / runs) for kind, (runs, total_s) in ran.items()]
            await self._store.note_runs(times)
