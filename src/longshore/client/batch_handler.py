"""The function of batched jobs in the form in which workers run it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import structs

from longshore.client.batch import Batch
from longshore.client.batch_shape import batch_shape
from longshore.client.handler import FunctionHandler, is_coroutine, refuse_generators
from longshore.client.hooks import Hooks
from longshore.client.signature import CONTEXT_PARAMETER, Signature
from longshore.errors import AppError, InvalidInput
from longshore.executors.host.context import Context, current
from longshore.model.worker import Isolation, KindTerms, Pool


class BatchHandler(FunctionHandler):
    """Runs a function for several jobs of one kind at once (see `executors.host.shared_run`)."""

    def __init__(
        self,
        kind: str,
        function: Callable[..., object],
        batch: Batch,
        hooks: Hooks | None = None,
        terms: KindTerms | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        refuse_generators(kind, function)
        _refuse_other_pools(kind, function, isolation)
        self._shape = batch_shape(kind, function, batch.key)
        super().__init__(kind, self._shape.one, hooks, terms)
        self.info = structs.replace(self.info, batch=batch.size)
        self.size = batch.size
        self.wait_s = batch.wait_s
        self._batch = batch
        self._many = function
        self._defaults = _defaults(self._shape.one)
        if batch.key is not None:
            self.signature = _KeyedSignature(kind, self._shape.one, self.batch_key)

    @property
    def function(self) -> Callable[..., object]:
        """The body for a job that is alone, as where nothing gathers jobs."""
        return self._run_one

    async def _run_one(self, **arguments: object) -> object:
        returned = await self.run_batch((arguments,), (current(),))
        [outcome] = self.outcomes(returned, 1)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def batch_key(self, args: bytes) -> str:
        """What jobs that may share a run have in common; `InvalidInput` if that is no key."""
        return self._batch.key_of(self.kind, args, self._defaults)

    def run_batch(
        self, jobs: Sequence[Mapping[str, object]], contexts: Sequence[Context]
    ) -> Awaitable[object]:
        """Calls the function for jobs of one key, with the arguments and the context of each."""
        shape, first = self._shape, jobs[0]
        given: dict[str, object] = {shape.items: [job[shape.items] for job in jobs]}
        if shape.shared in first:
            given[shape.shared] = first[shape.shared]
        if shape.takes_contexts:
            given[CONTEXT_PARAMETER] = list(contexts)
        given |= {name: self._hooks.resource(name) for name in self.signature.given}
        body = self._hooks.around(self._many, self.is_async)
        return cast(Awaitable[object], body(**given))

    def outcomes(self, returned: object, count: int) -> Sequence[object]:
        """The result of each job, or the error in its place; `InvalidInput` if they do not fit."""
        if returned is None and self._shape.may_return_none:
            return [None] * count
        jobs = "1 job" if count == 1 else f"{count} jobs"
        if not isinstance(returned, list | tuple):
            raise InvalidInput(
                f"job '{self.kind}' returned {type(returned).__name__} for a batch of {jobs}; "
                "return a list with a result for each, in their order"
            )
        if len(returned) != count:
            raise InvalidInput(
                f"job '{self.kind}' returned a list of {len(returned)} for a batch of {jobs}; "
                "return a result for each, in their order: None for one that has none, an "
                "exception for one that failed"
            )
        return returned


class _KeyedSignature(Signature):
    """The signature of a job whose arguments must make a key."""

    def __init__(
        self, kind: str, function: Callable[..., object], check: Callable[[bytes], object]
    ) -> None:
        super().__init__(kind, function)
        self._check = check

    def pack(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
        """The arguments as they are stored; raises if they make no key."""
        packed = super().pack(args, kwargs)
        self._check(packed)
        return packed


def handler_for(
    kind: str,
    function: Callable[..., object],
    hooks: Hooks,
    terms: KindTerms,
    isolation: Isolation | None,
    batch: Batch | None,
) -> FunctionHandler:
    """What runs a function as declared: for each job by itself, or for several."""
    if batch is None:
        return FunctionHandler(kind, function, hooks, terms, isolation)
    return BatchHandler(kind, function, batch, hooks, terms, isolation)


def _refuse_other_pools(
    kind: str, function: Callable[..., object], isolation: Isolation | None
) -> None:
    if not is_coroutine(function):
        raise AppError(
            f"job '{kind}': a batch is for an async def. A plain def has a process or a thread of "
            "its own for each job; make it async def, and await asyncio.to_thread(…) for what "
            "blocks"
        )
    if isolation not in (None, Pool.COROUTINE):
        raise AppError(
            f"job '{kind}': isolation '{isolation}' runs each job by itself, and jobs of a batch "
            "share one run; leave isolation out, or batch"
        )


def _defaults(function: Callable[..., object]) -> dict[str, Any]:
    found = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in found if one.default is not one.empty}
