"""How much of what a process may do is used up."""

from __future__ import annotations

import psutil

_MB = 1024 * 1024


class Wear:
    """Counts jobs and looks at memory. At 1, `worn` says that one of the limits is reached."""

    def __init__(self, max_jobs: int = 0, max_mb: int = 0) -> None:
        self._max_jobs = max_jobs
        self._max_bytes = max_mb * _MB
        self._jobs = 0
        self._process = psutil.Process() if max_mb else None
        self.worn = 0.0

    def count(self) -> None:
        """A job has ended."""
        self._jobs += 1
        of_jobs = self._jobs / self._max_jobs if self._max_jobs else 0.0
        if self._process is None:
            self.worn = of_jobs
        else:
            used = self._process.memory_info().rss
            self.worn = max(of_jobs, used / self._max_bytes)
