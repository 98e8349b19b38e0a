"""The agent gives each attempt its devices, for as long as something of it is left."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from longshore.model.attempt import HeldAttempt
from longshore.model.reports import NotBegunReport
from longshore.model.worker import Pool
from longshore.run.worker_state import StateFolder
from longshore.wire import messages as m

from .bench import Bench, at_bench, job
from .test_takeback import LastingExecutor

GPUS = {"gpu": 2.0}


def needing(token: int, shape: str = "gpu=1", kind: str = "work") -> m.Assignment:
    """An attempt that needs devices."""
    return structs.replace(job(token, kind), resources=shape)


def has(bench: Bench, pool: str = Pool.COROUTINE) -> dict[int, tuple[int, ...]]:
    """The GPUs of the attempts that run in a pool."""
    running = bench.executors[pool].running.values()
    return {
        one.token: tuple(number for devices in one.devices for number in devices.numbers)
        for one in running
    }


def test_attempts_of_all_pools_share_the_devices_of_their_worker() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (needing(1), needing(2, kind="grind"), job(3))))
        await bench.settle()
        assert has(bench) == {1: (0,), 3: ()}
        assert has(bench, Pool.PROCESS) == {2: (1,)}
        bench.jobs.succeed(1)
        await bench.settle()
        link.tell(m.Jobs(bench.worker, 2, (needing(4),)))
        await bench.settle()
        assert has(bench) == {3: (), 4: (0,)}

    at_bench(story, resources=GPUS)


def test_an_aborted_attempt_keeps_its_devices_until_it_has_stopped() -> None:
    """The dispatcher may have given them to another by then: that one waits, in whatever pool."""

    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (needing(1, "gpu=2"),)))
        bench.jobs.stubborn = True
        link.tell(m.Abort(bench.worker, (job(1).key,), "cancelled"))
        link.tell(m.Jobs(bench.worker, 2, (needing(2), needing(3, kind="grind"))))
        await bench.settle()
        assert has(bench) == {1: (0, 1)}
        assert has(bench, Pool.PROCESS) == {}
        [report] = bench.jobs.aborted
        bench.jobs.end(report)
        await bench.settle()
        both = has(bench) | has(bench, Pool.PROCESS)
        assert sorted(both) == [2, 3]
        assert sorted(both.values()) == [(0,), (1,)]

    at_bench(story, resources=GPUS)


def test_an_attempt_that_needs_more_than_the_worker_has_goes_back() -> None:
    async def story(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (needing(1, "gpu=3"),)))
        await bench.settle()
        assert bench.jobs.started == []
        assert bench.reports() == [(1, NotBegunReport)]

    at_bench(story, resources=GPUS)


def test_what_goes_on_after_its_agent_died_keeps_its_devices(tmp_path: Path) -> None:
    lasting: type[LastingExecutor] = type("Lasting", (LastingExecutor,), {"outside": {}})

    async def first(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (needing(1),)))
        await bench.settle()
        # What a host keeps of an attempt is what it was sent.
        lasting.outside[1] = HeldAttempt(bench.jobs.running[1], 3.0, 2)

    async def second(bench: Bench) -> None:
        link = await bench.attend()
        link.tell(m.Jobs(bench.worker, 1, (needing(2),)))
        await bench.settle()
        assert has(bench) == {1: (0,), 2: (1,)}

    at_bench(first, executor=lasting, state=StateFolder(tmp_path, "here"), resources=GPUS)
    at_bench(second, executor=lasting, state=StateFolder(tmp_path, "here"), resources=GPUS)
