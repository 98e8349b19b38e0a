"""Checkpoints of commands on real workers: what one saved, another goes on with."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from longshore.testing.processes import Process, await_true, run, settings
from tests.system.test_files import Dock

SCRIPT = """
echo "$LONGSHORE_ATTEMPT" >> seen/$LONGSHORE_ATTEMPT.txt 2>/dev/null ||
    { mkdir seen; echo "$LONGSHORE_ATTEMPT" >> seen/1.txt; }
case $(ls seen | wc -l) in
1) exit 85 ;;
2)
    : > "$LONGSHORE_CHECKPOINT"
    while [ -e "$LONGSHORE_CHECKPOINT" ]; do sleep 0.02; done
    echo never > seen/lost.txt
    : > "$0"
    exec sleep 600 ;;
esac
echo "\\"$(cat seen/*.txt | tr '\\n' ' ')\\"" > "$LONGSHORE_RESULT"
"""


@pytest.fixture
def dock(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dock]:
    """A dispatcher with a gateway, and no worker."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    made = Dock(tmp_path, store_url, "--workers", "0")
    monkeypatch.chdir(tmp_path)
    yield made
    made.up.close()
