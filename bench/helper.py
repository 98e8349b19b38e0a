"""A Python process of the benchmark beside this one: told what to do by lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


class HelperFailed(RuntimeError):
    """A helper ended before it answered; the message holds the end of what it wrote."""


class Helper:
    """`python -m bench.MODULE WORDS…`, which answers each line it is given with another."""

    def __init__(self, module: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.{module}", *words],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, **question: object) -> Any:
        """What it answers."""
        self.tell(**question)
        return self.answer()

    def tell(self, **question: object) -> None:
        """Gives it something to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The next line it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise HelperFailed(f"bench.{self._module}: {self._last_words()}")
        return json.loads(line)

    def _last_words(self) -> str:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        written = self._errors.read().decode(errors="replace")
        return "\n".join(written.strip().splitlines()[-4:])

    def close(self) -> None:
        """Ends it: its questions end, and if that is not enough, it is killed."""
        try:
            self._process.communicate(timeout=5)
        except (subprocess.TimeoutExpired, ValueError, OSError):
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def questions() -> Any:
    """In a helper: what it is asked, until nobody asks any more."""
    for line in sys.stdin:
        yield json.loads(line)


def reply(answer: object) -> None:
    """In a helper: answers."""
    print(json.dumps(answer), flush=True)
