"""Rules for kinds and queues: they limit whole lanes, whatever keys the jobs name.

Theory. A rule whose pattern is about `kind=` or `queue=` limits every job of these kinds and
queues. Nothing is written into their rows: a job's lane (queue, kind, target) says which such keys
it counts for. What runs of a key is what runs in its lanes, so whatever ends an attempt frees its
place, and what began before the rule counts too. Only claims that ask `limited_starts.Starts` start
jobs of such lanes; they lock the key, and count in a later statement. A key without room closes its
lanes: claims pass over them, and no job is put behind anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from longshore.core.key_limits import OF_KIND, rule_for
from longshore.model.limits import LimitRule

OF_QUEUE: Final = "queue="
"""How the keys of queues begin."""


def is_of_lanes(pattern: str) -> bool:
    """Whether this is the pattern of a rule for kinds or queues, or a key of one."""
    return pattern.startswith((OF_KIND, OF_QUEUE))


def rules_only(rules: Iterable[LimitRule]) -> list[LimitRule]:
    """Those of these rules that are for kinds or queues."""
    return [rule for rule in rules if is_of_lanes(rule.pattern)]


def keys_of(queue: str, kind: str) -> tuple[str, str]:
    """The key of a kind and the key of a queue."""
    return f"{OF_KIND}{kind}", f"{OF_QUEUE}{queue}"


def lane_keys(queue: str, kind: str, rules: Iterable[LimitRule]) -> tuple[str, ...]:
    """Those of the keys of a kind and a queue for which there are rules."""
    rules = rules_only(rules)
    return tuple(key for key in keys_of(queue, kind) if rule_for(key, rules)) if rules else ()


def names_in(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """The kinds and the queues that these keys are of."""
    keys = list(keys)
    kinds = [key.removeprefix(OF_KIND) for key in keys if key.startswith(OF_KIND)]
    return kinds, [key.removeprefix(OF_QUEUE) for key in keys if key.startswith(OF_QUEUE)]
