"""Actors: messages a second, and one that never rests.

- Messages in bulk to many actors and to one, from the first send until every message has been read
  by a turn that is committed: then every state has counted all.
- One actor at a steady rate, on an empty store and under an old snapshot: what a turn costs in the
  last third of the time beside the first, how many rows there are, and how long timers take.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext

from msgspec import Struct

from bench.actor_app import TICK_S
from bench.flatness import old_snapshot
from bench.fleet import Fleet, fleet
from bench.helper import Helper
from bench.sql import ask_one
from bench.stage import STORES, Stage
from bench.usage import cpu_s

APP = "bench.actor_app:app"
POLL_S = 0.01
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


class Actors(Struct, frozen=True):
    """What was measured."""

    rates: list[Rate]
    steady: list[Steady]


def measure(stage: Stage) -> Actors:
    """Both."""
    rates = list[Rate]()
    for store in STORES:
        with stage.fresh(store) as url, actor_fleet(url, stage) as (ours, client):
            rates += [_rate(stage, store, ours, client, many) for many in (stage.sizes.actors, 1)]
    return Actors(rates, [_steady(stage, held=held) for held in (False, True)])


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


def run_messages(
    url: str, client: Helper, messages: int, actors: int, *, at_once: int = 0
) -> float:
    """Messages per second, from the first send until all have been read; checks the states.

    They are sent in bulk, or one by one with so many under way `at_once`.
    """
    before = client.ask(do="counted", actors=actors)
    words = {"messages": messages, "actors": actors}
    how = {"do": "send_each", "at_once": at_once} if at_once else {"do": "send"}
    began = float(client.ask(**how, **words))
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
