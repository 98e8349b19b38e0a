"""What becomes of the next turns of actors, once all else that happens to them is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import asyncpg
from msgspec import structs

from longshore.core import effects
from longshore.core.effects import Change
from longshore.core.turns import Step, TurnJob, go, next_step, next_wake, turn_job
from longshore.model.job import JobState, Submission
from longshore.store.actor_rows import unpack_terms
from longshore.store.postgres.changes import apply
from longshore.store.postgres.cursors import ClaimCursors
from longshore.store.postgres.mailboxes import Mailbox, Mailboxes, drop_jobs
from longshore.store.postgres.states import PAUSED, STATES, STOPPING
from longshore.store.postgres.submit import SubmitBatch
from longshore.store.rows import later, moment, unpack_options

_ON_LOCKED: Final = frozenset({Step.REMOVE, Step.ANEW, Step.GO, Step.HOLD})
"""What is done to a job only once its row is locked."""
_MAKES: Final = frozenset({Step.MAKE, Step.ANEW})
_REMOVES: Final = frozenset({Step.REMOVE, Step.ANEW})

_Plan = tuple[Mailbox, Step, float | None]


async def wake(
    boxes: Mailboxes,
    chosen: Sequence[Mailbox],
    intake: SubmitBatch,
    cursors: ClaimCursors,
    *,
    by_ends: bool = False,
) -> Counter[int]:
    """Makes, moves or removes the jobs of the next turns of these actors.

    Answers how many of those that were there became ready, by lane; `intake` counts the new ones. A
    job that seems to need a change is locked, and looked at again: a claim may have it by now.
    """
    await boxes.find_jobs(chosen)
    plans = _plans(chosen, boxes.now)
    seen = [box for box, step, _ in plans if step in _ON_LOCKED]
    ready: Counter[int] = Counter()
    if seen:
        await boxes.lock_jobs(seen)
        plans = _plans(chosen, boxes.now)
        removed = [box.job for box, step, _ in plans if step in _REMOVES and box.job is not None]
        await drop_jobs(boxes.tx, removed)
        changes = [change for plan in plans for change in _changes(*plan)]
        await apply(boxes.tx, changes)
        for row, change in changes:
            if change.state is JobState.READY:
                ready[row["lane"]] += 1
                cursors.put_back(row["lane"], row["urgency"], (row["rank"], row["number"]))
    made = [(box, delay_s) for box, step, delay_s in plans if step in _MAKES]
    if made:
        jobs = [_job(box, delay_s, boxes.now) for box, delay_s in made]
        await intake.insert_turns(jobs, [box.number for box, _ in made], by_ends=by_ends)
    for box in chosen:
        box.forget_job()
    return ready


def _plans(boxes: Sequence[Mailbox], now: int) -> list[_Plan]:
    """What becomes of the next turn of each; that of an actor that is being stopped stays."""
    return [(box, *_next_step(box, now)) for box in boxes if box.status != STOPPING]


def _next_step(box: Mailbox, now: int) -> tuple[Step, float | None]:
    wake_at = next_wake(
        starts=box.starts, has_mail=box.has_mail, timers=box.timers, delayed_at=box.delayed_at
    )
    row = box.job
    job = None
    if row is not None:
        job = TurnJob(STATES[row["state"]], row["failures"], row["run_at"])
    return next_step(job, wake_at, now, paused=box.status == PAUSED)


def _changes(
    box: Mailbox, step: Step, delay_s: float | None
) -> list[tuple[asyncpg.Record, Change]]:
    """The change of the job of its next turn, which is locked; none if it stays or goes."""
    row = box.job
    if row is None or step not in (Step.GO, Step.HOLD):
        return []
    state = STATES[row["state"]]
    if step is Step.HOLD:
        return [(row, effects.HOLD[state])]
    change = go(state, delay_s, unpack_options(row["options"]).expires_s)
    # A turn that backs off keeps its time to the microsecond: the row has it.
    return [(row, structs.replace(change, delay_s=None))]


def _job(box: Mailbox, delay_s: float | None, now: int) -> Submission:
    """The job of the next turn, with the very time at which its timer or message is due."""
    type, _ = box.name
    of_turn = box.id, type, unpack_terms(box.terms), box.version, box.turn + 1
    job = turn_job(*of_turn, last_worker=box.last_worker)
    return job if delay_s is None else structs.replace(job, run_at=moment(later(now, delay_s)))
