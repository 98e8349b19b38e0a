"""What the use cases need of a running dispatcher; `runtime.py` and the test kit give it."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol
from uuid import UUID

from longshore.core.why import Facts
from longshore.dispatcher.actor_service import ActorRuntime
from longshore.dispatcher.waiters import Waiter
from longshore.model.bulk import BulkAdvance
from longshore.model.group import (
    Group,
    GroupPart,
    GroupSubmitted,
)
from longshore.model.job import (
    CancelVerdict,
    Ended,
    Job,
    Refused,
    Submission,
    Submitted,
)
from longshore.model.worker import (
    DispatcherView,
    KindInfo,
    WorkerView,
)

Answer = Submitted | Refused

MAX_SAMPLES: Final = 1_000
"""How many elements of a map are checked when it is submitted; workers check all."""
_CANCELS: Final = (CancelVerdict.CANCELLED, CancelVerdict.CANCELLING)


class Runtime(ActorRuntime, Protocol):
    """What the service needs of the dispatcher around it. All of it is in memory."""

    def changed_after(self, number: int, wait_s: float) -> Awaitable[int]:
        """How many changes the dispatcher knows of: once it is another number, or in `wait_s`."""

    def stalled_groups(self, most: int) -> Awaitable[list[Group]]:
        """The newest groups that make no progress though they could, as it saw."""

    def kinds(self) -> Mapping[str, KindInfo]:
        """The kinds that this dispatcher's workers serve."""

    def submit(self, jobs: Sequence[Submission]) -> Awaitable[list[Answer]]:
        """Commits jobs; answers one by one, in the order given."""

    def storing(self, jobs: Sequence[Submission]) -> AbstractContextManager[None]:
        """While these jobs of a group are being stored, they take room in the queue."""

    def group_stored(self, part: GroupPart, answer: GroupSubmitted) -> None:
        """The store has a part of a group. If it was the last, the group runs."""

    def group_grew(self, jobs: Sequence[Submission], group: UUID) -> None:
        """A client added these jobs to a group."""

    def groups_changed(self, groups: Collection[UUID] = ()) -> None:
        """These groups have something to do; without any, some group may have."""

    async def group_taken(self, ref: UUID | int) -> None:
        """Returns when nothing of a paused or cancelled group begins any more, or after a time."""

    def gate_opened(self) -> None:
        """A client opened a gate: others may depend on it, and clients wait for it."""

    def schedules_changed(self) -> None:
        """Some schedule may have something to do."""

    def bulks_changed(self) -> None:
        """A client began a bulk."""

    def bulk_advanced(self, advance: BulkAdvance) -> None:
        """A page of a bulk was done: jobs were cancelled, or may be ready somewhere else."""

    def runs_here(self, job: UUID) -> bool:
        """Whether a worker of this dispatcher has the job; False if that takes long to tell."""

    async def wait(self, waiter: Waiter[Ended], wait_s: float) -> None:
        """Returns when the waiter has what it waits for, or after `wait_s`."""

    def cancels_made(self, cancelled: Sequence[UUID], cancelling: Sequence[UUID]) -> None:
        """A client cancelled jobs. Those that are `cancelling` run, and must be stopped."""

    def drains_made(self) -> None:
        """A client told workers to drain."""

    def jobs_appeared(self) -> None:
        """Any lane may have new ready jobs."""

    def limits_changed(self) -> None:
        """A rule of limits was set or removed."""

    def seen(self, worker: WorkerView) -> WorkerView:
        """The worker, with how long its dispatcher has been silent."""

    def silent_s(self, other: DispatcherView) -> float:
        """For how long another dispatcher has not renewed; 0 if it just did."""

    def shown(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """The jobs. Those that a worker of this dispatcher holds ahead say so."""

    def explained(self, job: Job, facts: Facts) -> Facts:
        """The facts about a job, with those that only this dispatcher knows."""
