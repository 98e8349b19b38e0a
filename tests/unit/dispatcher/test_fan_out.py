"""A large fleet does not drown its dispatcher."""

from __future__ import annotations

from collections import Counter

from longshore.wire.codec import from_worker
from longshore.wire.messages import Ping

from .stage import Stage
from .test_stories import tell


def test_workers_ping_less_often_the_more_of_them_there_are() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher(max_pings_per_s=10)
        for n in range(25):
            await stage.worker(f"w{n}")
        pings: Counter[bytes] = Counter()
        receive = dispatcher._full.receive

        def count(arrived: list[tuple[bytes, list[bytes]]]) -> None:
            pings.update(p for p, f in arrived if isinstance(from_worker.decode(f), Ping))
            receive(arrived)

        await passing(stage, 3.0)
        stage.network.listeners["d1/workers"].on_messages = count
        await passing(stage, 50.0)
        assert len(pings) == 25
        assert 480 <= pings.total() <= 510
        assert all(view.alive for view in await stage.model.workers())

    tell(story)


async def passing(stage: Stage, seconds: float) -> None:
    """Lets time pass."""
    began = stage.clock.now()
    await stage.until(lambda: stage.clock.now() - began >= seconds)
