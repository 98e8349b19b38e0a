"""How large a message may be, and how a long list is split into several messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""A receiver drops the connection of a peer that sends a larger message."""

MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""Senders split lists into messages of this size. One item may be larger: it has its own limit."""

LARGEST_VALUE_BYTES: Final = 24 * 1024 * 1024
"""The largest `max_value_bytes`.

The answer to SHOW has a job's arguments and result, and a report has a result and an outbox. Each
must fit into one message.
"""


def portions(
    items: Iterable[T], size: Callable[[T], int], most_bytes: int, most_items: int | None = None
) -> Iterator[tuple[T, ...]]:
    """The items in their order, in groups of at most `most_bytes` and `most_items`."""
    part: list[T] = []
    total = 0
    for item in items:
        more = size(item)
        if part and (total + more > most_bytes or len(part) == most_items):
            yield tuple(part)
            part, total = [], 0
        part.append(item)
        total += more
    if part:
        yield tuple(part)
