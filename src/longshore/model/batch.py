"""One transaction of the hot path: what goes to the store, and what the store answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.model.actor import Message, Reply, Sent
from longshore.model.attempt import Attempt
from longshore.model.ends import End
from longshore.model.job import Ended, Finished, Refused, Submission, Submitted
from longshore.model.worker import Claim, OpenSlots, SessionKey

BATCH_BYTES: Final = 16 * 1024 * 1024
"""How many bytes of arguments and results one transaction takes. Its last item may exceed it."""
MAX_MAILBOX: Final = 10_000
"""How many unread messages an actor may have before senders from outside are refused."""
MAX_GROUP_JOBS: Final = 100_000
"""How many jobs a group may have, unless the dispatcher's settings say otherwise."""
MAX_GROUP_EDGES: Final = 1_000_000
"""How many dependencies a group may have, unless the dispatcher's settings say otherwise."""


class Batch(Struct, frozen=True):
    """What goes to the store in one transaction: finishes first, then submits, then claims.

    `slots`, if there are any, has one for each submit. A new job that can run now starts on its
    slot, if that worker may have it; otherwise it is ready for any worker. Claims stop with the job
    whose arguments bring them to `max_bytes`. A finish that would bring its group past
    `max_group_jobs` is recorded as failed. Jobs of groups whose dependencies the finishes meet
    start on slots of `for_dependents`; without one they are ready. So do new turns of actors.
    """

    finishes: Sequence[End] = ()
    submits: Sequence[Submission] = ()
    claims: Sequence[Claim] = ()
    slots: Sequence[SessionKey | None] = ()
    max_bytes: int = BATCH_BYTES
    max_group_jobs: int = MAX_GROUP_JOBS
    for_dependents: Sequence[OpenSlots] = ()
    sends: Sequence[Message] = ()
    """Messages to actors from outside, which come after those that the finishes send."""
    max_mailbox: int = MAX_MAILBOX


class BatchResult(Struct, frozen=True):
    """What a batch did. Finishes and submits are answered item by item, in the order given.

    - `started`: the submits that started on their slots;
    - `claimed`: the ready jobs that started on slots of `claims`; `taken` counts them by lane;
    - `ready`: how many jobs became ready, by lane, before claims took some;
    - `ready_by_ends`: those of them that came from finishes (handed back, or sent by an outbox);
    - `ended`: all jobs that ended, with their outcomes;
    - `contested`: lanes that may hold more than was claimed, because another dispatcher claimed
      there at the same moment, or the batch had no room for more bytes;
    - `barred`: lanes of claims ahead that met a job which may not be held ahead;
    - `groups`: groups that need a `settle`: they may be over, or ends have more to reach;
    - `dependents`: the jobs of groups that started on slots of `for_dependents`;
    - `sent`: the answers to `sends`, item by item; what became ready of them is in `ready`;
    - `replies`: the replies to asks from outside;
    - `watched`: whether watchers are to be told of some that ended (`tell_watchers`);
    - `turns`: the new turns of actors that started on slots of `for_dependents`;
    - `stopping`: running jobs that submits have had cancelled;
    - `limits_open_s`: in how many seconds the rate of a key lets the first job begin of those that
      claims put behind it (`open_limits`), or that it keeps from all jobs of a lane;
    - `closed`: lanes of claims whose kind or queue has no room now, by a rule for it.
    """

    finished: list[Finished] = []
    submitted: list[Submitted | Refused] = []
    started: list[Attempt] = []
    claimed: list[Attempt] = []
    taken: Mapping[int, int] = {}
    ready: Mapping[int, int] = {}
    ready_by_ends: Mapping[int, int] = {}
    ended: list[Ended] = []
    contested: frozenset[int] = frozenset()
    barred: frozenset[int] = frozenset()
    groups: frozenset[UUID] = frozenset()
    dependents: list[Attempt] = []
    sent: list[Sent | Refused] = []
    replies: list[Reply] = []
    watched: bool = False
    turns: list[Attempt] = []
    limits_open_s: float | None = None
    stopping: list[UUID] = []
    closed: frozenset[int] = frozenset()
