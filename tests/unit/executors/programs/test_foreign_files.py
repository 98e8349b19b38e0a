"""A worker that is not root, whose containers are: it gets rid of what they leave."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  (the other user may not be able to read it)
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longshore.executors.scratch import remove
from longshore.testing.engine import Engine

from .ship import Attempt, run, shell

NOBODY = 65534
LEAVES = (
    "umask 077; mkdir -p deep/deeper/deepest other; touch deep/deeper/deepest/file other/file; "
    "ln -s /etc other/link; mkdir /longshore/more; touch /longshore/more/file"
)


@pytest.fixture
def open_engine(engine: Engine) -> Iterator[Engine]:
    """The engine, for users who are not root."""
    engine.folder.chmod(0o711)
    engine.socket.chmod(0o666)
    yield engine
    engine.socket.chmod(0o600)
    engine.folder.chmod(0o700)


def as_nobody(work: Callable[[], None]) -> int:
    """Does something in a process of a user without rights; answers its exit code."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of that user, where all may pass."""
    with tempfile.TemporaryDirectory(prefix="longshore-nobody-") as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


def test_what_a_container_made_as_root_can_be_removed_by_a_worker_that_is_not(
    open_engine: Engine, home: Path
) -> None:
    def work() -> None:
        os.chdir(home)
        attempt = Attempt(home / "attempt", shell(LEAVES))
        end = asyncio.run(run(open_engine.url, attempt))
        assert end.is_success, end
        remove(home / "attempt")
        assert not (home / "attempt").exists()

    assert as_nobody(work) == 0
