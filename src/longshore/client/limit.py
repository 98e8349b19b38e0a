"""`Limit`: how many jobs of a key run at once, or begin in a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

from longshore.core import key_limits
from longshore.core.crowd_limits import why_not_full
from longshore.core.key_limits import (
    BY_FUNCTION,
    OF_GROUP,
    OF_KIND,
    is_whole,
    why_no_bounds,
    why_no_key,
    why_not,
)
from longshore.core.key_words import bounds_words
from longshore.core.rates import parse_rate
from longshore.errors import AppError, InvalidInput
from longshore.model.limits import Full, JobLimit
from longshore.payload.references import references_in
from longshore.payload.values import unpack

KeyGiven = str | Callable[[Mapping[str, Any]], str]
"""The name of a parameter, a whole key (`name=value`), or a function that makes one."""


class Limit:
    """At most so many jobs of a key at once (`concurrency`), or in a time (`rate`).

    `key` is a parameter of the job: `key="tenant"` counts each tenant by itself, as `tenant=acme`.
    It may be a whole key (`key="api=maps"`), or a function of the arguments that returns one.
    Without a key it counts all jobs of its kind, as `kind=report`. A rule of the store
    (`longshore limits set`) for that key goes before what is declared here.

    `full` is what a submit does if so many jobs of the key are live, running or waiting: it waits
    ("wait"), it is skipped ("drop_newest"), the oldest is cancelled ("cancel_oldest"), or the
    oldest of those that do not run ("replace_waiting").
    """

    __slots__ = ("_key", "declared")

    def __init__(
        self,
        concurrency: int | None = None,
        *,
        key: KeyGiven | None = None,
        rate: str | None = None,
        burst: int | None = None,
        units: int = 1,
        full: str = Full.WAIT,
    ) -> None:
        if rate is None and burst is not None:
            raise AppError("a limit has a burst, but no rate; give rate='100/min', or no burst")
        if units < 1:
            raise AppError(f"units is {units!r}; a job takes a whole number of units, at least 1")
        made = None if rate is None else parse_rate(rate, max(1, units) if burst is None else burst)
        if why := why_no_bounds(concurrency, made):
            raise AppError(why)
        check_key(key)
        self._key = key
        name = OF_KIND if key is None else key if isinstance(key, str) else BY_FUNCTION
        self.declared = JobLimit(name, concurrency, made, units, _full(full))
        """What workers advertise of it."""
        if why := why_not_full([self.declared]):
            raise AppError(why)

    @classmethod
    def advertised(cls, declared: JobLimit) -> Limit:
        """The limit that a worker advertised."""
        limit = cls(units=declared.units)
        limit._key = None if declared.key == OF_KIND else declared.key
        limit.declared = declared
        return limit

    def __repr__(self) -> str:
        return f"<Limit of {self._key or self.declared.key!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limit) and (self._key, self.declared) == (
            other._key,
            other.declared,
        )

    def __hash__(self) -> int:
        return hash((self._key, self.declared))

    def of_job(self, kind: str, arguments: Mapping[str, Any]) -> JobLimit:
        """The limit of one job; its key is that of the arguments."""
        if self._key == BY_FUNCTION:
            words = bounds_words(self.declared.concurrency, self.declared.rate)
            raise needs_key(kind, "limit", f"a limit ({words})")
        return structs.replace(self.declared, key=key_of(self._key, kind, arguments))

    def of_turns(self, type: str) -> JobLimit:
        """The limit of the turns of a type of actors; without a key it counts all of the type."""
        if self._key is not None and not (isinstance(self._key, str) and is_whole(self._key)):
            raise InvalidInput(
                "turns have no parameters that could make a key; give a whole one, like "
                "key='api=maps', or none, to count all actors of the type"
            )
        return structs.replace(self.declared, key=self._key or f"actor={type}")

    def of_group(self) -> JobLimit:
        """The limit of a group, which counts all of its jobs."""
        if self._key is not None:
            raise InvalidInput(
                f"the limit of a group has the key {self._key!r:.100}; leave it out: it counts the "
                "jobs of the group. A limit of a job may have a key that other groups share"
            )
        return structs.replace(self.declared, key=OF_GROUP)

    def of_element(self, kind: str, arguments: Mapping[str, Any], parameter: str) -> JobLimit:
        """The limit of the jobs of a map; that of its own `parameter` each element completes."""
        if self._key == parameter:
            return self.declared
        if callable(self._key) or self._key == BY_FUNCTION:
            raise InvalidInput(
                f"job '{kind}' has a limit whose key is a function, which nothing can ask for the "
                f"elements of a map; name a parameter, like key='{parameter}', or a whole key"
            )
        return self.of_job(kind, arguments)


def check_key(key: KeyGiven | None) -> None:
    """Raises `AppError` if keys cannot be made so."""
    if isinstance(key, str) and (why := why_no_key(key if "=" in key else f"{key}=any")):
        raise AppError(why)


def key_of(key: KeyGiven | None, kind: str, arguments: Mapping[str, Any]) -> str:
    """The key of a job with these arguments; without one, that of its kind."""
    if key is None:
        return f"{OF_KIND}{kind}"
    if not isinstance(key, str):
        return key(arguments)
    if is_whole(key):
        return key
    if key not in arguments:
        raise InvalidInput(
            f"job '{kind}' is limited by its parameter '{key}', which this job was not given, or "
            f"only as a result to come; give it, or declare a key like {key}=any"
        )
    return key_limits.key_of(key, arguments[key])


def needs_key(kind: str, option: str, what: str) -> InvalidInput:
    """The error of a submit by name, which cannot call the function that makes a key."""
    return InvalidInput(
        f"job '{kind}' has {what} whose key a function of its app makes, and a submit by name "
        f"cannot call it; give the submit its own {option} with a whole key, like day=monday, or "
        "say that it has none"
    )


def _full(given: str) -> Full:
    try:
        return Full(given)
    except ValueError:
        raise AppError(f"full is {given!r}; it is one of {', '.join(Full)}") from None


def limits_given(given: object) -> tuple[Limit, ...]:
    """The limits that an app gives: one, several, or none."""
    some = given if isinstance(given, Sequence) else () if given is None else (given,)
    for one in some:
        if not isinstance(one, Limit):
            raise InvalidInput(f"limit is {one!r:.100}; give Limit(3, key='tenant')")
    return tuple(some)


def limits_of(
    limits: Sequence[Limit],
    kind: str,
    args: bytes,
    *,
    references: bool = False,
    element: str | None = None,
) -> tuple[JobLimit, ...]:
    """The limits of a job with these arguments.

    With `element`, it is the job of a map, which gives each element to that parameter.
    """
    arguments = unpack(args)
    if references:
        arguments = {name: one for name, one in arguments.items() if not any(references_in(one))}
    if element is not None:
        return tuple(limit.of_element(kind, arguments, element) for limit in limits)
    found = tuple(limit.of_job(kind, arguments) for limit in limits)
    if why := why_not(found) or why_not_full(found):
        raise InvalidInput(f"job '{kind}': {why}")
    return found
