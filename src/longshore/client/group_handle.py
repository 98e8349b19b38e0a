"""`GroupHandle`: a submitted group, and what can be asked of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any
from uuid import UUID

from longshore.client.clients import Clients, blocking
from longshore.client.handle import Handle, Unpack
from longshore.core.group_words import in_states
from longshore.core.limits import check_timeout
from longshore.errors import InvalidInput, NotFinished, NotFound, WrongState
from longshore.model.group import Group, GroupState, GroupVerdict, NodeView, RetryPlan
from longshore.model.job import Job


class GroupHandle:
    """One group. Made from an id alone, it has no `number` (0) and no `name` ("") at first.

    They are there once something is asked of it.
    """

    def __init__(
        self,
        access: Clients,
        id: UUID,
        number: int,
        name: str,
        unpacker: Callable[[Job], Unpack[Any]],
        known: Callable[[str], Handle[Any] | None] = lambda key: None,
    ) -> None:
        self.id = id
        self.number = number
        self.name = name
        self._access = access.acting()
        self._unpacker = unpacker
        self._known = known
        self._ended: GroupState | None = None

    def __repr__(self) -> str:
        return f"<GroupHandle of {self._called}{f' {self.id}' if self.number else ''}>"

    @property
    def _called(self) -> str:
        return f"group {self.number} ({self.name})" if self.number else f"group {self.id}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # looking

    async def group_async(self) -> Group:
        """The group as the store knows it, with how many of its jobs are in each state."""
        group = await self._access.connection().group(self.id)
        self.number, self.name = group.number, group.name
        return group

    group = blocking(group_async)

    async def status_async(self) -> GroupState:
        """The state of the group."""
        return (await self.group_async()).state

    status = blocking(status_async)

    async def jobs_async(self) -> list[NodeView]:
        """The jobs of the group, each with its key, state and what it depends on."""
        return [node async for node in self._nodes()]

    jobs = blocking(jobs_async)

    async def _nodes(self) -> AsyncGenerator[NodeView, None]:
        async for node in self._access.connection().all_nodes(self.id):
            yield node

    async def job_async(self, key: str) -> Handle[Any]:
        """The handle of the job with this key; raises `NotFound` if the group has none."""
        known = self._known(key)
        if known is not None:
            return known
        async for node in self._nodes():
            if node.key == key:
                return Handle.of_id(self._access, node.job, self._unpacker)
        raise NotFound(f"{self._called} has no job '{key}'; its jobs() lists those it has")

    job = blocking(job_async)

    async def result_async(self, key: str, timeout_s: float | None = None) -> Any:
        """Waits for what the job with this key returns; raises as a job's own handle does."""
        return await (await self.job_async(key)).result_async(timeout_s)

    result = blocking(result_async)

    # waiting

    async def wait_async(self, timeout_s: float | None = None) -> GroupState:
        """Waits for the state in which the group ends: `succeeded`, `failed` or `cancelled`.

        Raises `NotFinished` if it takes too long.
        """
        check_timeout("timeout_s", timeout_s)
        if not self.number:
            await self.group_async()
        if self._ended is None:
            # Not looked for as a job: there is none with this id.
            ended = await self._access.outcomes().ended(self.id, timeout_s, stored=False)
            if ended is None:
                counts = in_states(await self.group_async())
                raise NotFinished(
                    f"{self._called} has not ended within {timeout_s:g} s: {counts}; it goes on, "
                    "and can be waited for again"
                )
            self._ended = GroupState(ended.state.value)
        return self._ended

    wait = blocking(wait_async)

    # changing

    async def cancel_async(self) -> GroupVerdict:
        """Cancels what has not ended of the group; the verdict says what that did."""
        return self._found(await self._access.connection().cancel_group(self.id))

    cancel = blocking(cancel_async)

    async def pause_async(self) -> GroupVerdict:
        """Lets no more jobs of the group begin; those that run go on. See `resume`."""
        return self._found(await self._access.connection().pause_group(self.id, True))

    pause = blocking(pause_async)

    async def resume_async(self) -> GroupVerdict:
        """Lets the jobs of a paused group begin again."""
        return self._found(await self._access.connection().pause_group(self.id, False))

    resume = blocking(resume_async)

    def _found(self, verdict: GroupVerdict) -> GroupVerdict:
        if verdict is GroupVerdict.NOT_FOUND:
            raise NotFound(f"there is no group {self.id} (any more)")
        return verdict

    async def retry_async(
        self, from_: str | Sequence[str] = (), *, plan: bool = False
    ) -> RetryPlan:
        """Runs the jobs of the group again that did not succeed; answers which (`reopened`).

        With `from_`, it runs these jobs and all that depend on them, whatever became of them. With
        `plan` it only answers what it would do. Raises `WrongState` if that cannot be done now.
        """
        keys = [from_] if isinstance(from_, str) else list(from_)
        if not all(isinstance(key, str) for key in keys):
            raise InvalidInput(f"from_ is {from_!r}; give the keys of jobs, like ['fetch']")
        made = await self._access.connection().retry_group(self.id, keys, dry_run=plan)
        if made.refused:
            raise WrongState(f"{self._called} cannot be retried: {made.refused}")
        if not plan:
            self._ended = None
        return made

    retry = blocking(retry_async)
