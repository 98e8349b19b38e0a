"""What the executors' tests share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import longshore

from .stand import Stand, children, not_ours


@pytest.fixture(autouse=True)
def app_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts find the app in their current folder, and Longshore on their path."""
    monkeypatch.chdir(Path(__file__).parent)
    source = str(Path(longshore.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    """A stand whose executor leaves nothing behind: no process, descriptor or task."""
    fds = os.listdir("/proc/self/fd")
    not_ours.clear()
    not_ours.update(children())
    stand = Stand()
    yield stand
    if hasattr(stand, "executor"):
        await stand.executor.close()
    assert children() == []
    assert len(os.listdir("/proc/self/fd")) == len(fds)
    assert asyncio.all_tasks() == {asyncio.current_task()}
