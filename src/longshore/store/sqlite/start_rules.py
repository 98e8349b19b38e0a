"""Which ready jobs may start now: what holds jobs back although slots are free.

A submit asks for its new jobs, a claim for the lanes that it wants to read, and `explain` for one
job, to say why. There is one rule so far: nothing starts from a paused queue. A rule must not cost
a batch one more statement: see `sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from longshore.core.why import HeldBack
from longshore.model.job import Job, Submission
from longshore.store.sqlite.transaction import Snapshot

_PAUSED: Final = """
    SELECT json_group_array(queue.name) FROM json_each(?) AS named
    CROSS JOIN queue ON queue.name = named.value WHERE queue.paused = 1"""
_OPEN_LANES: Final = """
    SELECT json_group_array(wanted.value) FROM json_each(?) AS wanted
    WHERE NOT EXISTS (
            SELECT 1 FROM lane CROSS JOIN queue ON queue.name = lane.queue
            WHERE lane.hash = wanted.value AND queue.paused = 1)
        AND EXISTS (
            SELECT 1 FROM job INDEXED BY job_ready
            WHERE job.state = 'ready' AND job.lane = wanted.value)"""

_hashes = msgspec.json.Decoder(list[int])
_names = msgspec.json.Decoder(set[str])


def may_start(tx: Snapshot, jobs: Sequence[Submission]) -> list[bool]:
    """Whether each of these new jobs may start."""
    closed = paused(tx, {job.queue for job in jobs})
    return [job.queue not in closed for job in jobs]


def open_lanes(tx: Snapshot, lanes: Iterable[int]) -> list[int]:
    """Those of these lanes that hold ready jobs which may start."""
    wanted = msgspec.json.encode(list(dict.fromkeys(lanes))).decode()
    return _hashes.decode(tx.execute(_OPEN_LANES, (wanted,)).fetchone()[0])


def held_back(tx: Snapshot, job: Job) -> HeldBack | None:
    """What holds a job back; None if nothing does."""
    return HeldBack.PAUSED_QUEUE if paused(tx, {job.queue}) else None


def paused(tx: Snapshot, queues: set[str]) -> set[str]:
    """Those of these queues from which nothing starts."""
    names = msgspec.json.encode(queues).decode()
    return _names.decode(tx.execute(_PAUSED, (names,)).fetchone()[0])
