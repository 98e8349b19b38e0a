"""What PostgreSQL shows of actors. Nothing here takes a lock."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from longshore.core.turns import status_of
from longshore.model.actor import (
    TURNS_KEPT,
    Actor,
    ActorFilter,
    ActorPage,
    MailView,
    TurnView,
)
from longshore.model.ids import derive_id
from longshore.model.job import JobState
from longshore.store.actor_rows import (
    NO_PAGE,
    is_wanted,
    page_size,
    unpack_terms,
    unpack_timers,
)
from longshore.store.postgres import actors_sql as sql
from longshore.store.postgres import listed_fields
from longshore.store.postgres.connections import TURNS, ConnectionPool
from longshore.store.postgres.states import PAUSED, STATES, STOPPING
from longshore.store.rows import LARGEST_INT, clean, moment, unpack_error

Rows = Sequence[asyncpg.Record]


class PostgresActorReads:
    """The verbs that show actors."""

    _reading: ConnectionPool

    async def actor(self, type: str, key: str) -> Actor | None:
        """One actor, as its last turn left it."""
        found: Actor | None = None
        for _ in range(TURNS):
            rows = await self._reading.fetch(sql.ONE, clean(type), clean(key))
            if not rows:
                return None
            [found] = await self._shown(rows)
            # A turn that was taken between the two reads leaves another state.
            last = await self._reading.fetch(sql.NEWEST_OF, rows[0]["number"])
            if last and last[0]["n"] == found.turn:
                break
        return found

    async def actors(self, wanted: ActorFilter) -> ActorPage:
        """Actors by type and key, without their states."""
        found: list[Actor] = []
        after, looked_at = wanted.after, 0
        while size := max(0, page_size(wanted, len(found), looked_at)):
            rows = await self._page(wanted, after, size)
            for one in await self._shown(rows):
                if is_wanted(one, wanted):
                    found.append(one)
                if len(found) == wanted.limit:
                    return ActorPage(tuple(found), (one.type, one.key))
            if len(rows) < size:
                return ActorPage(tuple(found))
            looked_at += size
            after = rows[-1]["type"], rows[-1]["key"]
        return ActorPage(tuple(found), after) if looked_at else NO_PAGE

    async def _listed_page(
        self, wanted: ActorFilter, after: tuple[str, str] | None, size: int
    ) -> Rows:
        """The next actors of a type whose first field has this value."""
        type = clean(wanted.type or "")
        field, value = next(iter(wanted.fields.items()))
        key = after[1] if after is not None and after[0] == type else ""
        if after is not None and after[0] > type:
            return []
        which = type, clean(field), clean(value), clean(key)
        return await self._reading.fetch(sql.LISTED_PAGE, *which, min(size, LARGEST_INT))

    async def _page(self, wanted: ActorFilter, after: tuple[str, str] | None, size: int) -> Rows:
        """The next actors after a place, of one type if it is given."""
        if wanted.fields:
            return await self._listed_page(wanted, after, size)
        type = wanted.type
        if type is not None and after is not None and after[0] != type:
            if after[0] > type:
                return []
            after = None
        place = after or (type, None)
        values = [None if text is None else clean(text) for text in place]
        kind = type is not None, after is not None
        return await self._reading.fetch(sql.PAGES[kind], *values, min(size, LARGEST_INT))

    async def _shown(self, rows: Rows) -> list[Actor]:
        """Actors as they are shown, each with the job of its next turn."""
        if not rows:
            return []
        ids = [derive_id(row["id"], row["n"] + 1) for row in rows]
        jobs = {job["id"]: job for job in await self._reading.fetch(sql.JOBS, ids)}
        numbers, read = [row["number"] for row in rows], [row["read_up_to"] for row in rows]
        counts = await self._reading.fetch(sql.UNREAD, numbers, read)
        unread = {row["actor"]: row["n"] - row["parked"] for row in counts}
        listed: dict[int, dict[str, str]] = {}
        for actor, field, value in await self._reading.fetch(listed_fields.OF, numbers):
            listed.setdefault(actor, {})[field] = value
        return [
            _actor(row, jobs.get(id), unread.get(row["number"], 0), listed.get(row["number"], {}))
            for row, id in zip(rows, ids, strict=True)
        ]

    async def turns(self, type: str, key: str) -> list[TurnView]:
        """The last turns of an actor, the newest first."""
        rows = await self._reading.fetch(sql.TURNS, clean(type), clean(key), TURNS_KEPT)
        return [
            TurnView(n, at, worker, read, version, state, unpack_timers(timers))
            for n, at, worker, read, version, state, timers in rows
        ]

    async def mail(self, type: str, key: str, most: int = 100) -> list[MailView]:
        """The first messages that an actor has not read, parked ones too."""
        bound = min(max(0, most), LARGEST_INT)
        rows = await self._reading.fetch(sql.MAIL, clean(type), clean(key), bound)
        return [MailView(*row) for row in rows]


def _actor(
    row: asyncpg.Record, job: asyncpg.Record | None, unread: int, listed: dict[str, str]
) -> Actor:
    state = None if job is None else STATES[job["state"]]
    is_delayed = job is not None and state is JobState.DELAYED
    return Actor(
        id=row["id"],
        type=row["type"],
        key=row["key"],
        status=status_of(
            paused=row["status"] == PAUSED, stopping=row["status"] == STOPPING, job=state
        ),
        terms=unpack_terms(row["terms"]),
        created_at=row["created_at"],
        turn=row["n"],
        state=row.get("state", b""),
        version=row["version"],
        timers=unpack_timers(row["timers"]),
        unread=unread,
        turned_at=row["at"] if row["n"] else None,
        worker=row["worker"],
        job=None if job is None else job["id"],
        next_at=moment(job["run_at"]) if job is not None and is_delayed else None,
        error=None if job is None else unpack_error(job["error"]),
        listed=listed,
    )
