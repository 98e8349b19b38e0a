"""Two checkouts of Longshore beside each other in one run: how fast is one in terms of the other?

    .venv/bin/python -m bench.duel ONE OTHER [--store sqlite] [--dispatchers 2] [--pairs 30]

ONE and OTHER are folders, each with a `.venv` of its own (`scripts/setup runtime`). Both fleets run
for the whole duel, on databases of one server, and take turns; who begins alternates. So whatever
slows the machine for a while slows both. The same code measures both sides (`duel_side`), from the
first `call(…)` on until all outcomes are recorded. CPU is that of all processes of a fleet and of
its database connections.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.usage import backends_cpu_s, cpu_s
from longshore.testing.servers import PostgresServer

SIDE = Path(__file__).parent / "duelling"
"""A folder of its own: what lies beside a script can hide modules of Python from it."""
ANY = "127.0.0.1:0"
WARM_UP = 3
ROUNDS = 400_000
WHAT = ["burst", "single", "compute", "group", "flat", "chain", "ask"]
Turn = Callable[["Side"], list[float]]


class Side:
    """One checkout's fleet, and a client for each of its dispatchers."""

    def __init__(self, checkout: Path, url: str, server: PostgresServer, options: Any) -> None:
        self._python = str(checkout.resolve() / ".venv" / "bin" / "python")
        self._database, self._server = url.rpartition("/")[2], server
        self._all: list[subprocess.Popen[str]] = []
        self.clients: list[subprocess.Popen[str]] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        migrate = [self._python, "-m", "longshore", "migrate", "--store", url]
        subprocess.run(migrate, check=True, capture_output=True)
        store = ["--store", url, "--backend", ANY, "--frontend", ANY, "--set", "keep_most=0"]
        facts = [self._ready("dispatcher", *store) for _ in range(options.dispatchers)]
        pools = ["--slots", "2000", "--processes", str(options.processes)]
        for number in range(options.workers):
            where = facts[number % len(facts)]["backend"]
            self._ready("worker", "--app", "duel_side:app", *pools, "--connect", where)
        for fact in facts:
            words = [self._python, str(SIDE / "duel_side.py")]
            self.clients.append(self._start(words, {"LONGSHORE_CONNECT": fact["frontend"]}))

    def _ready(self, role: str, *words: str) -> Any:
        process = self._start([self._python, "-m", "longshore", role, *words, "--json"], {})
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    def _start(self, words: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        started = subprocess.Popen(
            words,
            stdin=pipe,
            stdout=pipe,
            stderr=self._log,
            text=True,
            env={**os.environ, **env},
            cwd=SIDE,
        )
        self._all.append(started)
        return started

    def ask(self, **question: object) -> list[Any]:
        """What each client answers, all of them asked at once."""
        return _asked(self.clients, question)

    def ask_first(self, **question: object) -> Any:
        """What the first client answers."""
        return _asked(self.clients[:1], question)[0]

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU that its processes and its database connections have used."""
        own = cpu_s(process.pid for process in self._all)
        return own + backends_cpu_s(self._server.pid or 0, self._database)

    def close(self) -> None:
        """Everything ends."""
        for process in reversed(self._all):
            process.terminate()
        for process in self._all:
            process.communicate()
        self._log.close()


def _asked(clients: Sequence[subprocess.Popen[str]], question: dict[str, object]) -> list[Any]:
    for client in clients:
        assert client.stdin is not None
        client.stdin.write(json.dumps(question) + "\n")
        client.stdin.flush()
    return [json.loads(client.stdout.readline()) for client in clients if client.stdout]


def burst(jobs: int) -> Turn:
    """Jobs a second, and microseconds of CPU that a job costs."""

    def turn(side: Side) -> list[float]:
        share = jobs // len(side.clients)
        goal = side.ask(do="recorded")[0] + share * len(side.clients)
        return _rated(side, jobs, {"do": "burst", "jobs": share, "goal": goal})

    return turn


def group(jobs: int, width: int) -> Turn:
    """The same of jobs in layers of this width as one group, and seconds until it is submitted.

    The first client submits it.
    """

    return lambda side: _of_group(
        side, jobs, {"do": "group", "layers": jobs // width, "width": width}
    )


def flat(jobs: int) -> Turn:
    """The same of a group of which no job depends on another."""
    return lambda side: _of_group(side, jobs, {"do": "flat", "jobs": jobs})


def _of_group(side: Side, jobs: int, question: dict[str, object]) -> list[float]:
    used = side.cpu_s
    began, ended, submitted = side.ask_first(**question)
    cpu_us = (side.cpu_s - used) / jobs * 1e6
    return [jobs / (ended - began), cpu_us, submitted - began, ended - submitted]


def chain(jobs: int) -> Turn:
    """Milliseconds from the start of a job to that of the next, which depends on it."""
    return lambda side: [side.ask_first(do="chain", jobs=jobs)]


def compute(jobs: int) -> Turn:
    """The same of plain functions that compute for about 20 ms."""
    return lambda side: _rated(side, jobs, {"do": "compute", "jobs": jobs, "rounds": ROUNDS})


def _rated(side: Side, jobs: int, question: dict[str, object]) -> list[float]:
    used = side.cpu_s
    times = side.ask(**question)
    took_s = max(time[1] for time in times) - min(time[0] for time in times)
    return [jobs / took_s, (side.cpu_s - used) / jobs * 1e6]


def single(side: Side) -> list[float]:
    """Milliseconds from a submit to the start, and to the result."""
    return list(side.ask(do="single")[0])


def ask(asks: int) -> Turn:
    """Milliseconds from an ask of an actor to its reply, and of CPU."""

    def turn(side: Side) -> list[float]:
        used = side.cpu_s
        took_ms = side.ask_first(do="ask", asks=asks)
        return [took_ms, (side.cpu_s - used) / asks * 1e3]

    return turn


def duel(sides: Sequence[Side], turn: Turn, pairs: int, names: Sequence[str]) -> None:
    """The two take turns; prints the ratio of each figure."""
    found: list[list[list[float]]] = [[], []]
    for pair in range(-WARM_UP, pairs):
        for one in (0, 1) if pair % 2 else (1, 0):
            figures = turn(sides[one])
            if pair >= 0:
                found[one].append(figures)
    for place, name in enumerate(names):
        ones, others = ([figures[place] for figures in side] for side in found)
        ratios = [one / other for one, other in zip(ones, others, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        medians = f"{statistics.median(ones):,.2f} / {statistics.median(others):,.2f}"
        print(f"{name}: {middle:.3f} ({low:.3f} to {high:.3f}), {pairs} pairs, {medians}")


@contextmanager
def arena(options: argparse.Namespace) -> Iterator[list[Side]]:
    """Both fleets, up, on new databases."""
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="longshore-duel-"))
        sides = []
        for name in ("one", "other"):
            file = f"sqlite:///{folder}/{name}.db"
            url = file if options.store == "sqlite" else server.create_database(name)
            sides.append(Side(getattr(options, name), url, server, options))
            stack.callback(sides[-1].close)
        yield sides


def main() -> None:
    """Reads what is wanted, and measures it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--what", choices=WHAT, default="burst")
    parser.add_argument("--store", choices=["postgres", "sqlite"], default="postgres")
    for name, default in [("dispatchers", 1), ("workers", 2), ("processes", 1), ("pairs", 30)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=100, help="of the layers of a group")
    parser.add_argument("--asks", type=int, default=50)
    options = parser.parse_args()
    rates = ("jobs/s", "CPU µs a job")
    of_group = (*rates, "s to submit", "s to run")
    with arena(options) as sides:
        match options.what:
            case "burst":
                duel(sides, burst(options.jobs), options.pairs, rates)
            case "group":
                duel(sides, group(options.jobs, options.width), options.pairs, of_group)
            case "flat":
                duel(sides, flat(options.jobs), options.pairs, of_group)
            case "chain":
                duel(sides, chain(options.jobs), options.pairs, ("ms a step",))
            case "ask":
                duel(sides, ask(options.asks), options.pairs, ("ms to the reply", "ms of CPU"))
            case "compute":
                duel(sides, compute(options.jobs), options.pairs, rates)
            case _:
                duel(sides, single, options.pairs, ("ms to the start", "ms to the result"))


if __name__ == "__main__":
    main()
