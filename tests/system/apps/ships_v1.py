"""Ships as they were: version 1 of their class. Version 2 is in `ships_v2`."""

from __future__ import annotations

import longshore
from longshore import ActorContext

app = longshore.App("ships")


class Ship:
    """Keeps a log, and which version of the class wrote each entry."""

    entries: list[str] = []  # noqa: RUF012

    async def note(self, ctx: ActorContext, n: int) -> None:
        self.entries.append(f"{n} by 1")


ships = app.actor(Ship)
