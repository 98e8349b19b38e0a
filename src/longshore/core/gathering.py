"""When the ends of jobs that started together wait for each other.

Theory. The jobs of a layer of a graph start in one transaction, on several workers. Each worker
tells of its ends in a message of its own. If the next layer depends on ends of several workers, the
first message lets nothing start: a transaction for it alone costs as much as one for all, and those
that come meanwhile wait for it. So the ends of jobs that started together wait for the rest:

- only if the last transaction with a part of such ends started nothing. Where a part starts jobs,
  as in chains beside each other, waiting would only make these late.
- once for each start, for at most half as long as the first end took to come, and never longer than
  `MOST_S`. So a wait in vain makes a step later by a half at worst, and one of long jobs by little.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST_S: Final = 0.005
_SHARE: Final = 0.5


class Gathering:
    """The jobs that the last transaction which started dependents has started."""

    def __init__(self) -> None:
        self._left: set[int] = set()
        """The tokens of those whose ends have not come."""
        self._started_at = 0.0
        self._until: float | None = None
        """Until when the first ends wait for the others; None before the first came."""
        self._took_part = False
        """Whether the last transaction took some of these ends, and not all."""
        self._pays = False

    def started(self, tokens: Iterable[int], now: float) -> None:
        """A transaction started these attempts, all of jobs that waited for others."""
        self._left = set(tokens)
        self._started_at = now
        self._until = None

    @property
    def is_awaiting(self) -> bool:
        """Whether the ends of some of them have not come."""
        return bool(self._left)

    def awaits(self, token: int) -> bool:
        """Whether this attempt is one of them, and its end has not come."""
        return token in self._left

    def came(self, token: int) -> bool:
        """The end of one of them came. Answers whether it is the first: then `waits_from` is next.

        To ask for the time takes long, and only that of the first counts.
        """
        self._left.discard(token)
        return self._until is None

    def waits_from(self, now: float) -> None:
        """The first of their ends came now."""
        self._until = now + min(MOST_S, (now - self._started_at) * _SHARE)

    def wait_s(self, now: float) -> float:
        """For how long the ends that came should wait; 0 to commit them now."""
        if not self._pays or not self._left or self._until is None:
            return 0.0
        return max(0.0, self._until - now)

    def taken(self) -> None:
        """A transaction takes the ends that came."""
        self._took_part = bool(self._left) and self._until is not None

    def recorded(self, *, any_started: bool) -> None:
        """That transaction recorded them, and started dependents or not."""
        if self._took_part:
            self._pays = not any_started
