"""A first figure: no-op jobs through Longshore and through PgQueuer, on one PostgreSQL, in one run.

    make bench
    .venv/bin/python bench/compare.py --jobs 20000 --pairs 3

One dispatcher and two workers on our side, two workers on theirs; fsync on. Jobs are submitted in
bulk while they are run, and the time counts from the first submit until the last outcome is
recorded. The two take turns on the same server; the ratio is the median of the pairs, because
machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longshore.testing.processes import Process, run
from longshore.testing.servers import PostgresServer

HERE = Path(__file__).parent
PEER_PYTHON = HERE / ".venv" / "bin" / "python"
DATA = "x" * 100
ANY = "127.0.0.1:0"


@contextmanager
def longshore_fleet(url: str, slots: int) -> Iterator[str]:
    """A dispatcher and two workers; the address for clients."""
    if (migrated := run("migrate", "--store", url)).returncode:
        raise RuntimeError(migrated.stderr)
    processes: list[Process] = []
    try:
        dispatcher = Process("dispatcher", "--store", url, "--backend", ANY, "--frontend", ANY)
        processes.append(dispatcher.ready())
        for _ in range(2):
            words = ["--app", "noop_app:app", "--slots", str(slots)]
            words += ["--connect", dispatcher.facts["backend"]]
            processes.append(Process("worker", *words, cwd=HERE))
        for process in processes[1:]:
            process.ready()
        yield dispatcher.facts["frontend"]
    finally:
        for process in reversed(processes):
            process.close()


def measure_longshore(frontend: str, number: int, kind: str) -> float:
    """Seconds from the first submit until every outcome is recorded and known to the submitter."""
    sys.path.insert(0, str(HERE))
    os.environ["LONGSHORE_CONNECT"] = frontend
    from noop_app import app, noop, noop_process

    job = {"coroutine": noop, "process": noop_process}[kind]
    calls = [job.call(DATA) for _ in range(number)]
    began = time.perf_counter()
    handles = app.submit_many(calls)
    app.wait_all(handles)
    seconds = time.perf_counter() - began
    app.close()
    return seconds


@contextmanager
def pgqueuer_workers(url: str) -> Iterator[None]:
    """Two workers of PgQueuer."""
    peer = [str(PEER_PYTHON), str(HERE / "peer_pgqueuer.py")]
    subprocess.run([*peer, "install", url], check=True, stdout=subprocess.DEVNULL)
    workers = [subprocess.Popen([*peer, "worker", url], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def measure_pgqueuer(url: str, number: int) -> float:
    """Seconds from the first enqueue until the queue is empty."""
    peer = [str(PEER_PYTHON), str(HERE / "peer_pgqueuer.py"), "measure", url, str(number)]
    return float(subprocess.run(peer, check=True, capture_output=True, text=True).stdout)


def machine() -> str:
    """What this was measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


def main() -> None:
    """Measures, prints a table, and the same as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--slots", type=int, default=500)
    parser.add_argument("--kind", choices=["coroutine", "process"], default="coroutine")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"longshore": [], "pgqueuer": []}
    print(f"{machine()}; {options.jobs:,} no-op jobs, {options.pairs} pairs", flush=True)
    for pair in range(options.pairs):
        with PostgresServer() as server:
            url = server.create_database("longshore")
            with longshore_fleet(url, options.slots) as frontend:
                seconds = measure_longshore(frontend, options.jobs, options.kind)
            rates["longshore"].append(options.jobs / seconds)
            url = server.create_database("pgqueuer")
            with pgqueuer_workers(url):
                seconds = measure_pgqueuer(url, options.jobs)
            rates["pgqueuer"].append(options.jobs / seconds)
        shown = "   ".join(f"{name} {values[-1]:8,.0f} jobs/s" for name, values in rates.items())
        print(f"pair {pair + 1}: {shown}", flush=True)
    ratios = [a / b for a, b in zip(rates["longshore"], rates["pgqueuer"], strict=True)]
    print(f"ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    print(json.dumps({"machine": machine(), "jobs_per_s": rates, "ratios": ratios}))


if __name__ == "__main__":
    main()
