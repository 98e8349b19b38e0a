"""How a worker keeps time, and its limits."""

from __future__ import annotations

from msgspec import Struct


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Every interval and bound of a worker. Tests use short ones."""

    slots: int = 100
    """How many `async def` jobs run at once."""

    processes: int = 0
    """How many jobs run at once that each have a process of their own; 0 is the CPU count."""

    broker_timeout_s: float = 1.0
    """How long one period of silence is."""

    silent_periods: int = 3
    """After so many silent periods the worker turns to the next dispatcher on its list."""

    abort_before_s: float = 5.0
    """How long before its lease ends a worker that hears of no dispatcher aborts its jobs."""

    kill_before_s: float = 2.0
    """How long before its lease ends it kills what is left of them."""

    resend_s: float = 5.0
    """How long a report stays unacknowledged before the worker sends it again."""

    abort_grace_s: float = 5.0
    """How long an aborted job has to stop by itself before its process is killed."""

    start_timeout_s: float = 60.0
    """How long importing the app, opening its resources and its start-up hooks may take."""

    drain_s: float = 30.0
    """How long running jobs may go on after SIGTERM before they are handed back."""

    scratch: str = ""
    """Where jobs have their scratch folders; without it, the system's temporary folder."""

    stats_s: float = 5.0
    """How often CPU and memory are measured."""

    log_entries: int = 10_000
    """How many lines of what an attempt prints and logs are kept; of the rest, the last 100."""

    log_bytes: int = 4 * 1024 * 1024
    """And how many bytes of them."""

    log_line_bytes: int = 16 * 1024
    """A longer line is cut."""

    log_echo: bool = True
    """Whether what jobs print goes to the worker's own output too."""
