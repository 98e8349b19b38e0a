"""Schedules for scenarios: when they fire, what their runs do, and what clients do to them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from random import Random
from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.model.job import Options, RetryPolicy, Submission
from longshore.model.schedule import Catchup, NewSchedule, Overlap, Rules, Spec, Timing
from longshore.testing.simulation.bodies import Behaviour, args_of

MOST_ACTS: Final = 4
LONGEST_S: Final = 90
"""No more nominal times than a store keeps fires of."""


class ScheduleAct(StrEnum):
    """What a client does to a schedule."""

    PAUSE = "pause"
    RESUME = "resume"
    TRIGGER = "trigger"


class SchedulePlan(Struct, frozen=True):
    """A client makes a schedule, and does this to it, each so long after the one before."""

    client: str
    at: float
    new: NewSchedule
    acts: tuple[tuple[float, ScheduleAct], ...]
    takes_s: float

    @property
    def name(self) -> str:
        """Its name."""
        return self.new.name

    @property
    def runs_alone(self) -> bool:
        """Whether no two runs of it are ever live at once."""
        triggered = any(act is ScheduleAct.TRIGGER for _, act in self.acts)
        return self.new.rules.overlap is not Overlap.ALLOW and not triggered

    @property
    def work_s(self) -> float:
        """How long all its runs take, at the most."""
        return self.takes_s * sum(LONGEST_S / spec.every_s for spec in self.new.timing.specs)


def random_schedule(random: Random, name: str, client: str, ends_at: datetime) -> SchedulePlan:
    """A schedule that fires until the storm is over."""
    seconds = random.sample((3.0, 4.0, 5.0, 10.0), random.choice((1, 1, 2)))
    timing = Timing(
        tuple(Spec(every_s=every_s) for every_s in seconds),
        ends_at=ends_at,
        jitter_s=random.choice((0.0, 0.0, 1.0)),
    )
    rules = Rules(
        overlap=random.choice(list(Overlap)),
        catchup=random.choice(list(Catchup)),
        window_s=random.choice((10.0, 3600.0)),
        count=random.choice((2, 100)),
        grace_s=random.choice((1.0, 5.0)),
        pause_after=random.choice((0, 0, 3)),
    )
    takes_s = random.choice((0.0, random.uniform(0.0, 2.0), random.uniform(0.0, 8.0)))
    id = UUID(bytes=random.randbytes(16), version=4)
    new = NewSchedule(id, name, timing, rules, job=_run(random, takes_s))
    acts = [
        (random.uniform(0.0, 20.0), random.choice(list(ScheduleAct)))
        for _ in range(random.randint(0, MOST_ACTS))
    ]
    return SchedulePlan(client, random.uniform(0.0, 15.0), new, tuple(acts), takes_s)


def _run(random: Random, takes_s: float) -> Submission:
    behaviour = Behaviour(
        takes_s=takes_s,
        fails=random.choice((0, 0, 0, 1, 5)),
        crashes=random.choice((0, 0, 0, 1)),
        stubborn=random.random() < 0.1,
    )
    retry = RetryPolicy(attempts=random.randint(1, 3), backoff_s=0.1)
    kind = random.choice(("work", "grind"))
    return Submission(UUID(int=0), kind, args_of(behaviour), options=Options(retry=retry))
