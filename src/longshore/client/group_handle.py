"""`GroupHandle`: a submitted group, and what can be asked of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, assert_never
from uuid import UUID

from longshore.client.clients import Clients, blocking
from longshore.client.handle import Handle, Unpack
from longshore.client.map_handle import MapHandle
from longshore.core.group_words import in_states
from longshore.core.limits import check_timeout
from longshore.errors import InvalidInput, NotFinished, NotFound, WrongState
from longshore.model.group import (
    MAP,
    Condition,
    GateVerdict,
    Group,
    GroupState,
    GroupVerdict,
    NodeView,
    RetryPlan,
    RunPlan,
)
from longshore.model.job import Ended, Job
from longshore.payload.values import pack

if TYPE_CHECKING:
    from longshore.client.group import Before
    from longshore.client.group_addition import GroupAddition
    from longshore.client.kind import Call

R = TypeVar("R")


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
        outcomes: dict[UUID, Ended] | None = None,
    ) -> None:
        self.id = id
        self.number = number
        self.name = name
        self._access = access.acting()
        self._unpacker = unpacker
        self._known = known
        # The handles of its jobs share the outcomes that they are told; a retry forgets them.
        self._outcomes = {} if outcomes is None else outcomes

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
                return self._handle(node)
        raise NotFound(f"{self._called} has no job '{key:.200}'; its jobs() lists those it has")

    job = blocking(job_async)

    def _handle(self, node: NodeView) -> Handle[Any]:
        if node.kind == MAP:
            called = f"'{node.key}' of {self._called}"
            return MapHandle(self._access, node.job, self._unpacker, called, self._outcomes)
        return Handle.of_id(self._access, node.job, self._unpacker, self._outcomes)

    async def result_async(self, key: str, timeout_s: float | None = None) -> Any:
        """Waits for what the job with this key returns; raises as a job's own handle does.

        Of a map it is the list of what its jobs return, in order.
        """
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
        # It asks each time, as a retry may have opened the group again. It is not looked for as a
        # job: there is none with this id.
        ended = await self._access.outcomes().ended(self.id, timeout_s, stored=False)
        if ended is None:
            counts = in_states(await self.group_async())
            raise NotFinished(
                f"{self._called} has not ended within {timeout_s:g} s: {counts}; it goes on, "
                "and can be waited for again"
            )
        return GroupState(ended.state.value)

    wait = blocking(wait_async)

    # adding

    def adding(self, *, strict: bool = False) -> GroupAddition:
        """Begins to add jobs to the group: they are added at the end of a `with`, all or none.

        The group must run, or be paused. With `strict`, kinds that no live worker serves are
        refused. Coroutines use `async with`.
        """
        from longshore.client.group_addition import GroupAddition  # it makes such handles

        return GroupAddition(self._access, self, self._unpacker, strict=strict)

    async def add_async(
        self,
        call: Call[R],
        *,
        after: Before | Iterable[Before] = (),
        on: Condition | str = Condition.SUCCEEDED,
        key: str | None = None,
    ) -> Handle[R]:
        """Adds a job to the group, which must run or be paused; answers its handle.

        `after` has keys of jobs of the group, whether they have ended or not. Without a `key` its
        key is its kind with an ending of its own. Raises `WrongState` if the group has ended or is
        being cancelled. `adding` adds several at once.
        """
        async with self.adding() as more:
            job = more.add(call, after=after, on=on, key=key)
        return job.handle

    add = blocking(add_async)

    # changing

    async def cancel_async(self, prefix: str = "") -> GroupVerdict:
        """Cancels what has not ended of the group; the verdict says what that did.

        With a `prefix`, only the job with this key and all below it: a sub-group, the elements of a
        map, what a job added.
        """
        return self._found(await self._access.connection().cancel_group(self.id, prefix))

    cancel = blocking(cancel_async)

    async def pause_async(self) -> GroupVerdict:
        """Lets no more jobs of the group begin; those that run go on. See `resume`."""
        return self._found(await self._access.connection().pause_group(self.id, True))

    pause = blocking(pause_async)

    async def resume_async(self) -> GroupVerdict:
        """Lets the jobs of a paused group begin again."""
        return self._found(await self._access.connection().pause_group(self.id, False))

    resume = blocking(resume_async)

    async def open_async(self, key: str, value: object = None) -> GateVerdict:
        """Opens the gate with this key: it succeeds, and `value` is its result.

        Raises `WrongState` if it has not been reached or has ended. To open it again with the same
        value changes nothing.
        """
        packed = pack(value, f"the value for gate '{key}'")
        verdict = await self._access.connection().open_gate(self.id, key, packed)
        check_opened(self._called, key, verdict)
        return verdict

    open = blocking(open_async)

    def _found(self, verdict: GroupVerdict) -> GroupVerdict:
        if verdict is GroupVerdict.NOT_FOUND:
            raise NotFound(f"there is no group {self.id}; it was pruned, or never submitted")
        return verdict

    async def retry_async(
        self,
        from_: str | Sequence[str] = (),
        *,
        args: Mapping[str, object] | None = None,
        plan: bool = False,
    ) -> RetryPlan:
        """Runs the jobs of the group again that did not succeed; answers which (`reopened`).

        With `from_`, it runs these jobs and all that depend on them, whatever became of them; the
        key of a sub-group, or one that ends in `/`, means all below it. What a job added leaves the
        group when the job runs again (`retired`). With `args`, the one job in `from_` gets these
        arguments. With `plan` it only answers what it would do. Raises `WrongState` if that cannot
        be done now.
        """
        keys = _keys(from_)
        packed = None if args is None else pack(dict(args), f"the arguments of '{from_}'")
        connection = self._access.connection()
        made = await connection.retry_group(self.id, keys, dry_run=plan, args=packed)
        if made.refused:
            raise WrongState(f"{self._called} cannot be retried: {made.refused}")
        if not plan:
            self._outcomes.clear()
        return made

    retry = blocking(retry_async)

    async def rerun_async(self, from_: str | Sequence[str] = ()) -> GroupHandle:
        """Runs the group anew, as a new group; answers the handle of that. This one stays as it is.

        Jobs that succeeded are taken over, with their results, unless they depend on one that runs
        anew. What a job added comes along if that job is taken over. The jobs in `from_` run anew
        whatever became of them; a key that ends in `/` means all below it. `rerun_plan` answers
        first what would run. Raises `WrongState` if the group has not ended, or nothing would run.
        """
        run = (await self._rerun(from_, dry_run=False)).run
        assert run is not None
        return GroupHandle(self._access, run.id, run.number, self.name, self._unpacker)

    rerun = blocking(rerun_async)

    async def rerun_plan_async(self, from_: str | Sequence[str] = ()) -> RunPlan:
        """Answers what `rerun` would do, and changes nothing; raises as `rerun` does."""
        return await self._rerun(from_, dry_run=True)

    rerun_plan = blocking(rerun_plan_async)

    async def _rerun(self, from_: str | Sequence[str], *, dry_run: bool) -> RunPlan:
        keys = _keys(from_)
        plan = await self._access.connection().rerun_group(self.id, keys, dry_run=dry_run)
        if plan.refused:
            raise WrongState(f"{self._called} cannot be run anew: {plan.refused}")
        return plan


def _keys(from_: str | Sequence[str]) -> list[str]:
    keys = [from_] if isinstance(from_, str) else list(from_)
    if not all(isinstance(key, str) for key in keys):
        raise InvalidInput(f"from_ is {from_!r}; give the keys of jobs, like ['fetch']")
    return keys


def check_opened(group: str, key: str, verdict: GateVerdict) -> None:
    """Raises unless the gate is open with the given value."""
    match verdict:
        case GateVerdict.OPENED | GateVerdict.ALREADY_OPEN:
            return
        case GateVerdict.NOT_FOUND:
            raise NotFound(
                f"{group} has no gate '{key}', or there is no such group; `longshore group show` "
                "names gates that wait"
            )
        case GateVerdict.NOT_A_GATE:
            raise WrongState(f"'{key}' of {group} is not a gate; only a gate can be opened")
        case GateVerdict.NOT_REACHED:
            raise WrongState(
                f"gate '{key}' of {group} cannot be opened yet: what it depends on has not ended, "
                "or the group is paused; `longshore group why` says which"
            )
        case GateVerdict.ALREADY_ENDED:
            raise WrongState(
                f"gate '{key}' of {group} has ended already: it was opened with another value, "
                "failed at its timeout, or was cancelled; `longshore job` shows which"
            )
        case _:
            assert_never(verdict)
