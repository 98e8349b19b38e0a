"""What was handed to ZeroMQ for each peer and has not left yet, bounded in bytes.

Theory. ZeroMQ's own bound counts messages, and a message may be large: a peer that asks and never
reads would have a dispatcher hold gigabytes for it. ZeroMQ does not say what it still holds, but it
tells when it lets go of a *tracked* message, and messages to a peer leave in order. So every
`MARK_BYTES` one message is tracked, as a mark: once it is gone, all before it are gone too. What
was sent since the last mark is less than `MARK_BYTES`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

MARK_BYTES: Final = 256 * 1024
PEERS_IN_ALL: Final = 8
"""All peers together may leave unread so many times what one peer may."""
MOST_ACCOUNTS: Final = 10_000
SWEEP_S: Final = 0.1


class Mark(Protocol):
    """Knows whether ZeroMQ has let go of a message."""

    @property
    def done(self) -> bool:
        """Whether it has."""


class Account:
    """What one peer was sent: `fresh` bytes since the last mark, and the marks that are left."""

    def __init__(self) -> None:
        self.fresh = 0
        self.marked = 0
        self.marks: deque[tuple[int, Mark]] = deque()

    def mark(self, mark: Mark) -> int:
        """The last message sent is a mark; answers how many bytes it stands for."""
        size, self.fresh = self.fresh, 0
        self.marked += size
        self.marks.append((size, mark))
        return size

    def settle(self) -> int:
        """Forgets messages that have left; answers how many bytes they had."""
        before = self.marked
        while self.marks and self.marks[0][1].done:
            self.marked -= self.marks.popleft()[0]
        return before - self.marked


class SendBudget:
    """The accounts of all peers of a socket."""

    def __init__(self, most_bytes: int, now: Callable[[], float]) -> None:
        self._most = most_bytes
        self._now = now
        self._accounts: dict[bytes, Account] = {}
        self._swept_at = float("-inf")
        self._marked = 0

    def of(self, peer: bytes) -> Account:
        """A peer's account."""
        account = self._accounts.get(peer)
        if account is None:
            if len(self._accounts) >= MOST_ACCOUNTS:
                self._sweep()
            account = self._accounts[peer] = Account()
        return account

    def admits(self, account: Account, size: int) -> bool:
        """Whether a peer may be sent so much more.

        If peers that do not read have used up the whole budget, others still get small messages.
        """
        self._marked -= account.settle()
        if account.marks and account.marked + account.fresh + size > self._most:
            return False
        if self._marked + size <= self._most * PEERS_IN_ALL:
            return True
        self._sweep()
        fits = self._marked + size <= self._most * PEERS_IN_ALL
        return fits or (size < MARK_BYTES and not account.marks)

    def mark(self, account: Account, mark: Mark) -> None:
        """The last message sent to a peer is a mark."""
        self._marked += account.mark(mark)

    def forget(self, peer: bytes) -> None:
        """A peer is gone, and ZeroMQ drops what it held for it."""
        account = self._accounts.pop(peer, None)
        if account is not None:
            self._marked -= account.marked

    def _sweep(self) -> None:
        """Forgets messages that have left, and peers for which none is held."""
        if self._now() - self._swept_at < SWEEP_S:
            return
        self._swept_at = self._now()
        self._marked -= sum(account.settle() for account in self._accounts.values())
        if len(self._accounts) >= MOST_ACCOUNTS:
            self._accounts = {peer: one for peer, one in self._accounts.items() if one.marks}
