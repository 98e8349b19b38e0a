"""What a job needs of a machine beside a slot: CPUs, memory, disk, devices.

A job's needs are rounded up to a *shape*, a text such as `cpu=2;gpu=1;memory=4096m`. It is a part
of the job's target, and so of its lane: all jobs of a lane need the same. A worker says what it
has. A dispatcher claims from a lane with a shape only for workers on which one more such job fits
now, so no job is ever claimed and put back. Rounding keeps the number of lanes small.

`cpu` counts cores, `memory` and `disk` bytes; any other name is a device of which a worker has a
whole number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import ceil, isfinite
from types import MappingProxyType
from typing import Final

from longshore.errors import InvalidInput

CPU: Final = "cpu"
SIZES: Final = frozenset({"memory", "disk"})
MAX_RESOURCES: Final = 8
"""How many resources a job may name, and a worker may have."""
MAX_AMOUNT: Final = 2.0**60
BETWEEN: Final = ";"
"""What stands between the parts of a target."""

Amounts = Mapping[str, float]
NOTHING: Final[Amounts] = MappingProxyType({})

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])i?b?)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_MIB: Final = 1024**2
_EXAMPLE: Final = "give it like cpu=2,memory=4g,gpu=1"


def checked(given: Mapping[str, object]) -> dict[str, float]:
    """Amounts as numbers, by name; raises `InvalidInput` that names what is wrong."""
    if len(given) > MAX_RESOURCES:
        raise InvalidInput(f"there are {len(given):,} resources; {MAX_RESOURCES} are allowed")
    return {name: _amount(name, value) for name, value in given.items()}


def is_device(name: str) -> bool:
    """Whether a resource is something of which a worker has a whole number."""
    return name != CPU and name not in SIZES


def parse(text: str) -> dict[str, float]:
    """The amounts in a text like `cpu=2,memory=4g`; raises `InvalidInput`."""
    given: dict[str, object] = {}
    for part in filter(None, (part.strip() for part in re.split("[,;]", text))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or name in given:
            raise InvalidInput(f"resources have {part!r:.50}; {_EXAMPLE}, each once")
        given[name] = value
    return checked(given)


def _amount(name: str, value: object) -> float:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r:.50} is no name of a resource: use small letters, digits, - and _"
        )
    if isinstance(value, str):
        found = _AMOUNT.fullmatch(value.strip())
        if found is None or (found[2] and name not in SIZES):
            raise InvalidInput(f"resource {name} is {value!r:.50}; {_EXAMPLE}")
        value = float(found[1]) * _UNITS[(found[2] or "").lower()]
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InvalidInput(f"resource {name} is {value!r:.50}; {_EXAMPLE}")
    if not 0 <= value <= MAX_AMOUNT:
        raise InvalidInput(f"resource {name} is {value!r}; give 0 to {MAX_AMOUNT:g}")
    if is_device(name) and value != int(value):
        raise InvalidInput(f"resource {name} is {value!r}; devices are whole numbers")
    return float(value)


def shape_of(amounts: Amounts) -> str:
    """The shape of a job that needs these amounts; empty if it needs none."""
    needed = sorted((name, amount) for name, amount in amounts.items() if amount > 0)
    return BETWEEN.join(f"{name}={_rounded(name, amount)}" for name, amount in needed)


def _rounded(name: str, amount: float) -> str:
    """An amount, rounded up: CPUs to quarters, past 4 to whole ones, sizes by at most a quarter."""
    if name == CPU:
        return _text(ceil(amount) if amount > 4 else ceil(amount * 4) / 4)
    if name in SIZES:
        mib = max(1, ceil(amount / _MIB))
        step = 1 << max(0, mib.bit_length() - 3)
        return f"{-(-mib // step) * step}m"
    return _text(amount)


def _text(amount: float) -> str:
    """A number as `parse` takes it: without an exponent."""
    return f"{amount:.6f}".rstrip("0").rstrip(".")


@lru_cache(maxsize=4096)
def amounts_of(shape: str) -> Amounts:
    """What a shape needs."""
    return MappingProxyType(parse(shape)) if shape else NOTHING


def with_shape(target: str, shape: str) -> str:
    """The target of a job of this shape, for a machine of this name."""
    return f"{target}{BETWEEN}{shape}" if shape else target


@lru_cache(maxsize=4096)
def split(target: str) -> tuple[str, str]:
    """The name of the machine in a target, and the shape."""
    name, _, shape = target.partition(BETWEEN)
    return name, shape


def how_many(free: Amounts, needed: Amounts) -> int:
    """How many jobs with these needs fit into what is free; needs are more than 0."""
    least = min((free.get(name, 0.0) / amount for name, amount in needed.items()), default=0.0)
    # Sums of quarters and of whole numbers are exact; the rest is for amounts that users chose.
    return max(0, int(least + 1e-9))


def free_share(free: Amounts, total: Amounts) -> float:
    """How much of a machine is free: the sum of the parts of all that it has."""
    return sum(free.get(name, 0.0) / amount for name, amount in total.items() if amount > 0)


def has(total: Amounts, shape: str) -> bool:
    """Whether a job of this shape fits on a machine with nothing else on it."""
    return not shape or how_many(total, amounts_of(shape)) > 0


def taken(free: Amounts, shape: str, times: int = 1) -> dict[str, float]:
    """What is free after jobs of this shape took theirs, or gave it back (below zero)."""
    left = dict(free)
    for name, amount in amounts_of(shape).items():
        left[name] = left.get(name, 0.0) - times * amount
    return left


def shown(name: str, amount: float) -> str:
    """An amount for people: `memory 4 GiB`, `cpu 2`."""
    if name not in SIZES:
        return f"{name} {amount:g}"
    for unit, size in (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2)):
        if amount >= size:
            return f"{name} {amount / size:.4g} {unit}"
    return f"{name} {amount:,.0f} bytes"


def lacking(total: Amounts, shape: str) -> list[str]:
    """What a machine has too little of for a job of this shape, in words."""
    return [
        f"{shown(name, amount)} is needed, {shown(name, total.get(name, 0.0))} is there"
        for name, amount in amounts_of(shape).items()
        if total.get(name, 0.0) + 1e-9 < amount
    ]


def as_given(amounts: Amounts) -> str:
    """Amounts as a text that `parse` takes."""
    return ",".join(f"{name}={_text(amount)}" for name, amount in amounts.items())


def in_words(shape: str) -> str:
    """What a shape takes, for people."""
    return ", ".join(shown(name, amount) for name, amount in amounts_of(shape).items())
