"""A group: jobs that depend on each other, submitted, watched and cancelled as one.

The submitter sends the nodes of a group in an order in which each comes after those it depends on.
So no group that arrives can hold a cycle. The order is that of claims too: see `core.graph`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from longshore.model.job import JobState, Submission
from longshore.model.limits import JobLimit
from longshore.model.watcher import Watcher

MOST_AT_ONCE: Final = 1000
"""So many jobs of a group may begin in the transaction that stores the last of its nodes."""
MOST_SHOWN: Final = 5
"""Of how many jobs that a job waits for `why` tells."""
MOST_NAMED: Final = 1000
"""How many of the jobs that a new run of a group runs anew are named."""
MOST_COPIED: Final = 2000
"""How many jobs one step towards a new run of a group copies."""

MAP: Final = "longshore.map"
"""The kind of a node that becomes one job for each element of a list."""
SCOPE: Final = "longshore.scope"
"""The kind of a node that stands for a sub-group. It ends at once, and is closed with the rest."""
GATE: Final = "longshore.gate"
"""The kind of a node that ends when a user opens it."""
NOT_RUN: Final = frozenset({MAP, SCOPE, GATE})
"""The kinds of nodes that no worker runs. Only groups may have them."""


class GroupState(StrEnum):
    """Where a group is in its life. While it is `staging`, parts of it are still to come."""

    STAGING = "staging"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED_GROUPS: Final = frozenset({GroupState.SUCCEEDED, GroupState.FAILED, GroupState.CANCELLED})


class Condition(StrEnum):
    """What a node wants of those that it depends on (`on`)."""

    SUCCEEDED = "succeeded"
    """All of them succeeded."""
    ENDED = "ended"
    """All of them ended, however."""
    FAILED = "failed"
    """One of them failed."""


class Node(Struct, frozen=True, omit_defaults=True, gc=False):
    """One job of a group. `after` has the places, in the group's order, of what it depends on.

    `scope` is the place of the node in whose scope it is: whoever depends on that one waits for
    this one too.
    """

    key: str
    job: Submission
    after: tuple[int, ...] = ()
    on: Condition = Condition.SUCCEEDED
    scope: int | None = None


class GroupHead(Struct, frozen=True, omit_defaults=True):
    """What a group is apart from its nodes; `jobs` says how many nodes it has.

    By the id the store recognises a repeated submit. With `fail_fast`, the first failure cancels
    what has not ended.
    """

    id: UUID
    name: str
    jobs: int
    fail_fast: bool = False
    labels: tuple[str, ...] = ()
    watchers: tuple[Watcher, ...] = ()
    """Who is told when it has ended."""
    limit: JobLimit | None = None
    """What limits its jobs together. Its key is `group=`, which the id completes."""


class GroupPart(Struct, frozen=True):
    """Some nodes of a group, from place `first` on. The group runs once all its parts are there."""

    head: GroupHead
    first: int
    nodes: tuple[Node, ...]


class GroupSubmitted(Struct, frozen=True):
    """An accepted part; `staged` of the group's nodes are stored now."""

    id: UUID
    number: int
    state: GroupState
    staged: int


class AddedNode(Struct, frozen=True, omit_defaults=True, gc=False):
    """A job that a client adds to a group which runs. `after` has the keys of what it depends on.

    These are jobs that the group has, or such that come before it in the same request. The id of
    the job follows from the request and its place there.
    """

    key: str
    job: Submission
    after: tuple[str, ...] = ()
    on: Condition = Condition.SUCCEEDED


class Group(Struct, frozen=True, kw_only=True):
    """A group as it is shown; `counts` has its jobs by state.

    Of those that succeeded, `open` are maps and sub-groups in whose scope are jobs that have not
    ended: views tell that they run.
    """

    id: UUID
    number: int
    name: str
    state: GroupState
    jobs: int
    fail_fast: bool
    labels: tuple[str, ...]
    created_at: datetime
    ended_at: datetime | None = None
    cancelled_by: str = ""
    counts: dict[str, int] = {}
    open: int = 0
    run_of: int | None = None
    """The number of the group that this one is a new run of."""
    taken_over: int = 0
    """How many of its jobs were taken over from that run. A list does not count them."""
    round: int = 1
    """How often it ran: a retry begins another round."""
    watchers: tuple[Watcher, ...] = ()
    """Who is told when it has ended."""
    limit: JobLimit | None = None
    """What limits its jobs together, unless a rule for the key of the group does."""
    stalled_at: datetime | None = None
    """Since when it makes no progress though it could. Only a list of stalled groups says so."""


