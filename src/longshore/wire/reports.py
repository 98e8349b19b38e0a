"""The reports that no dispatcher has acknowledged yet.

A worker sends each report once, and again after every WELCOME, when its dispatcher asks for it, and
when it stays unacknowledged for long. A repeat is harmless: by its token the store knows it.

Large reports go out a few at a time, the next ones once those are acknowledged. A PING must not
queue behind a hundred megabytes, or a slow network would cost the worker its lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, assert_never

from longshore.model.actor import Turn
from longshore.model.attempt import AttemptKey
from longshore.model.job import JobError
from longshore.model.reports import (
    CrashReport,
    FailureReport,
    OutboxGroup,
    OutboxItem,
    OutboxJob,
    OutboxMessage,
    OutboxNode,
    OutboxReply,
    Report,
    SuccessReport,
    TurnReport,
)
from longshore.model.watcher import ActorWatcher, CallbackWatcher, ScheduleWatcher, Watcher
from longshore.wire.portions import MESSAGE_BYTES, portions

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""How many bytes of large reports are under way at a time. One report always may be."""

LARGE_BYTES: Final = 64 * 1024
"""Smaller reports do not count: a worker has few of them at a time."""

_FIELDS_BYTES: Final = 256


def report_bytes(report: Report) -> int:
    """Roughly how many bytes a report takes in a message."""
    size = _FIELDS_BYTES
    if isinstance(report, SuccessReport):
        size += len(report.result or b"")
        if report.outbox:
            size += _sent_bytes(report.outbox)
    elif isinstance(report, TurnReport):
        size += turn_bytes(report.turn) + _sent_bytes(report.outbox)
    elif isinstance(report, FailureReport | CrashReport):
        size += error_bytes(report.error)
    return size


def outbox_bytes(outbox: Sequence[OutboxItem]) -> int:
    """How many bytes of users' values an outbox has."""
    return sum(map(_item_bytes, outbox)) if outbox else 0


def _sent_bytes(outbox: Sequence[OutboxItem]) -> int:
    return len(outbox) * _FIELDS_BYTES + outbox_bytes(outbox)


def _item_bytes(item: OutboxItem) -> int:
    match item:
        case OutboxJob(job=job) | OutboxNode(job=job):
            return len(job.args)
        case OutboxGroup(part=part):
            watchers = sum(map(_watcher_bytes, part.head.watchers))
            return watchers + sum(len(node.job.args) + _FIELDS_BYTES for node in part.nodes)
        case OutboxMessage(message=message):
            return len(message.args) + len(message.reply_to.about if message.reply_to else b"")
        case OutboxReply(reply=reply, to=to):
            error = 0 if reply.error is None else error_bytes(reply.error)
            return len(reply.result or b"") + len(to.about) + error
        case _:
            assert_never(item)


def _watcher_bytes(watcher: Watcher) -> int:
    match watcher:
        case ActorWatcher():
            return len(watcher.about)
        case CallbackWatcher():
            headers = watcher.headers.items()
            return len(watcher.url) + sum(len(name) + len(value) for name, value in headers)
        case ScheduleWatcher():
            return 0
        case _:
            assert_never(watcher)


def turn_bytes(turn: Turn) -> int:
    """Roughly how many bytes it takes what a turn leaves."""
    timers = sum(100 + len(timer.args) for timer in turn.timers)
    return len(turn.state) + timers + 9 * len(turn.read_delayed)


def error_bytes(error: JobError) -> int:
    """The most bytes that an error takes in a message: a character takes up to four."""
    return 4 * (len(error.message) + len(error.type) + len(error.traceback))


class UnackedReports:
    """Reports to send, in order, and those sent but not acknowledged, by token."""

    def __init__(self) -> None:
        self._reports: dict[int, Report] = {}
        self._unsent: dict[int, Report] = {}
        self._under_way: dict[int, int] = {}
        """The bytes of large reports that were sent."""
        self._sent_by: dict[int, float] = {}
        """When `overdue` first found that a report was sent."""

    def __len__(self) -> int:
        return len(self._reports)

    @property
    def has_unsent(self) -> bool:
        """Whether there are reports to send."""
        return bool(self._unsent)

    @property
    def attempts(self) -> tuple[AttemptKey, ...]:
        """The attempts whose ends are reported here."""
        return tuple(report.key for report in self._reports.values())

    def add(self, report: Report) -> None:
        """A report to send."""
        self._reports[report.token] = self._unsent[report.token] = report

    def take(self) -> list[tuple[Report, ...]]:
        """The reports to send now, one tuple for each message. They count as sent."""
        fitting, size = self._fitting()
        if len(fitting) == len(self._unsent):
            self._unsent = {}
        else:
            for report in fitting:
                del self._unsent[report.token]
        if size <= MESSAGE_BYTES:
            return [tuple(fitting)] if fitting else []
        return list(portions(fitting, report_bytes, MESSAGE_BYTES))

    def _fitting(self) -> tuple[list[Report], int]:
        """The reports that the window has room for, and their bytes. Small ones always fit."""
        found, total = [], 0
        room = WINDOW_BYTES - sum(self._under_way.values())
        for token, report in self._unsent.items():
            size = report_bytes(report)
            if size >= LARGE_BYTES:
                if self._under_way and size > room:
                    continue
                self._under_way[token] = size
                room -= size
            found.append(report)
            total += size
        return found, total

    def repeat_all(self) -> None:
        """A session begins: every report is to be sent again."""
        self._under_way.clear()
        self._sent_by.clear()
        self._unsent = dict(self._reports)

    def repeat(self, tokens: Iterable[int]) -> list[int]:
        """Sends these again, if they are here and were sent; answers which."""
        again = [token for token in tokens if token in self._reports and token not in self._unsent]
        for token in again:
            self._under_way.pop(token, None)
            self._sent_by.pop(token, None)
            self._unsent[token] = self._reports[token]
        return again

    def overdue(self, now: float, after_s: float) -> list[int]:
        """The reports that an earlier call, `after_s` ago or longer, found to be sent."""
        for token in self._reports:
            if token not in self._unsent:
                self._sent_by.setdefault(token, now)
        return [token for token, at in self._sent_by.items() if now - at >= after_s]

    def forget(self, tokens: Iterable[int]) -> None:
        """The dispatcher acknowledged reports."""
        all_marks: tuple[dict[int, Any], ...] = self._unsent, self._under_way, self._sent_by
        kept = [marks for marks in all_marks if marks]
        for token in tokens:
            if self._reports.pop(token, None) is not None:
                for marks in kept:
                    marks.pop(token, None)
