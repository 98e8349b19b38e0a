"""Enqueueing calls in the application's own transaction, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from longshore.client.access import Access
from longshore.client.handle import Handle
from longshore.client.kind import Call
from longshore.errors import from_code
from longshore.model.job import Refused
from longshore.store.postgres_borrowed import talk, talk_async
from longshore.store.postgres_columns import Answer
from longshore.store.postgres_enqueue import Conversation, enqueue
from longshore.wire.messages import SubmitAnswer

R = TypeVar("R")


def enqueue_calls(
    access: Access, connection: object, calls: Sequence[Call[R]], *, notify: bool
) -> list[Handle[R]]:
    """Enqueues jobs over a connection that blocks."""
    conversation = _conversation(calls, notify)
    if access.stand_in is not None:
        return access.run(_submit_to_kit(access, calls))
    return _handles(access, calls, talk(connection, conversation))


async def enqueue_calls_async(
    access: Access, connection: object, calls: Sequence[Call[R]], *, notify: bool
) -> list[Handle[R]]:
    """Enqueues jobs over a connection that is awaited."""
    conversation = _conversation(calls, notify)
    if access.stand_in is not None:
        return await _submit_to_kit(access, calls)
    return _handles(access, calls, await talk_async(connection, conversation))


async def _submit_to_kit(access: Access, calls: Sequence[Call[R]]) -> list[Handle[R]]:
    """Submits to the test kit that stands in: it has no transactions, so jobs are there at once."""
    answers = await access.connection().submit([call.submission for call in calls])
    return [call.accepted(answer, access) for call, answer in zip(calls, answers, strict=True)]


def _conversation(calls: Sequence[Call[Any]], notify: bool) -> Conversation:
    return enqueue([call.submission for call in calls], notify=notify)


def _handles(
    access: Access, calls: Sequence[Call[R]], answers: Sequence[Answer]
) -> list[Handle[R]]:
    """The handles of the jobs; raises if one was refused, and so ends the transaction."""
    for answer in answers:
        if isinstance(answer, Refused):
            raise from_code(answer.code, f"{answer.message}; roll this transaction back")
    handles = [
        call.accepted(SubmitAnswer(answer.id, answer.number, answer.existing), access)
        for call, answer in zip(calls, answers, strict=True)
        if not isinstance(answer, Refused)
    ]
    for handle in handles:
        handle._stored = False
    return handles
