"""One run of a body for several attempts, each of which ends with a report of its own.

The body gets the arguments of all, and the context of each if it takes them. It answers with a list
of what each job alone would have returned or raised. What it prints and logs cannot be told apart:
it is in the log of the first attempt that was not told to stop, and the others say where.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import structs

from longshore.errors import InvalidInput, WrongState
from longshore.executors.host.call import bound, succeeded
from longshore.executors.host.context import Context, RunningContext, enter
from longshore.executors.host.failures import one_line, raised, refused
from longshore.executors.host.forks import leave_if_copy
from longshore.executors.output.attempt_log import AttemptLog
from longshore.executors.tracing import processing_batch
from longshore.model.attempt import Assignment
from longshore.model.job import Reason
from longshore.model.reports import Report
from longshore.ports import Handler


@runtime_checkable
class BatchHandler(Handler, Protocol):
    """A kind of which one run of the body takes several jobs."""

    size: int
    """How many jobs it takes at most."""
    wait_s: float
    """How long the first of them waits for the others."""

    def batch_key(self, args: bytes) -> str:
        """What jobs that may share a run have in common; `InvalidInput` if that is no key."""

    def run_batch(
        self, jobs: Sequence[Mapping[str, object]], contexts: Sequence[Context]
    ) -> Awaitable[object]:
        """Calls the body for jobs of one key, with the arguments and the context of each."""

    def outcomes(self, returned: object, count: int) -> Sequence[object]:
        """The result of each job, or the error in its place; `InvalidInput` if they do not fit."""


class Member(NamedTuple):
    """One attempt of a shared run."""

    assignment: Assignment
    context: RunningContext
    arguments: dict[str, object]


Alike = tuple[str, str, float | None]
"""What the attempts of one run have in common: kind, key and timeout."""

Reports = dict[int, Report]
"""By token."""


def joining(
    assignment: Assignment, context: RunningContext, handler: BatchHandler
) -> tuple[Alike, Member] | Report:
    """An attempt that may join others, and which; or the report of one that cannot begin."""
    if assignment.raw:
        message = f"job {assignment.kind!r} runs in batches, which take no raw arguments"
        return refused(assignment, Reason.INVALID_ARGUMENTS, message)
    arguments = bound(assignment, handler)
    if not isinstance(arguments, dict):
        return arguments
    try:
        key = handler.batch_key(assignment.args)
    except InvalidInput as error:
        return refused(assignment, Reason.INVALID_ARGUMENTS, str(error))
    except BaseException as error:
        message = f"job {assignment.kind!r}: the key of its batch cannot be made: {one_line(error)}"
        return refused(assignment, Reason.INVALID_ARGUMENTS, message, error)
    alike = assignment.kind, key, assignment.timeout_s
    return alike, Member(assignment, context, arguments)


class SharedRun:
    """Attempts that gather, and then share one run of their body.

    `members` has those that must still be told of: one that is told to stop may leave before the
    body ends.
    """

    def __init__(self, handler: BatchHandler, alike: Alike) -> None:
        self.handler = handler
        self.alike = alike
        self.members: dict[int, Member] = {}
        self._begun: tuple[Member, ...] = ()
        self._context: BatchContext | None = None

    def add(self, member: Member) -> None:
        """An attempt joins."""
        self.members[member.assignment.token] = member

    @property
    def is_full(self) -> bool:
        """Whether no more may join."""
        return len(self.members) >= self.handler.size

    @property
    def is_unwanted(self) -> bool:
        """Whether all that must still be told of were told to stop."""
        return all(member.context.cancelled for member in self.members.values())

    async def perform(self, ends: type[BaseException] | tuple[type[BaseException], ...]) -> Reports:
        """Runs the body; what `ends` it when it is raised becomes the reports of all."""
        self._begun = tuple(self.members.values())
        self._context = BatchContext([member.context for member in self._begun])
        enter(self._context)
        with processing_batch([member.assignment for member in self._begun]) as processed:
            try:
                returned = await self._call()
            except ends as error:
                leave_if_copy()
                reports = self.failed(error)
            else:
                leave_if_copy()
                reports = self._returned(returned)
            processed([reports[member.assignment.token] for member in self._begun])
        self._point_to_log()
        return reports

    def _call(self) -> Awaitable[object]:
        jobs = [member.arguments for member in self._begun]
        return self.handler.run_batch(jobs, [member.context for member in self._begun])

    def failed(self, error: BaseException) -> Reports:
        """The reports of attempts whose body raised: of each the same, under its own token."""
        members = self._begun or tuple(self.members.values())
        return _of_all(members, raised(members[0].assignment, error, self.handler))

    def _returned(self, returned: object) -> Reports:
        try:
            outcomes = self.handler.outcomes(returned, len(self._begun))
        except InvalidInput as error:
            first = self._begun[0].assignment
            return _of_all(self._begun, refused(first, Reason.INVALID_RESULT, str(error)))
        pairs = zip(self._begun, outcomes, strict=True)
        return {one.assignment.token: self._outcome(one, outcome) for one, outcome in pairs}

    def _outcome(self, member: Member, outcome: object) -> Report:
        if isinstance(outcome, BaseException):
            return raised(member.assignment, outcome, self.handler)
        return succeeded(member.assignment, self.handler, member.context, outcome)

    def _point_to_log(self) -> None:
        """Says in the log of each where to find what the body said, if it said anything."""
        if self._context is None or (speaker := self._context.speaker) is None:
            return
        where = f"what this batch of {len(self._begun)} said is in the log of job {speaker.number}"
        for member in self.members.values():
            if member.context is not speaker:
                member.context.step(where)

    def left_behind(self) -> list[RunningContext]:
        """The contexts of attempts that left before the body ended."""
        return [one.context for one in self._begun if one.assignment.token not in self.members]


def _of_all(members: Sequence[Member], report: Report) -> Reports:
    keys = [member.assignment.key for member in members]
    return {token: structs.replace(report, job=job, token=token) for job, token in keys}


class BatchContext(RunningContext):
    """The attempt that `current` answers in a body that runs several: the first of them.

    What belongs to one job must go through the context of that one.
    """

    __slots__ = ("_members", "speaker")

    def __init__(self, members: Sequence[RunningContext]) -> None:
        first = members[0]
        super().__init__(first._assignment, first._wake, first._limits)
        self._members = members
        self.speaker: RunningContext | None = None
        """In whose log something was said."""

    @property
    def cancelled(self) -> bool:
        """Whether all jobs of the batch have been told to stop."""
        return all(member.cancelled for member in self._members)

    @property
    def scratch(self) -> Path:
        """The folder of the first job of the batch."""
        return self._members[0].scratch

    @property
    def log(self) -> Logger:
        """A logger whose records belong to the first job of the batch that goes on."""
        return self._heard().log

    def _speak(self) -> AttemptLog:
        return self._heard().attempt_log()

    def _heard(self) -> RunningContext:
        heard = (member for member in self._members if not member.cancelled)
        self.speaker = next(heard, self._members[0])
        return self.speaker

    def _count_bytes(self, more: int, what: str) -> None:
        raise WrongState(
            f"these {what} must belong to one job of the batch, and {len(self._members)} run: take "
            "ctx: list[longshore.Context], and use the context of that job, like ctx[0].submit(…)"
        )
