"""What a job raised, in a form that outlives its process."""

from __future__ import annotations

import builtins
import os
import traceback

from longshore import _version
from longshore.executors.host.context import Fail, Retry, Skip, Snooze, running
from longshore.executors.text import bounded, bounded_middle
from longshore.model.attempt import Assignment
from longshore.model.job import JobError, Reason
from longshore.model.reports import FailureReport, Report, SkipReport, SnoozeReport
from longshore.ports import Handler

MAX_MESSAGE_BYTES = 4 * 1024
MAX_TRACEBACK_BYTES = 16 * 1024

OWN_FOLDER = os.path.dirname(os.path.abspath(_version.__file__)) + os.sep


def raised(assignment: Assignment, error: BaseException, handler: Handler | None) -> Report:
    """The report of an attempt whose code raised; without a handler, of one that did not begin.

    `Retry`, `Fail`, `Snooze` and `Skip` say what is next. For other errors the handler says it.
    """
    if isinstance(error, Snooze):
        return snoozed(assignment, error)
    if isinstance(error, Skip):
        return skipped(assignment, error)
    return FailureReport(
        *assignment.key,
        _described(Reason.RAISED, _where() + _message(error), error),
        final=_is_final(error, handler),
        retry_after_s=error.after_s if isinstance(error, Retry) else None,
    )


def _where() -> str:
    """What the attempt was at, if it said so: a turn names the event that it handles."""
    context = running()
    return f"{context.handles}: " if context is not None and context.handles else ""


def _is_final(error: BaseException, handler: Handler | None) -> bool:
    if isinstance(error, Fail | Retry):
        return isinstance(error, Fail)
    return handler is not None and handler.is_final(error)


def snoozed(assignment: Assignment, wish: Snooze) -> Report:
    """The report of an attempt that asks to be run again later."""
    note = bounded(_message(wish), MAX_MESSAGE_BYTES)
    return SnoozeReport(*assignment.key, wish.after_s, note)


def skipped(assignment: Assignment, wish: Skip) -> Report:
    """The report of an attempt that asks to be skipped."""
    return SkipReport(*assignment.key, bounded(_message(wish), MAX_MESSAGE_BYTES))


def refused(
    assignment: Assignment, reason: Reason, message: str, error: BaseException | None = None
) -> Report:
    """The report of an attempt that fails for good before or after its code ran."""
    return FailureReport(*assignment.key, _described(reason, message, error), final=True)


def one_line(error: BaseException) -> str:
    """An exception's type and message."""
    message = _message(error)
    return f"{type_name(error)}: {message}" if message else type_name(error)


def type_name(error: BaseException) -> str:
    """An exception's type, with its module unless it is a builtin."""
    kind = type(error)
    if kind.__module__ == builtins.__name__:
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def user_traceback(error: BaseException) -> str:
    """The traceback, and those of its causes, without Longshore's own frames."""
    try:
        told = traceback.TracebackException.from_exception(error)
        _drop_own_frames(told)
        return bounded_middle("".join(told.format()), MAX_TRACEBACK_BYTES)
    except Exception as failure:
        # The exception's own methods are the user's code too.
        return f"the traceback cannot be shown: {type_name(failure)}"


def _described(reason: Reason, message: str, error: BaseException | None) -> JobError:
    text = bounded(message, MAX_MESSAGE_BYTES)
    if error is None:
        return JobError(reason, text)
    return JobError(reason, text, bounded(type_name(error), 256), user_traceback(error))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:
        return f"the message cannot be shown: its __str__ raised {type_name(failure)}"


def _drop_own_frames(told: traceback.TracebackException) -> None:
    told.stack = traceback.StackSummary.from_list(
        [frame for frame in told.stack if not frame.filename.startswith(OWN_FOLDER)]
    )
    linked = [told.__cause__, told.__context__, *(told.exceptions or ())]
    for other in linked:
        if other is not None:
            _drop_own_frames(other)
