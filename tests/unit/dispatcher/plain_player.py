"""A plain worker for stories: played by hand, over the loopback network."""

from __future__ import annotations

import asyncio
from itertools import count

from msgspec import structs

from longshore.model.job import Job, Options, Submission
from longshore.testing.builders import a_job
from longshore.testing.loopback import Connector

from .stage import Stage

PONG = b"PONG"
PING_S = 1.0
_names = count(1)


class Player:
    """One socket of a plain worker. ZeroMQ names it, unless it names itself."""

    def __init__(self, stage: Stage, name: bytes | None = None, to: str = "d1") -> None:
        self._stage = stage
        self.identity = name or b"\0" + next(_names).to_bytes(4, "big")
        self._link = Connector(stage.network, f"{to}/workers", self.identity, self._receive)
        self._beating: asyncio.Task[None] | None = None
        self.heard: list[bytes] = []
        """Everything it was sent."""

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for _, frames in arrived:
            assert len(frames) == 2
            assert frames[0] == b""
            self.heard.append(frames[1])

    @property
    def jobs(self) -> list[bytes]:
        """Every job it was sent."""
        return [frame for frame in self.heard if frame != PONG]

    @property
    def pongs(self) -> int:
        """How many PONGs it was sent."""
        return self.heard.count(PONG)

    def say(self, frame: bytes) -> None:
        self._link.send(b"", [b"", frame])

    def frames(self, *frames: bytes) -> None:
        self._link.send(b"", frames)

    def beat(self) -> None:
        """PINGs every second from now on."""

        async def beating() -> None:
            while True:
                self.say(b"PING")
                await asyncio.sleep(PING_S)

        self._beating = asyncio.create_task(beating())

    def hush(self) -> None:
        """Sends no more PINGs."""
        if self._beating is not None:
            self._beating.cancel()

    def die(self) -> None:
        """As by kill -9: its connection is gone."""
        self.hush()
        self._link.close()

    async def given(self, times: int) -> bytes:
        """The last job it was sent, once it was sent so many."""
        await self._stage.until(lambda: len(self.jobs) == times)
        return self.jobs[-1]


async def ready(stage: Stage, name: bytes | None = None, to: str = "d1") -> Player:
    """A plain worker that is attended and idle."""
    player, before = Player(stage, name, to), len(alive(stage))
    player.say(b"READY")
    player.beat()
    known = f"plain-{player.identity.hex()}"
    await stage.until(lambda: known in alive(stage) or len(alive(stage)) > before)
    return player


def alive(stage: Stage) -> list[str]:
    """The names of the workers that the store takes for alive."""
    return [row.info.name for row in stage.model._workers.values() if row.alive]


def raw(data: bytes, **options: float) -> Submission:
    return structs.replace(a_job(kind="raw", args=data), options=Options(raw=True, **options))  # type: ignore[arg-type]


async def shown(stage: Stage, job: Submission) -> Job:
    found = await stage.model.job(job.id)
    assert found is not None
    return found


async def submit(stage: Stage, *jobs: Submission) -> None:
    answers = await stage.client().submit(*jobs)
    assert [answer.code for answer in answers] == [""] * len(jobs)
