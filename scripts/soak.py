"""Runs `longshore chaos` for hours: `python scripts/soak.py HOURS`, or `make soak HOURS=8`.

One seed after the other, until the time is over or a promise is broken: in turn on PostgreSQL, on
SQLite, on a PostgreSQL that fails over, and on that behind an haproxy. It prints where each report
is.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

ROUND_S = 900.0
LEAST_S = 10.0
FOLDER = Path(".longshore/soak")
STORES = ((), ("--store", "sqlite"), ("--store", "patroni"), ("--store", "haproxy"))


def main(hours: float) -> int:
    """Runs until the time is over; answers the exit code of the last run."""
    until = time.monotonic() + hours * 3600
    first = int(time.time()) % 1_000_000
    for seed in itertools.count(first):
        left_s = until - time.monotonic()
        if left_s < LEAST_S and seed > first:
            break
        code = _run(seed, min(ROUND_S, max(LEAST_S, left_s)))
        print(f"soak: the report is {FOLDER / f'seed-{seed}' / 'report.html'}", flush=True)
        if code:
            print(f"soak: a promise was broken, or the run ended early (exit code {code})")
            return code
    print(f"soak: {seed - first} runs kept all promises")
    return 0


def _run(seed: int, seconds: float) -> int:
    words = ["--seed", str(seed), "--seconds", f"{seconds:.0f}", "--folder", str(FOLDER)]
    store = STORES[seed % len(STORES)]
    command = [sys.executable, "-m", "longshore", "chaos", *words, *store]
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:  # it heard of it, too, and ends all that it started
            return process.wait()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/soak.py HOURS")
    sys.exit(main(float(sys.argv[1])))
