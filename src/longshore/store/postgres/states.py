"""How states are stored on PostgreSQL: small numbers, of which statements speak by name.

The numbers are far apart, so that there is room for more. All live states come before `ENDED`, and
the indexes of the schema rely on these very numbers (see its migrations): they never change.
"""

from __future__ import annotations

from typing import Final

from longshore.core.lifecycle import OWNED as OWNED_STATES
from longshore.model.job import JobState

S = JobState

ENDED: Final = 100
"""The codes of jobs that are over begin here."""

CODES: Final = {
    S.WAITING: 10,
    S.DELAYED: 20,
    S.READY: 30,
    S.RUNNING: 40,
    S.CANCELLING: 50,
    S.SUCCEEDED: ENDED,
    S.FAILED: 110,
    S.DEPENDENCY_FAILED: 120,
    S.SKIPPED: 130,
    S.CANCELLED: 140,
}
STATES: Final = {code: state for state, code in CODES.items()}

DELAYED: Final = CODES[S.DELAYED]
READY: Final = CODES[S.READY]
RUNNING: Final = CODES[S.RUNNING]
CANCELLING: Final = CODES[S.CANCELLING]

OWNED_CODES: Final = frozenset(CODES[state] for state in OWNED_STATES)
OWNED: Final = ", ".join(map(str, sorted(OWNED_CODES)))
"""SQL for the codes of the jobs that a worker has, as the index `job_owned` lists them."""


def head(state: JobState) -> str:
    """How the entry of a history begins that is added for this state."""
    return f',["{state}",'
