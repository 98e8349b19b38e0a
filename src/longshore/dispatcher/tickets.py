"""Signs the tickets that go with jobs, and reads those that gateways show."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from longshore.config import DispatcherSettings
from longshore.core.tickets import good_for_s, sign, ticket_key, verified
from longshore.model.attempt import Attempt
from longshore.model.fileset import Ticket
from longshore.ports import Store


class Tickets:
    """The tickets of a fleet. The key comes from the store once, and never changes."""

    def __init__(
        self, store: Store, settings: DispatcherSettings, utc: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._most_bytes = settings.max_fileset_bytes
        self._utc = utc
        self._key: bytes | None = None

    async def load(self) -> bytes:
        """The key, read if need be."""
        if self._key is None:
            self._key = ticket_key(await self._store.callback_secret())
        return self._key

    def issue(self, attempt: Attempt) -> str:
        """The ticket of an attempt; empty before the key is loaded."""
        if self._key is None:
            return ""
        until = self._utc().timestamp() + good_for_s(attempt.options.timeout_s)
        of = attempt.id, attempt.token, attempt.round
        return sign(self._key, Ticket(*of, self._most_bytes, int(until)))

    async def read(self, text: str) -> Ticket:
        """What a ticket says; raises `NotAuthenticated` if it is worth nothing."""
        return verified(await self.load(), text, self._utc().timestamp())
