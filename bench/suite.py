"""One run: every workload in its order, one after another, and what they found written down."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench import (
    actor_peers,
    actors,
    asks,
    beat,
    beside,
    containers,
    cost,
    dashboard,
    fairness,
    filesets,
    flatness,
    groups,
    http,
    latency,
    limit,
    limits,
    locks,
    plain,
    programs,
    recovery,
    scale,
    schedules,
    sleeping,
    throughput,
)
from bench.machine import this_machine
from bench.report import write_docs, write_report
from bench.results import Results
from bench.sizes import DEFAULT, FULL, QUICK, Sizes
from bench.stage import Stage, staged

HERE = Path(__file__).parent
PLOTTER = HERE / ".venv" / "bin" / "python"


def workloads(stage: Stage, results: Results, peers: list[str]) -> dict[str, Callable[[], None]]:
    """Each workload by its name; later ones use what earlier ones found, if they ran."""

    def ceilings() -> dict[str, limit.Ceiling]:
        return results.limit.ceilings if results.limit else {}

    def do(name: str, measure: Callable[[], object]) -> Callable[[], None]:
        return lambda: setattr(results, name, measure())

    return {
        "limit": do("limit", lambda: limit.measure(stage)),
        "throughput": do("throughput", lambda: throughput.measure(stage, ceilings())),
        "peers": do("peers", lambda: beside.measure(stage, peers)),
        "plain": do("plain", lambda: plain.measure(stage, peers)),
        "programs": do("programs", lambda: programs.measure(stage)),
        "groups": do("groups", lambda: groups.measure(stage)),
        "graph": do("graph", lambda: groups.measure_peers(stage, peers)),
        "actors": do("actors", lambda: actors.measure(stage)),
        "sleeping": do("sleeping", lambda: sleeping.measure(stage)),
        "actor_peers": do("actor_peers", lambda: actor_peers.measure(stage, peers)),
        "asks": do("asks", lambda: asks.measure(stage)),
        "http": do("http", lambda: http.measure(stage)),
        "dashboard": do("dashboard", lambda: dashboard.measure(stage)),
        "containers": do("containers", lambda: containers.measure(stage)),
        "filesets": do("filesets", lambda: filesets.measure(stage)),
        "latency": do("latency", lambda: latency.measure(stage)),
        "flatness": do("flatness", lambda: flatness.measure(stage)),
        "limits": do("limits", lambda: limits.measure(stage)),
        "locks": do("locks", lambda: locks.measure(stage)),
        "fairness": do("fairness", lambda: fairness.measure(stage)),
        "schedules": do("schedules", lambda: schedules.measure(stage)),
        "beat": do("beat", lambda: beat.measure(stage)),
        "scale": do("scale", lambda: scale.measure(stage)),
        "recovery": do("recovery", lambda: recovery.measure(stage)),
        "cost": do("cost", lambda: cost.measure(stage)),
    }


def perform(stage: Stage, results: Results, wanted: list[str], peers: list[str]) -> None:
    """Runs what is wanted; one that fails is noted, and the others go on."""
    for name, work in workloads(stage, results, peers).items():
        if wanted and name not in wanted:
            continue
        print(f"{name}:", flush=True)
        began = time.monotonic()
        try:
            work()
        except Exception as error:
            results.failures[name] = f"{type(error).__name__}: {error}"
            print(traceback.format_exc(), flush=True)
        results.seconds[name] = round(time.monotonic() - began, 1)
        stage.say(f"({results.seconds[name]:.0f} s)")


def write(results: Results, folder: Path, *, docs: bool) -> None:
    """Results as JSON, as Markdown and, if the plotter is installed, as pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_bytes(msgspec.json.encode(results))
    if PLOTTER.exists():
        subprocess.run([PLOTTER, HERE / "plots.py", folder], check=False)
    write_report(results, folder)
    if docs:
        write_docs(folder)
    print((folder / "results.md").read_text())
    print(f"written to {folder}")


def main(about: str | None) -> int:
    """Measures; 1 if any workload failed."""
    options = _options(about)
    _allow_many_sockets()
    # Whoever ends this run also ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    sizes = _sizes(options)
    folder = options.out or HERE / "results" / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    with staged(sizes) as stage:
        results = Results(this_machine(stage.server), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        print(f"{results.machine}\nload before: {os.getloadavg()[0]:.2f}", flush=True)
        results.load_before = os.getloadavg()[0]
        perform(stage, results, options.only, options.peers)
    write(results, folder, docs=options.docs)
    return 1 if results.failures else 0


def _options(about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(Results.WORKLOADS)
    parser.add_argument("--full", action="store_true", help="longer, and with more of everything")
    parser.add_argument("--quick", action="store_true", help="to try it: the figures say little")
    parser.add_argument("--only", type=_words, default=[], help=f"some of: {names}")
    parser.add_argument("--peers", type=_words, default=[], help="only these peers")
    parser.add_argument("--pairs", type=int, help="how many pairs make a ratio (5)")
    parser.add_argument("--sleepers", type=int, help="how many actors sleep")
    parser.add_argument("--docs", action="store_true", help="put the report into the docs too")
    parser.add_argument("--out", type=Path, help="the folder for what was found")
    options = parser.parse_args()
    if unknown := set(options.only) - set(Results.WORKLOADS):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; there are {names}")
    return options


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else FULL if options.full else DEFAULT
    if options.pairs:
        sizes = msgspec.structs.replace(sizes, pairs=options.pairs)
    if options.sleepers:
        sizes = msgspec.structs.replace(sizes, sleepers=options.sleepers)
    return sizes


def _allow_many_sockets() -> None:
    """As many open files as the system lets us have: 5,000 workers need three each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
