"""The part of `MemoryStore` that knows how much kinds use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from longshore.core.usage import KEPT_S, PERIOD_S, Period
from longshore.model.usage import Peak
from longshore.testing.memory_reads import MemoryReads


class MemoryPeaks(MemoryReads):
    """The verbs about how much kinds use."""

    async def note_peaks(self, peaks: Sequence[Peak]) -> None:
        now = self._utc()
        for one in peaks:
            more = Period(one.runs, one.memory_bytes, one.cpu_s)
            current, past, since = self._peaks.get(one.kind, (Period(), Period(), now))
            if now - since >= timedelta(seconds=PERIOD_S):
                current, past, since = Period(), current, now
            self._peaks[one.kind] = current.joined(more), past, since
        oldest = now - timedelta(seconds=KEPT_S)
        self._peaks = {kind: one for kind, one in self._peaks.items() if one[2] >= oldest}

    async def peaks(self) -> list[Peak]:
        known = sorted(self._peaks.items())
        return [current.joined(past).of(kind) for kind, (current, past, _) in known]
