"""Messages to actors beside those of others, each on an empty store, with processes just started.

DBOS, Restate and Temporal keep messages; Ray and Dask do not. None has a way to send many at once.
So beside the first three ours are sent in bulk, and also one by one, with as many under way at a
time as theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from bench.actors import actor_fleet, run_messages
from bench.children import Child, ChildFailed
from bench.pairs import Ratio, ratio_of
from bench.peers.table import MEASURE_S, peer_command, pinned
from bench.stage import Stage

SINGLES = 5
"""Of so many messages that are sent in bulk, one is sent by itself beside those of peers."""


class ActorPeer(Struct, frozen=True):
    """How many times as many messages a second as a peer; or why that is not known."""

    name: str
    version: str
    durable: bool
    note: str
    ratio: Ratio | None
    """Of ours in bulk."""
    failure: str = ""
    at_once: int = 0
    singles: Ratio | None = None
    """Of ours one by one, so many under way at a time, as the peer sends them."""


class PeerSide(Struct, frozen=True):
    """A peer: the package it is pinned by, how many messages it gets, and how it is set up."""

    package: str
    messages: int
    durable: bool
    note: str
    at_once: int = 0
    """So many of its messages are under way at a time; 0 if it is not known."""


PEERS = {
    "dbos": PeerSide("dbos", 1_000, True, "send and recv, PostgreSQL, async workflows", 20),
    "restate": PeerSide("restate-sdk", 4_000, True, "virtual objects, its own store on disk", 50),
    "temporal": PeerSide(
        "temporalio", 1_000, True, "entity workflows and signals, dev server on a SQLite file", 50
    ),
    "ray": PeerSide("ray", 10_000, False, "8 actors, each a process"),
    "dask": PeerSide("distributed", 1_000, False, "actors on 2 workers"),
}


def measure(stage: Stage, names: Sequence[str] = ()) -> list[ActorPeer]:
    """Beside all, or those of these names."""
    return [_beside(stage, name) for name in PEERS if not names or name in names]


def _beside(stage: Stage, name: str) -> ActorPeer:
    """Rounds of ours on a fleet just started, and of the peer."""
    side, actors = PEERS[name], stage.sizes.peer_actors
    version = pinned(name, side.package)
    messages = max(actors, round(side.messages * stage.sizes.peer_share))
    ours, singles, theirs = list[float](), list[float](), list[float]()
    try:
        for _ in range(stage.sizes.pairs):
            with stage.fresh() as url, actor_fleet(url, stage) as (own, client):
                client.ask(do="start", type="Counter", actors=actors)
                ours.append(run_messages(own.url, client, stage.sizes.messages, actors))
                if side.at_once:
                    each = max(actors, stage.sizes.messages // SINGLES)
                    singles.append(
                        run_messages(own.url, client, each, actors, at_once=side.at_once)
                    )
            with stage.empty() as url:
                words = [*peer_command(name, "actors"), url, str(messages), str(actors)]
                with Child(words) as measuring:
                    seconds = float(measuring.await_end(MEASURE_S).split()[-1])
            theirs.append(messages / seconds)
    except (ChildFailed, IndexError, ValueError) as error:
        stage.say(f"{name} failed: {error}")
        return ActorPeer(name, version, side.durable, side.note, None, str(error))
    ratio = ratio_of(ours, theirs)
    of_singles = ratio_of(singles, theirs) if singles else None
    beside = f", {of_singles.median:.2f} times one by one" if of_singles else ""
    stage.say(
        f"{name}: {ratio.other:,.0f} messages/s; ours are {ratio.median:.2f} times as many{beside}"
    )
    known = side.durable, side.note
    return ActorPeer(name, version, *known, ratio, at_once=side.at_once, singles=of_singles)
