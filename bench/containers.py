"""Containers: what running one as a job costs, beside the bare calls of the engine's API.

Both sides run the same image and command on the same engine, as many at once, without a network
and without a log of the engine's own: with these, bare containers take twice as long. The bare side
makes the four calls that nobody can do without: create, start, wait, remove.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

import longshore
from bench.fleet import ANY
from bench.pairs import Ratio, interleave
from bench.stage import Stage
from longshore.executors.host.programs.engine import connect, disconnect
from longshore.model.program import CONTAINER_KIND
from longshore.testing.engine import IMAGE, Engine
from longshore.testing.processes import Process, settings

AT_ONCE = 2
BARE: dict[str, Any] = {
    "Image": IMAGE,
    "Cmd": ["true"],
    "NetworkDisabled": True,
    "HostConfig": {"NetworkMode": "none", "LogConfig": {"Type": "none"}},
}


class Containers(Struct, frozen=True):
    """Containers a second, at `AT_ONCE` at once."""

    jobs: int
    ratio: Ratio
    """As jobs, of those by bare calls."""

    @property
    def overhead_percent(self) -> float:
        """How much longer a container takes as a job."""
        return (1 / self.ratio.median - 1) * 100


def measure(stage: Stage) -> Containers:
    """Containers as jobs and by bare calls, in turn."""
    count = stage.sizes.containers
    with Engine() as engine:
        engine.add_image()
        with stage.fresh() as url, _app(stage, url, engine) as app:
            _jobs(app, AT_ONCE)
            ratio = interleave(
                stage.sizes.pairs,
                lambda: count / _jobs(app, count),
                lambda: count / asyncio.run(_bare(engine, count)),
            )
    found = Containers(count, ratio)
    stage.say(
        f"{ratio.one:.1f} containers a second as jobs, {ratio.other:.1f} by bare calls: "
        f"{found.overhead_percent:.0f} % longer"
    )
    return found


@contextmanager
def _app(stage: Stage, url: str, engine: Engine) -> Iterator[longshore.App]:
    """A client of a dispatcher with one worker."""
    log = stage.folder / "containers.log"
    words = ["--store", url, "--backend", ANY, "--frontend", ANY]
    with Process("dispatcher", *words, *settings(http="off"), log=log) as dispatcher:
        facts = dispatcher.ready().facts
        options = settings(engine=engine.url, containers=AT_ONCE, log_echo=False)
        with Process(
            "worker", "--exec", "--connect", facts["backend"], *options, log=log
        ) as worker:
            worker.ready()
            app = longshore.App("bench", connect=facts["frontend"])
            yield app
            app.close()


def _jobs(app: longshore.App, count: int) -> float:
    args = {"image": IMAGE, "command": ["true"]}
    began = time.perf_counter()
    handles = [app.submit_by_name(CONTAINER_KIND, args) for _ in range(count)]
    app.wait_all(handles)
    return time.perf_counter() - began


async def _bare(engine: Engine, count: int) -> float:
    docker = connect(engine.url)
    left = list(range(count))

    async def some() -> None:
        while left:
            left.pop()
            container = await docker.containers.create(BARE)
            await container.start()
            await container.wait()
            await container.delete()

    began = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    took = time.perf_counter() - began
    await disconnect(docker)
    return took
