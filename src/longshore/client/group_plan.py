"""`GroupPlan`: the jobs of a group while it is being described, by a program or by a file."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import structs

from longshore.client.connection import Connection, wire_size
from longshore.core.graph import places, start_order
from longshore.core.group_limits import check_condition, check_head, check_key, check_start, naming
from longshore.errors import InvalidInput, LongshoreError, Unavailable
from longshore.model.group import Condition, GroupHead, GroupPart, GroupSubmitted, Node
from longshore.model.ids import derive_id
from longshore.model.job import Submission
from longshore.payload.references import references
from longshore.wire.portions import MESSAGE_BYTES, portions

MAX_PART_JOBS: Final = 2_000
"""How many jobs of a group go in one message."""
PARTS_IN_FLIGHT: Final = 3
"""How many parts are under way at once: the dispatcher reads one while the store takes another."""
_ANY_NUMBER: Final = 2**63
"""Only the dispatcher knows how many jobs a group may have."""


class PlannedJob(NamedTuple):
    """A job of a group, and the keys of those it depends on."""

    key: str
    job: Submission
    after: tuple[str, ...]
    on: Condition


class GroupPlan:
    """A group without jobs at first. Errors name the group and the job."""

    def __init__(self, id: UUID, name: str, *, fail_fast: bool, labels: Sequence[str]) -> None:
        if isinstance(labels, str) or not isinstance(labels, Sequence):
            raise InvalidInput(f"labels is {labels!r}; give a list of texts")
        self.head = GroupHead(id, name, 0, fail_fast, tuple(labels))
        with naming(self.head):
            check_head(self.head, _ANY_NUMBER)
        self.jobs: list[PlannedJob] = []
        self._keys: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()

    def add(
        self,
        job: Submission,
        after: Iterable[str] = (),
        on: str = Condition.SUCCEEDED,
        key: str | None = None,
    ) -> str:
        """Adds a job; answers its key, which is its kind, or its kind and a number, by default.

        It depends on the jobs whose results its arguments refer to, too.
        """
        key = self._next_key(job.kind) if key is None else key
        with naming(self.head, key):
            check_key(key)
            before, condition = _before(job, after), _condition(on)
            check_condition(condition, bool(before))
            check_start(job)
        self._keys[key] += 1
        self.jobs.append(PlannedJob(key, job, before, condition))
        return key

    def _next_key(self, kind: str) -> str:
        """The kind, or the kind and the first number that makes a key of its own."""
        stem = kind.replace("/", ".")
        while True:
            self._numbers[stem] += 1
            count = self._numbers[stem]
            key = stem if count == 1 else f"{stem}-{count}"
            if key not in self._keys:
                return key

    def in_order(self) -> tuple[GroupHead, list[Node]]:
        """The group in the order in which its jobs are numbered; raises if it cannot run."""
        with naming(self.head):
            for key, count in self._keys.items():
                if count > 1:
                    raise InvalidInput(f"{count} jobs have the key '{key}'; give each another key")
            edges = {one.key: one.after for one in self.jobs}
            order = start_order(edges)
        jobs = {one.key: one for one in self.jobs}
        nodes = [
            self._node(jobs[key], place, after)
            for place, (key, after) in enumerate(zip(order, places(order, edges), strict=True))
        ]
        return structs.replace(self.head, jobs=len(nodes)), nodes

    def _node(self, one: PlannedJob, place: int, after: tuple[int, ...]) -> Node:
        """A node of the group. Its job's id follows from its place, so a repeat is the same job."""
        job = structs.replace(one.job, id=derive_id(self.head.id, place))
        return Node(one.key, job, after, one.on)


async def submit_group(
    connection: Connection, head: GroupHead, nodes: Sequence[Node], *, strict: bool = False
) -> GroupSubmitted:
    """Submits a group in as many parts as it takes. If one is refused, nothing of it runs."""
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


def _before(job: Submission, after: Iterable[str]) -> tuple[str, ...]:
    referred = [one.job for one in references(job.args)] if job.options.references else []
    return tuple(dict.fromkeys([*after, *referred]))


def _condition(on: str) -> Condition:
    try:
        return Condition(on)
    except ValueError:
        words = ", ".join(f"'{one.value}'" for one in Condition)
        raise InvalidInput(f"on is {on!r}; it must be one of {words}") from None
