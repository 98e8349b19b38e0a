"""What a job adds to its own group: `ctx.group`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Protocol,
    TypeVar,
    cast,
    runtime_checkable,
)
from uuid import UUID

from longshore.core.attributes import RESULT_OF_A_MAP, RESULTS_OF_A_JOB, no_attribute
from longshore.core.group_limits import (
    MAX_ADDED_JOBS,
    check_added_key,
    check_condition,
    check_start,
    condition_of,
)
from longshore.core.keys import Keys
from longshore.errors import InvalidInput, LongshoreError, TooLarge, from_code
from longshore.model.group import MAP, Condition
from longshore.model.job import Submission
from longshore.model.reports import OutboxNode
from longshore.payload.group_references import check_added_map
from longshore.payload.maps import read_map
from longshore.payload.references import BESIDE, Reference
from longshore.payload.result_reference import ResultReference

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
N = TypeVar("N", bound="AddedNode")

_HANDLE: Final = {"handle": "it is a job only once the job that adds it has succeeded"}


@runtime_checkable
class DescribesNode(Protocol[R_co]):
    """Something that describes a job to add, as `fetch.call(…)` does."""

    @property
    def submission(self) -> Submission:
        """The job."""

    @property
    def returns(self) -> Any:
        """The type of its result, if that is known."""

    @property
    def results(self) -> Iterable[ResultReference]:
        """The results of other jobs that its arguments stand for."""

    def unpacked(self, data: bytes | None) -> R_co:
        """Its result, from the bytes of it."""


class Mapped(Protocol[R]):
    """A kind of jobs of which a map can be made, as functions with `@app.job` are."""

    def map_call(
        self, over: object, constants: Mapping[str, object], parameter: str | None = None
    ) -> DescribesNode[list[R]]:
        """Describes a map of such jobs."""


class AddedNode:
    """What a job adds to its group. `key` is its name below the key of that job."""

    _advice: ClassVar[Mapping[str, str]] = {}

    def __init__(self, group: OwnGroup, key: str, place: int, returns: Any) -> None:
        self.key = key
        self._group = group
        self._place = place
        self._returns = returns

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key}>"

    if not TYPE_CHECKING:  # a type checker must still refuse unknown names

        def __getattr__(self, name: str) -> object:
            """Says what to write instead of a name that there is not."""
            raise no_attribute(self, name, {**_HANDLE, **self._advice})


class AddedJob(AddedNode, Generic[R]):
    """A job that another adds to its group. Those added later name it, or take its result."""

    _advice = RESULTS_OF_A_JOB

    @property
    def result(self) -> R:
        """Stands for what the job will return, in the arguments of one that is added later."""
        reference = Reference(f"{BESIDE}{self.key}")
        return cast("R", ResultReference(self._group, reference, self._returns))


class AddedMap(AddedNode, Generic[R]):
    """A map that a job adds to its group. Those added later name it, or take its results."""

    _advice = RESULT_OF_A_MAP

    @property
    def results(self) -> list[R]:
        """Stands for what its jobs will return, in order, in arguments of one added later."""
        reference = Reference(f"{BESIDE}{self.key}", is_map=True)
        return cast("list[R]", ResultReference(self._group, reference, self._returns))


AddedBefore = AddedNode | str
"""What an added job depends on: one that was added before it, or the key of one."""


class OwnGroup:
    """The group of the running job, for jobs that it adds.

    They are recorded with the job's success, or not at all. Whoever depends on the job waits for
    them too. A job that is in no group, and adds some all the same, fails.
    """

    def __init__(self, count: Callable[[Submission], None]) -> None:
        self._count = count
        self._keys = Keys()
        self._added: dict[str, AddedNode] = {}
        self._calls: set[UUID] = set()
        self.nodes: list[OutboxNode] = []
        """What was added so far, for the attempt's report."""

    def add(
        self,
        call: DescribesNode[R],
        *,
        key: str | None = None,
        after: AddedBefore | Iterable[AddedBefore] = (),
        on: Condition | str = Condition.SUCCEEDED,
        detached: bool = False,
    ) -> AddedJob[R]:
        """Adds a job to this job's own group. Its key in the group is below that of this job.

        Without a `key` it is the kind of the job; the second of a kind is `kind-2`. `after` takes
        what `add` or `map` of this attempt returned, or such keys; `on` is as in `GroupBuilder`.
        Whoever depends on this job waits for the new one too, unless it is `detached`.
        """
        if not isinstance(call, DescribesNode):
            raise InvalidInput(f"{call!r} is not a call; give what job.call(…) makes")
        return self._take(AddedJob, call, key, after, on, detached)

    def map(
        self,
        kind: Mapped[R],
        *,
        over: Any,
        key: str | None = None,
        after: AddedBefore | Iterable[AddedBefore] = (),
        on: Condition | str = Condition.SUCCEEDED,
        parameter: str | None = None,
        detached: bool = False,
        **constants: Any,
    ) -> AddedMap[R]:
        """Adds a map to this job's own group: one job of this kind for each element of a list.

        `over` is a list, or the result of what this attempt added before. The rest is as in
        `GroupBuilder.map`.
        """
        make = getattr(kind, "map_call", None)
        if make is None:
            raise InvalidInput(f"{kind!r} is not a job; give the function that @app.job made one")
        call: DescribesNode[list[R]] = make(over, constants, parameter)
        return self._take(AddedMap, call, key, after, on, detached)

    def _take(
        self,
        made: Callable[[OwnGroup, str, int, Any], N],
        call: DescribesNode[Any],
        key: str | None,
        after: AddedBefore | Iterable[AddedBefore],
        on: str,
        detached: bool,
    ) -> N:
        job = call.submission
        named = self._keys.next_of(_kind(job)) if key is None else key
        check_added_key(named)
        with _naming(named):
            self._refuse_repeats(named, job)
            before = {*self._before(after), *self._given(call)}
            node = OutboxNode(named, job, tuple(sorted(before)), condition_of(on), detached)
            check_condition(node.on, bool(before))
            check_start(job)
            check_added_map(node)
        self._count(job)
        self._keys.take(named)
        self._calls.add(job.id)
        added = self._added[named] = made(self, named, len(self.nodes), call.returns)
        self.nodes.append(node)
        return added

    def _refuse_repeats(self, key: str, job: Submission) -> None:
        if len(self.nodes) >= MAX_ADDED_JOBS:
            raise TooLarge(
                f"one attempt may add {MAX_ADDED_JOBS:,} jobs to its group; use a map, or let "
                "added jobs add the rest"
            )
        if key in self._added:
            raise InvalidInput("another job that was added has this key; give each another key")
        if job.id in self._calls:
            raise InvalidInput("its call was added already; make another with .call(…)")

    def _before(self, after: AddedBefore | Iterable[AddedBefore]) -> Iterator[int]:
        """The places of what a job depends on."""
        if not isinstance(after, AddedNode | str | Iterable):
            raise InvalidInput(f"after is {after!r}; give what add(…) returned, or keys")
        for one in [after] if isinstance(after, AddedNode | str) else after:
            found = self._added.get(one) if isinstance(one, str) else one
            if not isinstance(found, AddedNode) or found._group is not self:
                raise InvalidInput(
                    f"after has {one!r}; give what add(…) of this attempt returned before, or such "
                    "a key: an added job can depend only on others that were added with it"
                )
            yield found._place

    def _given(self, call: DescribesNode[Any]) -> Iterator[int]:
        """The places of the jobs whose results are among the arguments."""
        for one in call.results:
            if one.group is not self:
                raise InvalidInput(
                    f"its arguments have {one!r}, which this attempt did not add; only results of "
                    "jobs that were added before it can be arguments here"
                )
            yield self._added[one.reference.job.removeprefix(BESIDE)]._place


def _kind(job: Submission) -> str:
    """The kind by which a job is called that was not given a key."""
    return read_map(job.args)[1].job.kind if job.kind == MAP else job.kind


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """What is raised inside names the job that is being added."""
    try:
        yield
    except LongshoreError as error:
        raise from_code(error.code, f"the added job '{key}': {error}") from None
