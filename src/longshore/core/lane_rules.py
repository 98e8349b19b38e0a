"""Rules for kinds and queues: they limit whole lanes, whatever keys the jobs name.

Theory. A rule whose pattern is about `kind=` or `queue=` limits every job of these kinds and
queues. Nothing is written into their rows: a job's lane (queue, kind, target) says which such keys
it counts for. What runs of a key is what runs in its lanes, so whatever ends an attempt frees its
place, and what began before the rule counts too. Only claims that ask `limited_starts.Starts` start
jobs of such lanes; they lock the key, and count in a later statement. A key without room closes its
lanes: claims pass over them, and no job is put behind anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Final

from msgspec.structs import replace

from longshore.core.key_limits import OF_KIND, rule_for
from longshore.core.lifecycle import OWNED
from longshore.model.depth import LaneDepth
from longshore.model.job import JobState
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


def with_rates(depths: Iterable[LaneDepth], rules: Iterable[LimitRule]) -> list[str]:
    """The keys with a rate of lanes that hold ready jobs."""
    rated = [rule for rule in rules if rule.rate is not None]
    lanes = [one.lane for one in depths if one.counts.get(JobState.READY)]
    return sorted({key for lane in lanes for key in lane_keys(lane.queue, lane.kind, rated)})


def held_back_by_rules(
    depths: Sequence[LaneDepth], rules: Sequence[LimitRule], spent: Set[str]
) -> list[LaneDepth]:
    """The lanes, with all ready jobs behind where a key is full, or its rate is `spent`."""
    keys = {one.lane.hash: lane_keys(one.lane.queue, one.lane.kind, rules) for one in depths}
    running: Counter[str] = Counter()
    for one in depths:
        owned = sum(one.counts.get(state, 0) for state in OWNED)
        running.update(dict.fromkeys(keys[one.lane.hash], owned))
    full = {key for key, n in running.items() if key in spent or _is_full(key, n, rules)}
    return [
        replace(one, behind=one.counts.get(JobState.READY, 0))
        if full.intersection(keys[one.lane.hash])
        else one
        for one in depths
    ]


def _is_full(key: str, running: int, rules: Sequence[LimitRule]) -> bool:
    rule = rule_for(key, rules)
    return rule is not None and rule.concurrency is not None and running >= rule.concurrency


def names_in(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """The kinds and the queues that these keys are of."""
    keys = list(keys)
    kinds = [key.removeprefix(OF_KIND) for key in keys if key.startswith(OF_KIND)]
    return kinds, [key.removeprefix(OF_QUEUE) for key in keys if key.startswith(OF_QUEUE)]
