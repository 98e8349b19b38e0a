"""Take-back: what a new agent does with the attempts of one that died within its lease.

Theory. The old agent noted each attempt when it began, when it ended and when the store had
recorded its end. A process that outlived it holds some of them; of the others nothing is left. The
new agent attends under the same id, so the store still gives it all of these, and no dispatcher
declares them lost. So it must account for each:

- held by a process: it is *resumed*, under the same token. It is still the same run.
- held, but `MOST_AGENTS` agents had it before this one: it is *given up*. A job that kills its
  agent again and again would otherwise never count as crashed.
- begun, neither ended nor held: it *crashed*, as with any loss of a worker. Those that only waited
  for a slot, or whose kind is not to blame for losses, are *released*.
- ended, but not recorded: its report died with the agent. It is released, at no cost: that the
  agent died is not its fault.

What the store does not give the worker any more, it refuses by the token; and it has processes
abort what they hold of that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.core.lookahead import HasPools, not_blamed
from longshore.model.attempt import AttemptKey, HeldAttempt
from longshore.model.job import JobError, Reason
from longshore.model.reports import CrashReport, ReleaseReport, Report

MOST_AGENTS: Final = 4
"""How many agents an attempt may have: it survives the death of all but the last."""

AGENT_DIED: Final = "the worker's agent died while it ran"


class BegunAttempt(Struct, frozen=True):
    """An attempt that an agent began, and whose end the store may not have."""

    job: UUID
    token: int
    kind: str
    ended: bool = False

    @property
    def key(self) -> AttemptKey:
        """The job's id and the token."""
        return self.job, self.token


class Takeback(Struct, frozen=True):
    """What becomes of the attempts of a dead agent."""

    resumed: tuple[HeldAttempt, ...] = ()
    """These go on, or have ended, in the processes that hold them."""
    given_up: tuple[Report, ...] = ()
    """These of the resumed are to be stopped, and reported so."""
    reports: tuple[Report, ...] = ()
    """These are reported, for nothing is left of them."""


def take_back(
    begun: Iterable[BegunAttempt], held: Iterable[HeldAttempt], worker: HasPools
) -> Takeback:
    """What a new agent does with what the old one began, and with what processes still hold."""
    resumed = tuple(held)
    kept = {one.assignment.token for one in resumed}
    left = [one for one in begun if one.token not in kept]
    free = not_blamed(worker, [(one.token, one.kind) for one in left if not one.ended])
    return Takeback(
        resumed,
        tuple(_given_up(one) for one in resumed if one.agents > MOST_AGENTS),
        tuple(_lost(one, one.ended or one.token in free) for one in left),
    )


def _given_up(one: HeldAttempt) -> Report:
    words = f"{one.agents - 1} agents of its worker died while it ran"
    return CrashReport(*one.assignment.key, JobError(Reason.CRASHED, words))


def _lost(one: BegunAttempt, is_free: bool) -> Report:
    if is_free:
        return ReleaseReport(*one.key)
    return CrashReport(*one.key, JobError(Reason.CRASHED, AGENT_DIED))
