"""`GroupBuilder`: jobs that depend on each other, described one by one and submitted as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Self, TypeVar, cast
from uuid import UUID

from longshore.client.clients import Clients
from longshore.client.group_handle import GroupHandle
from longshore.client.group_plan import GroupPlan, run_times, submit_group
from longshore.client.handle import Handle
from longshore.client.kind import Call, check_call
from longshore.client.results import ResultReference
from longshore.core.group_limits import naming
from longshore.errors import InvalidInput, WrongState
from longshore.model.group import Condition
from longshore.model.job import Job
from longshore.payload.references import Reference

R = TypeVar("R")


class GroupJob(Generic[R]):
    """A job that was added to a group. Others name it in their `after`, or take its result."""

    def __init__(self, group: GroupBuilder, key: str, call: Call[R]) -> None:
        self.key = key
        self._group = group
        self._call = call
        self._id = call.id

    def __repr__(self) -> str:
        return f"<GroupJob {self.key}>"

    @property
    def result(self) -> R:
        """Stands for what the job will return, in the arguments of another job of the group.

        `pack.call(a.result["pages"][0])` is given that part of it. The other job then depends on
        this one.
        """
        reference = ResultReference(self._group, Reference(self.key), self._call.returns)
        return cast("R", reference)

    @property
    def handle(self) -> Handle[R]:
        """The handle of the job, once its group is submitted."""
        group, call = self._group.handle, self._call
        called = f"'{self.key}' of group {group.number} ({group.name})"
        access = self._group._access
        return Handle(access, self._id, 0, call.submission.kind, call._unpack, called=called)


Before = GroupJob[Any] | str
"""What a job depends on: a job of the group, or the key of one."""


class GroupBuilder:
    """A group that is being described. At the end of its `with` block it is submitted.

    If an exception leaves the block, nothing is. Made by `App.group`.
    """

    def __init__(
        self,
        access: Clients,
        plan: GroupPlan,
        unpacker: Callable[[Job], Callable[[bytes | None], Any]],
        *,
        strict: bool,
    ) -> None:
        self._access = access
        self._plan = plan
        self._unpacker = unpacker
        self._strict = strict
        self._jobs: dict[UUID, GroupJob[Any]] = {}
        self._handle: GroupHandle | None = None

    def __repr__(self) -> str:
        return f"<GroupBuilder {self._plan.head.name}: {len(self._jobs):,} jobs>"

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
        takes what `add` returned, or keys, also of jobs that are added later. A job whose arguments
        have the `result` of another depends on that one too.
        """
        check_call(call, in_group=True)
        self._refuse_if_submitted()
        if call.id in self._jobs:
            with naming(self._plan.head, self._jobs[call.id].key):
                raise InvalidInput("its call is in the group already; make another with .call(…)")
        with naming(self._plan.head):
            before = self._keys_of(after)
            self._check_results(call)
        taken = self._plan.add(call.submission, before, on, key)
        job = self._jobs[call.id] = GroupJob(self, taken, call)
        return job

    def _keys_of(self, after: Before | Iterable[Before]) -> list[str]:
        if isinstance(after, GroupJob | str):
            after = [after]
        if not isinstance(after, Iterable):
            raise InvalidInput(f"after is {after!r}; give what add(…) returned, or keys")
        return [self._key_of(one) for one in after]

    def _key_of(self, before: object) -> str:
        if isinstance(before, str):
            return before
        if not isinstance(before, GroupJob):
            raise InvalidInput(f"after has {before!r}; give what add(…) returned, or a key")
        if before._group is not self:
            raise InvalidInput(f"after has '{before.key}', which is of another group")
        return before.key

    def _check_results(self, call: Call[Any]) -> None:
        for one in call.results:
            if one.group is not self:
                raise InvalidInput(
                    f"the arguments of '{call.submission.kind}' have {one!r}, which is of another "
                    "group; only results of jobs of this group can be arguments here"
                )

    # submitting

    @property
    def handle(self) -> GroupHandle:
        """The handle of the group, once it is submitted."""
        if self._handle is None:
            raise WrongState(
                f"group '{self._plan.head.name}' is not submitted yet; that happens at the end of "
                "its `with` block"
            )
        return self._handle

    def _refuse_if_submitted(self) -> None:
        if self._handle is not None:
            name = self._plan.head.name
            raise WrongState(f"group '{name}' is submitted; nothing can be added to it")

    async def _submit(self) -> None:
        self._refuse_if_submitted()
        head, nodes = self._plan.in_order()
        connection = self._access.connection()
        if times := await run_times(connection, self._plan.kinds()):
            head, nodes = self._plan.in_order(times)
        answer = await submit_group(connection, head, nodes, strict=self._strict)
        known = {job.key: job for job in self._jobs.values()}
        for node in nodes:
            known[node.key]._id = node.job.id
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
