"""The blocks of a page of the docs, as the tests that run them see them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

SERVED = "http://127.0.0.1:7700"
"""Where pages say that HTTP is."""
DOCS = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(Struct, frozen=True):
    """A fenced block, and what the page says between the one before and it."""

    language: str
    text: str
    before: str

    def commands(self) -> Iterator[tuple[str, str]]:
        """What a console block types, and what it shows of the answer, which may be nothing."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command.partition("  #")[0].rstrip(), shown


def blocks(page: str, *languages: str) -> list[Block]:
    """The blocks of a page, all or those in some languages, in order."""
    text = (DOCS / page).read_text()
    found, end = [], 0
    for fence in _FENCE.finditer(text):
        found.append(Block(fence[1], fence[2], text[end : fence.start()]))
        end = fence.end()
    return [block for block in found if not languages or block.language in languages]


def succeed(script: str, env: dict[str, str], folder: Path) -> list[str]:
    """Runs a block of Python in a process of its own, as a reader would; the lines it printed."""
    return _printed([sys.executable, "-c", script], env, folder).splitlines()


def bash(command: str, folder: Path | None = None, env: dict[str, str] | None = None) -> str:
    """What a command of a page prints; `longshore` is that of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return _printed(["bash", "-c", command], {**(env or {}), "PATH": path}, folder)


def _printed(words: list[str], env: dict[str, str], folder: Path | None) -> str:
    done = subprocess.run(
        words,
        env={**os.environ, **env},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def matches(shown: str, answered: str) -> bool:
    """Whether an answer is what a page shows, where `…` is anything, whatever the white space."""
    words = [part.split() for part in shown.strip().split("…")]
    pattern = ".*".join(r"\s*" + r"\s+".join(map(re.escape, part)) + r"\s*" for part in words)
    return re.fullmatch(pattern, answered, re.DOTALL) is not None
