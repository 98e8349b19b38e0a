"""What submits send to PostgreSQL, column by column, whatever driver carries it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any
from uuid import UUID

from longshore.core.lanes import lane_of
from longshore.core.same_body import is_body
from longshore.model.job import Refused, Submission, Submitted
from longshore.model.worker import Lane
from longshore.store.rows import (
    bodies_or_whys,
    held_by_staging,
    in_conflict,
    micros,
    not_accepted,
    pack_options,
    utc_now,
)

Item = tuple[Submission, int]
"""A submission and the hash of its body."""

Answer = Submitted | Refused

Holder = Submitted | UUID
"""The job that holds a unique key; or its group, while that is not there as a whole."""


class SoundItems:
    """The `items` among some jobs that can be stored, as far as Python can tell."""

    def __init__(self, jobs: Sequence[Submission]) -> None:
        now = micros(utc_now())
        bodies = list(zip(jobs, bodies_or_whys(jobs, now), strict=True))
        self.items = [(job, body) for job, body in bodies if isinstance(body, int)]
        self._bodies = bodies

    def answers(self, taken: list[Answer]) -> list[Answer]:
        """An answer for every job, from those for the items; the other jobs are refused."""
        if len(taken) == len(self._bodies):
            return taken
        left = iter(taken)
        return [
            next(left) if isinstance(body, int) else not_accepted(job.id, body)
            for job, body in self._bodies
        ]


def runs(items: list[Item]) -> list[list[Item]]:
    """The items in runs that hold no id twice: a later run sees what became of the first."""
    if len({job.id.int for job, _ in items}) == len(items):
        return [items] if items else []
    runs: list[dict[UUID, Item]] = [{}]
    for item in items:
        if item[0].id in runs[-1]:
            runs.append({})
        runs[-1][item[0].id] = item
    return [list(run.values()) for run in runs]


def unique_keys(items: Sequence[Item], known: Container[UUID]) -> list[list[str]]:
    """The parameters of `HOLDERS` for the unique keys of jobs that are not known; may be empty."""
    keys = {
        (job.kind, job.unique_key)
        for job, _ in items
        if job.unique_key is not None and job.id not in known
    }
    return [list(column) for column in zip(*keys, strict=True)]


def answered(
    items: Sequence[Item],
    known: Mapping[UUID, tuple[int, int]],
    holders: Mapping[tuple[str, str | None], Holder],
) -> dict[UUID, Answer]:
    """Answers for the jobs that are stored already (`known`), or whose key a job holds."""
    answers: dict[UUID, Answer] = {}
    for job, body in items:
        if job.id in known:
            number, known_body = known[job.id]
            same = is_body(job, body, known_body)
            answers[job.id] = Submitted(job.id, number) if same else in_conflict(job.id)
        elif (job.kind, job.unique_key) in holders:
            holder = holders[job.kind, job.unique_key]
            if isinstance(holder, UUID):
                answers[job.id] = held_by_staging(job, holder)
            else:
                answers[job.id] = holder
    return answers


def lane_of_item(item: Item) -> Lane:
    """The lane a job belongs to."""
    job, _ = item
    return lane_of(job.queue, job.kind, job.target)


def columns(
    items: list[Item], *, sparse: bool = False, each: bool = False
) -> list[Sequence[object]]:
    """The parameters of `SUBMIT`: what differs from job to job in full, what jobs share once.

    With `sparse`, jobs of one shape do not name it. With `each`, every job has what others may
    share: to find the shape of a job takes the longer the more shapes there are.
    """
    shapes: dict[tuple[int, int, bytes], tuple[int, Submission]] = {}
    places: list[int] = []
    last, place = None, 0
    for job, _ in items:
        if last is None or not job.is_like(last):
            lane = lane_of(job.queue, job.kind, job.target).hash
            shape = (lane, job.priority, pack_options(job.options))
            place, _ = shapes.setdefault(shape, (len(shapes) + 1, job))
            last = job
        places.append(place)
    models = [job for _, job in shapes.values()]
    of_shapes = list(shapes)
    if each:
        models = [job for job, _ in items]
        of_shapes = [of_shapes[place - 1] for place in places]
    return [
        [job.id for job, _ in items],
        [body for _, body in items],
        [job.args for job, _ in items],
        [] if each or (sparse and len(shapes) == 1) else places,
        unless_empty([job.unique_key for job, _ in items]),
        unless_empty([job.run_at for job, _ in items]),
        unless_empty([job.delay_s for job, _ in items]),
        [lane for lane, _, _ in of_shapes],
        [priority for _, priority, _ in of_shapes],
        [job.kind for job in models],
        [job.queue for job in models],
        [job.target for job in models],
        [options for _, _, options in of_shapes],
        [job.options.timeout_s for job in models],
        [job.options.expires_s for job in models],
        [True if job.options.watchers else None for job in models],
    ]


def unless_empty(column: list[Any]) -> list[Any]:
    """The column, or an empty one if it holds no value."""
    return column if column.count(None) < len(column) else []
