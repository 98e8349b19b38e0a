"""Breaks things for hours: `python scripts/soak.py HOURS`, or `make soak HOURS=8`.

First the simulation runs until it made a million faults, or for a third of the time. Then it is
`longshore chaos`. One seed after the other, until the time is over or a promise is broken: in turn
on PostgreSQL, on SQLite, on a PostgreSQL that fails over, and on that behind an haproxy. It prints
where each report is.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

FAULTS = 1_000_000
SEEDS = 200
"""How many seeds the simulation runs before it looks at the clock."""
ROUND_S = 900.0
LEAST_S = 10.0
FOLDER = Path(".longshore/soak")
STORES = ((), ("--store", "sqlite"), ("--store", "patroni"), ("--store", "haproxy"))


def main(hours: float) -> int:
    """Runs until the time is over; answers the exit code of the last run."""
    until = time.monotonic() + hours * 3600
    first = int(time.time()) % 1_000_000
    if code := _simulate(first, time.monotonic() + hours * 1200):
        return code
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


def _simulate(first: int, until: float) -> int:
    """Runs the simulation until it made so many faults, or until this time."""
    faults = 0
    for start in itertools.count(first, SEEDS):
        words = ["--from", str(start), "--seeds", str(SEEDS), "--json"]
        command = [sys.executable, "-m", "longshore", "simulate", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        facts = [json.loads(line) for line in done.stdout.splitlines()]
        faults += sum(one["faults"] for one in facts)
        if done.returncode:
            print(f"soak: the simulation broke a promise: {facts[-1] if facts else done}")
            return done.returncode
        seeds = start + SEEDS - first
        if faults >= FAULTS or time.monotonic() >= until:
            print(f"soak: {seeds:,} simulated seeds kept all promises through {faults:,} faults")
            return 0
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
