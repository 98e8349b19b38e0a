"""`GroupAddition`: jobs for a group that runs, described one by one and added as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from longshore.client.clients import Clients
from longshore.client.group import GroupBuilder, GroupNode
from longshore.client.group_handle import GroupHandle
from longshore.client.group_plan import GroupPlan, add_to_group
from longshore.client.ids import fresh_id
from longshore.core.group_limits import check_key, naming
from longshore.errors import WrongState
from longshore.model.ids import derive_id
from longshore.model.job import Job
from longshore.payload.references import Reference
from longshore.payload.result_reference import ResultReference


class ExistingJob(GroupNode):
    """A job or a map that the group has. New jobs name it in `after`, or take its result."""

    _advice: ClassVar[Mapping[str, str]] = {"handle": "take that of `GroupHandle.job(KEY)`"}

    def __init__(self, group: GroupAddition, key: str) -> None:
        self.key = key
        self._group = group

    @property
    def result(self) -> Any:
        """Stands for what the job returns or returned, in the arguments of a job to be added."""
        return ResultReference(self._group, Reference(self.key))

    @property
    def results(self) -> Any:
        """Stands for what the jobs of the map return or returned, in order."""
        return ResultReference(self._group, Reference(self.key, is_map=True))


class GroupAddition(GroupBuilder):
    """Jobs that are to be added to a group. At the end of its `with` block they are.

    If an exception leaves the block, nothing is. It has `add`, `map`, `gate` and `sub`, as the
    description of a group has; `after` may name jobs of the group. Made by `GroupHandle.adding`.
    """

    _advice: ClassVar[Mapping[str, str]] = {
        **GroupBuilder._advice,
        "job": "`existing(KEY)` stands for a job that the group has",
    }

    def __init__(
        self,
        access: Clients,
        into: GroupHandle,
        unpacker: Callable[[Job], Callable[[bytes | None], Any]],
        *,
        strict: bool,
    ) -> None:
        self._into = into
        self._request = fresh_id()
        plan = GroupPlan(into.id, into.name or str(into.id), ending=f"@{self._request.hex[-8:]}")
        super().__init__(access, plan, unpacker, strict=strict)

    def __repr__(self) -> str:
        return f"<GroupAddition to {self._into!r}: {len(self._jobs):,} jobs>"

    def existing(self, key: str) -> ExistingJob:
        """Stands for a job that the group has: its `result` can be an argument of a new one."""
        with naming(self._plan.head, key):
            check_key(key)
        return ExistingJob(self, key)

    def _owns(self, group: object) -> bool:
        """Also the description from which the group was submitted."""
        if group is self:
            return True
        return isinstance(group, GroupBuilder) and group._handle == self._into

    def _refuse_if_submitted(self) -> None:
        if self._handle is not None:
            raise WrongState("these jobs are added; begin anew with adding()")

    async def _submit(self) -> None:
        self._refuse_if_submitted()
        if not self._jobs:
            self._handle = self._into
            return
        connection = self._access.connection()
        _, nodes = await add_to_group(connection, self._plan, self._request, strict=self._strict)
        ids = {node.key: derive_id(self._request, at) for at, node in enumerate(nodes)}
        for job in self._jobs.values():
            job._id = ids[job.key]
        self._handle = self._into
