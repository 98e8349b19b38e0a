"""The two halves of an attempt around its own code: arguments before it, a report after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from longshore.errors import InvalidInput, NotSerialisable
from longshore.executors.host.context import RunningContext, Skip, Snooze
from longshore.executors.host.failures import one_line, refused, skipped, snoozed
from longshore.model.actor import Turn
from longshore.model.attempt import Assignment
from longshore.model.job import Reason
from longshore.model.reports import OutboxReply, Report, SuccessReport, TurnReport
from longshore.payload.values import within
from longshore.ports import Handler, Handlers


class TakenTurn(NamedTuple):
    """What the body of an actor's turn returns."""

    turn: Turn
    replies: tuple[OutboxReply, ...] = ()


class Call(Struct, frozen=True):
    """A job's body with its arguments, ready to be called."""

    handler: Handler
    begin: Callable[[], object]


def prepare(assignment: Assignment, handlers: Handlers) -> Call | Report:
    """What to call, or the report of an attempt that cannot begin."""
    handler = handlers.get(assignment.kind)
    if handler is None:
        return unknown(assignment, handlers)
    function = handler.function
    if assignment.raw:
        return Call(handler, lambda: function(assignment.args))
    arguments = bound(assignment, handler)
    if not isinstance(arguments, dict):
        return arguments
    return Call(handler, lambda: function(**arguments))


def bound(assignment: Assignment, handler: Handler) -> dict[str, object] | Report:
    """The keyword arguments of a job's body, or the report of an attempt that has no sound ones."""
    try:
        return handler.bind(assignment.args)
    except InvalidInput as error:
        return refused(assignment, Reason.INVALID_ARGUMENTS, str(error))
    except BaseException as error:
        message = f"the arguments of job {assignment.kind!r} cannot be read: {one_line(error)}"
        return refused(assignment, Reason.INVALID_ARGUMENTS, message, error)


def succeeded(
    assignment: Assignment, handler: Handler, context: RunningContext, value: object
) -> Report:
    """The report of an attempt whose code returned; it fails if its result cannot be stored."""
    if isinstance(value, Snooze):
        return snoozed(assignment, value)
    if isinstance(value, Skip):
        return skipped(assignment, value)
    if isinstance(value, TakenTurn):
        outbox = (*value.replies, *context.outbox())
        return TurnReport(*assignment.key, value.turn, outbox)
    try:
        result = _raw(assignment, value) if assignment.raw else handler.pack_result(value)
    except InvalidInput as error:
        return refused(assignment, Reason.INVALID_RESULT, str(error))
    except BaseException as error:
        message = f"the result of job {assignment.kind!r} cannot be stored: {one_line(error)}"
        return refused(assignment, Reason.INVALID_RESULT, message, error)
    return SuccessReport(*assignment.key, result, context.outbox())


def _raw(assignment: Assignment, value: object) -> bytes:
    what = f"the result of the raw job {assignment.kind!r}"
    if value is None:
        return b""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise NotSerialisable(f"{what} is {type(value).__name__}: a raw job returns bytes")
    return within(bytes(value), what)


def unknown(assignment: Assignment, handlers: Handlers) -> Report:
    """The report of an attempt at a job that the app does not have."""
    known = ", ".join(sorted(handlers)) or "none"
    message = f"the app has no job {assignment.kind!r}; it has: {known}"
    return refused(assignment, Reason.UNKNOWN_KIND, message)
