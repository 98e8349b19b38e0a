"""The job systems that Longshore is compared with, and how one of them is measured.

Each peer is a script beside this file, run in an environment of its own (`scripts/setup bench`)
with nothing of Longshore. All have one command line:

    NAME.py install URL      what its store needs before the first job
    NAME.py worker URL       takes jobs until it is terminated; prints "ready" when it does
    NAME.py measure URL N    submits N no-op jobs with a 100-byte argument while workers run them;
                             prints the seconds until all were done

Ray and Dask run graphs only: see `bench.groups`, which also runs NAME_graph.py with a URL, layers
and their width. celery_beat.py is for `bench.beat`. NAME_actors.py is for `bench.actors`: it takes
a URL, how many messages and to how many actors, and prints the seconds. Python runs all of them
with -P, or `import celery` in celery.py would find the script itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct

from bench.children import Child, ChildFailed

HERE = Path(__file__).parent
VENVS = HERE.parent / ".venvs"
PINS = HERE.parent.parent / "requirements" / "bench"

INSTALL_S = 60.0
READY_S = 30.0
MEASURE_S = 90.0

Store = Literal["postgresql", "redis"]


class Peer(Struct, frozen=True, kw_only=True):
    """A job system, as measured.

    `survives`: whether a job it acknowledged is still there after a kill -9 of its store.
    `keeps_results`: whether the value that a job returned can be read afterwards.
    `runs_plain`: whether the jobs that are measured are plain functions, not coroutines.
    `most_jobs`: with more than these one measurement would take too long.
    """

    name: str
    version: str
    store: Store
    survives: bool
    keeps_results: bool
    runs_plain: bool = False
    workers: int = 2
    most_jobs: int
    note: str


def pinned(name: str, package: str = "") -> str:
    """The version of a package that the environment of a peer is pinned to."""
    pins = (PINS / f"{name}.txt").read_text().splitlines()
    return next(pin.partition("==")[2] for pin in pins if pin.startswith(f"{package or name}=="))


PEERS: tuple[Peer, ...] = (
    Peer(
        name="pgqueuer",
        version=pinned("pgqueuer"),
        store="postgresql",
        survives=True,
        keeps_results=False,
        most_jobs=100_000,
        note="asyncpg, uvloop, batches of 500",
    ),
    Peer(
        name="chancy",
        version=pinned("chancy"),
        store="postgresql",
        survives=True,
        keeps_results=False,
        most_jobs=5_000,
        note="async executor, 500 at once, eager polling, uvloop",
    ),
    Peer(
        name="dbos",
        version=pinned("dbos"),
        store="postgresql",
        survives=True,
        keeps_results=True,
        most_jobs=1_000,
        note="async workflows, 100 at once per worker, queue polled every 50 ms",
    ),
    Peer(
        name="procrastinate",
        version=pinned("procrastinate"),
        store="postgresql",
        survives=True,
        keeps_results=False,
        most_jobs=1_000,
        note="psycopg 3, 20 at once per worker, uvloop",
    ),
    Peer(
        name="dramatiq",
        version=pinned("dramatiq"),
        store="redis",
        survives=False,
        keeps_results=False,
        runs_plain=True,
        most_jobs=10_000,
        note="2 processes of 4 threads, prefetch 500 each, hiredis",
    ),
    Peer(
        name="huey",
        version=pinned("huey"),
        store="redis",
        survives=False,
        keeps_results=True,
        runs_plain=True,
        most_jobs=10_000,
        note="2 processes, hiredis",
    ),
    Peer(
        name="taskiq",
        version=pinned("taskiq"),
        store="redis",
        survives=False,
        keeps_results=True,
        most_jobs=10_000,
        note="list broker, 10 at once per worker, uvloop, hiredis",
    ),
    Peer(
        name="saq",
        version=pinned("saq"),
        store="redis",
        survives=False,
        keeps_results=True,
        most_jobs=5_000,
        note="10 at once per worker, uvloop, hiredis",
    ),
    Peer(
        name="arq",
        version=pinned("arq"),
        store="redis",
        survives=False,
        keeps_results=True,
        most_jobs=5_000,
        note="10 at once per worker, polled every 10 ms, uvloop, hiredis",
    ),
    Peer(
        name="celery",
        version=pinned("celery"),
        store="redis",
        survives=False,
        keeps_results=True,
        runs_plain=True,
        workers=1,
        most_jobs=3_000,
        note="prefork, 2 children, prefetch 500 each, hiredis",
    ),
)


def measure(peer: Peer, url: str, jobs: int, keys: int = 0) -> float:
    """Jobs per second of a peer, on an empty store; of at most `most_jobs` jobs.

    With `keys`, of those with one of them one runs at a time, if the peer's script knows how.
    Call it from the main thread. A peer that fails or hangs becomes a ChildFailed.
    """
    number = min(jobs, peer.most_jobs)
    with Child([*peer_command(peer.name), "install", url]) as installing:
        installing.await_end(INSTALL_S)
    command = [*peer_command(peer.name), "measure", url, str(number)]
    command += [str(keys)] if keys else []
    with _workers(peer, url) as workers, Child(command) as measuring:
        return number / _seconds(measuring.await_end(MEASURE_S, beside=workers), peer)


def measure_graph(peer: Peer, url: str, layers: int, width: int) -> float:
    """Nodes per second of a peer that has a script for graphs."""
    command = [*peer_command(peer.name, "graph"), url, str(layers), str(width)]
    with _workers(peer, url) as workers, Child(command) as measuring:
        output = measuring.await_end(MEASURE_S, beside=workers)
    return layers * width / _seconds(output, peer)


@contextmanager
def _workers(peer: Peer, url: str) -> Iterator[list[Child]]:
    """The peer's workers run, and all take jobs."""
    with ExitStack() as stack:
        command = [*peer_command(peer.name), "worker", url]
        workers = [stack.enter_context(Child(command)) for _ in range(peer.workers)]
        for worker in workers:
            if (said := worker.await_line(READY_S)) != "ready":
                raise ChildFailed(f"{worker.name}: said {said!r} instead of ready")
        yield workers


def peer_command(name: str, what: str = "") -> list[str | Path]:
    """The command line of a peer's script, or of the one for this, without its words."""
    python = VENVS / name / "bin" / "python"
    if not python.exists():
        raise ChildFailed(f"{name} is not installed: run `scripts/setup bench`")
    return [python, "-P", HERE / (f"{name}_{what}.py" if what else f"{name}.py")]


def _seconds(output: str, peer: Peer) -> float:
    try:
        return float(output.split()[-1])
    except (IndexError, ValueError):
        raise ChildFailed(f"{peer.name}: printed no seconds but {output[-200:]!r}") from None
