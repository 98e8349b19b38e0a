"""Ships as they are now: version 2 of their class, with another state than in `ships_v1`."""

from __future__ import annotations

from typing import Any

import longshore
from longshore import ActorContext

app = longshore.App("ships")


class Ship:
    """Keeps a log as pairs, and counts what it read."""

    log: list[tuple[int, int]] = []  # noqa: RUF012
    read: int = 0

    @classmethod
    def migrate(cls, state: dict[str, Any], version: int) -> dict[str, Any]:
        pairs = [[int(part) for part in one.split(" by ")] for one in state["entries"]]
        return {"log": pairs, "read": len(pairs)}

    async def note(self, ctx: ActorContext, n: int) -> None:
        self.log.append((n, 2))
        self.read += 1


ships = app.actor(version=2)(Ship)
