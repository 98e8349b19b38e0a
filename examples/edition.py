"""Runs a group of jobs that depend on each other: `python examples/edition.py`.

Starts `longshore up` on a temporary store, shows what `edition.yaml` would run, runs it and shows
how each of its jobs ended. Exits with 0 only if the group succeeded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same module, by its name from the repository's root
    from examples.demo import HERE, LONGSHORE, longshore_up
else:
    from demo import HERE, LONGSHORE, longshore_up

RUN = ("run", "edition.yaml", "-p", "day=2026-11-16")


def main() -> int:
    """Runs the example; answers its exit code."""
    with (
        tempfile.TemporaryDirectory(prefix="longshore-edition-") as folder,
        longshore_up(Path(folder), "edition_app:app") as ready,
    ):
        os.environ["LONGSHORE_CONNECT"] = ready["frontend"]
        graph = ("group", "graph", "1")
        return max(longshore(*words) for words in ((*RUN, "--plan"), (*RUN, "--wait"), graph))


def longshore(*words: str) -> int:
    """Runs one `longshore` command, as you would type it."""
    print(f"$ longshore {' '.join(words)}", flush=True)
    done = subprocess.run([*LONGSHORE, *words], cwd=HERE, check=False)
    print(flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
