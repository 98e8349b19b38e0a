"""`GroupBuilder`: jobs that depend on each other, described one by one and submitted as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, Self, TypeVar
from uuid import UUID

from longshore.client.clients import Clients
from longshore.client.connection import Connection, wire_size
from longshore.client.group_handle import GroupHandle
from longshore.client.handle import Handle
from longshore.client.kind import Call, check_call
from longshore.core.graph import places, start_order
from longshore.core.group_limits import check_condition, check_head, check_key, check_start, naming
from longshore.errors import InvalidInput, LongshoreError, Unavailable, WrongState
from longshore.model.group import Condition, GroupHead, GroupPart, GroupSubmitted, Node
from longshore.model.job import Job
from longshore.wire.portions import MESSAGE_BYTES, portions

R = TypeVar("R")

MAX_PART_JOBS: Final = 2_000
"""How many jobs of a group go in one message."""
_ANY_NUMBER: Final = 2**63
"""Only the dispatcher knows how many jobs a group may have."""


class GroupJob(Generic[R]):
    """A job that was added to a group. Others name it in their `after`."""

    def __init__(self, group: GroupBuilder, key: str, call: Call[R]) -> None:
        self.key = key
        self._group = group
        self._call = call

    def __repr__(self) -> str:
        return f"<GroupJob {self.key}>"

    @property
    def handle(self) -> Handle[R]:
        """The handle of the job, once its group is submitted."""
        group, call = self._group.handle, self._call
        called = f"'{self.key}' of group {group.number} ({group.name})"
        return Handle(call._access, call.id, 0, call.submission.kind, call._unpack, called=called)


Before = GroupJob[Any] | str
"""What a job depends on: a job of the group, or the key of one."""


class GroupBuilder:
    """A group that is being described. At the end of its `with` block it is submitted.

    If an exception leaves the block, nothing is. Made by `App.group`.
    """

    def __init__(
        self,
        access: Clients,
        name: str,
        new_id: Callable[[], UUID],
        unpacker: Callable[[Job], Callable[[bytes | None], Any]],
        *,
        fail_fast: bool,
        labels: Sequence[str],
        strict: bool,
    ) -> None:
        if isinstance(labels, str) or not isinstance(labels, Sequence):
            raise InvalidInput(f"labels is {labels!r}; give a list of texts")
        self._head = GroupHead(new_id(), name, 0, fail_fast, tuple(labels))
        with naming(self._head):
            check_head(self._head, _ANY_NUMBER)
        self._access = access
        self._unpacker = unpacker
        self._strict = strict
        self._jobs: list[tuple[GroupJob[Any], tuple[str, ...], Condition]] = []
        self._keys: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()
        self._ids: set[UUID] = set()
        self._handle: GroupHandle | None = None

    def __repr__(self) -> str:
        return f"<GroupBuilder {self._head.name}: {len(self._jobs):,} jobs>"

    def add(
        self,
        call: Call[R],
        *,
        after: Before | Iterable[Before] = (),
        on: Condition | str = Condition.SUCCEEDED,
        key: str | None = None,
    ) -> GroupJob[R]:
        """Adds a job that runs after others: when all of them `succeeded`.

        With `on="ended"` it runs when all have ended, however; with `on="failed"` when the first
        has failed. Without a `key` its key is its kind; the second of a kind is `kind-2`. `after`
        takes what `add` returned, or keys, also of jobs that are added later.
        """
        check_call(call)
        self._refuse_if_submitted()
        kind = call.submission.kind
        key = self._next_key(kind) if key is None else key
        with naming(self._head, key):
            check_key(key)
            before = self._keys_of(after)
            condition = _condition(on)
            check_condition(condition, bool(before))
            check_start(call.submission)
            if call.id in self._ids:
                raise InvalidInput(f"this call is in the group already; make a new {kind}.call(…)")
        self._ids.add(call.id)
        self._keys[key] += 1
        job = GroupJob(self, key, call)
        self._jobs.append((job, before, condition))
        return job

    def _next_key(self, kind: str) -> str:
        """The kind, or the kind and the first number that makes a key of its own."""
        stem = kind.replace("/", ".")
        while True:
            self._numbers[stem] += 1
            count = self._numbers[stem]
            key = stem if count == 1 else f"{stem}-{count}"
            if key not in self._keys:
                return key

    def _keys_of(self, after: Before | Iterable[Before]) -> tuple[str, ...]:
        if isinstance(after, GroupJob | str):
            after = [after]
        if not isinstance(after, Iterable):
            raise InvalidInput(f"after is {after!r}; give what add(…) returned, or keys")
        return tuple(self._key_of(one) for one in after)

    def _key_of(self, before: object) -> str:
        if isinstance(before, str):
            return before
        if not isinstance(before, GroupJob):
            raise InvalidInput(f"after has {before!r}; give what add(…) returned, or a key")
        if before._group is not self:
            raise InvalidInput(f"after has '{before.key}', which is of another group")
        return before.key

    # submitting

    @property
    def handle(self) -> GroupHandle:
        """The handle of the group, once it is submitted."""
        if self._handle is None:
            raise WrongState(
                f"group '{self._head.name}' is not submitted yet; that happens at the end of its "
                "`with` block"
            )
        return self._handle

    def _refuse_if_submitted(self) -> None:
        if self._handle is not None:
            raise WrongState(f"group '{self._head.name}' is submitted; nothing can be added to it")

    def _described(self) -> tuple[GroupHead, list[Node]]:
        """The group in the order in which its jobs are numbered; raises if it cannot run."""
        with naming(self._head):
            for key, count in self._keys.items():
                if count > 1:
                    raise InvalidInput(f"{count} jobs have the key '{key}'; give each another key")
            edges = {job.key: before for job, before, _ in self._jobs}
            order = start_order(edges)
        jobs = {job.key: (job, on) for job, _, on in self._jobs}
        nodes = [
            Node(key, jobs[key][0]._call.submission, after, jobs[key][1])
            for key, after in zip(order, places(order, edges), strict=True)
        ]
        head = self._head
        return GroupHead(head.id, head.name, len(nodes), head.fail_fast, head.labels), nodes

    async def _submit(self) -> None:
        self._refuse_if_submitted()
        head, nodes = self._described()
        answer = await send(self._access.connection(), head, nodes, strict=self._strict)
        for job, _, _ in self._jobs:
            job._call.keep_id()
        known = {job.key: job for job, _, _ in self._jobs}
        self._handle = GroupHandle(
            self._access,
            answer.id,
            answer.number,
            head.name,
            self._unpacker,
            lambda key: known[key].handle if key in known else None,
        )

    def __enter__(self) -> Self:
        self._access.refuse_in_loop("use `async with` for the group instead")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._access.run(self._submit())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self._submit()


async def send(
    connection: Connection, head: GroupHead, nodes: Sequence[Node], *, strict: bool = False
) -> GroupSubmitted:
    """Submits a group in as many parts as it takes. If one is refused, nothing of it runs."""
    edges = sum(len(node.after) for node in nodes)
    *firsts, last = list(portions(nodes, _node_bytes, MESSAGE_BYTES, MAX_PART_JOBS)) or [()]
    sent = 0
    try:
        for part in firsts:
            await connection.submit_group(GroupPart(head, sent, part), edges, strict)
            sent += len(part)
        return await connection.submit_group(GroupPart(head, sent, last), edges, strict)
    except LongshoreError as error:
        if sent and not isinstance(error, Unavailable):
            with suppress(LongshoreError):
                await connection.cancel_group(head.id)
        raise


def _node_bytes(node: Node) -> int:
    """A little more than a node's bytes on the wire."""
    return wire_size(node.job) + 4 * len(node.key) + 5 * len(node.after)


def _condition(on: str) -> Condition:
    try:
        return Condition(on)
    except ValueError:
        words = ", ".join(f"'{one.value}'" for one in Condition)
        raise InvalidInput(f"on is {on!r}; it must be one of {words}") from None
