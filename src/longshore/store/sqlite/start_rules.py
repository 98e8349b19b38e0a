"""Which ready jobs may start now: what holds jobs back although slots are free.

A submit asks for its new jobs, an end for the jobs of groups that it lets start (`dependents`), a
claim for the lanes that it wants to read, and `explain` for one job, to say why. Nothing starts
from a paused queue. Jobs of kinds and queues for which there are rules of limits, only claims start
(`limits.lane_gates`). A rule must not cost a batch one more statement: see `sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec

from longshore.core.lane_rules import lane_keys
from longshore.core.why import HeldBack
from longshore.model.job import Job
from longshore.store.sqlite.limit_rules import rules_of_lanes
from longshore.store.sqlite.transaction import Snapshot, Transaction

_PAUSED: Final = "SELECT json_group_array(name) FROM queue WHERE paused = 1"
_OPEN_LANES: Final = """
    SELECT json_group_array(wanted.value) FROM json_each(?) AS wanted
    WHERE NOT EXISTS (
            SELECT 1 FROM lane CROSS JOIN queue ON queue.name = lane.queue
            WHERE lane.hash = wanted.value AND queue.paused = 1)
        AND EXISTS (
            SELECT 1 FROM job INDEXED BY job_ready
            WHERE job.state = 'ready' AND job.blocked_on IS NULL AND job.lane = wanted.value)"""

_hashes = msgspec.json.Decoder(list[int])
_names = msgspec.json.Decoder(frozenset[str])


class _Starting(Protocol):
    """A job that could start: a new one, or one whose dependencies are met."""

    @property
    def queue(self) -> str: ...

    @property
    def kind(self) -> str: ...


def may_start(tx: Transaction, jobs: Sequence[_Starting]) -> list[bool]:
    """Whether each of these jobs may start."""
    closed, rules = _remembered(tx), rules_of_lanes(tx)
    return [
        job.queue not in closed and not (rules and lane_keys(job.queue, job.kind, rules))
        for job in jobs
    ]


def open_lanes(tx: Snapshot, lanes: Iterable[int]) -> list[int]:
    """Those of these lanes that hold ready jobs which may start."""
    wanted = msgspec.json.encode(list(dict.fromkeys(lanes))).decode()
    return _hashes.decode(tx.execute(_OPEN_LANES, (wanted,)).fetchone()[0])


def held_back(tx: Snapshot, job: Job) -> HeldBack | None:
    """What holds a job back; None if nothing does."""
    return HeldBack.PAUSED_QUEUE if job.queue in _paused(tx) else None


def _remembered(tx: Transaction) -> frozenset[str]:
    """The queues from which nothing starts, as the last transaction left them."""
    if tx.remembered.paused is None:
        tx.remembered.paused = _paused(tx)
    return tx.remembered.paused


def _paused(tx: Snapshot) -> frozenset[str]:
    return _names.decode(tx.execute(_PAUSED).fetchone()[0])
