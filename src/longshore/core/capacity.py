"""How many slots the fleet has for each kind, and how many of them are free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from longshore.model.usage import Peak
from longshore.model.worker import Capacity, KindCapacity, KindInfo, PoolCapacity, WorkerView


def pool_slots(worker: WorkerView, pool: str) -> int:
    """How many attempts a worker runs at once in a pool."""
    return worker.info.pools.get(pool, 0)


def pool_busy(worker: WorkerView, pool: str) -> int:
    """How many attempts a worker runs in a pool now."""
    return min(_placed(worker, pool), pool_slots(worker, pool))


def pool_ahead(worker: WorkerView, pool: str) -> int:
    """How many attempts a worker holds ahead of the slots of a pool."""
    return _placed(worker, pool) - pool_busy(worker, pool)


def _placed(worker: WorkerView, pool: str) -> int:
    kinds = worker.info.kinds
    return sum(
        n for kind, n in worker.running.items() if kind in kinds and kinds[kind].pool == pool
    )


def capacity(workers: Iterable[WorkerView]) -> Capacity:
    """The slots of all workers that take jobs. Gone, draining and silent workers take none.

    Gateways' own workers do not count: they take no job of a user.
    """
    known = [one for one in workers if not one.info.gateway]
    open_workers = [one for one in known if one.alive and not one.draining and not one.silent_s]
    offers = sorted(
        {(kind, info.pool) for worker in open_workers for kind, info in worker.info.kinds.items()}
    )
    return Capacity(
        kinds=tuple(_of_kind(open_workers, kind, pool) for kind, pool in offers),
        pools=tuple(_sums(open_workers, pool) for pool in pools_of(known)),
    )


def declared(kind: str, workers: Iterable[WorkerView]) -> KindInfo | None:
    """What is known of a kind: what an app declares, before what a web service can tell of it."""
    able = [one for one in workers if kind in one.info.kinds]
    told = max(
        able, key=lambda one: (not one.info.service, one.alive, one.attended_at), default=None
    )
    return None if told is None else told.info.kinds[kind]


def with_peaks(found: Capacity, peaks: Iterable[Peak]) -> Capacity:
    """The capacity, with what attempts of each kind used at most."""
    known = {one.kind: one for one in peaks}
    kinds = tuple(structs.replace(one, peak=known.get(one.kind)) for one in found.kinds)
    return structs.replace(found, kinds=kinds)


def pools_of(workers: Iterable[WorkerView]) -> list[str]:
    """The pools that these workers have or that their kinds name, sorted."""
    infos = [worker.info for worker in workers]
    named = {kind.pool for info in infos for kind in info.kinds.values()}
    return sorted(named.union(*(info.pools for info in infos)))


def _of_kind(workers: Sequence[WorkerView], kind: str, pool: str) -> KindCapacity:
    able = [one for one in workers if kind in one.info.kinds and one.info.kinds[kind].pool == pool]
    running = sum(worker.running.get(kind, 0) for worker in able)
    asked = max((one.info.kinds[kind].terms.resources for one in able), default="")
    sums = structs.asdict(_sums(able, pool))
    return KindCapacity(kind=kind, running=running, resources=asked, **sums)


def _sums(workers: Sequence[WorkerView], pool: str) -> PoolCapacity:
    """The slots of the workers that have a kind of this pool."""
    able = [one for one in workers if any(info.pool == pool for info in one.info.kinds.values())]
    each = [(pool_slots(one, pool), pool_busy(one, pool)) for one in able]
    return PoolCapacity(
        pool=pool,
        workers=len(able),
        slots=sum(slots for slots, _ in each),
        busy=sum(busy for _, busy in each),
        free=sum(slots - busy for slots, busy in each),
    )
