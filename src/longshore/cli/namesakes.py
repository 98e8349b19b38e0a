"""Jobs and groups share their numbers: who asks for the one by the other's is told so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from longshore.client.connection import Connection, Ref
from longshore.errors import LongshoreError, NotFound

T = TypeVar("T")


async def of_job(connection: Connection, ref: Ref, found: Awaitable[T]) -> T:
    """What is asked of a job; if it is a group that has this number, the error says so."""
    try:
        return await found
    except NotFound as error:
        group = await _numbered(ref, connection.group)
        raise _named(error, f"{ref} is a group: `longshore group show {ref}`", group) from None


async def of_group(connection: Connection, ref: Ref, found: Awaitable[T]) -> T:
    """What is asked of a group; if it is a job that has this number, the error says so."""
    try:
        return await found
    except NotFound as error:
        job = await _numbered(ref, connection.job)
        raise _named(error, f"{ref} is a job: `longshore job {ref}`", job) from None


async def _numbered(ref: Ref, look: Callable[[Ref], Awaitable[object]]) -> object | None:
    """What has this number; ids are of nothing else."""
    try:
        return await look(ref) if isinstance(ref, int) else None
    except LongshoreError:
        return None


def _named(error: NotFound, words: str, other: object | None) -> NotFound:
    return error if other is None else NotFound(f"{str(error).partition(';')[0]}; {words}")
