"""Enqueueing calls in the application's own transaction, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from longshore.client.adapters import Answer, enqueue_in, enqueue_in_async
from longshore.client.clients import Clients
from longshore.client.handle import Handle
from longshore.client.kind import Call
from longshore.errors import from_code
from longshore.model.job import Refused, Submission
from longshore.wire.messages import SubmitAnswer

R = TypeVar("R")


def enqueue_calls(
    access: Clients, connection: object, calls: Sequence[Call[R]], *, notify: bool
) -> list[Handle[R]]:
    """Enqueues jobs over a connection that blocks."""
    if access.stand_in is not None:
        return access.run(_submit_to_kit(access, calls))
    return _handles(access, calls, enqueue_in(connection, _jobs(calls), notify=notify))


async def enqueue_calls_async(
    access: Clients, connection: object, calls: Sequence[Call[R]], *, notify: bool
) -> list[Handle[R]]:
    """Enqueues jobs over a connection that is awaited."""
    if access.stand_in is not None:
        return await _submit_to_kit(access, calls)
    answers = await enqueue_in_async(connection, _jobs(calls), notify=notify)
    return _handles(access, calls, answers)


async def _submit_to_kit(access: Clients, calls: Sequence[Call[R]]) -> list[Handle[R]]:
    """Submits to the test kit that stands in: it has no transactions, so jobs are there at once."""
    answers = await access.connection().submit(_jobs(calls))
    return [call.accepted(answer, access) for call, answer in zip(calls, answers, strict=True)]


def _jobs(calls: Sequence[Call[Any]]) -> list[Submission]:
    return [call.submission for call in calls]


def _handles(
    access: Clients, calls: Sequence[Call[R]], answers: Sequence[Answer]
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
