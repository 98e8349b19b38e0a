"""`@app.actor`: makes a class a type of actors, and keeps its type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, overload

from msgspec import UNSET, Struct, UnsetType, structs

from longshore.client.actor import ActorType
from longshore.client.kind import AnyKind, Kind, Terms
from longshore.client.retry_rule import ExceptionClasses, RetryRule
from longshore.core.histories import PARAMETERS
from longshore.core.key_limits import why_not
from longshore.errors import AppError, InvalidInput
from longshore.model.actor import ActorTerms
from longshore.model.history import HistoryJob
from longshore.model.job import Options
from longshore.model.worker import Isolation

S = TypeVar("S")

RETRIES: Final = 3
"""How often a turn is tried again unless its type says otherwise.

Without any, a turn of many events could not be tried one event at a time.
"""
_NOT_FOR_ACTORS: Final = ("delay_s", "run_at", "unique_key", "expires_s", "id", "kind", "resources")


class ActorExtras(Struct, frozen=True):
    """What a type of actors declares that jobs do not have."""

    listed: Sequence[str] = ()
    history: AnyKind | None = None


Declare = Callable[
    [Any, str | None, int, Isolation | None, Terms, RetryRule, ActorExtras],
    ActorType[Any],
]
"""Takes a class, its type, version and isolation, its terms, which errors are retried, and more."""


class ActorDecorator:
    """Declares the class it is called with; called with options, returns a decorator."""

    def __init__(
        self,
        declare: Declare,
        type: str | None = None,
        version: int = 1,
        isolation: Isolation | None = None,
        terms: Terms | None = None,
        retry_rule: RetryRule | None = None,
        extras: ActorExtras | None = None,
    ) -> None:
        self._declare = declare
        self._type = type
        self._version = version
        self._isolation = isolation
        self._terms = terms or Terms().but(retries=RETRIES)
        self._retry_rule = retry_rule or RetryRule()
        self._extras = extras or ActorExtras()

    @overload
    def __call__(self, of: type[S], /) -> ActorType[S]: ...

    @overload
    def __call__(
        self,
        /,
        *,
        type: str | None = None,
        version: int = 1,
        isolation: Isolation | None = None,
        listed: Sequence[str] = (),
        history: AnyKind | None = None,
        retries: int | UnsetType = UNSET,
        retry_on: ExceptionClasses | UnsetType = UNSET,
        fail_on: ExceptionClasses | UnsetType = UNSET,
        backoff_s: float | UnsetType = UNSET,
        backoff_factor: float | UnsetType = UNSET,
        max_backoff_s: float | UnsetType = UNSET,
        jitter: float | UnsetType = UNSET,
        timeout_s: float | UnsetType | None = UNSET,
        queue: str | UnsetType = UNSET,
        priority: int | UnsetType = UNSET,
        target: str | UnsetType = UNSET,
    ) -> ActorDecorator: ...

    def __call__(
        self,
        of: Any = UNSET,
        /,
        *,
        type: str | None = None,
        version: int | None = None,
        isolation: Isolation | None = None,
        listed: Sequence[str] | None = None,
        history: AnyKind | None = None,
        retry_on: ExceptionClasses | UnsetType = UNSET,
        fail_on: ExceptionClasses | UnsetType = UNSET,
        **options: Any,
    ) -> Any:
        if "batch" in options:
            raise AppError(
                "'batch' is an option of jobs; a turn of an actor takes several events of its "
                "mailbox as it is"
            )
        for name in options:
            if name in _NOT_FOR_ACTORS:
                raise AppError(f"'{name}' is an option of jobs; an actor has none")
        type, isolation = type or self._type, isolation or self._isolation
        version = self._version if version is None else version
        terms = self._terms.but(**options)
        rule = self._retry_rule.but(retry_on, fail_on)
        extras = self._extras if listed is None else structs.replace(self._extras, listed=listed)
        extras = extras if history is None else structs.replace(extras, history=history)
        if of is UNSET:
            return ActorDecorator(self._declare, type, version, isolation, terms, rule, extras)
        return self._declare(of, type, version, isolation, terms, rule, extras)


def actor_terms(type: str, terms: Terms, history: HistoryJob | None = None) -> ActorTerms:
    """How the turns of an actor run, by what its type declares."""
    try:
        limits = tuple(limit.of_turns(type) for limit in terms.limit)
    except InvalidInput as error:
        raise AppError(f"actor '{type}': {error}") from None
    if why := why_not(limits):
        raise AppError(f"actor '{type}': {why}")
    options = Options(
        timeout_s=terms.timeout_s, retry=terms.retry, labels=terms.labels, limits=limits
    )
    return ActorTerms(terms.queue, terms.target, terms.priority, options, history)


def history_of(type: str, kind: AnyKind | None) -> HistoryJob | None:
    """The job that hears of the commits of this type, as it is stored; checks what it takes."""
    if kind is None:
        return None
    if not isinstance(kind, Kind):
        raise AppError(f"actor '{type}': history is {kind!r}; give a job, made by @app.job")
    parameters = kind.handler.signature.parameters()
    if parameters is not None and {one.name for one in parameters} != {*PARAMETERS}:
        raise AppError(
            f"actor '{type}': its history is job '{kind.kind}', which must take exactly these: "
            f"{', '.join(PARAMETERS)}"
        )
    return kind.history_job()
