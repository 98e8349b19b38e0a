"""The log entries of a worker's attempts, until the store has them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from longshore.model.job import LogEntry
from longshore.wire.portions import portions

MOST_FRESH = 10_000
MOST_SENT = 10_000
MOST_SENT_EACH = 1_000
"""How many entries are kept to be sent again, in all and of one attempt: the newest."""

ENTRIES_PER_MESSAGE = 1_000
BYTES_PER_MESSAGE = 1024 * 1024


class UnackedLogs:
    """Entries to send (`fresh`), and those sent that may have to be sent again."""

    def __init__(self) -> None:
        self.fresh: deque[LogEntry] = deque(maxlen=MOST_FRESH)
        self.sent: dict[int, deque[LogEntry]] = {}
        """By token."""
        self._sent_count = 0

    def add(self, entry: LogEntry) -> None:
        """A new entry. Past the bound, the oldest that was not sent is dropped."""
        self.fresh.append(entry)

    def take(self) -> list[tuple[LogEntry, ...]]:
        """All entries to send, one tuple for each message. They count as sent."""
        parts = list(
            portions(self.fresh, lambda one: len(one.data), BYTES_PER_MESSAGE, ENTRIES_PER_MESSAGE)
        )
        for entry in self.fresh:
            self._keep(entry)
        self.fresh.clear()
        return parts

    def _keep(self, entry: LogEntry) -> None:
        kept = self.sent.get(entry.token)
        if kept is None:
            kept = self.sent[entry.token] = deque()
        kept.append(entry)
        self._sent_count += 1
        if len(kept) > MOST_SENT_EACH:
            kept.popleft()
            self._sent_count -= 1
        while self._sent_count > MOST_SENT:
            self.forget(next(iter(self.sent)))

    def repeat_all(self) -> None:
        """A session begins: every entry is to be sent again."""
        self.repeat(list(self.sent))

    def repeat(self, tokens: Collection[int]) -> None:
        """The entries of these attempts are to be sent again, before those not sent yet."""
        again = [entry for token in tokens for entry in self.sent.get(token, ())]
        for token in tokens:
            self.forget(token)
        self.fresh = deque([*again, *self.fresh], maxlen=MOST_FRESH)

    def forget(self, token: int) -> None:
        """The store has recorded the end of an attempt, and so has its entries."""
        kept = self.sent.pop(token, None)
        if kept is not None:
            self._sent_count -= len(kept)

    def abandon(self, tokens: Collection[int]) -> None:
        """The worker gave these attempts up: their entries are not to be sent."""
        for token in tokens:
            self.forget(token)
        left = (entry for entry in self.fresh if entry.token not in tokens)
        self.fresh = deque(left, maxlen=MOST_FRESH)
