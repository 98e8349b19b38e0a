"""The program of the command `unload`: `python -m longshore.testing.chaos.cargo BODIES`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from longshore.testing.chaos.history import WORKER_VARIABLE, Began, Over, Writer


def main(bodies: Path) -> None:
    """Makes a file of the one that it was brought."""
    job, attempt = os.environ["LONGSHORE_JOB"], os.environ["LONGSHORE_TOKEN"]
    writer = Writer(bodies)
    worker = os.environ.get(WORKER_VARIABLE, "")
    writer.add(Began(job=job, attempt=attempt, worker=worker, sort="unload"))
    Path("out").mkdir()
    Path("out/crate").write_text(Path("in/crate").read_text().upper())
    Path(os.environ["LONGSHORE_RESULT"]).write_text(json.dumps({"attempt": attempt}))
    writer.add(Over(job=job, attempt=attempt))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
