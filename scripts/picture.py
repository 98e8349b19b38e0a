"""Draws the picture of the docs' front page, from a real run: docs/assets/killed.svg.

    python scripts/picture.py [FILE]

It runs the app of that page with two workers, has one of them killed with a job in it, and draws
what a terminal showed. The run takes a few seconds.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

import longshore
from longshore.testing.processes import Process, await_true, command

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURE = DOCS / "assets" / "killed.svg"
COLUMNS = 84
BOXES = 12
ANY = ("--backend", "127.0.0.1:0", "--frontend", "127.0.0.1:0")
THEME = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [
        (72, 79, 88),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (118, 227, 234),
        (201, 209, 217),
    ],
)
# Rich's own format names a font that readers would fetch from elsewhere.
FORMAT = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px;
}}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main(picture: Path = PICTURE) -> None:
    """Runs it, and draws it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (app,) = re.findall(r"```python\n(import asyncio.*?)```", _page(), re.DOTALL)
        (folder / "harbour.py").write_text(app)
        words = ("--app", "harbour:app", "--workers", "2", "--no-http", *ANY)
        with Process("up", *words, cwd=folder, log=folder / "log") as up:
            shown = _story(up.ready().facts["frontend"], folder)
    picture.write_text(_drawn(shown))


def _page() -> str:
    return (DOCS / "README.md").read_text()


def _story(frontend: str, folder: Path) -> str:
    with longshore.App("picture", connect=frontend) as app:
        typed = Terminal(frontend, folder)
        typed.run("submit", "unload", f"boxes={BOXES}")
        handle = app.handle(1)
        await_true(lambda: handle.job().progress is not None, "the job is under way")
        typed.run("workers")
        pid = _pid_of_its_worker(typed.said[-1])
        typed.type(f"kill -9 {pid}")
        os.kill(pid, signal.SIGKILL)
        assert handle.result(timeout_s=60) == BOXES
        typed.run("job", "1")
        return "".join(typed.said)


def _pid_of_its_worker(shown: str) -> int:
    (pid,) = re.findall(r":(\d+).*unload 1", Text.from_ansi(shown).plain)
    return int(pid)


class Terminal:
    """What was typed, and what was shown."""

    def __init__(self, frontend: str, folder: Path) -> None:
        self._env = {
            **os.environ,
            "LONGSHORE_CONNECT": frontend,
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
        }
        self._folder = folder
        self.said: list[str] = []

    def type(self, line: str) -> None:
        """A line is typed."""
        self.said.append(f"\x1b[1m$ {line}\x1b[0m\n")

    def run(self, *words: str) -> None:
        """A command is typed, and answers."""
        self.type(" ".join(("longshore", *words)))
        reading, writing = pty.openpty()
        fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        with subprocess.Popen(
            command(*words), env=self._env, cwd=self._folder, stdout=writing, stderr=writing
        ):
            os.close(writing)
            self.said.append(_all_of(reading).replace("\r\n", "\n") + "\n")


def _all_of(descriptor: int) -> str:
    parts = []
    try:
        while part := os.read(descriptor, 65536):
            parts.append(part)
    except OSError:  # the other end of a terminal that is closed
        pass
    os.close(descriptor)
    return b"".join(parts).decode()


def _drawn(shown: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown.rstrip()))
    return console.export_svg(
        title="a worker is killed, its job is not", theme=THEME, code_format=FORMAT
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
