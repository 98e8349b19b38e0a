"""Records of `logging`, made into text for the log of the attempt they belong to."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from longshore.executors.output.attempt_log import AttemptLog

_formatter = logging.Formatter()

_handled: ContextVar[bool] = ContextVar("longshore_record_handled", default=False)


def is_handled() -> bool:
    """Whether handlers have a record now that was kept: what they print of it is not kept again."""
    return _handled.get()


@contextmanager
def handling() -> Iterator[None]:
    """Marks that handlers have a record that was kept."""
    token = _handled.set(True)
    try:
        yield
    finally:
        _handled.reset(token)


def hear(record: logging.LogRecord, attempt_log: AttemptLog) -> None:
    """Keeps a record. As with handlers, a record that cannot be formatted raises nothing."""
    attempt_log.logged(record.levelname, record.name, _shown(record))


def _shown(record: logging.LogRecord) -> str:
    try:
        return _text(record)
    except Exception as error:
        with suppress(Exception):
            return f"{record.msg!r} (its arguments do not fit: {error!r})"
        return f"a record of {record.funcName}, line {record.lineno}, cannot be shown"


def _text(record: logging.LogRecord) -> str:
    """Message, traceback and stack. It caches nothing in the record: its handlers do that."""
    parts = [record.getMessage()]
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(_formatter.formatException(record.exc_info))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(_formatter.formatStack(record.stack_info))
    return "\n".join(parts)


class JobLogger(logging.Logger):
    """A logger of one attempt. It hands its records on to the root logger's handlers too."""

    def __init__(self, name: str, attempt_log: AttemptLog) -> None:
        root = logging.getLogger()
        super().__init__(name, min(root.level or logging.INFO, logging.INFO))
        self.parent = root
        self._attempt_log = attempt_log

    def callHandlers(self, record: logging.LogRecord) -> None:
        """Keeps the record, then does what every logger does."""
        hear(record, self._attempt_log)
        with handling():
            super().callHandlers(record)
