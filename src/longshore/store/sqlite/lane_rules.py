"""Which lanes rules for kinds and queues limit, and what runs in them (see `core.lane_rules`).

What runs in a lane says the tally, which every move keeps in its own transaction. `pending` is what
a transaction has not written of it so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from longshore.core.key_limits import rule_for
from longshore.core.key_views import Holder
from longshore.core.lane_rules import keys_of, lane_keys, names_in, rules_only
from longshore.model.limits import LimitRule
from longshore.store.sqlite.states import OWNED_LIST
from longshore.store.sqlite.transaction import Snapshot

_OF_KEYS: Final = """(lane.kind IN (SELECT value FROM json_each(:kinds))
        OR lane.queue IN (SELECT value FROM json_each(:queues)))"""
_IS_READY: Final = """EXISTS (SELECT 1 FROM job INDEXED BY job_ready
        WHERE job.state = 'ready' AND job.blocked_on IS NULL AND job.lane = lane.hash)"""
_LANES: Final = "SELECT hash, queue, kind FROM lane WHERE hash IN (SELECT value FROM json_each(?))"
_READY: Final = f"SELECT hash, queue, kind FROM lane WHERE {_IS_READY}"
_READY_OF_KEYS: Final = f"{_READY} AND {_OF_KEYS}"
_OWNED: Final = f"""
    SELECT hash, queue, kind, (
        SELECT coalesce(sum(n), 0) FROM tally
        WHERE tally.lane = lane.hash AND tally.state IN {OWNED_LIST})
    FROM lane WHERE {_OF_KEYS}"""
_WITH_SLOT: Final = f"""
    SELECT hold.key, count(*) FROM hold CROSS JOIN job ON job.number = hold.job
    WHERE hold.key IN (SELECT value FROM json_each(?))
        AND hold.key IN ('kind=' || job.kind, 'queue=' || job.queue)
        AND job.token = hold.token AND job.state IN {OWNED_LIST}
    GROUP BY hold.key"""
_HOLDERS: Final = f"""
    SELECT number, started_at FROM job INDEXED BY job_owned
    WHERE state IN {OWNED_LIST} AND (kind IN (SELECT value FROM json_each(:kinds))
        OR queue IN (SELECT value FROM json_each(:queues)))"""


def lanes_under_rules(
    tx: Snapshot, lanes: Iterable[int], rules: Collection[LimitRule]
) -> dict[int, tuple[str, ...]]:
    """Those of these lanes that rules limit, with the keys that their jobs count for."""
    rules = rules_only(rules)
    return _ruled(tx.execute(_LANES, (_json(lanes),)).fetchall(), rules) if rules else {}


def ready_lanes(
    tx: Snapshot, rules: Collection[LimitRule], keys: Collection[str] | None = None
) -> dict[int, tuple[str, ...]]:
    """The lanes under rules that hold ready jobs; with `keys`, only those that count for one."""
    rules = rules_only(rules)
    if not rules or (keys is not None and not keys):
        return {}
    if keys is None:
        return _ruled(tx.execute(_READY).fetchall(), rules)
    return _ruled(tx.execute(_READY_OF_KEYS, _named(keys)).fetchall(), rules)


def others(tx: Snapshot, keys: Iterable[str], rules: Collection[LimitRule]) -> Counter[str]:
    """How many attempts count for these keys without a slot: they only run in lanes of them."""
    ruled = {key for key in keys if rule_for(key, rules_only(rules)) is not None}
    if not ruled:
        return Counter()
    found: Counter[str] = Counter()
    for hash, queue, kind, owned in tx.execute(_OWNED, _named(ruled)).fetchall():
        for key in ruled.intersection(keys_of(queue, kind)):
            found[key] += owned + tx.pending_owned(hash)
    found.subtract(dict(tx.execute(_WITH_SLOT, (_json(ruled),)).fetchall()))
    return found


def holders(tx: Snapshot, key: str, rules: Collection[LimitRule]) -> list[Holder]:
    """The jobs that run in the lanes of a key for which there is a rule."""
    if rule_for(key, rules_only(rules)) is None:
        return []
    return [Holder(*row) for row in tx.execute(_HOLDERS, _named([key]))]


def _ruled(
    rows: Iterable[tuple[int, str, str]], rules: Collection[LimitRule]
) -> dict[int, tuple[str, ...]]:
    found = {hash: lane_keys(queue, kind, rules) for hash, queue, kind in rows}
    return {hash: keys for hash, keys in found.items() if keys}


def _named(keys: Iterable[str]) -> dict[str, str]:
    kinds, queues = names_in(keys)
    return {"kinds": _json(kinds), "queues": _json(queues)}


def _json(values: Iterable[str | int]) -> str:
    return msgspec.json.encode(list(values)).decode()
