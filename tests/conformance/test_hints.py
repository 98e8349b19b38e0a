"""Hints: another process learns soon that there is something to do.

A hint may be lost, so whoever needs one in a test does again what causes it, until it is heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from longshore.model.ends import Failed, Released, Succeeded
from longshore.model.job import Submission
from longshore.ports import Hint, Store
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, done, new_id

PATIENCE_S = 30
AGAIN_S = 0.5


def lonely() -> Submission:
    """A job in a lane of its own, so that nothing else is claimed from it."""
    return a_job(kind=f"kind {new_id()}")


async def submit(scene: Scene) -> None:
    await scene.accepted(a_job())


async def submit_with_a_success(scene: Scene) -> None:
    attempt = await scene.running(lonely())
    await scene.finish(done(attempt, outbox=[lonely()]))


async def resume_a_queue(scene: Scene) -> None:
    await scene.store.set_paused("default", False)


async def release(scene: Scene) -> None:
    await scene.ended(Released, lonely())


async def retry(scene: Scene) -> None:
    attempt = await scene.ended(Failed, lonely())
    await scene.store.retry([attempt.id])


async def cancel(scene: Scene) -> None:
    await scene.being_cancelled(lonely())


async def end(scene: Scene) -> None:
    await scene.ended(Succeeded, lonely())


async def cancel_a_ready_one(scene: Scene) -> None:
    job = a_job()
    await scene.accepted(job)
    await scene.store.cancel([job.id])


async def change_and_tell(scene: Scene) -> None:
    await scene.store.set_paused("elsewhere", True)
    scene.store.tell_others()


CAUSES: list[tuple[Hint, Callable[[Scene], Awaitable[None]]]] = [
    (Hint.WORK, submit),
    (Hint.WORK, submit_with_a_success),
    (Hint.WORK, resume_a_queue),
    (Hint.WORK, release),
    (Hint.WORK, retry),
    (Hint.CANCEL, cancel),
    (Hint.ENDED, end),
    (Hint.ENDED, cancel_a_ready_one),
    (Hint.CHANGE, change_and_tell),
]


class Listener:
    """Remembers which hints came."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._heard: set[Hint] = set()
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        async for hint in self._store.watch():
            async with self._news:
                self._heard.add(hint)
                self._news.notify_all()

    async def has_heard(self, hint: Hint) -> bool:
        """Whether the hint has come, or comes within a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S), self._news:
                await self._news.wait_for(lambda: hint in self._heard)
        return hint in self._heard


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[Listener]:
    listener = Listener(store)
    task = asyncio.create_task(listener.listen())
    await asyncio.sleep(0)  # lets it begin to listen
    try:
        yield listener
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_another_process_hears_of_it(scene: Scene, backend: Backend) -> None:
    async with backend.opened() as other:
        for hint, cause in CAUSES:
            async with listening(other) as listener, asyncio.timeout(PATIENCE_S):
                await cause(scene)
                while not await listener.has_heard(hint):
                    await cause(scene)


async def test_two_watchers_of_one_store_both_hear(scene: Scene, backend: Backend) -> None:
    async with (
        backend.opened() as other,
        listening(other) as one,
        listening(other) as two,
        asyncio.timeout(PATIENCE_S),
    ):
        heard = [False, False]
        while not all(heard):
            await submit(scene)
            heard = [await one.has_heard(Hint.WORK), await two.has_heard(Hint.WORK)]


async def test_watch_ends_when_its_task_is_cancelled_and_can_begin_again(
    scene: Scene, backend: Backend
) -> None:
    async with backend.opened() as other, asyncio.timeout(PATIENCE_S):
        for _ in range(2):
            listener = Listener(other)
            task = asyncio.create_task(listener.listen())
            await submit(scene)
            while not await listener.has_heard(Hint.WORK):
                await submit(scene)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
