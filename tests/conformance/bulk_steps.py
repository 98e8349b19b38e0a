"""What the tests of bulks share: a bulk, and its pages as a dispatcher does them."""

from __future__ import annotations

from uuid import uuid4

from longshore.core.bulks import check_bulk, look_for, page_of, with_states
from longshore.model.bulk import BulkAction, BulkPage, BulkRun, BulkState, NewBulk
from longshore.model.ends import Failed
from longshore.model.job import JobFilter
from longshore.ports import Store
from longshore.testing.builders import Scene, a_job, done

PAGE = 3
"""Small, so that each bulk has several."""


def a_bulk(action: str, wanted: JobFilter, **more: object) -> NewBulk:
    """A bulk as the service hands it to a store."""
    new = NewBulk(uuid4(), BulkAction(action), wanted, **more)  # type: ignore[arg-type]
    check_bulk(new)
    return with_states(new)


async def begun(store: Store, new: NewBulk, most: int = 10) -> BulkRun:
    """A bulk that was stored."""
    made = await store.put_bulk(new, most)
    assert isinstance(made, BulkRun), made
    return made


async def next_page(store: Store, bulk: BulkRun, most: int = PAGE) -> BulkPage:
    """What a look leads to."""
    return page_of(bulk, await store.jobs(look_for(bulk, most)), most)


async def step(store: Store, bulk: BulkRun, most: int = PAGE) -> BulkRun:
    """The bulk after its next page, as a dispatcher does it."""
    advance = await store.advance_bulk(await next_page(store, bulk, most))
    assert advance is not None
    return advance.bulk


async def finished(store: Store, bulk: BulkRun) -> BulkRun:
    """The bulk after its last page."""
    while bulk.state is BulkState.RUNNING:
        bulk = await step(store, bulk)
    return bulk


async def did(store: Store, action: str, wanted: JobFilter, **more: object) -> BulkRun:
    """A bulk from its beginning to its end."""
    return await finished(store, await begun(store, a_bulk(action, wanted, **more)))


async def failed(scene: Scene, count: int) -> list[int]:
    """The numbers of so many jobs that failed."""
    numbers = await scene.accepted(*(a_job() for _ in range(count)))
    attempts = await scene.claim(await scene.attend(), most=count)
    await scene.finish(*(done(attempt, Failed) for attempt in attempts))
    return numbers
