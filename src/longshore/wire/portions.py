"""How large a message may be, and how a list that is larger goes into several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""A receiver drops the connection of a peer that sends a larger message."""

MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""What is split is split here. One item may be larger, so it must have a limit of its own."""

LARGEST_VALUE_BYTES: Final = 24 * 1024 * 1024
"""The most that `max_value_bytes` may be.

SHOW answers with the arguments and the result of a job, and a report carries a result and an
outbox: each fits into one message.
"""


def portions(
    items: Iterable[T], size: Callable[[T], int], most_bytes: int, most_items: int | None = None
) -> Iterator[tuple[T, ...]]:
    """The items in their order, in groups that are no larger than one message should be."""
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
