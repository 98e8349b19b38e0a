"""The verbs of the PostgreSQL store about limits; `limited_claims` has the theory."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import astuple

from longshore.core.key_views import MOST_COUNTED, Holder, KeyWaits, key_view
from longshore.model.limits import JobLimit, KeyView, LimitRule, LimitsOpened
from longshore.ports import Hint
from longshore.store.postgres import limits_sql as sql
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.keeper import PostgresKeeper
from longshore.store.postgres.limited_claims import limit_of, open_keys, rules_of
from longshore.store.postgres.pauses import FORGET_PAUSES
from longshore.store.postgres.queue_waits import FORGET_WAITS
from longshore.store.rows import unpack_options


class PostgresLimits(PostgresKeeper):
    """The verbs about limits."""

    _reading: ConnectionPool

    async def set_limit(self, rule: LimitRule) -> None:
        """Sets the rule for a pattern."""
        rate = (None, None, None) if rule.rate is None else astuple(rule.rate)
        await self._keeping.fetch(sql.SET_RULE, rule.pattern, rule.concurrency, *rate)

    async def remove_limit(self, pattern: str) -> bool:
        """Removes the rule for a pattern; False if there is none."""
        return bool(await self._keeping.fetch(sql.REMOVE_RULE, pattern))

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
        held = [Holder(one["number"], one["began"]) for one in holders]
        [waits] = await self._reading.fetch(sql.WAITS_OF_KEY, key, MOST_COUNTED)
        return key_view(limit, rules, held, row["even_at"], row["now"], KeyWaits(*waits))

    async def forget_lanes(self, most: int = 1000) -> int:
        """Forgets lanes without jobs, so many keys and slots that nobody holds, and old pauses."""
        forgotten = await super().forget_lanes(most)
        await self._keeping.fetch(sql.FORGET_HOLDS, most)
        await self._keeping.fetch(sql.ADD_UP, most)
        await self._keeping.fetch(sql.FORGET_KEYS, most)
        await self._keeping.fetch(FORGET_PAUSES, most)
        await self._keeping.fetch(FORGET_WAITS, most)
        return forgotten

    async def open_limits(self, after: str = "", most: int = 1000) -> LimitsOpened:
        """Looks at so many keys behind which jobs wait: see the port."""
        keys = [row["key"] for row in await self._keeping.fetch(sql.KEYS_BEHIND, after, most)]
        if not keys:
            return LimitsOpened()

        async def work(tx: Transaction) -> tuple[Counter[int], float | None]:
            # The row of a key may have been removed at the moment when a job went behind it.
            await tx.fetch(sql.ADD_KEYS, keys)
            return await open_keys(tx, keys, self._pump.cursors, waits=False)

        ready, next_s = await self._keeping.run(work)
        if ready:
            self._sender.tell(Hint.WORK)
        return LimitsOpened(dict(ready), next_s, keys[-1] if len(keys) == most else "")
