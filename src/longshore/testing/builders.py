"""Jobs, workers and dispatchers for tests: sound by default, with a few words to make them other.

A `Scene` is a store seen by one dispatcher, so that a test reads as a story:

    attempt = await scene.running(kind="fetch")
    await scene.finish(done(attempt, Failed))
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from itertools import count
from typing import Final, get_args
from uuid import UUID

from msgspec import structs

from longshore.core.graph import places as places_of
from longshore.core.graph import start_order
from longshore.core.key_limits import OF_GROUP
from longshore.core.lanes import lane_of
from longshore.core.resources import with_shape
from longshore.model.attempt import Attempt
from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.ends import (
    Cancelled,
    Crashed,
    End,
    Failed,
    NotBegun,
    PutAside,
    ReadDone,
    Released,
    Retried,
    Skipped,
    Snoozed,
    Succeeded,
    TurnTaken,
)
from longshore.model.group import (
    MAP,
    NOT_RUN,
    Condition,
    GroupHead,
    GroupPart,
    GroupState,
    GroupSubmitted,
    Node,
    NodeView,
)
from longshore.model.ids import derive_id, make_id
from longshore.model.job import (
    Ended,
    Finished,
    Job,
    JobError,
    JobState,
    Options,
    Reason,
    Refused,
    Submission,
    Submitted,
)
from longshore.model.limits import Debounced, JobLimit
from longshore.model.reports import OutboxJob, OutboxNode
from longshore.model.worker import Attended, Claim, KindInfo, SessionKey, WorkerInfo
from longshore.payload.maps import MapPattern, pack_map
from longshore.payload.references import Reference, escaped
from longshore.payload.values import pack
from longshore.ports import Batch, BatchResult, Settled, Store

_serial = count(1)
_EPOCH_MS = 1_700_000_000_000
MOST_GROWN: Final = 20
"""How many jobs a scene claims beyond those that its group was seen to have."""
MOST_NODES: Final = 100_000

RAISED = JobError(Reason.RAISED, "it did not work", type="ValueError")


def new_id() -> UUID:
    """An id that nobody had before, in this process or another; later ones sort later."""
    serial = next(_serial)
    return make_id(_EPOCH_MS + serial, (os.getpid() << 32 | serial).to_bytes(10, "big"))


def a_job(
    *,
    id: UUID | None = None,
    kind: str = "work",
    args: bytes = b"\x80",
    queue: str = "default",
    target: str = "",
    priority: int = 0,
    run_at: datetime | None = None,
    delay_s: float | None = None,
    unique_key: str | None = None,
    timeout_s: float | None = None,
    expires_s: float | None = None,
    labels: tuple[str, ...] = (),
    resources: str = "",
    limits: tuple[JobLimit, ...] = (),
    debounce: Debounced | None = None,
    fair: str = "",
) -> Submission:
    """A submission that is ready at once, unless told otherwise."""
    return Submission(
        id=id or new_id(),
        kind=kind,
        args=args,
        queue=queue,
        target=with_shape(target, resources),
        priority=priority,
        run_at=run_at,
        delay_s=delay_s,
        unique_key=unique_key,
        options=Options(
            timeout_s=timeout_s,
            labels=labels,
            expires_s=expires_s,
            resources=resources,
            limits=limits,
            debounce=debounce,
            fair=fair,
        ),
    )


def some_jobs(number: int, kind: str = "work") -> list[Submission]:
    """So many jobs that differ in their ids only."""
    return [a_job(kind=kind) for _ in range(number)]


def a_worker(
    *, id: UUID | None = None, kinds: Iterable[str] = ("work",), name: str = "w", key: str = ""
) -> WorkerInfo:
    """A worker that serves these kinds of every queue."""
    served = {kind: KindInfo() for kind in kinds}
    return WorkerInfo(id=id or new_id(), name=name, host="h", pid=1, kinds=served, key=key)


def lane(queue: str = "default", kind: str = "work", target: str = "") -> int:
    """The lane of jobs made by `a_job` with the same words."""
    return lane_of(queue, kind, target).hash


def lanes_of(jobs: Iterable[Submission]) -> tuple[int, ...]:
    """Every lane of these jobs, once, in their order."""
    return tuple(dict.fromkeys(lane(job.queue, job.kind, job.target) for job in jobs))


def a_claim(slots: Sequence[SessionKey], *lanes: int) -> Claim:
    """A wish for a job on each slot, from these lanes; by default from that of `a_job()`."""
    return Claim(lanes or (lane(),), tuple(slots))


ENDS: Final[tuple[type[End], ...]] = tuple(
    one for one in get_args(End) if one not in (TurnTaken, PutAside, ReadDone)
)
"""Every way in which an attempt can end that is no turn of an actor."""


def done(
    attempt: Attempt,
    how: type[End] = Succeeded,
    *,
    result: bytes | None = None,
    error: JobError = RAISED,
    delay_s: float = 0.0,
    forced: bool = False,
    crash_limit: int = 3,
    by: str | None = None,
    info: str = "",
    outbox: Sequence[Submission] = (),
    adds: Sequence[OutboxNode] = (),
) -> End:
    """The end of an attempt, told by its worker unless `by` says who tells it.

    Of the rest each end takes what it has a use for.
    """
    which = attempt.id, attempt.token
    ends: dict[type[End], End] = {
        Succeeded: Succeeded(*which, result, (*map(OutboxJob, outbox), *adds)),
        Failed: Failed(*which, error, forced),
        Retried: Retried(*which, error, delay_s, forced),
        Snoozed: Snoozed(*which, delay_s),
        Skipped: Skipped(*which),
        Released: Released(*which),
        NotBegun: NotBegun(*which),
        Cancelled: Cancelled(*which, forced),
        Crashed: Crashed(*which, error, attempt.crashes, crash_limit),
    }
    return structs.replace(ends[how], by=str(attempt.worker) if by is None else by, info=info)


def a_group(
    after: Mapping[str, str],
    on: Mapping[str, Condition] | None = None,
    *,
    jobs: Mapping[str, Submission] | None = None,
    scopes: Mapping[str, str] | None = None,
    fail_fast: bool = False,
    name: str = "g",
    most: int | None = None,
) -> GroupPart:
    """A group in one part. At `most` so many of its jobs run at once.

    `after` has, for each key, the keys it depends on, with spaces between.

    Its jobs are as `a_job` makes them, unless `jobs` has others. `scopes` has, for keys that are in
    the scope of a node, the key of that node.
    """
    edges = {key: wanted.split() for key, wanted in after.items()}
    order, group = start_order(edges), new_id()
    inside = {key: order.index(scope) for key, scope in (scopes or {}).items()}
    nodes = tuple(
        structs.replace(
            a_node(group, place, key, after, (on or {}).get(key), (jobs or {}).get(key)),
            scope=inside.get(key),
        )
        for place, (key, after) in enumerate(zip(order, places_of(order, edges), strict=True))
    )
    limit = None if most is None else JobLimit(OF_GROUP, most)
    return GroupPart(GroupHead(group, name, len(nodes), fail_fast, limit=limit), 0, nodes)


def a_node(
    group: UUID,
    place: int,
    key: str,
    after: tuple[int, ...],
    on: Condition | None = None,
    job: Submission | None = None,
) -> Node:
    """A node of a group, whose job has the id that follows from its place."""
    job = structs.replace(job or a_job(), id=derive_id(group, place))
    return Node(key, job, after, on or Condition.SUCCEEDED)


def additions(
    after: Mapping[str, str],
    on: Mapping[str, Condition] | None = None,
    *,
    jobs: Mapping[str, Submission] | None = None,
    detached: Collection[str] = (),
) -> tuple[OutboxNode, ...]:
    """What a job adds to its group, as `a_group` says it. Each comes after what it depends on."""
    place = {key: at for at, key in enumerate(after)}
    return tuple(
        OutboxNode(
            key,
            (jobs or {}).get(key) or a_job(),
            tuple(sorted(place[one] for one in wanted.split())),
            (on or {}).get(key, Condition.SUCCEEDED),
            key in detached,
        )
        for key, wanted in after.items()
    )


def a_map(
    over: Sequence[object] | Reference, job: Submission | None = None, parameter: str = "x"
) -> Submission:
    """A node that becomes one such job for each element."""
    listed = over.as_value() if isinstance(over, Reference) else escaped(list(over))
    args = pack_map(listed, MapPattern(parameter, job or a_job()))
    made = a_job(kind=MAP, args=args)
    return structs.replace(made, options=Options(references=isinstance(over, Reference)))


def needs(*wanted: Reference, **more: object) -> Submission:
    """A job whose arguments `a0`, `a1` … are results of others."""
    args = {f"a{n}": one.as_value() for n, one in enumerate(wanted)} | more
    job = a_job(args=pack(args, "arguments"))
    return structs.replace(job, options=structs.replace(job.options, references=True))


class GroupScene:
    """One group in a store, whose jobs a test ends by their keys."""

    def __init__(self, scene: Scene, part: GroupPart, slot: SessionKey) -> None:
        self.id = part.head.id
        self.store = scene.store
        self._scene = scene
        self._slot = slot
        self.jobs = {node.key: node.job.id for node in part.nodes}
        served = [node.job for node in part.nodes if node.job.kind not in NOT_RUN]
        self._lanes = lanes_of(served or [a_job()])
        self.running: dict[str, Attempt] = {}

    async def of_run(self, id: UUID) -> GroupScene:
        """A new run of this group, with the same worker."""
        other = copy(self)
        other.id, other.running = id, {}
        await other.look()
        return other

    async def claim(self, most: int | None = None) -> set[str]:
        """Claims all that is ready, or so many; answers the keys."""
        most = len(self.jobs) + MOST_GROWN if most is None else most
        claimed = await self._scene.claim(self._slot, *self._lanes, most=most)
        if not {one.id for one in claimed} <= set(self.jobs.values()):
            await self.look()
        keys = {id: key for key, id in self.jobs.items()}
        mine = {keys[one.id]: one for one in claimed if one.id in keys}
        self.running |= mine
        return set(mine)

    async def look(self) -> dict[str, NodeView]:
        """The nodes that the group has now, by their keys, also those that were added."""
        views = await self._scene.store.nodes(self.id, most=MOST_NODES)
        self.jobs = {view.key: view.job for view in views}
        return {view.key: view for view in views}

    async def end(
        self,
        *keys: str,
        how: type[End] = Succeeded,
        adds: Sequence[OutboxNode] = (),
        result: bytes | None = None,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> BatchResult:
        """Ends these jobs, which run, in one batch; each of them adds these."""
        running = [self.running.pop(key) for key in keys]
        ends = [done(one, how, crash_limit=1, adds=adds, result=result) for one in running]
        batch = Batch(ends, max_group_jobs=max_group_jobs)
        pumped = await self._scene.store.pump(self._scene.dispatcher, batch)
        if adds:
            await self.look()
        return pumped

    async def settle(self) -> Settled:
        """Settles until nothing is left to do; answers all that it did."""
        return await self._scene.settle()

    async def states(self) -> dict[str, JobState]:
        """Where each job is now, by its key."""
        return {key: await self._scene.state(id) for key, id in self.jobs.items()}

    async def state(self, key: str) -> JobState:
        """Where one job is now."""
        return await self._scene.state(self.jobs[key])

    async def group_state(self) -> GroupState:
        """Where the group is now."""
        group = await self._scene.store.group(self.id)
        assert group is not None
        return group.state


class Scene:
    """A store and one dispatcher that uses it."""

    def __init__(self, store: Store, dispatcher: UUID | None = None) -> None:
        self.store = store
        self.dispatcher = dispatcher or new_id()

    async def pump(
        self,
        finishes: Sequence[End] = (),
        submits: Sequence[Submission] = (),
        claims: Sequence[Claim] = (),
        slots: Sequence[SessionKey | None] = (),
    ) -> BatchResult:
        """One batch, in one transaction."""
        return await self.store.pump(self.dispatcher, Batch(finishes, submits, claims, slots))

    async def submit(self, *jobs: Submission) -> list[Submitted | Refused]:
        """Submits all of them as one batch."""
        return (await self.pump(submits=jobs)).submitted

    async def accepted(self, *jobs: Submission) -> list[int]:
        """The numbers of these jobs, each of which was accepted as a new one."""
        answers = await self.submit(*jobs)
        numbers = [answer.number for answer in answers if isinstance(answer, Submitted)]
        assert len(numbers) == len(jobs), answers
        assert [answer.id for answer in answers] == [job.id for job in jobs], answers
        return numbers

    async def attend(
        self, info: WorkerInfo | None = None, *, kinds: Iterable[str] = ("work",)
    ) -> SessionKey:
        """A slot of a worker that this dispatcher attends from now on."""
        info = info or a_worker(kinds=kinds)
        answer = await self.store.attend(self.dispatcher, info)
        assert isinstance(answer, Attended), answer
        return SessionKey(info.id, answer.session)

    async def claim(self, slot: SessionKey, *lanes: int, most: int = 1) -> list[Attempt]:
        """At most so many attempts for one worker, from these lanes."""
        return (await self.pump(claims=[a_claim([slot] * most, *lanes)])).claimed

    async def running(
        self, job: Submission | None = None, slot: SessionKey | None = None
    ) -> Attempt:
        """A new job's attempt, under way on some worker."""
        job = job or a_job()
        slot = slot or await self.attend()
        pumped = await self.pump(submits=[job], claims=[a_claim([slot], *lanes_of([job]))])
        [attempt] = pumped.claimed
        assert attempt.id == job.id, "another job of its lane was ready"
        return attempt

    async def being_cancelled(self, job: Submission | None = None) -> Attempt:
        """A new job's attempt that somebody wants cancelled."""
        attempt = await self.running(job)
        await self.store.cancel([attempt.id])
        return attempt

    async def submit_group(self, part: GroupPart) -> GroupScene:
        """A group that was accepted, and a worker for its jobs."""
        answer = await self.store.submit_group(part)
        assert isinstance(answer, GroupSubmitted), answer
        kinds = {node.job.kind for node in part.nodes}
        return GroupScene(self, part, await self.attend(kinds=kinds))

    async def settle(self, most: int = 1000) -> Settled:
        """Settles all groups until nothing is left to do; answers all that it did."""
        ready, delayed, ended = Counter[int](), False, list[Ended]()
        for _ in range(10_000):
            one = await self.store.settle(most=most)
            ready.update(one.ready)
            delayed |= one.delayed
            ended += one.ended
            if not one.groups:
                return Settled(ready, delayed, tuple(ended))
        raise AssertionError("there is always more to settle")

    async def finish(self, *finishes: End) -> list[Finished]:
        """Records all of them as one batch."""
        return (await self.pump(finishes=finishes)).finished

    async def ended(self, how: type[End], job: Submission | None = None) -> Attempt:
        """The attempt of a new job that ended so."""
        attempt = await self.running(job)
        await self.finish(done(attempt, how))
        return attempt

    async def job(self, ref: UUID | int) -> Job:
        """The whole job, which is there."""
        job = await self.store.job(ref)
        assert job is not None, f"there is no job {ref}"
        return job

    async def state(self, ref: UUID | int) -> JobState:
        """Where a job is now."""
        return (await self.job(ref)).state

    async def states(self, refs: Iterable[UUID | int]) -> list[JobState]:
        """Where these jobs are now, in the order given."""
        return [await self.state(ref) for ref in refs]
