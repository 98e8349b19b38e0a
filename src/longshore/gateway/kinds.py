"""What apps declare for their kinds, as workers tell it; asked for at most once a second a kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from longshore.client.connection import Connection
from longshore.client.kind import Terms
from longshore.gateway.asking import asked_by

KEPT_S: Final = 1.0
MOST_KEPT: Final = 10_000


class KnownKinds:
    """The terms of kinds, as far as they were asked for lately."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, tuple[float, Terms]] = {}

    async def terms(self, kind: str) -> Terms:
        """What the app of a kind declares; the defaults if no worker tells of it."""
        now = asyncio.get_running_loop().time()
        asked_at, terms = self._known.get(kind, (float("-inf"), Terms()))
        if now - asked_at > KEPT_S:
            with asked_by(None):
                terms = Terms.of_kind(await self._connection.kind(kind))
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[kind] = (now, terms)
        return terms

    def forget(self) -> None:
        """Asks anew for each kind."""
        self._known.clear()

    async def terms_of(self, kinds: Iterable[str]) -> dict[str, Terms]:
        """What the apps of these kinds declare."""
        return {kind: await self.terms(kind) for kind in kinds}
