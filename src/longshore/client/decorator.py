"""`@app.job`: makes a function a kind of job, and keeps its types."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from msgspec import UNSET, UnsetType

from longshore.client.batch import Batch
from longshore.client.batch_decorator import BatchDecorator
from longshore.client.debounce import Debounce
from longshore.client.kind import AnyKind, Kind, ResourcesGiven, SubmitOptions, Terms
from longshore.client.limit import KeyGiven, Limit
from longshore.client.retry_rule import ExceptionClasses, RetryRule
from longshore.errors import AppError
from longshore.executors.host.context import Context
from longshore.model.worker import Isolation

P = ParamSpec("P")
R = TypeVar("R")

Declare = Callable[[Callable[..., Any], str | None, Isolation | None, Terms, Batch | None], AnyKind]
"""Takes a function, its kind and isolation if given, its terms, and how its jobs share a run if
they do; returns its replacement."""


class Decorator:
    """Declares the function it is called with; called with options, returns a decorator.

    The result of a job is that of its function, awaited if need be. The worker gives a context that
    is the first parameter, so a submit does not take it.
    """

    def __init__(
        self,
        declare: Declare,
        kind: str | None = None,
        isolation: Isolation | None = None,
        terms: Terms | None = None,
        retry_rule: RetryRule | None = None,
        batch: Batch | None = None,
    ) -> None:
        self._declare = declare
        self._kind = kind
        self._isolation = isolation
        self._terms = terms or Terms()
        self._retry_rule = retry_rule or RetryRule()
        self._batch = batch

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Kind[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Kind[P, R, P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> Kind[P, R, Concatenate[Context, P], R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Kind[P, R, P, R]: ...

    @overload
    def __call__(
        self,
        /,
        *,
        batch: Batch,
        kind: str | None = None,
        retry_on: ExceptionClasses | UnsetType = UNSET,
        fail_on: ExceptionClasses | UnsetType = UNSET,
        **options: Unpack[SubmitOptions],
    ) -> BatchDecorator: ...

    @overload
    def __call__(
        self,
        /,
        *,
        kind: str | None = None,
        isolation: Isolation | None = None,
        retries: int | UnsetType = UNSET,
        retry_on: ExceptionClasses | UnsetType = UNSET,
        fail_on: ExceptionClasses | UnsetType = UNSET,
        backoff_s: float | UnsetType = UNSET,
        backoff_factor: float | UnsetType = UNSET,
        max_backoff_s: float | UnsetType = UNSET,
        jitter: float | UnsetType = UNSET,
        timeout_s: float | UnsetType | None = UNSET,
        expires_s: float | UnsetType | None = UNSET,
        queue: str | UnsetType = UNSET,
        priority: int | UnsetType = UNSET,
        target: str | UnsetType = UNSET,
        resources: ResourcesGiven | UnsetType = UNSET,
        delay_s: float | UnsetType | None = UNSET,
        run_at: datetime | UnsetType | None = UNSET,
        unique_key: str | UnsetType | None = UNSET,
        labels: Sequence[str] | UnsetType = UNSET,
        limit: Limit | Sequence[Limit] | UnsetType | None = UNSET,
        debounce: Debounce | UnsetType | None = UNSET,
        fair_by: KeyGiven | UnsetType | None = UNSET,
    ) -> Decorator: ...

    def __call__(
        self,
        function: Callable[..., Any] | UnsetType = UNSET,
        /,
        *,
        kind: str | None = None,
        isolation: Isolation | None = None,
        batch: Batch | None = None,
        retry_on: ExceptionClasses | UnsetType = UNSET,
        fail_on: ExceptionClasses | UnsetType = UNSET,
        **options: Any,
    ) -> Any:
        kind, isolation = kind or self._kind, isolation or self._isolation
        if not isinstance(batch, Batch | None):
            raise AppError(f"batch is {batch!r:.100}; give Batch(100, wait_s=0.2)")
        batch = batch or self._batch
        if "id" in options:
            raise AppError(
                "job option 'id' is for a single submit, job.options(id=…).submit(…): declared, it "
                "would make every submit the same job"
            )
        terms = self._terms.but(**options)
        retry_rule = self._retry_rule.but(retry_on, fail_on)
        if function is UNSET:
            return Decorator(self._declare, kind, isolation, terms, retry_rule, batch)
        declared = self._declare(function, kind, isolation, terms, batch)
        declared.handler.retry_rule = retry_rule
        return declared
