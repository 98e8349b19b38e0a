"""How PostgreSQL stores states: as small numbers, for which the statements have names.

The numbers are far apart, so that new states fit in between. All live states come before `ENDED`.
The schema's indexes rely on these numbers (see the migrations), so they never change.
"""

from __future__ import annotations

from typing import Final

from longshore.core.lifecycle import OWNED as OWNED_STATES
from longshore.core.lifecycle import TERMINAL
from longshore.model.group import Condition, GroupState
from longshore.model.job import JobState

S = JobState

ENDED: Final = 100
"""The codes of jobs that ended begin here."""

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

WAITING: Final = CODES[S.WAITING]
DELAYED: Final = CODES[S.DELAYED]
READY: Final = CODES[S.READY]
RUNNING: Final = CODES[S.RUNNING]
CANCELLING: Final = CODES[S.CANCELLING]
SUCCEEDED: Final = CODES[S.SUCCEEDED]

LIVE: Final = ", ".join(str(code) for code in CODES.values() if code < ENDED)
"""SQL for the codes of the jobs that have not ended."""

OWNED_CODES: Final = frozenset(CODES[state] for state in OWNED_STATES)
OWNED: Final = ", ".join(map(str, sorted(OWNED_CODES)))
"""SQL for the codes of jobs that a worker owns, as the index `job_owned` lists them."""

_IN_ORDER: Final = "job_listed"
INDEXES: Final = {
    S.READY: "job_ready",
    S.DELAYED: "job_due",
    S.WAITING: _IN_ORDER,
    **dict.fromkeys(OWNED_STATES, "job_owned"),
    **dict.fromkeys(TERMINAL - {S.SUCCEEDED}, _IN_ORDER),
}
"""The index that lists the jobs of a state.

No index lists jobs that succeeded: a list finds them by going back from the newest job.
"""
IN_ORDER: Final = frozenset(CODES[state] for state, name in INDEXES.items() if name == _IN_ORDER)
"""The codes of states whose index is in the order of numbers."""


def _live_by_index() -> list[str]:
    live = [state for state in INDEXES if state not in TERMINAL]
    names = dict.fromkeys(INDEXES[state] for state in live)
    alike = [sorted(CODES[state] for state in live if INDEXES[state] == name) for name in names]
    return [", ".join(map(str, codes)) for codes in alike]


LIVE_BY_INDEX: Final = _live_by_index()
"""SQL for the codes of live states, those that share an index together."""


FAILED_CODES: Final = frozenset({CODES[S.FAILED], CODES[S.DEPENDENCY_FAILED]})
CANCELLED: Final = CODES[S.CANCELLED]
BAD_CODES: Final = FAILED_CODES | {CANCELLED}
"""The codes of ends because of which others cannot run."""

RUNS_SOON: Final = frozenset({S.READY, S.DELAYED})

GROUP_CODES: Final = {
    GroupState.STAGING: 10,
    GroupState.RUNNING: 20,
    GroupState.PAUSED: 30,
    GroupState.CANCELLING: 40,
    GroupState.SUCCEEDED: ENDED,
    GroupState.FAILED: 110,
    GroupState.CANCELLED: 120,
}
GROUP_STATES: Final = {code: state for state, code in GROUP_CODES.items()}

ACTIVE: Final = 10
PAUSED: Final = 20
STOPPING: Final = 30
"""What an actor's row says of it. The rest of its status follows from its turn's job."""

CONDITIONS: Final = {Condition.SUCCEEDED: 0, Condition.ENDED: 1, Condition.FAILED: 2}
CONDITION_OF: Final = {code: condition for condition, code in CONDITIONS.items()}


def head(state: JobState) -> str:
    """The beginning of a history entry for this state."""
    return f',["{state}",'
