"""The rules of limits in the SQLite store: set, removed, listed."""

from __future__ import annotations

from typing import Final

import msgspec

from longshore.core.lane_rules import is_of_lanes
from longshore.model.limits import LimitRule, Rate
from longshore.store.rows import moment
from longshore.store.sqlite.transaction import Snapshot, Transaction

_RULES: Final = """SELECT pattern, concurrency, rate_units, rate_per_s, rate_burst, set_at, weight
    FROM limit_rule ORDER BY pattern"""
_SET_RULE: Final = """INSERT INTO limit_rule VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET concurrency = excluded.concurrency, rate_units = excluded.rate_units,
        rate_per_s = excluded.rate_per_s, rate_burst = excluded.rate_burst,
        set_at = excluded.set_at, weight = excluded.weight"""


def set_limit(tx: Transaction, rule: LimitRule) -> None:
    """Sets the rule for a pattern."""
    rate = (None, None, None) if rule.rate is None else msgspec.structs.astuple(rule.rate)
    tx.execute(_SET_RULE, (rule.pattern, rule.concurrency, *rate, tx.now, rule.weight))
    tx.remembered.lane_rules = None


def remove_limit(tx: Transaction, pattern: str) -> bool:
    """Removes the rule for a pattern; False if there is none."""
    tx.remembered.lane_rules = None
    return tx.execute("DELETE FROM limit_rule WHERE pattern = ?", (pattern,)).rowcount > 0


def limit_rules(tx: Snapshot) -> list[LimitRule]:
    """Every rule, by pattern."""
    return [
        LimitRule(pattern, most, Rate(*rate) if rate[0] is not None else None, moment(at), weight)
        for pattern, most, *rate, at, weight in tx.execute(_RULES)
    ]


def rules_of_lanes(tx: Transaction) -> list[LimitRule]:
    """The rules for kinds and queues, as the last transaction left them."""
    if tx.remembered.lane_rules is None:
        tx.remembered.lane_rules = [one for one in limit_rules(tx) if is_of_lanes(one.pattern)]
    return tx.remembered.lane_rules
