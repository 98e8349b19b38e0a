"""Processes on one loop: killed, frozen, thawed, and stopped between two callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from longshore.testing.simulation.loop import Process, SimulatedLoop

Said = list[tuple[float, str]]
BEAT_S = 1.0


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    yield loop
    loop.halted = False
    for task in loop.unfinished():
        task.cancel()
    loop.close()


def talker(loop: SimulatedLoop, said: Said, text: str) -> Callable[[], None]:
    return lambda: said.append((loop.time(), text))


async def beat(loop: SimulatedLoop, said: Said, times: int) -> None:
    try:
        for number in range(times):
            said.append((loop.time(), f"beat {number}"))
            await asyncio.sleep(BEAT_S)
    finally:
        said.append((loop.time(), "the end"))


def run_for(loop: SimulatedLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_a_killed_process_runs_nothing_any_more_not_even_a_finally(loop: SimulatedLoop) -> None:
    said: Said = []
    process = Process(loop, "p", "p")
    process.start(beat(loop, said, 10))
    loop.outside_at(2.5, process.kill)
    run_for(loop, 20.0)
    assert said == [(0.0, "beat 0"), (1.0, "beat 1"), (2.0, "beat 2")]


def test_a_frozen_process_goes_on_where_it_was_and_its_clock_went_on(loop: SimulatedLoop) -> None:
    said: Said = []
    process = Process(loop, "p", "p")
    process.start(beat(loop, said, 4))
    loop.outside_at(1.5, process.freeze)
    loop.outside_at(7.0, process.thaw)
    run_for(loop, 20.0)
    assert [at for at, _ in said] == [0.0, 1.0, 7.0, 8.0, 9.0]
    assert process.frozen_s == 5.5


def test_a_thawed_process_takes_what_was_ready_then_what_came_then_its_timers(
    loop: SimulatedLoop,
) -> None:
    said: Said = []
    process = Process(loop, "p", "p")

    async def main() -> None:
        here = asyncio.get_running_loop()
        here.call_later(2.0, talker(loop, said, "timer"))
        here.call_soon(talker(loop, said, "ready"))
        process.freeze()

    def arrive() -> None:
        loop.call_soon(talker(loop, said, "arrival"), context=process.context)

    process.start(main())
    loop.outside_at(3.0, arrive)
    loop.outside_at(4.0, process.thaw)
    run_for(loop, 5.0)
    assert said == [(4.0, "ready"), (4.0, "arrival"), (4.0, "timer")]


def test_what_a_thawed_process_cancels_does_not_happen(loop: SimulatedLoop) -> None:
    said: Said = []
    process = Process(loop, "p", "p")

    async def main() -> None:
        here = asyncio.get_running_loop()
        late = here.call_later(1.5, talker(loop, said, "late"))
        here.call_later(1.0, late.cancel)
        process.freeze()

    process.start(main())
    loop.outside_at(4.0, process.thaw)
    run_for(loop, 5.0)
    assert said == []


def test_a_process_can_be_killed_after_any_of_its_callbacks(loop: SimulatedLoop) -> None:
    for steps in range(1, 8):
        said: Said = []
        process = Process(loop, "p", "p")

        async def count(said: Said = said) -> None:
            for number in range(100):
                said.append((loop.time(), f"{number}"))
                await asyncio.sleep(0)

        process.start(count())
        process.after(steps, process.kill)
        run_for(loop, 1.0)
        assert len(said) == steps


def test_whatever_a_process_starts_is_its_own(loop: SimulatedLoop) -> None:
    said: Said = []
    parent, other = Process(loop, "p", "p"), Process(loop, "q", "q")

    async def main() -> None:
        task = asyncio.create_task(beat(loop, said, 10))
        await asyncio.gather(task)

    parent.start(main())
    other.start(beat(loop, said, 3))
    loop.outside_at(0.5, parent.kill)
    run_for(loop, 20.0)
    assert [text for _, text in said if text != "beat 0"] == ["beat 1", "beat 2", "the end"]


def test_a_halted_loop_lets_nobody_take_a_turn(loop: SimulatedLoop) -> None:
    said: Said = []
    process = Process(loop, "p", "p")
    process.start(beat(loop, said, 10))
    run_for(loop, 1.5)
    loop.halted = True
    run_for(loop, 10.0)
    assert said == [(0.0, "beat 0"), (1.0, "beat 1")]
