"""A supervisor on the newest code: started anew at a change, and no sooner."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from longshore.errors import AppError, LongshoreError
from longshore.run.reload import Reloader, sources
from longshore.run.supervisor import Supervisor

PROGRAM = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import code_of_the_user
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.write(int(sys.argv[-1]), b"1")
while True: signal.pause()
"""


async def until(happened: Callable[[], bool]) -> None:
    while True:
        if happened():
            return
        await asyncio.sleep(0)


class Stage:
    """A reloader over a folder, and what it said."""

    def __init__(self, folder: Path, count: int = 1) -> None:
        self.folder = folder
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self.ready = asyncio.Event()
        self.starts: list[LongshoreError | None] = []
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", PROGRAM.format(folder=str(folder))]
        self.supervisor = Supervisor(
            command, environ, count, patience_s=10, say=self.said.put_nowait
        )
        self.write("")

    def write(self, text: str) -> None:
        """Changes the source, in one step: a file that is emptied and then filled changes twice."""
        path = self.folder / "new_code"
        path.write_text(text)
        path.rename(self.folder / "code_of_the_user.py")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the reloader."""
        reloader = Reloader(
            self.supervisor,
            self.folder,
            self.ready.set,
            on_start=self.starts.append,
            say=self.said.put_nowait,
            poll_s=0.01,
        )
        task = asyncio.create_task(reloader.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.supervisor.stop()

    async def new_pids(self, old: set[int]) -> set[int]:
        """The processes, once they are all others."""
        await until(lambda: bool(self.supervisor.pids()) and not old & set(self.supervisor.pids()))
        return set(self.supervisor.pids())


async def test_a_change_replaces_every_process(tmp_path: Path) -> None:
    stage = Stage(tmp_path, count=2)
    async with stage.running():
        await stage.ready.wait()
        old = set(stage.supervisor.pids())
        stage.write("x = 1")
        assert await stage.said.get() == "longshore: code_of_the_user.py changed; starting anew"
        await stage.new_pids(old)
        assert stage.said.empty()


async def test_code_that_does_not_start_is_waited_out(tmp_path: Path) -> None:
    stage = Stage(tmp_path, count=3)
    stage.write("raise SystemExit(2)")
    async with stage.running():
        said = await stage.said.get()
        assert said.startswith("longshore: a worker could not start: it exited with code 2")
        assert said.endswith("waiting for the next change")
        assert stage.supervisor.pids() == []
        assert [type(error) for error in stage.starts] == [AppError]
        stage.write("")
        assert "changed" in await stage.said.get()
        await stage.ready.wait()
        assert len(stage.supervisor.pids()) == 3
        assert stage.starts[1:] == [None]


async def test_a_start_that_hangs_is_given_up_at_the_next_change(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("import signal; signal.pause()")
    async with stage.running():
        await until(lambda: bool(stage.supervisor.pids()))
        stage.write("")
        await stage.ready.wait()


def test_sources_are_the_users_own(tmp_path: Path) -> None:
    for name in ("shop/jobs.py", ".git/hook.py", "env/lib/x.py", "a/node_modules/x.py", "b/c.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert [Path(path).name for path in sources(tmp_path)] == ["jobs.py"]
