"""What the engine needs of a store for groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from longshore.model.batch import MAX_GROUP_EDGES, MAX_GROUP_JOBS
from longshore.model.batch import Batch as Batch  # stores and dispatchers take them from here
from longshore.model.batch import BatchResult as BatchResult
from longshore.model.finding import Finding
from longshore.model.group import (
    MOST_COPIED,
    AddedNode,
    GateVerdict,
    Group,
    GroupFilter,
    GroupPart,
    GroupProgress,
    GroupSubmitted,
    GroupVerdict,
    Near,
    NodeView,
    RetryPlan,
    RunPlan,
)
from longshore.model.job import (
    Refused,
)
from longshore.model.upkeep import Harvested as Harvested
from longshore.model.upkeep import Promoted as Promoted
from longshore.model.upkeep import Settled as Settled
from longshore.model.upkeep import Tended as Tended


class GroupStore(Protocol):
    """The verbs of a store about groups."""

    async def submit_group(self, part: GroupPart) -> GroupSubmitted | Refused:
        """Stores some nodes of a group. With the last of them the group runs, all or nothing.

        A repeat changes nothing. What differs from what is stored is refused, and so is a unique
        key that a live job holds; then nothing of this part is stored.
        """

    async def add_to_group(
        self,
        ref: UUID | int,
        request: UUID,
        nodes: Sequence[AddedNode],
        *,
        max_group_jobs: int = MAX_GROUP_JOBS,
        max_group_edges: int = MAX_GROUP_EDGES,
    ) -> GroupSubmitted | Refused | None:
        """Adds jobs to a group that runs or is paused, all or none, once for each `request`.

        They come behind all others. What they depend on may have ended: then they hear of it at
        once. A group in another state, a key that is unknown or taken and a limit are refused. None
        if there is no such group.
        """

    async def settle(
        self,
        groups: Collection[UUID] = (),
        most: int = 1000,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> Settled:
        """Does some of what groups have to do, of at most so many jobs.

        Ends reach the jobs that depend on them. Maps become jobs; one that would bring its group
        past `max_group_jobs` fails. Jobs of cancelled groups end. Groups without a live job end;
        without `groups` it looks at every group, otherwise at these.
        """

    async def open_gate(
        self, ref: UUID | int, key: str, value: bytes | None = None, by: str = ""
    ) -> GateVerdict:
        """Ends a gate of a group, which has been reached, as succeeded with this result.

        Opened again with the same value, it stays as it is.
        """

    async def cancel_group(self, ref: UUID | int, by: str = "") -> GroupVerdict:
        """Marks a group as cancelling. `settle` ends its jobs; none of them becomes ready again."""

    async def pause_group(self, ref: UUID | int, paused: bool) -> GroupVerdict:
        """Holds a group's jobs that have not begun, or lets them go on. `settle` does the rest."""

    async def is_sweeping(self, ref: UUID | int) -> bool:
        """Whether jobs of a group may not be yet where its state wants them: `settle` does that.

        False if there is no such group. Its cost does not depend on the group's jobs.
        """

    async def retry_group(
        self,
        ref: UUID | int,
        by: str = "",
        request: UUID | None = None,
        *,
        keys: Sequence[str] = (),
        args: bytes | None = None,
        dry_run: bool = False,
    ) -> RetryPlan | None:
        """Opens a new round of all jobs of a group that did not succeed, one for each `request`.

        With `keys`, it opens one of these jobs and of all that depend on them, whatever they were;
        a key that ends in `/` names all below it. What a job added leaves the group when the job
        runs again. With `args`, the one job in `keys` gets these arguments. A dry run changes
        nothing. None if there is no such group.
        """

    async def rerun_group(
        self,
        ref: UUID | int,
        run: UUID,
        *,
        keys: Sequence[str] = (),
        dry_run: bool = False,
        most: int = MOST_COPIED,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> RunPlan | None:
        """Takes a step towards a new run of a group that has ended: a new group with this id.

        A step copies at most so many jobs. Call it again until the new group is not staging any
        more; by then a repeat only answers what the run did. What succeeded, and depends on nothing
        that runs anew, is there as succeeded with its result. The jobs with these `keys` run anew
        in any case. A dry run changes nothing. A run of more than `max_group_jobs` is refused. None
        if there is no such group. Raises `Conflict` if another group has the id.
        """

    async def cancel_abandoned(self, older_than_s: float, most: int = 100) -> list[UUID]:
        """Cancels groups that are not complete and got no part for so long; answers which."""

    async def examine_group(self, group: UUID, *, repair: bool = False) -> list[Finding]:
        """What is wrong with a group that runs; with `repair`, its counts are made right.

        Then `settle` does what they ask for.
        """

    async def group_progress(self, after: int = 0, most: int = 1000) -> list[GroupProgress]:
        """How far groups are that have not ended: the next `most` of them after a number.

        Its cost depends on neither the jobs nor the groups beyond these.
        """

    async def group(self, ref: UUID | int) -> Group | None:
        """One group, by its id or number."""

    async def groups(self, wanted: GroupFilter) -> list[Group]:
        """Groups, newest first, without counts."""

    async def nodes(self, group: UUID, after: int = -1, most: int = 1000) -> list[NodeView]:
        """The nodes of a group in its order, after the one with this index, beginning with 0."""

    async def nodes_near(
        self, group: UUID, jobs: Sequence[UUID], near: Near, most: int = 1000
    ) -> list[NodeView]:
        """The first nodes of a group, in its order, that are near these jobs of it.

        Its cost depends on how many are near, not on the group's size.
        """
