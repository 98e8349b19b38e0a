"""The keys of limits and the rules over them: what is sound, and which rule wins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from longshore.errors import InvalidInput
from longshore.model.limits import JobLimit, LimitRule, Rate

MOST_KEYS: Final = 8
"""How many keys a job may count for."""
MOST_RULES: Final = 1000
"""How many rules there may be: a claim of a job with limits reads all of them."""
KEYS_FOR_A_LANE: Final = 10
"""A store forgets so many keys in one transaction for each lane that it may forget."""
MOST_PAGES: Final = 10
"""So many such transactions follow each other: what is left waits for the next look."""
MOST_KEY_CHARS: Final = 200
MOST_UNITS: Final = 1_000_000_000
LONGEST_S: Final = 366 * 86_400.0
LEAST_WEIGHT: Final = 0.01
MOST_WEIGHT: Final = 1000.0

OF_KIND: Final = "kind="
"""What stands for the key of a limit of all jobs of a kind, whatever the kind is."""
OF_GROUP: Final = "group="
"""What stands for the key of the limit of a group, whatever the group is."""
BY_FUNCTION: Final = "()"
"""What stands for a key that a function of the app makes of each job: nothing else can make it."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Bounds(NamedTuple):
    """What limits a key: a rule, or what its job brings. `pattern` is that of the rule."""

    concurrency: int | None = None
    rate: Rate | None = None
    pattern: str = ""


def why_no_key(key: str) -> str | None:
    """Why this is no key; None if it is one."""
    name, equals, value = key.partition("=")
    if not equals or not _NAME.fullmatch(name):
        return f"'{key}' is no key of a limit: write name=value, such as tenant=acme"
    if not value or not value.isprintable() or "*" in value:
        return f"the value of the key '{key}' must be printable text without *"
    if len(key) > MOST_KEY_CHARS:
        return (
            f"the key '{key[:40]}…' has {len(key)} characters; at most {MOST_KEY_CHARS} are taken"
        )
    return None


def key_of(parameter: str, value: object) -> str:
    """The key of a job that is limited by this argument."""
    return f"{parameter}={str(value).lower() if isinstance(value, bool) else value}"


def group_key(group: UUID) -> str:
    """The key of all jobs of a group that has a limit."""
    return f"{OF_GROUP}{group}"


def is_whole(key: str) -> bool:
    """Whether this names a key; otherwise an argument or the kind of the job completes it."""
    return "=" in key[:-1]


def with_some_values(limits: Iterable[JobLimit]) -> tuple[JobLimit, ...]:
    """The limits as they can be checked before each job completes their keys."""
    return tuple(
        one if is_whole(one.key) else replace(one, key=_some_key(one.key, place))
        for place, one in enumerate(limits)
    )


def _some_key(key: str, place: int) -> str:
    return f"function-{place}=any" if key == BY_FUNCTION else f"{key.removesuffix('=')}=any"


def limits_for(limits: Iterable[JobLimit], given: Mapping[str, object]) -> tuple[JobLimit, ...]:
    """The limits of one job whose arguments complete some of their keys.

    Raises `InvalidInput` if one does not make a key.
    """
    found = tuple(
        one if is_whole(one.key) else replace(one, key=key_of(one.key, given.get(one.key)))
        for one in limits
    )
    for one in found:
        if why := why_no_key(one.key):
            raise InvalidInput(why)
    return found


def why_no_pattern(pattern: str) -> str | None:
    """Why no rule can have this pattern; None if one can."""
    if not pattern.endswith("*"):
        return why_no_key(pattern)
    name, _, value = pattern.partition("=")
    return why_no_key(f"{name}={value[:-1] or 'any'}")


def why_not(limits: Sequence[JobLimit]) -> str | None:
    """Why a job cannot have these limits; None if it can."""
    if len(limits) > MOST_KEYS:
        return f"a job has at most {MOST_KEYS} keys of limits, not {len(limits)}"
    keys = [limit.key for limit in limits]
    for limit in limits:
        if keys.count(limit.key) > 1:
            return f"the key '{limit.key}' is given twice; give it once, with all its limits"
        if why := why_no_key(limit.key) or why_no_bounds(limit.concurrency, limit.rate):
            return why
        if not 1 <= limit.units <= MOST_UNITS:
            return f"a job takes at least one unit of the rate of '{limit.key}'"
        if limit.rate is not None and limit.units > limit.rate.burst:
            return (
                f"a job that takes {limit.units} units of '{limit.key}' can never begin with a "
                f"burst of {limit.rate.burst}; raise the burst, or take fewer units"
            )
    return None


def why_no_rule(rule: LimitRule) -> str | None:
    """Why this cannot be a rule; None if it can."""
    if rule.concurrency is None and rule.rate is None and rule.weight is None:
        return f"a rule for '{rule.pattern}' needs a concurrency, a rate or a weight"
    if rule.weight is not None and not LEAST_WEIGHT <= rule.weight <= MOST_WEIGHT:
        return f"a weight is a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, not {rule.weight:g}"
    return why_no_pattern(rule.pattern) or why_no_bounds(rule.concurrency, rule.rate)


def why_no_bounds(concurrency: int | None, rate: Rate | None) -> str | None:
    """Why nothing can be limited so; None if it can. A concurrency of 0 lets nothing begin."""
    if concurrency is not None and not 0 <= concurrency <= MOST_UNITS:
        return f"a concurrency is a number from 0 to {MOST_UNITS}, not {concurrency}"
    if rate is None:
        return None
    if not (1 <= rate.units <= MOST_UNITS and 0 < rate.per_s <= LONGEST_S):
        return "a rate is at least one unit, in more than 0 seconds and at most a year"
    if not 1 <= rate.burst <= MOST_UNITS:
        return f"a burst is a number from 1 to {MOST_UNITS}, not {rate.burst}"
    return None


def matches(pattern: str, key: str) -> bool:
    """Whether a rule with this pattern is about a key."""
    if pattern.endswith("*"):
        return key.startswith(pattern[:-1])
    return key == pattern


def rule_for(key: str, rules: Iterable[LimitRule]) -> LimitRule | None:
    """The most specific rule that limits a key: the key itself, or else the longest pattern."""
    found = [rule for rule in rules if _limits(rule) and matches(rule.pattern, key)]
    return max(found, key=specific) if found else None


def _limits(rule: LimitRule) -> bool:
    """Whether a rule does more than to weigh keys."""
    return rule.concurrency is not None or rule.rate is not None


def specific(rule: LimitRule) -> tuple[bool, int]:
    """The more specific of two rules about one key is greater."""
    return not rule.pattern.endswith("*"), len(rule.pattern)


def bounds_of(limit: JobLimit, rules: Iterable[LimitRule]) -> Bounds:
    """What limits the key of a job: a rule goes before what the job brings."""
    rule = rule_for(limit.key, rules)
    if rule is None:
        return Bounds(limit.concurrency, limit.rate)
    return Bounds(rule.concurrency, rule.rate, rule.pattern)
