"""Peers: the same jobs through other job systems, in turn with ours, each on an empty store.

In a round ours goes first, then each peer; a peer's pairs are its runs and ours of the same rounds.
All begin with processes just started, on databases just made.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack

from msgspec import Struct

from bench.fleet import fleet
from bench.pairs import Ratio, ratio_of
from bench.peers.table import PEERS, Peer
from bench.peers.table import measure as measure_peer
from bench.redis_server import RedisServer
from bench.stage import Stage


class PeerRuns(Struct, frozen=True):
    """One peer's pairs with ours; `ratio` is how many times as fast ours is."""

    name: str
    version: str
    store: str
    note: str
    survives: bool
    keeps_results: bool
    jobs: int
    ratio: Ratio | None
    failure: str = ""


class Beside(Struct, frozen=True):
    """All peers, and our own runs in between."""

    jobs: int
    ours: list[float]
    peers: list[PeerRuns]

    @property
    def jobs_per_s(self) -> float:
        """The median of our runs."""
        return statistics.median(self.ours)


class Turns:
    """The peers still in the race, and what they did so far."""

    def __init__(self, stage: Stage, peers: Sequence[Peer], redis: RedisServer | None) -> None:
        self._stage = stage
        self._redis = redis
        self.peers = peers
        self.ours: list[float] = []
        self.rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
        self.failures: dict[str, str] = {}

    def round(self, jobs: int) -> None:
        """Ours once, and each peer that has not failed once."""
        with self._stage.fresh() as url, fleet(url, self._stage.folder) as ours:
            self.ours.append(ours.run(jobs))
        self._stage.say(f"longshore {self.ours[-1]:,.0f} jobs/s")
        for peer in self.peers:
            if peer.name not in self.failures:
                self._turn_of(peer, jobs)

    def _turn_of(self, peer: Peer, jobs: int) -> None:
        try:
            rate = self._run(peer, self._share(peer, jobs))
        except Exception as error:
            self.failures[peer.name] = str(error)
            self._stage.say(f"{peer.name} failed: {error}")
        else:
            self.rates[peer.name].append(rate)
            self._stage.say(f"{peer.name} {rate:,.0f} jobs/s")

    def _share(self, peer: Peer, jobs: int) -> int:
        return min(jobs, round(peer.most_jobs * self._stage.sizes.peer_share))

    def _run(self, peer: Peer, jobs: int) -> float:
        if peer.store == "redis":
            if self._redis is None:
                raise RuntimeError("there is no Redis here")
            return measure_peer(peer, self._redis.clear(), jobs)
        with self._stage.empty() as url:
            return measure_peer(peer, url, jobs)

    def result(self, jobs: int) -> Beside:
        """What came of it."""
        return Beside(jobs, self.ours, [self._of(peer, jobs) for peer in self.peers])

    def _of(self, peer: Peer, jobs: int) -> PeerRuns:
        rates = self.rates[peer.name]
        return PeerRuns(
            peer.name,
            peer.version,
            peer.store,
            peer.note,
            peer.survives,
            peer.keeps_results,
            self._share(peer, jobs),
            ratio_of(self.ours[: len(rates)], rates) if rates else None,
            self.failures.get(peer.name, ""),
        )


def measure(stage: Stage, names: Sequence[str] = ()) -> Beside:
    """So many rounds with the peers of these names, or with all."""
    peers = [peer for peer in PEERS if not names or peer.name in names]
    if not names:
        peers = peers[: stage.sizes.most_peers]
    jobs = stage.sizes.most_jobs
    with ExitStack() as stack:
        turns = Turns(stage, peers, _redis_for(peers, stack, stage))
        for _ in range(stage.sizes.pairs):
            turns.round(jobs)
    return turns.result(jobs)


def _redis_for(peers: Sequence[Peer], stack: ExitStack, stage: Stage) -> RedisServer | None:
    if all(peer.store != "redis" for peer in peers):
        return None
    try:
        return stack.enter_context(RedisServer())
    except (RuntimeError, OSError) as error:
        stage.say(str(error))
        return None
