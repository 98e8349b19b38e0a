"""`GroupBuilder`: jobs that depend on each other, described one by one and submitted as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar, cast
from uuid import UUID

from msgspec import structs

from longshore.client.clients import Clients
from longshore.client.group_handle import GroupHandle
from longshore.client.group_plan import GroupPlan, run_times, submit_group
from longshore.client.handle import Handle
from longshore.client.ids import fresh_id
from longshore.client.kind import Call, Kind, check_call
from longshore.client.map_handle import MapHandle
from longshore.core.attributes import RESULT_OF_A_MAP, RESULTS_OF_A_JOB, no_attribute
from longshore.core.group_limits import check_key, naming
from longshore.core.keys import below
from longshore.core.limits import check_submission, check_timeout
from longshore.errors import InvalidInput, WrongState
from longshore.model.group import GATE, Condition, GroupPart
from longshore.model.job import Ended, Job, Options, Submission
from longshore.model.watcher import Watcher
from longshore.payload.references import Reference
from longshore.payload.result_reference import ResultReference
from longshore.payload.values import pack, unpack

R = TypeVar("R")
N = TypeVar("N", bound="GroupNode")

_OF_HANDLE: Final = {
    name: f"once the group is submitted, `.handle.{name}` is there"
    for name in ("wait", "status", "job", "why", "logs", "cancel", "retry")
}


class GroupNode:
    """Something of a group that has a key. Others name it in their `after`."""

    _advice: ClassVar[Mapping[str, str]] = {}

    def __init__(self, group: GroupBuilder, key: str, call: Call[Any]) -> None:
        self.key = key
        self._group = group
        self._call = call
        self._id = call.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key}>"

    if not TYPE_CHECKING:  # a type checker must still refuse unknown names

        def __getattr__(self, name: str) -> object:
            """Says what to write instead of a name that there is not."""
            raise no_attribute(self, name, {**_OF_HANDLE, **self._advice})

    def _handle(self) -> Handle[Any]:
        """The handle of its job, once its group is submitted."""
        group, call = self._group, self._call
        return Handle(
            group._access,
            self._id,
            0,
            call.submission.kind,
            call._unpack,
            called=self._called,
            known=group._outcomes,
            in_group=True,
        )

    @property
    def _called(self) -> str:
        group = self._group.handle
        return f"'{self.key}' of group {group.number} ({group.name})"


class GroupJob(GroupNode, Generic[R]):
    """A job that was added to a group. Others name it in their `after`, or take its result."""

    _advice = RESULTS_OF_A_JOB

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
        return self._handle()


class GroupMap(GroupNode, Generic[R]):
    """A map that was added to a group: one job for each element of a list.

    Who names it in `after` waits for all of these jobs. Their keys are `key/0`, `key/1` and so on.
    """

    _advice = RESULT_OF_A_MAP

    @property
    def results(self) -> list[R]:
        """Stands for what the jobs of the map will return, in order, in the arguments of another.

        The other job then depends on the map.
        """
        reference = Reference(self.key, is_map=True)
        return cast("list[R]", ResultReference(self._group, reference, self._call.returns))

    @property
    def handle(self) -> MapHandle[R]:
        """The handle of the map, once its group is submitted."""
        return self._handle()

    def _handle(self) -> MapHandle[R]:
        group = self._group
        return MapHandle(group._access, self._id, group._unpacker, self._called, group._outcomes)


class SubGroup:
    """A part of a group that is being described: its keys begin with its own key and a `/`.

    Who names it in `after` waits for all of it. Made by `sub` of a group or of a sub-group.
    """

    _advice: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("result", "results"), "take that of a job or a map that was added to it"),
        "handle": "only the group and its jobs have one",
    }

    def __init__(self, group: GroupBuilder, key: str) -> None:
        self.key = key
        self._group = group
        self._within = key

    def __repr__(self) -> str:
        return f"<SubGroup {self.key}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Says what to write instead of a name that there is not."""
            raise no_attribute(self, name, self._advice)

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
        return self._group._take(GroupJob, call, self._within, after, on, key)

    def map(
        self,
        kind: Kind[..., R, ..., Any],
        *,
        over: Any,
        after: Before | Iterable[Before] = (),
        on: Condition | str = Condition.SUCCEEDED,
        key: str | None = None,
        parameter: str | None = None,
        **constants: Any,
    ) -> GroupMap[R]:
        """Adds a map: one job of this kind for each element of a list, made when it is known.

        `over` is a list, or stands for one: the `result` of a job, or the `results` of a map. Each
        element goes to the first parameter that `constants` do not give, or to `parameter`; the
        `constants` go to all. `after`, `on` and `key` are as in `add`.
        """
        if not isinstance(kind, Kind):
            raise InvalidInput(f"{kind!r} is not a job; give the function that @app.job made one")
        call = kind.map_call(over, constants, parameter)
        return self._group._take(GroupMap, call, self._within, after, on, key)

    def gate(
        self,
        key: str,
        *,
        after: Before | Iterable[Before] = (),
        on: Condition | str = Condition.SUCCEEDED,
        timeout_s: float | None = None,
    ) -> GroupJob[Any]:
        """Adds a gate: it ends when somebody opens it with a value, which is its `result`.

        `GroupHandle.open` and `longshore group open` do that. It fails if nobody opened it
        `timeout_s` after it could be.
        """
        with naming(self._group._plan.head, key):
            check_key(key)
            check_timeout("timeout_s", timeout_s)
            if timeout_s is not None and timeout_s <= 0:
                raise InvalidInput(f"timeout_s is {timeout_s!r}; give seconds, more than 0")
        options = Options(expires_s=timeout_s)
        job = Submission(fresh_id(), GATE, pack({}, "a gate"), options=options)
        check_submission(job, built_in={GATE})
        call: Call[Any] = Call(self._group._access, job, _value)
        return self._group._take(GroupJob, call, self._within, after, on, key)

    def sub(self, key: str) -> SubGroup:
        """Begins a sub-group: what is added to it has keys below this one."""
        own = below(self._within, key)
        with naming(self._group._plan.head, own):
            check_key(own)
        return SubGroup(self._group, own)


