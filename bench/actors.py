"""Actors: messages a second, a million that sleep, one that never rests, and peers.

- Messages in bulk to many actors and to one, from the first send until every message has been read
  by a turn that is committed: then every state has counted all.
- Many sleeping actors with a timer each: memory, how late timers are, and jobs beside an empty
  store.
- One actor at a steady rate, on an empty store and under an old snapshot: what a turn costs in the
  last third of the time beside the first, how many rows there are, and how long timers take.
- Peers: DBOS, Restate and Temporal, which keep messages; Ray and Dask, which do not.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext

from msgspec import Struct

from bench import sleepers
from bench.actor_app import TICK_S
from bench.children import Child, ChildFailed
from bench.flatness import old_snapshot
from bench.fleet import Fleet, fleet
from bench.helper import Helper
from bench.pairs import Ratio, ratio_of
from bench.peers.table import MEASURE_S, peer_command, pinned
from bench.percentiles import Times, times_of
from bench.sql import ask_one
from bench.stage import STORES, Stage
from bench.usage import backends_cpu_s, cpu_s, memory_mb

APP = "bench.actor_app:app"
POLL_S = 0.01
HOUR_S = 3600.0
QUIET_S = 25.0
"""So long no timer is due, and a little for each run of jobs."""
TICKERS = 20
THIRDS = 3
_LEFT = "SELECT count(*) AS n FROM longshore.message"
_ROWS = """
SELECT (SELECT count(*) FROM longshore.turn) + (SELECT count(*) FROM longshore.message)
    + (SELECT count(*) FROM longshore.job) AS n
