"""`Limit`: how many jobs of a key run at once, or begin in a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longshore.core.key_limits import why_no_bounds, why_no_key, why_not
from longshore.core.rates import parse_rate
from longshore.errors import AppError, InvalidInput
from longshore.model.limits import JobLimit
from longshore.payload.values import unpack

KeyGiven = str | Callable[[Mapping[str, Any]], str]
"""The name of a parameter, a whole key (`name=value`), or a function that makes one."""


class Limit:
    """At most so many jobs of a key at once (`concurrency`), or in a time (`rate`).

    `key` is a parameter of the job: `key="tenant"` counts each tenant by itself, as `tenant=acme`.
    It may be a whole key (`key="api=maps"`), or a function of the arguments that returns one. A
    rule of the store (`longshore limits set`) for that key goes before what is declared here.
    """

    __slots__ = ("_key", "declared")

    def __init__(
        self,
        concurrency: int | None = None,
        *,
        key: KeyGiven,
        rate: str | None = None,
        burst: int | None = None,
        units: int = 1,
    ) -> None:
        if rate is None and burst is not None:
            raise AppError("a limit has a burst, but no rate; give rate='100/min', or no burst")
        if units < 1:
            raise AppError(f"units is {units!r}; a job takes a whole number of units, at least 1")
        made = None if rate is None else parse_rate(rate, max(1, units) if burst is None else burst)
        name = key if isinstance(key, str) else ""
        if why := why_no_bounds(concurrency, made):
            raise AppError(why)
        if isinstance(key, str) and (why := why_no_key(key if "=" in key else f"{key}=any")):
            raise AppError(why)
        self._key = key
        self.declared = JobLimit(name, concurrency, made, units)
        """What workers advertise of it; a function has no name there."""

    @classmethod
    def advertised(cls, declared: JobLimit) -> Limit:
        """The limit that a worker advertised."""
        limit = cls(key=declared.key, units=declared.units)
        limit.declared = declared
        return limit

    def __repr__(self) -> str:
        return f"<Limit of {self.declared.key or self._key!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limit) and (self._key, self.declared) == (
            other._key,
            other.declared,
        )

    def __hash__(self) -> int:
        return hash((self._key, self.declared))

    def of_job(self, kind: str, arguments: Mapping[str, Any]) -> JobLimit:
        """The limit of one job; its key is that of the arguments."""
        bounds = self.declared.concurrency, self.declared.rate, self.declared.units
        return JobLimit(self._key_of(kind, arguments), *bounds)

    def _key_of(self, kind: str, arguments: Mapping[str, Any]) -> str:
        if not isinstance(self._key, str):
            return self._key(arguments)
        if "=" in self._key:
            return self._key
        if self._key not in arguments:
            raise InvalidInput(
                f"job '{kind}' is limited by its parameter '{self._key}', which this job was not "
                f"given; give it, or declare a key like {self._key}=any"
            )
        return f"{self._key}={_text(arguments[self._key])}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def limits_given(given: object) -> tuple[Limit, ...]:
    """The limits that an app gives: one, several, or none."""
    some = given if isinstance(given, Sequence) else () if given is None else (given,)
    for one in some:
        if not isinstance(one, Limit):
            raise InvalidInput(f"limit is {one!r:.100}; give Limit(3, key='tenant')")
    return tuple(some)


def limits_of(limits: Sequence[Limit], kind: str, args: bytes) -> tuple[JobLimit, ...]:
    """The limits of a job with these arguments."""
    arguments = unpack(args)
    found = tuple(limit.of_job(kind, arguments) for limit in limits)
    if why := why_not(found):
        raise InvalidInput(f"job '{kind}': {why}")
    return found
