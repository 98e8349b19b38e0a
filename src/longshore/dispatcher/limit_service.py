"""What clients can ask of a dispatcher about limits (see `service`)."""

from __future__ import annotations

from typing import Final, assert_never

from msgspec import structs

from longshore.core.fairness import weight_of
from longshore.core.key_limits import MOST_RULES, why_no_key, why_no_rule
from longshore.core.key_views import is_full
from longshore.core.lane_rules import is_of_lanes, lane_keys
from longshore.core.why import Facts
from longshore.dispatcher.runtime_protocol import Runtime
from longshore.errors import InvalidInput, NotFound, WrongState
from longshore.model.fair import FairPlace
from longshore.model.group import NOT_RUN
from longshore.model.job import Job, JobState
from longshore.model.limits import KeyView, LimitRule
from longshore.ports import Store
from longshore.wire import limit_messages as m

MOST_KEYS: Final = 100
"""So many keys are in one answer at most."""


class LimitService:
    """The use cases of clients about limits."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def asked_by(self, store: Store) -> LimitService:
        """The same for one who asks, over a store that says so."""
        return LimitService(store, self._runtime)

    async def set(self, request: m.SetLimit) -> None:
        """Sets a rule. Jobs that wait hear of it at once."""
        bounds = request.concurrency, request.rate
        rule = LimitRule(request.pattern, *bounds, weight=request.weight)
        if why := why_no_rule(rule):
            raise InvalidInput(why)
        known = {one.pattern for one in await self._store.limit_rules()}
        if rule.pattern not in known and len(known) >= MOST_RULES:
            raise WrongState(
                f"there are {MOST_RULES:,} rules of limits, which is the most; remove some, or use "
                "a pattern that ends with *"
            )
        await self._store.set_limit(rule)
        self._changed(rule.pattern)

    async def remove(self, request: m.RemoveLimit) -> None:
        """Removes a rule: what jobs bring, or another rule, holds from then on."""
        if not await self._store.remove_limit(request.pattern):
            raise NotFound(
                f"there is no rule for '{request.pattern}'; `longshore limits` lists those there "
                "are"
            )
        self._changed(request.pattern)

    def _changed(self, pattern: str) -> None:
        self._runtime.limits_changed()
        if is_of_lanes(pattern):
            self._runtime.jobs_appeared()

    async def rules(self) -> tuple[LimitRule, ...]:
        """Every rule, by pattern."""
        return tuple(await self._store.limit_rules())

    async def key(self, key: str) -> KeyView:
        """What limits a key, and which jobs hold its slots."""
        if why := why_no_key(key):
            raise InvalidInput(why)
        return await self._store.limit_key(key)

    async def keys(self, request: m.ListKeys) -> tuple[KeyView, ...]:
        """Some keys that something is known of, as they are now."""
        most = max(1, min(request.most, MOST_KEYS))
        names = await self._store.limit_keys(request.after, most, waited_for=request.waited_for)
        return tuple([await self._store.limit_key(name) for name in names])

    async def explain(self, job: Job) -> Facts:
        """What `why` must know of a job; of one that waits also its keys that have no room."""
        return await facts_of(self._store, job)


async def facts_of(store: Store, job: Job) -> Facts:
    """What a store knows of why a job is where it is."""
    facts = await store.explain(job)
    if job.state is not JobState.READY or job.kind in NOT_RUN:
        return facts
    if job.options.fair:
        facts = structs.replace(facts, fair=await _fair_place(store, job))
    of_lane = lane_keys(job.queue, job.kind, await store.limit_rules())
    keys = dict.fromkeys((*of_lane, *(limit.key for limit in job.options.limits)))
    views = [await store.limit_key(key) for key in keys]
    return structs.replace(facts, full_keys=tuple(filter(is_full, views)))


async def _fair_place(store: Store, job: Job) -> FairPlace:
    before, is_new = await store.fair_place(job.id)
    weight = weight_of(job.options.fair, await store.limit_rules())
    return FairPlace(job.options.fair, weight, before, is_new)


async def perform_for_limits(service: LimitService, request: m.LimitRequest) -> object:
    """Does what a request about limits asks for; answers with what OK carries."""
    match request:
        case m.SetLimit():
            await service.set(request)
            return None
        case m.RemoveLimit():
            await service.remove(request)
            return None
        case m.ListLimits():
            return await service.rules()
        case m.ShowKey():
            return await service.key(request.key)
        case m.ListKeys():
            return await service.keys(request)
        case _:
            assert_never(request)
