"""Options of a submit as files, bodies of requests and command lines describe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from longshore.client.debounce import Debounce
from longshore.client.limit import Limit
from longshore.client.pairs import value_of, values_of
from longshore.errors import AppError, InvalidInput

T = TypeVar("T")

NONE: Final = "none"
"""What stands for no limit, no debounce or no fair key on the command line."""
_LIMIT: Final = {
    "concurrency": int,
    "key": str,
    "rate": str,
    "burst": int,
    "units": int,
    "full": str,
}
_DEBOUNCE: Final = {"wait_s": float, "max_wait_s": float, "key": str}
_WORDS: Final = {int: "a whole number", float: "a number of seconds", str: "text"}


def described(name: str, value: object) -> object:
    """The value of an option; only limits and debounces are not plain values."""
    match name:
        case "limit":
            return described_limits(value)
        case "debounce":
            return described_debounce(value)
    return value


def described_limits(given: object) -> tuple[Limit, ...]:
    """The limits that are described: a number, `{concurrency: 3, key: …}`, a list, or none."""
    some = given if isinstance(given, list) else [] if given is None else [given]
    return tuple(map(_limit, some))


def described_debounce(given: object) -> Debounce | None:
    """The debounce that is described: seconds, `{wait_s: 5, key: …}`, or none."""
    if given is None:
        return None
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = {"wait_s": given}
    if not isinstance(given, dict) or not given.keys() <= _DEBOUNCE.keys() or "wait_s" not in given:
        raise InvalidInput(
            f"debounce is {given!r:.100}; give seconds, or wait_s with some of max_wait_s and key, "
            "like {wait_s: 5, max_wait_s: 60, key: doc}"
        )
    return _made(Debounce, "a debounce", given, _DEBOUNCE)


def _limit(given: object) -> Limit:
    if isinstance(given, int) and not isinstance(given, bool):
        return _made(Limit, "a limit", {"concurrency": given}, _LIMIT)
    if not isinstance(given, dict) or not given.keys() <= _LIMIT.keys():
        raise InvalidInput(
            f"limit is {given!r:.100}; give a number, or some of {', '.join(_LIMIT)}, like "
            "{concurrency: 3, key: tenant}"
        )
    return _made(Limit, "a limit", given, _LIMIT)


def _made(
    make: Callable[..., T], what: str, given: Mapping[str, Any], types: Mapping[str, type]
) -> T:
    for name, value in given.items():
        wanted = types[name]
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            raise InvalidInput(f"{name} of {what} is {value!r:.100}; it must be {_WORDS[wanted]}")
    try:
        return make(**given)
    except AppError as error:
        raise InvalidInput(str(error)) from None


def options_in_texts(
    limits: Sequence[str], debounce: str | None, fair_by: str | None
) -> dict[str, object]:
    """The options that `--limit`, `--debounce` and `--fair-by` give."""
    given: dict[str, object] = {}
    if limits:
        found = [_value("limit", text) for text in limits]
        given["limit"] = described_limits([one for one in found if one is not None])
    if debounce is not None:
        given["debounce"] = described_debounce(_value("debounce", debounce))
    if fair_by is not None:
        given["fair_by"] = None if fair_by == NONE else fair_by
    return given


def _value(option: str, text: str) -> object:
    """What a text describes: a number, `key=tenant,concurrency=3`, JSON, or nothing."""
    if text == NONE:
        return None
    if "=" not in text or text.startswith("{"):
        return value_of(option, text)
    return values_of(text.split(","))
