"""Crowds on the SQLite store: what new jobs do to the other live jobs of their key.

The core decides (`core.crowds`). Only one transaction writes at a time, so nothing needs a lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from longshore.core import crowds, effects
from longshore.core.crowds import Dropped, Fate, Member, Replaced, Timed, crowd_of
from longshore.model.job import JobState, Options, Submission, Submitted
from longshore.store.sqlite.limit_rules import limit_rules
from longshore.store.sqlite.sql import Bulk
from longshore.store.sqlite.states import LIVE_LIST
from longshore.store.sqlite.transaction import Transaction

_JOIN: Final = Bulk(
    "UPDATE job SET crowd = v.column2 FROM {rows} AS v WHERE job.number = v.column1", 2
)
_MEMBERS: Final = f"""SELECT number, state, attempt > 0, run_at, calm_by
    FROM job INDEXED BY job_crowd
    WHERE crowd = ? AND crowd IS NOT NULL AND state IN {LIVE_LIST} AND state <> 'cancelling'"""
_TIME: Final = "UPDATE job SET run_at = ?, calm_by = ? WHERE number = ?"


def settle_crowds(
    tx: Transaction,
    jobs: Sequence[Submission],
    answers: Sequence[object],
    last: int,
    ready: Counter[int],
) -> None:
    """New jobs, those with numbers above `last`, meet the crowds that they belong to.

    What is dropped is taken from those that became `ready`.
    """
    found: dict[str, dict[int, Options]] = {}
    for job, answer in zip(jobs, answers, strict=True):
        crowd = crowd_of(job.kind, job.options)
        if crowd is None or not isinstance(answer, Submitted) or answer.existing:
            continue
        if answer.number > last:
            found.setdefault(crowd, {})[answer.number] = job.options
    if not found:
        return
    rows = [(number, crowd) for crowd, new in found.items() for number in new]
    _JOIN.run(tx.connection, rows)
    tx.flush()
    rules = limit_rules(tx)
    for crowd, new in found.items():
        _apply(tx, crowds.settle(_members(tx, crowd), new, rules, tx.now), ready)
    tx.flush()


def _members(tx: Transaction, crowd: str) -> list[Member]:
    return [
        Member(number, JobState(state), bool(has_begun), due_at, calm_by)
        for number, state, has_begun, due_at, calm_by in tx.execute(_MEMBERS, (crowd,))
    ]


def _apply(tx: Transaction, fates: Sequence[Fate], ready: Counter[int]) -> None:
    found: dict[int, effects.Effect] = {}
    for fate in fates:
        match fate:
            case Dropped(number, why):
                found[number] = effects.of_drop(why)
            case Replaced(number, by):
                found[number] = effects.of_replacement(by)
            case Timed(number, due_at, calm_by):
                tx.execute(_TIME, (due_at, calm_by, number))
    for row in filter(None, tx.held(list(found))):
        change = found[row.number][row.state]
        if change.state is JobState.SKIPPED and row.state is JobState.READY:
            ready[row.lane] -= 1
        tx.apply(row, change)
        if change.ends:
            tx.ended_by_submits.append(effects.outcome(row.uuid, change))
        else:
            tx.stopping.append(row.uuid)