class GroupFilter(Struct, frozen=True, omit_defaults=True):
    """Which groups to list: those that match every given field, newest first, below `before`.

    `stalled`: those alone that make no progress though they could, as the dispatcher saw.
    """

    states: tuple[GroupState, ...] = ()
    name: str | None = None
    before: int | None = None
    limit: int = 50
    stalled: bool = False


class GroupProgress(Struct, frozen=True):
    """A group that has not ended, and a number that changes whenever one of its jobs ends."""

    id: UUID
    number: int
    state: GroupState
    mark: int


class NodeView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node as it is shown. `after` has the keys of what it depends on."""

    key: str
    job: UUID
    number: int
    kind: str
    state: JobState
    after: tuple[str, ...] = ()
    on: Condition = Condition.SUCCEEDED
    unmet: int = 0
    """How many of those that it depends on are not closed."""
    scope: str | None = None
    """The key of the node in whose scope it is."""
    open: int = 0
    """How many nodes in its scope are not closed."""
    taken_from: int | None = None
    """The number of the job of an earlier run whose result it took over."""


class Near(StrEnum):
    """Which nodes of a group are meant, by where they are seen from some jobs of it."""

    THESE = "these"
    """The nodes of these jobs."""
    AFTER = "after"
    """Those that they depend on."""
    DEPENDENTS = "dependents"
    """Those that depend on them."""


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What `why` needs of a job of a group. `waits_for` has the first few that are not closed."""

    key: str
    group: Group
    on: Condition
    after: int
    """How many jobs it depends on."""
    unmet: int
    """How many of these are not closed."""
    waits_for: tuple[tuple[str, JobState], ...] = ()
    """A job that has ended is among them while jobs in its scope have not."""
    taken_from: int | None = None
    """The number of the job of an earlier run whose result it took over."""


class GroupVerdict(StrEnum):
    """What a user's change to a group did: it is in this state now, or why nothing changed."""

    CANCELLING = "cancelling"
    PAUSED = "paused"
    RUNNING = "running"
    NOT_RUNNING = "not_running"
    ALREADY_ENDED = "already_ended"
    NOT_FOUND = "not_found"


class RetryPlan(Struct, frozen=True):
    """What the retry of a group does: it opens a new round of these jobs.

    `refused` says why nothing was done; `running` names jobs that must end first; `retired` those
    that leave the group, because the job that added them runs again. Each names the first thousand,
    in the order of the group.
    """

    group: UUID
    reopened: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    refused: str = ""
    retired: tuple[str, ...] = ()
    more: int = 0
    """How many more jobs run again than `reopened` names."""
    more_retired: int = 0
    """How many more jobs leave the group than `retired` names."""

    def shortened(self) -> RetryPlan:
        """The plan as clients get it: it names the first thousand jobs, and counts the others."""
        first = slice(MOST_NAMED)
        return replace(
            self,
            reopened=self.reopened[first],
            running=self.running[first],
            retired=self.retired[first],
            more=max(0, len(self.reopened) - MOST_NAMED),
            more_retired=max(0, len(self.retired) - MOST_NAMED),
        )


class RunPlan(Struct, frozen=True):
    """What a new run of a group does: some jobs run anew, the results of the others are taken over.

    `group` is the group that it is a run of, `run` the new group; a plan alone has none.
    """

    group: UUID
    anew: int = 0
    taken_over: int = 0
    left_out: int = 0
    """How many jobs are not in the new run, because the jobs that added them run anew."""
    keys: tuple[str, ...] = ()
    """The keys of those that run anew: the first thousand, in the order of the group."""
    refused: str = ""
    """Why there is no new run."""
    run: GroupSubmitted | None = None


class GateVerdict(StrEnum):
    """What the opening of a gate did."""

    OPENED = "opened"
    ALREADY_OPEN = "already_open"
    NOT_REACHED = "not_reached"
    """What it depends on has not ended, or its group is paused."""
    ALREADY_ENDED = "already_ended"
    """It failed at its timeout, was cancelled, or never could be reached."""
    NOT_A_GATE = "not_a_gate"
    NOT_FOUND = "not_found"
