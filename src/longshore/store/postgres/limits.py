"""The verbs of the PostgreSQL store about limits; `limited_claims` has the theory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import asyncpg
from msgspec.structs import astuple

from longshore.core.fairness import IDLE_S, MOST_BEFORE, NEW
from longshore.core.key_limits import KEYS_FOR_A_LANE, MOST_PAGES
from longshore.core.key_views import MOST_COUNTED, Holder, KeyWaits, key_view
from longshore.core.lane_rules import is_of_lanes
from longshore.model.fair import FairUse
from longshore.model.limits import JobLimit, KeyView, LimitRule, LimitsOpened
from longshore.ports import Hint
from longshore.store.postgres import limits_sql as sql
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.fair import give_turns, note_use
from longshore.store.postgres.fair_sql import BEFORE, FORGET_ACCOUNTS
from longshore.store.postgres.keeper import PostgresKeeper
from longshore.store.postgres.lane_rules import ready_lanes, running
from longshore.store.postgres.limited_claims import limit_of, open_keys, rooms, rules_of
from longshore.store.postgres.pauses import FORGET_PAUSES
from longshore.store.postgres.queue_waits import FORGET_WAITS
from longshore.store.rows import clean, unpack_options


class PostgresLimits(PostgresKeeper):
    """The verbs about limits."""

    _reading: ConnectionPool

    async def set_limit(self, rule: LimitRule) -> None:
        """Sets the rule for a pattern."""
        rate = (None, None, None) if rule.rate is None else astuple(rule.rate)
        values = rule.pattern, rule.concurrency, *rate, rule.weight
        await self._change_rule(rule.pattern, sql.SET_RULE, *values)

    async def remove_limit(self, pattern: str) -> bool:
        """Removes the rule for a pattern; False if there is none."""
        return bool(await self._change_rule(pattern, sql.REMOVE_RULE, pattern))

    async def _change_rule(
        self, pattern: str, statement: str, *values: object
    ) -> list[asyncpg.Record]:
        """Changes a rule. One for kinds or queues waits for what starts jobs at this moment."""
        if not is_of_lanes(pattern):
            return await self._keeping.fetch(statement, *values)

        async def work(tx: Transaction) -> list[asyncpg.Record]:
            await tx.fetch(sql.TELL_NEWS)
            return await tx.fetch(statement, *values)

        rows = await self._keeping.run(work, sql.LOCK_GATE)
        self._sender.tell(Hint.WORK)
        return rows

    async def limit_rules(self) -> list[LimitRule]:
        """Every rule, by pattern."""
        return rules_of(await self._reading.fetch(sql.RULES))

    async def limit_key(self, key: str) -> KeyView:
        """A key as it is now."""
        holders = await self._reading.fetch(sql.HOLDERS, key)
        behind = await self._reading.fetch(sql.LANES_BEHIND, [key])
        first = [row["options"] for row in (*holders, *behind)][:1]
        limit = limit_of(unpack_options(first[0]), key) if first else JobLimit(key)
        rules = await self.limit_rules()
        [row] = await self._reading.fetch(sql.EVEN_AT, key)
        began = {one["number"]: one["began"] for one in holders}
        began |= dict(await running(self._reading, key, rules))
        held = [Holder(*one) for one in sorted(began.items())]
        is_wanted = bool(await ready_lanes(self._reading, rules, [key]))
        [found] = await self._reading.fetch(sql.WAITS_OF_KEY, key, MOST_COUNTED)
        of_key = row["even_at"], row["now"], KeyWaits(*found)
        return key_view(limit, rules, held, *of_key, is_wanted=is_wanted)

    async def limit_keys(
        self, after: str = "", most: int = 25, *, waited_for: bool = False
    ) -> list[str]:
        """The first so many keys after one that the store knows something of."""
        statement = sql.KEYS_BEHIND if waited_for else sql.KNOWN_KEYS
        rows = await self._reading.fetch(statement, clean(after), most)
        return [row["key"] for row in rows if row["key"] != NEW]

    async def forget_lanes(self, most: int = 1000) -> int:
        """Forgets lanes without jobs, so many keys and slots that nobody holds, and old pauses."""
        forgotten = await super().forget_lanes(most)
        await self._forget_all(sql.FORGET_HOLDS, KEYS_FOR_A_LANE * most)
        await self._keeping.fetch(sql.ADD_UP, KEYS_FOR_A_LANE * most)
        await self._forget_all(sql.FORGET_KEYS, KEYS_FOR_A_LANE * most)
        await self._keeping.fetch(FORGET_ACCOUNTS, most, IDLE_S)
        await self._keeping.fetch(FORGET_PAUSES, most)
        await self._keeping.fetch(FORGET_WAITS, most)
        return forgotten

    async def _forget_all(self, statement: str, most: int) -> None:
        """Forgets so many at once, again and again while there are more."""
        for _ in range(MOST_PAGES):
            [row] = await self._keeping.fetch(statement, most)
            if row["n"] < most:
                return

    async def open_limits(self, after: str = "", most: int = 1000) -> LimitsOpened:
        """Looks at so many keys behind which jobs wait: see the port."""
        keys = [row["key"] for row in await self._keeping.fetch(sql.KEYS_BEHIND, after, most)]
        ready, next_s = await self._open_keys(keys) if keys else (Counter[int](), None)
        if ready:
            self._sender.tell(Hint.WORK)
        if not after:
            # Each dispatcher looks at them by itself: nobody need be told.
            in_lanes, lanes_next_s = await self._open_lanes()
            ready += in_lanes
            next_s = min((one for one in (next_s, lanes_next_s) if one is not None), default=None)
        return LimitsOpened(dict(ready), next_s, keys[-1] if len(keys) == most else "")

    async def _open_keys(self, keys: Sequence[str]) -> tuple[Counter[int], float | None]:
        async def work(tx: Transaction) -> tuple[Counter[int], float | None]:
            ready: Counter[int] = Counter()
            if NEW in keys:
                ready = await self._give_turns(tx)
            limits = [key for key in keys if key != NEW]
            if not limits:
                return ready, None
            # The row of a key may have been removed at the moment when a job went behind it.
            await tx.fetch(sql.ADD_KEYS, limits)
            opened, next_s = await open_keys(tx, limits, self._pump.cursors, waits=False)
            return ready + opened, next_s

        return await self._keeping.run(work)

    async def _open_lanes(self) -> tuple[Counter[int], float | None]:
        """What may begin in lanes under rules for kinds and queues."""
        lanes = await ready_lanes(self._reading, await self.limit_rules())
        if not lanes:
            return Counter(), None
        return await self._keeping.run(lambda tx: rooms(tx, lanes))

    async def _give_turns(self, tx: Transaction) -> Counter[int]:
        """Gives turns to jobs that became ready; from now on claims of their lanes do so, too."""
        fair = self._pump.fair
        lanes = {row["lane"] for row in await tx.fetch(sql.LANES_BEHIND, [NEW])}
        fair.with_new |= lanes
        return await give_turns(tx, lanes, fair.cursors)

    async def note_use(self, uses: Sequence[FairUse]) -> None:
        """Attempts at jobs of these fair keys ended, after so long."""
        if uses:
            await self._keeping.run(lambda tx: note_use(tx, uses))

    async def fair_place(self, job: UUID) -> tuple[int, bool]:
        """How many ready jobs of its key are before a ready job, and whether it has no turn yet."""
        rows = await self._reading.fetch(BEFORE, job, MOST_BEFORE)
        return (rows[0]["before"], rows[0]["is_new"]) if rows else (0, False)
