"""Longshore as users run it: dispatchers, workers and clients, each a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.helper import ROOT, Helper
from bench.sizes import Sizes
from longshore.testing.processes import Process, close_all

ANY = "127.0.0.1:0"
APP = "bench.noop_app:app"
PLAIN_APP = "bench.plain_app:app"
SLOTS = 2_000
PROCESSES = 2
THREADS = 32
FIRST_JOBS = 200
PATIENCE_S = "60"
"""What else a machine does may slow a run down. It should not end it."""


class Fleet:
    """Processes that are ready, and one client for each dispatcher."""

    def __init__(self, url: str, folder: Path, app: str = APP, processes: int = PROCESSES) -> None:
        self.url = url
        self.keys = 1
        """So many keys of limits the jobs of a run have, if they have any."""
        self._app = app
        self._processes = processes
        self.dispatchers: list[Process] = []
        self.workers: list[Process] = []
        self.clients: list[Helper] = []
        self._folder = folder

    def add_dispatcher(self) -> Process:
        """One more, on ports of its own."""
        # All runs together may end more jobs than are kept, and what is pruned is not counted.
        words = ["--store", self.url, "--backend", ANY, "--frontend", ANY, "--set", "keep_most=0"]
        process = Process("dispatcher", *words, log=self._log("dispatcher"))
        self.dispatchers.append(process)
        return process.ready()

    def add_worker(self, first: int = 0, slots: int = SLOTS) -> Process:
        """One more, not waited for, that turns to the `first`-th dispatcher before the others."""
        words = ["--app", self._app, "--slots", str(slots), "--threads", str(THREADS)]
        words += ["--processes", str(self._processes)]
        words += ["--connect", self._addresses("backend", first)]
        process = Process("worker", *words, cwd=ROOT, log=self._log("worker"))
        self.workers.append(process)
        return process

    def add_client(self, first: int = 0) -> Helper:
        """One more, that turns to the `first`-th dispatcher before the others."""
        where = self._addresses("frontend", first)
        env = {"LONGSHORE_CONNECT": where, "LONGSHORE_REQUEST_TIMEOUT_S": PATIENCE_S}
        client = Helper("client", env=env)
        self.clients.append(client)
        return client

    def _addresses(self, socket: str, first: int) -> str:
        turned = self.dispatchers[first:] + self.dispatchers[:first]
        return ",".join(dispatcher.facts[socket] for dispatcher in turned)

    def _log(self, role: str) -> Path:
        return self._folder / f"{role}.log"

    def run(self, jobs: int, kind: str = "noop", *, described: bool = True) -> float:
        """Jobs per second until all are recorded, from the first submit on.

        If they are not `described` before, it is from the first `call(…)` on.
        """
        share = jobs // len(self.clients)
        return self._rate(share, kind, described, do="run", all=share * len(self.clients))

    def collect(self, jobs: int) -> float:
        """Jobs per second, from the first submit until each client has all its outcomes."""
        return self._rate(jobs // len(self.clients), "noop", True, do="collect")

    def run_group(self, layers: int, width: int, *, edges: bool = True) -> float:
        """Jobs per second of a group in layers, from its submit until it has ended.

        The first client submits it, and waits for it. By then all are recorded. Without `edges`
        nothing in it depends on anything.
        """
        client, jobs = self.clients[0], layers * width
        client.ask(do="describe", layers=layers, width=width, edges=edges)
        began, ended = client.ask(do="run_group")
        return jobs / float(ended - began)

    def run_alone(self, jobs: int) -> float:
        """`run`, with all jobs from the first client, as `run_group` submits them."""
        client = self.clients[0]
        client.ask(do="prepare", jobs=jobs, kind="noop", described=True, keys=self.keys)
        began, ended = client.ask(do="run", all=jobs)
        return jobs / float(ended - began)

    def work(self, kind: str, each: Sequence[float]) -> float:
        """Seconds for jobs of these arguments.

        They pass between the first `call(…)` and the last outcome at the client, so also until the
        last outcome is recorded.
        """
        began, ended = self.clients[0].ask(do="work", kind=kind, each=each)
        return float(ended - began)

    def _rate(self, share: int, kind: str, described: bool, **what: object) -> float:
        for client in self.clients:
            client.ask(do="prepare", jobs=share, kind=kind, described=described, keys=self.keys)
        for client in self.clients:
            client.tell(**what)
        times = [client.answer() for client in self.clients]
        began, ended = min(time[0] for time in times), max(time[1] for time in times)
        return share * len(self.clients) / float(ended - began)

    def warm(self, sizes: Sizes) -> int:
        """Runs some jobs, and answers how many make a run of about the wanted length."""
        rate = self.run(FIRST_JOBS)
        rate = self.run(self._fitting(rate, sizes))
        return self._fitting(rate, sizes)

    def _fitting(self, rate: float, sizes: Sizes) -> int:
        jobs = min(sizes.most_jobs, max(FIRST_JOBS, round(rate * sizes.run_s)))
        return jobs // len(self.clients) * len(self.clients)

    def close(self) -> None:
        """Everything ends."""
        for client in self.clients:
            client.close()
        close_all([*self.dispatchers, *self.workers])


@contextmanager
def fleet(
    url: str,
    folder: Path,
    *,
    dispatchers: int = 1,
    workers: int = 2,
    slots: int = SLOTS,
    app: str = APP,
    processes: int = PROCESSES,
) -> Iterator[Fleet]:
    """A fleet that is ready; the workers are spread over the dispatchers."""
    made = Fleet(url, folder, app, processes)
    try:
        for _ in range(dispatchers):
            made.add_dispatcher()
        for number in range(workers):
            made.add_worker(number % dispatchers, slots)
        for number in range(dispatchers):
            made.add_client(number)
        for worker in made.workers:
            worker.ready()
        yield made
    finally:
        made.close()
