"""An engine that dies, fills its disk or keeps what a dead worker left: real ones."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from longshore.errors import ConfigError
from longshore.model.program import Outcome
from longshore.testing.engine import IMAGE, Engine, Registry

from .ship import Attempt, began, run, runner, shell, until, whole

SLEEPS = "echo up > began; sleep 600"


@pytest.fixture
def own_engine() -> Iterator[Engine]:
    """An engine that the test may kill."""
    with Engine() as engine:
        engine.add_image()
        yield engine


async def test_an_engine_that_is_killed_loses_the_attempt_and_not_the_job(
    own_engine: Engine, tmp_path: Path
) -> None:
    attempt = Attempt(tmp_path, shell(SLEEPS))
    async with runner(own_engine.url, sweep_s=0.1) as made:
        task = asyncio.create_task(whole(made, attempt))
        await began(attempt)
        own_engine.kill()
        end = await task
        assert end.outcome is Outcome.ENGINE_GONE
        assert end.words.startswith("lost the container engine: ")
        # While it is down, attempts end in the same way; nothing waits for ever.
        later = await whole(made, Attempt(tmp_path / "later", shell("true")))
        assert later.outcome is Outcome.ENGINE_GONE
        # What it kept is removed when it is back, and attempts run again.
        own_engine.start()
        await until(lambda: not own_engine.containers(f"name={attempt.name}"))
        assert (await whole(made, Attempt(tmp_path / "back", shell("true")))).is_success


async def test_an_engine_that_is_stopped_loses_the_attempt_and_not_the_job(
    own_engine: Engine, tmp_path: Path
) -> None:
    attempt = Attempt(tmp_path, shell(SLEEPS))
    async with runner(own_engine.url) as made:
        task = asyncio.create_task(whole(made, attempt))
        await began(attempt)
        await asyncio.to_thread(own_engine.stop)
        assert (await task).outcome is Outcome.ENGINE_GONE


async def test_an_engine_that_hangs_holds_nobody_up_for_ever(
    own_engine: Engine, tmp_path: Path
) -> None:
    attempt = Attempt(tmp_path, shell(SLEEPS))
    async with runner(own_engine.url, grace_s=0.1, answer_s=0.1, sweep_s=0.1) as made:
        task = asyncio.create_task(whole(made, attempt))
        await began(attempt)
        assert own_engine.pid is not None
        os.kill(own_engine.pid, signal.SIGSTOP)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        os.kill(own_engine.pid, signal.SIGCONT)
        # What could not be removed then, a sweep removes.
        await until(lambda: not own_engine.containers(f"name={attempt.name}"))


async def test_an_engine_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no container engine answers at unix://.*engine to"):
        async with runner(f"unix://{tmp_path / 'docker.sock'}"):
            pass


@pytest.mark.parametrize("address", ["docker.sock", "ssh://host", "unix://", "tcp://"])
async def test_an_address_that_is_none_is_said_at_the_start(address: str) -> None:
    with pytest.raises(ConfigError, match=r"unix:///path/docker.sock or tcp://host:port"):
        async with runner(address):
            pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


async def test_an_engine_with_a_full_disk_costs_the_job_nothing(
    engine: Engine, small_disk: Path, tmp_path: Path
) -> None:
    with Engine(data=small_disk) as small, Registry() as registry:
        small.add_image()
        big = engine.add_image("big:1", more={"big": bytes(range(256)) * 4 * 1024 * 30})
        image = registry.push(engine, big, "big:1")
        pulled = Attempt(tmp_path / "pulled", shell("true", image=image))
        end = await run(small.url, pulled)
        assert end.outcome is Outcome.DISK_FULL
        assert "no space left on device" in end.words
        fill(small_disk)
        created = await run(small.url, Attempt(tmp_path / "created", shell("true")))
        assert created.outcome is Outcome.DISK_FULL
        (small_disk / "filling").unlink()
        again = await run(small.url, Attempt(tmp_path / "again", shell("true")))
        assert again.is_success


def fill(disk: Path) -> None:
    with (disk / "filling").open("wb", buffering=0) as filling, suppress(OSError):
        while True:
            filling.write(bytes(4096))


async def test_containers_of_a_dead_worker_are_removed_and_those_of_a_living_one_left(
    engine: Engine, tmp_path: Path
) -> None:
    dead = Attempt(tmp_path / "dead", shell(SLEEPS))
    living = Attempt(tmp_path / "living", shell(SLEEPS))
    async with (
        runner(engine.url, process="dead", grace_s=0.1) as first,
        runner(engine.url, process="living", grace_s=0.1) as second,
    ):
        tasks = [
            asyncio.create_task(whole(first, dead)),
            asyncio.create_task(whole(second, living)),
        ]
        await began(dead)
        await began(living)
        async with runner(engine.url, process="new", has_ended=lambda mark: mark == "dead"):
            assert engine.containers(f"name={dead.name}") == []
            assert engine.containers(f"name={living.name}") == [living.name]
        assert engine.containers(f"name={living.name}") == [living.name]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_a_worker_that_dies_later_is_found_by_a_sweep(engine: Engine, tmp_path: Path) -> None:
    dead: set[str] = set()
    attempt = Attempt(tmp_path, shell(SLEEPS))
    async with runner(engine.url, process="first", grace_s=0.1) as first:
        task = asyncio.create_task(whole(first, attempt))
        await began(attempt)
        async with runner(engine.url, process="second", has_ended=dead.__contains__, sweep_s=0.05):
            assert engine.containers(f"name={attempt.name}") == [attempt.name]
            dead.add("first")
            await until(lambda: not engine.containers(f"name={attempt.name}"))
        task.cancel()
        await asyncio.wait([task])


async def test_containers_of_others_are_none_of_ours(engine: Engine) -> None:
    made = engine.docker("create", "--network", "none", "--name", "somebody-elses", IMAGE, "true")
    async with runner(engine.url, has_ended=lambda mark: True):
        assert engine.containers("name=somebody-elses") == ["somebody-elses"]
    engine.docker("rm", made)
