"""`GroupPlan`: the jobs of a group while it is being described, by a program or by a file."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import structs

from longshore.client.connection import Connection, wire_size
from longshore.client.kind import CallbackGiven
from longshore.client.limit import Limit
from longshore.client.tracing import sending
from longshore.core.additions import check_addition
from longshore.core.callback_limits import as_callback
from longshore.core.graph import places, start_order
from longshore.core.group_limits import (
    MAX_ADDED_JOBS,
    called,
    check_condition,
    check_head,
    check_key,
    check_start,
    condition_of,
    naming,
)
from longshore.core.keys import Keys, below, prefixes
from longshore.core.run_times import expected, weight
from longshore.errors import InvalidInput, LongshoreError, TooLarge, Unavailable
from longshore.model.group import (
    MAP,
    SCOPE,
    AddedNode,
    Condition,
    GroupHead,
    GroupPart,
    GroupSubmitted,
    Node,
)
from longshore.model.ids import derive_ids
from longshore.model.job import Submission
from longshore.model.run_time import RunTime
from longshore.payload.group_references import (
    check_additions,
    check_dependencies,
    files_from,
    referred,
)
from longshore.payload.maps import read_map
from longshore.payload.values import pack
from longshore.wire.portions import MESSAGE_BYTES, portions

MAX_PART_JOBS: Final = 2_000
"""How many jobs of a group go in one message."""
PARTS_IN_FLIGHT: Final = 3
"""How many parts are under way at once: the dispatcher reads one while the store takes another."""
_ANY_NUMBER: Final = 2**63
"""Only the dispatcher knows how many jobs a group may have."""


class PlannedJob(NamedTuple):
    """A job of a group, and the keys of those it depends on.

    `named` has keys as the user wrote them: they may be relative to the sub-group it is `within`.
    """

    key: str
    job: Submission
    after: tuple[str, ...]
    on: Condition
    named: tuple[str, ...] = ()
    within: str = ""


class GroupPlan:
    """A group without jobs at first. Errors name the group and the job.

    Keys that nobody gives have this `ending`.
    """

    def __init__(
        self,
        id: UUID,
        name: str,
        *,
        fail_fast: bool = False,
        labels: Sequence[str] = (),
        callback: CallbackGiven | None = None,
        limit: Limit | None = None,
        ending: str = "",
    ) -> None:
        if isinstance(labels, str) or not isinstance(labels, Sequence):
            raise InvalidInput(f"labels is {labels!r}; give a list of texts")
        watchers = () if callback is None else (as_callback(callback),)
        if not isinstance(limit, Limit | None):
            raise InvalidInput(f"limit is {limit!r:.100}; give a group one Limit, like Limit(5)")
        most = None if limit is None else limit.of_group()
        self.head = GroupHead(id, name, 0, fail_fast, tuple(labels), watchers, most)
        with naming(self.head):
            check_head(self.head, _ANY_NUMBER)
        self.jobs: list[PlannedJob] = []
        self._keys = Keys()
        self._ending = ending

    def add(
        self,
        job: Submission,
        after: Iterable[str] = (),
        on: str = Condition.SUCCEEDED,
        key: str | None = None,
        *,
        within: str = "",
        named: Iterable[str] = (),
    ) -> str:
        """Adds a job; answers its key, which is its kind, or its kind and a number, by default.

        Its key lies below that of the sub-group it is `within`, and the keys in `named` may be
        relative to that. It depends on the jobs whose results its arguments refer to, too.
        """
        if key is None:
            key = self._keys.next_of(_named_after(job), within, self._ending)
        else:
            key = below(within, key)
        with naming(self.head, key):
            check_key(key, job.kind)
            before, condition, texts = _before(job, after), condition_of(on), tuple(named)
            check_condition(condition, bool(before or texts))
            check_start(job)
        self._keys.take(key)
        self.jobs.append(PlannedJob(key, job, before, condition, texts, within))
        return key

    def kinds(self) -> set[str]:
        """The kinds of its jobs."""
        return {_named_after(one.job) for one in self.jobs}

    def in_order(self, times: Mapping[str, RunTime] | None = None) -> tuple[GroupHead, list[Node]]:
        """The group in the order in which its jobs are numbered; raises if it cannot run.

        `times` says how long jobs of its kinds run, as far as that is known.
        """
        jobs = {one.key: one for one in self.jobs}
        with naming(self.head):
            self._keys.check()
            edges, scopes = _edges(jobs)
            members = members_of(scopes, [*jobs, *scopes])
            # A sub-group depends on nothing, but who depends on it comes after its jobs.
            order = start_order({**edges, **members}, self._weights(times or {}))
        at = {key: place for place, key in enumerate(order)}
        inside = {key: at[scope] for scope, keys in members.items() for key in keys}
        after = places(order, {**edges, **dict.fromkeys(scopes, ())})
        # A job's id follows from its place, so a repeat is the same job.
        ids = derive_ids(self.head.id, range(len(order)))
        nodes = []
        for key, id, before in zip(order, ids, after, strict=True):
            one = jobs.get(key) or _scope(key)
            job = structs.replace(one.job, id=id)
            nodes.append(Node(key, job, before, one.on, inside.get(key)))
        head = structs.replace(self.head, jobs=len(nodes))
        check_dependencies(GroupPart(head, 0, tuple(nodes)))
        return head, nodes

    def additions(
        self, there: Container[str], times: Mapping[str, RunTime] | None = None
    ) -> list[AddedNode]:
        """Its jobs, in order, for a group that has others; raises if they cannot run.

        Keys that none of them has are of jobs of that group. `there` has the sub-groups that it
        has: those need no node.
        """
        jobs = {one.key: one for one in self.jobs}
        with naming(self.head):
            self._keys.check()
            edges, found = _edges(jobs)
            scopes = [key for key in found if key not in there]
            members = members_of(scopes, [*jobs, *scopes])
            own = {
                key: [one for one in some if one in jobs or one in members]
                for key, some in edges.items()
            }
            order = start_order({**own, **members}, self._weights(times or {}))
        nodes = []
        for key in order:
            one = jobs.get(key) or _scope(key)
            nodes.append(AddedNode(key, one.job, tuple(dict.fromkeys(edges.get(key, ()))), one.on))
        with naming(self.head):
            check_addition(nodes)
            check_additions(nodes)
        return nodes

    def depended_on(self) -> list[str]:
        """The sub-groups on which its jobs depend."""
        return _edges({one.key: one for one in self.jobs})[1]

    def _weights(self, times: Mapping[str, RunTime]) -> dict[str, int]:
        seconds = expected(self.kinds(), times) if times else {}
        if not seconds:
            return {}
        return {one.key: weight(seconds[_named_after(one.job)]) for one in self.jobs}


def _named_after(job: Submission) -> str:
    """The kind by which a job is called that was not given a key."""
    return read_map(job.args)[1].job.kind if job.kind == MAP else job.kind


def _edges(jobs: Mapping[str, PlannedJob]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """What each job depends on, by key, and the sub-groups among that."""
    subgroups = {prefix for key in jobs if "/" in key for prefix in prefixes(key)}
    edges, scopes = {}, dict[str, None]()
    for key, one in jobs.items():
        named = [_known(other, one, jobs, subgroups) for other in one.named] if one.named else ()
        edges[key] = (*one.after, *named)
        if subgroups:
            scopes.update((other, None) for other in edges[key] if other in subgroups)
    return edges, list(scopes)


def _known(key: str, job: PlannedJob, *known: Container[str]) -> str:
    """A key as the group has it: of another job of the same sub-group, or of one around it."""
    for prefix in (job.within, *prefixes(job.within)) if job.within else ():
        near = below(prefix, key)
        if near != job.key and any(near in some for some in known):
            return near
    return key


def members_of(scopes: Iterable[str], keys: Iterable[str]) -> dict[str, list[str]]:
    """What is directly in each of these sub-groups: jobs, and sub-groups that count by themselves.

    A key belongs to the innermost of these in which it lies.
    """
    found: dict[str, list[str]] = {scope: [] for scope in scopes}
    for key in keys if found else ():
        inner = next((prefix for prefix in prefixes(key) if prefix in found), None)
        if inner is not None:
            found[inner].append(key)
    return found


def _scope(key: str) -> PlannedJob:
    """The node that stands for a sub-group."""
    job = Submission(UUID(int=0), SCOPE, pack({}, "a sub-group"))
    return PlannedJob(key, job, (), Condition.SUCCEEDED)


async def run_times(connection: Connection, kinds: Collection[str]) -> dict[str, RunTime]:
    """How long jobs of these kinds run, for the order of a group; empty if that cannot matter."""
    if len(kinds) < 2:
        return {}
    try:
        return await connection.run_times(kinds)
    except Unavailable:
        raise
    except LongshoreError:
        # A dispatcher that does not know the request. Any order by the graph alone is right, too.
        return {}


async def add_to_group(
    connection: Connection, plan: GroupPlan, request: UUID, *, strict: bool = False
) -> tuple[GroupSubmitted, list[AddedNode]]:
    """Adds the jobs of a plan to the group that it names, all or none, once for this request."""
    wanted = set(plan.depended_on())
    there = set[str]()
    if wanted:
        nodes = connection.all_nodes(plan.head.id)
        there = {node.key async for node in nodes if node.kind == SCOPE and node.key in wanted}
    made = plan.additions(there, await run_times(connection, plan.kinds()))
    if len(list(portions(made, _added_bytes, MESSAGE_BYTES, MAX_ADDED_JOBS))) > 1:
        raise TooLarge(
            f"{called(plan.head)}: what is to be added is more than {MESSAGE_BYTES:,} bytes; add "
            "it in several requests, or keep large data in files"
        )
    return await connection.add_to_group(request, plan.head.id, made, strict), made


async def submit_group(
    connection: Connection, head: GroupHead, nodes: Sequence[Node], *, strict: bool = False
) -> GroupSubmitted:
    """Submits a group in as many parts as it takes. If one is refused, nothing of it runs."""
    with sending([node.job for node in nodes], destination=head.name) as jobs:
        traced = [
            node if node.job is job else structs.replace(node, job=job)
            for node, job in zip(nodes, jobs, strict=True)
        ]
        return await _submit_parts(connection, head, traced, strict)


async def _submit_parts(
    connection: Connection, head: GroupHead, nodes: Sequence[Node], strict: bool
) -> GroupSubmitted:
    edges = sum(len(node.after) for node in nodes)
    room = asyncio.Semaphore(PARTS_IN_FLIGHT)
    errors: list[LongshoreError] = []

    async def send(part: GroupPart) -> GroupSubmitted | None:
        async with room:
            try:
                return None if errors else await connection.submit_group(part, edges, strict)
            except LongshoreError as error:
                errors.append(error)
                return None

    parts = _parts(head, nodes)
    answers = [one for one in await asyncio.gather(*map(send, parts)) if one is not None]
    if not errors:
        return max(answers, key=lambda answer: answer.staged)
    if answers and not isinstance(errors[0], Unavailable):
        with suppress(LongshoreError):
            await connection.cancel_group(head.id)
    raise errors[0]


def _parts(head: GroupHead, nodes: Sequence[Node]) -> list[GroupPart]:
    parts, first = [], 0
    for some in list(portions(nodes, _node_bytes, MESSAGE_BYTES, MAX_PART_JOBS)) or [()]:
        parts.append(GroupPart(head, first, some))
        first += len(some)
    return parts


def _node_bytes(node: Node) -> int:
    """A little more than a node's bytes on the wire."""
    return wire_size(node.job) + 4 * len(node.key) + 5 * len(node.after)


def _added_bytes(node: AddedNode) -> int:
    """A little more than an added node's bytes on the wire."""
    return wire_size(node.job) + 4 * (len(node.key) + sum(len(key) + 2 for key in node.after))


def _before(job: Submission, after: Iterable[str]) -> tuple[str, ...]:
    made = [one.key for one in files_from(job)]
    return tuple(dict.fromkeys([*after, *(one.job for one in referred(job)), *made]))
