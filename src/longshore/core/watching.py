"""What the watchers of a job or a group are told, and under which ids.

The id of a message follows from what ended, its round and the place of the watcher. So each round
is told once, and another round again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, assert_never
from uuid import UUID

from msgspec import msgpack

from longshore.model.actor import Concluded, Message
from longshore.model.group import GroupHead
from longshore.model.ids import watched_id
from longshore.model.job import JobError, JobState, Reason, Submission
from longshore.model.notice import Notice
from longshore.model.watcher import ActorWatcher, CallbackWatcher, ScheduleWatcher

OUTCOME_PREFIX: Final = "outcome:"
"""An outcome is a message called so, and then like its handler."""

_packer: Final = msgpack.Encoder()


def messages_of(notice: Notice) -> Iterator[Message]:
    """The messages that tell the actors among the watchers, one for each."""
    for index, watcher in enumerate(notice.watchers):
        match watcher:
            case ActorWatcher():
                yield _message(notice, index, watcher)
            case CallbackWatcher():
                pass  # see `payload.callback_jobs`
            case ScheduleWatcher():
                pass  # see `outcomes_of`
            case _:
                assert_never(watcher)


def outcomes_of(notices: Iterable[Notice]) -> list[tuple[UUID, UUID, JobState]]:
    """What schedules hear: the schedule, what it submitted, and how that ended."""
    return [
        (watcher.schedule, notice.subject, notice.state)
        for notice in notices
        for watcher in notice.watchers
        if isinstance(watcher, ScheduleWatcher)
    ]


def _message(notice: Notice, index: int, watcher: ActorWatcher) -> Message:
    concluded = Concluded(
        notice.subject,
        notice.round,
        notice.state,
        notice.result,
        notice.error,
        watcher.about,
        notice.is_group,
    )
    id = watched_id(notice.subject, notice.round, index)
    name = OUTCOME_PREFIX + watcher.name
    return Message(id, watcher.type, watcher.key, name, _packer.encode(concluded))


def not_accepted(job: Submission, why: str) -> Message | None:
    """What an actor hears of a job of its own that was not accepted; None if it watches it not."""
    error = JobError(Reason.INVALID_ARGUMENTS, why)
    watchers = job.options.watchers
    notice = Notice(job.id, 0, JobState.FAILED, None, error, watchers)
    return next(messages_of(notice), None)


def group_not_accepted(head: GroupHead, why: str) -> Message | None:
    """What an actor hears of a group of its own that was not accepted, if it watches it."""
    error = JobError(Reason.INVALID_ARGUMENTS, why)
    notice = Notice(head.id, 0, JobState.FAILED, None, error, head.watchers, is_group=True)
    return next(messages_of(notice), None)


def nobody_heard(message: Message) -> str:
    """What the history of a job says of a watcher that is gone."""
    return f"actor {message.type} '{message.key}', which watched it, is gone"