"""


class Rate(Struct, frozen=True):
    """Messages per second to so many actors."""

    store: str
    actors: int
    messages: int
    rates: list[float]

    @property
    def per_s(self) -> float:
        """The median of the runs."""
        return statistics.median(self.rates)


class Sleeping(Struct, frozen=True):
    """So many actors with a timer each over the next hour, on PostgreSQL; memory in megabytes.

    `memory` and `memory_empty` are those of all dispatchers and workers. Jobs run while all sleep:
    a second beside an empty store, and the CPU that each takes in all processes but the client's.
    """

    actors: int
    fired: int
    late: Times | None
    memory: float
    memory_empty: float
    jobs_of_empty: Ratio
    cpu_of_empty: Ratio


class Steady(Struct, frozen=True):
    """One actor at a steady rate: microseconds of CPU a turn in each third, of all but the client.

    `rows` are those of turns, messages and jobs; `tick_ms` is by how much a timer takes longer than
    it was set for, in the first and in the last third.
    """

    held: bool
    seconds: float
    turns: int
    cpu_us: list[float]
    rows: list[int]
    tick_ms: list[float]

    @property
    def last_of_first(self) -> float:
        """The cost of a turn in the last third beside that in the first."""
        return self.cpu_us[-1] / self.cpu_us[0]


class ActorPeer(Struct, frozen=True):
    """How many times as many messages a second as a peer; or why that is not known."""

    name: str
    version: str
    durable: bool
    note: str
    ratio: Ratio | None
    failure: str = ""


class Actors(Struct, frozen=True):
    """What was measured."""

    rates: list[Rate]
    sleeping: Sleeping
    steady: list[Steady]
    peers: list[ActorPeer]


class PeerSide(Struct, frozen=True):
    """A peer: the package it is pinned by, how many messages it gets, and how it is set up."""

    package: str
    messages: int
    durable: bool
    note: str


PEERS = {
    "dbos": PeerSide("dbos", 1_000, True, "send and recv, PostgreSQL, async workflows"),
    "restate": PeerSide("restate-sdk", 4_000, True, "virtual objects, its own store on disk"),
    "temporal": PeerSide(
        "temporalio", 1_000, True, "entity workflows and signals, dev server on a SQLite file"
    ),
    "ray": PeerSide("ray", 10_000, False, "8 actors, each a process"),
    "dask": PeerSide("distributed", 1_000, False, "actors on 2 workers"),
}


def measure(stage: Stage, names: Sequence[str] = ()) -> Actors:
    """All of it."""
    rates = list[Rate]()
    for store in STORES:
        with stage.fresh(store) as url, actor_fleet(url, stage) as (ours, client):
            rates += [_rate(stage, store, ours, client, many) for many in (stage.sizes.actors, 1)]
    sleeping = _sleeping(stage)
    steady = [_steady(stage, held=held) for held in (False, True)]
    peers = [_beside(stage, name) for name in PEERS if not names or name in names]
    return Actors(rates, sleeping, steady, peers)


@contextmanager
def actor_fleet(url: str, stage: Stage) -> Iterator[tuple[Fleet, Helper]]:
    """A fleet that has actors, and a client of theirs."""
    with fleet(url, stage.folder, app=APP) as ours:
        where = ours.dispatchers[0].facts["frontend"]
        with Helper("actor_client", env={"LONGSHORE_CONNECT": where}) as client:
            yield ours, client


# messages


def _rate(stage: Stage, store: str, ours: Fleet, client: Helper, actors: int) -> Rate:
    messages = stage.sizes.messages
    client.ask(do="start", type="Counter", actors=actors)
    run_messages(ours.url, client, messages // 10, actors)
    rates = [run_messages(ours.url, client, messages, actors) for _ in range(stage.sizes.pairs)]
    found = Rate(store, actors, messages, rates)
    stage.say(f"{store}, {messages:,} messages to {actors:,} actors: {found.per_s:,.0f} a second")
    return found


def run_messages(url: str, client: Helper, messages: int, actors: int) -> float:
    """Messages per second, from the first send until all have been read; checks the states."""
    before = client.ask(do="counted", actors=actors)
    began = float(client.ask(do="send", messages=messages, actors=actors))
    while _unread(url):
        time.sleep(POLL_S)
    ended = time.monotonic()
    counted = client.ask(do="counted", actors=actors) - before
    if counted != messages:
        raise RuntimeError(f"{messages:,} messages were sent, and {counted:,} counted")
    return messages / (ended - began)


def _unread(url: str) -> int:
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return int(connection.execute("SELECT count(*) FROM message").fetchone()[0])
    return int(ask_one(url, _LEFT)["n"])


# sleeping


def _sleeping(stage: Stage) -> Sleeping:
    sizes = stage.sizes
    with stage.fresh() as url, stage.fresh() as empty_url:
        quiet_s = QUIET_S + 4 * sizes.pairs * sizes.run_s
        due = sleepers.fill(url, sizes.sleepers, HOUR_S, quiet_s)
        with actor_fleet(url, stage) as (ours, _), actor_fleet(empty_url, stage) as (empty, _):
            jobs = empty.warm(sizes)
            ours.run(jobs)
            rates, costs = _beside_empty(stage, ours, empty, jobs)
            time.sleep(max(0.0, due - time.time()) + sizes.watch_s)
            memory, memory_empty = _memory_mb(ours), _memory_mb(empty)
        late = sleepers.late_ms(url, due)
    times = times_of(late) if len(late) > 1 else None
    shown = f"p99 {times.p99_ms:,.0f} ms late" if times else "none"
    stage.say(
        f"{sizes.sleepers:,} sleeping: {len(late):,} timers fired, {shown}; {memory:.0f} MB beside "
        f"{memory_empty:.0f}; jobs {rates.median:.2f} of empty, CPU of a job {costs.median:.2f}"
    )
    return Sleeping(sizes.sleepers, len(late), times, memory, memory_empty, rates, costs)


def _beside_empty(stage: Stage, ours: Fleet, empty: Fleet, jobs: int) -> tuple[Ratio, Ratio]:
    """The speed of jobs, and what one costs, in turn with those on an empty store."""
    found: dict[Fleet, list[tuple[float, float]]] = {ours: [], empty: []}
    for pair in range(stage.sizes.pairs):
        for one in (ours, empty) if pair % 2 else (empty, ours):
            found[one].append(_run(stage, one, jobs))
    speeds, costs = ([[run[at] for run in runs] for runs in found.values()] for at in (0, 1))
    return ratio_of(*speeds), ratio_of(*costs)


def _run(stage: Stage, ours: Fleet, jobs: int) -> tuple[float, float]:
    """Jobs a second, and microseconds of CPU that each takes."""
    database = ours.url.rpartition("/")[2]
    pids = [process.pid for process in [*ours.dispatchers, *ours.workers]]

    def used() -> float:
        return cpu_s(pids) + backends_cpu_s(stage.server.pid or 0, database)

    before = used()
    rate = ours.run(jobs)
    return rate, (used() - before) / jobs * 1e6


def _memory_mb(ours: Fleet) -> float:
    return sum(memory_mb(process.pid) for process in [*ours.dispatchers, *ours.workers])


# one that never rests


def _steady(stage: Stage, *, held: bool) -> Steady:
    sizes = stage.sizes
    third_s = sizes.steady_s / THIRDS
    cpu_us, rows, ticks, turns = list[float](), list[int](), list[float](), 0
    with stage.fresh() as url, actor_fleet(url, stage) as (ours, client):
        client.ask(do="start", type="Counter", actors=1)
        client.ask(do="start", type="Ticker", actors=TICKERS)
        client.ask(do="steady", rate=sizes.steady_rate, seconds=min(third_s, 3.0))
        with old_snapshot(url) if held else nullcontext():
            for _ in range(THIRDS):
                used = _cpu_s(stage, ours)
                sent = client.ask(do="steady", rate=sizes.steady_rate, seconds=third_s)
                cpu_us.append((_cpu_s(stage, ours) - used) / sent * 1e6)
                rows.append(int(ask_one(url, _ROWS)["n"]))
                ticks.append(_tick_ms(client.ask(do="fired", actors=TICKERS)))
                turns += sent
    found = Steady(held, sizes.steady_s, turns, cpu_us, rows, [ticks[0], ticks[-1]])
    where = "under an old snapshot" if held else "on an empty store"
    stage.say(
        f"{turns:,} messages one by one {where}: the last third costs {found.last_of_first:.2f} of "
        f"the first; rows {rows}; a timer {ticks[0]:.1f} and {ticks[-1]:.1f} ms late"
    )
    return found


def _cpu_s(stage: Stage, ours: Fleet) -> float:
    pids = [process.pid for process in [*ours.dispatchers, *ours.workers]]
    return cpu_s([*pids, stage.server.pid or 0])


def _tick_ms(fired: Sequence[Sequence[float]]) -> float:
    """By how much the time between two ticks is longer than it was set for, in the middle."""
    gaps = [later - one for times in fired for one, later in itertools.pairwise(times)]
    return (statistics.median(gaps) - TICK_S) * 1e3 if gaps else 0.0


# peers


def _beside(stage: Stage, name: str) -> ActorPeer:
    """Rounds of ours on a fleet just started, and of the peer."""
    side, actors = PEERS[name], stage.sizes.peer_actors
    version = pinned(name, side.package)
    messages = max(actors, round(side.messages * stage.sizes.peer_share))
    ours, theirs = list[float](), list[float]()
    try:
        for _ in range(stage.sizes.pairs):
            with stage.fresh() as url, actor_fleet(url, stage) as (own, client):
                client.ask(do="start", type="Counter", actors=actors)
                ours.append(run_messages(own.url, client, stage.sizes.messages, actors))
            with stage.empty() as url:
                words = [*peer_command(name, "actors"), url, str(messages), str(actors)]
                with Child(words) as measuring:
                    seconds = float(measuring.await_end(MEASURE_S).split()[-1])
            theirs.append(messages / seconds)
    except (ChildFailed, IndexError, ValueError) as error:
        stage.say(f"{name} failed: {error}")
        return ActorPeer(name, version, side.durable, side.note, None, str(error))
    ratio = ratio_of(ours, theirs)
    stage.say(f"{name}: {ratio.other:,.0f} messages/s; ours are {ratio.median:.2f} times as many")
    return ActorPeer(name, version, side.durable, side.note, ratio)