Before = GroupNode | SubGroup | str
"""What a job depends on: a job, a map or a sub-group of the group, or the key of one."""


class GroupBuilder(SubGroup):
    """A group that is being described. At the end of its `with` block it is submitted.

    If an exception leaves the block, nothing is. It has `add`, `map`, `gate` and `sub`, as a
    `SubGroup` has. Made by `App.group`.
    """

    _advice: ClassVar[Mapping[str, str]] = {
        **{
            name: f"once the block has ended, `.handle.{name}` is there"
            for name in ("wait", "status", "jobs", "job", "cancel", "pause", "resume", "retry")
        },
        **dict.fromkeys(
            ("result", "results"), "once the block has ended, take `.handle.result(KEY)`"
        ),
    }

    def __init__(
        self,
        access: Clients,
        plan: GroupPlan,
        unpacker: Callable[[Job], Callable[[bytes | None], Any]],
        *,
        strict: bool,
    ) -> None:
        super().__init__(self, "")
        self._access = access
        self._plan = plan
        self._unpacker = unpacker
        self._strict = strict
        self._jobs: dict[UUID, GroupNode] = {}
        self._outcomes: dict[UUID, Ended] = {}
        self._handle: GroupHandle | None = None
        self._is_taken = False
        """Whether the turn of an actor submits it."""

    def __repr__(self) -> str:
        return f"<GroupBuilder {self._plan.head.name}: {len(self._jobs):,} jobs>"

    def _take(
        self,
        made: Callable[[GroupBuilder, str, Call[Any]], N],
        call: Call[Any],
        within: str,
        after: Before | Iterable[Before],
        on: Condition | str,
        key: str | None,
    ) -> N:
        """Adds what a call describes to the plan."""
        self._refuse_if_submitted()
        head = self._plan.head
        if call.id in self._jobs:
            with naming(head, self._jobs[call.id].key):
                raise InvalidInput("its call is in the group already; make another with .call(…)")
        with naming(head):
            before = _several(after)
            known = [self._key_of(one) for one in before if not isinstance(one, str)]
            known += call.files_from
            named = [one for one in before if isinstance(one, str)]
            self._check_results(call)
        taken = self._plan.add(call.submission, known, on, key, within=within, named=named)
        node = made(self, taken, call)
        self._jobs[call.id] = node
        return node

    def _owns(self, group: object) -> bool:
        """Whether nodes of that description are of this group."""
        return group is self

    def _key_of(self, before: object) -> str:
        if not isinstance(before, GroupNode | SubGroup):
            raise InvalidInput(f"after has {before!r}; give what add(…) returned, or a key")
        if not self._owns(before._group):
            raise InvalidInput(f"after has '{before.key}', which is of another group")
        return before.key

    def _check_results(self, call: Call[Any]) -> None:
        for one in call.results:
            if not self._owns(one.group):
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
        if self._handle is not None or self._is_taken:
            name = self._plan.head.name
            raise WrongState(f"group '{name}' is submitted; nothing can be added to it")

    def take_group(self, id: UUID, watchers: tuple[Watcher, ...]) -> GroupPart:
        """The whole group under this id, for the turn of an actor that submits it."""
        self._refuse_if_submitted()
        self._plan.head = structs.replace(
            self._plan.head, id=id, watchers=(*self._plan.head.watchers, *watchers)
        )
        head, nodes = self._plan.in_order()
        self._is_taken = True
        return GroupPart(head, 0, tuple(nodes))

    async def _submit(self) -> None:
        self._refuse_if_submitted()
        head, nodes = self._plan.in_order()
        connection = self._access.connection()
        if times := await run_times(connection, self._plan.kinds()):
            head, nodes = self._plan.in_order(times)
        answer = await submit_group(connection, head, nodes, strict=self._strict)
        known = {job.key: job for job in self._jobs.values()}
        for node in nodes:
            if node.key in known:
                known[node.key]._id = node.job.id
        self._handle = GroupHandle(
            self._access,
            answer.id,
            answer.number,
            head.name,
            self._unpacker,
            lambda key: known[key]._handle() if key in known else None,
            self._outcomes,
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


def _several(after: Before | Iterable[Before]) -> list[Before]:
    if isinstance(after, GroupNode | SubGroup | str):
        return [after]
    if not isinstance(after, Iterable):
        raise InvalidInput(f"after is {after!r}; give what add(…) returned, or keys")
    return list(after)


def _value(data: bytes | None) -> Any:
    """The value with which a gate was opened."""
    return None if data is None else unpack(data)
