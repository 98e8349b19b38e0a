"""Peers: the same jobs through other job systems, in turn with ours, each on an empty store.

In a round ours goes first, then each peer; a peer's pairs are its runs and ours of the same rounds.
All begin with processes just started, on databases just made, and are measured from the description
of the first job on.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

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


class PeerTurns:
    """The peers still in the race, and what they did so far."""

    def __init__(self, stage: Stage, peers: Sequence[Peer], redis: RedisServer | None) -> None:
        self._stage = stage
        self._redis = redis
        self._peers = peers
        self._rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
        self._failures: dict[str, str] = {}

    def round(self, jobs: int) -> None:
        """Each peer that has not failed once."""
        for peer in self._peers:
            if peer.name not in self._failures:
                self._turn_of(peer, jobs)

    def _turn_of(self, peer: Peer, jobs: int) -> None:
        try:
            rate = self._run(peer, self._share(peer, jobs))
        except Exception as error:
            self._failures[peer.name] = str(error)
            self._stage.say(f"{peer.name} failed: {error}")
        else:
            self._rates[peer.name].append(rate)
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

    def beside(self, ours: Sequence[float], jobs: int) -> list[PeerRuns]:
        """The peers' runs, and ours of the same rounds."""
        return [self._of(peer, ours, jobs) for peer in self._peers]

    def _of(self, peer: Peer, ours: Sequence[float], jobs: int) -> PeerRuns:
        rates = self._rates[peer.name]
        return PeerRuns(
            peer.name,
            peer.version,
            peer.store,
            peer.note,
            peer.survives,
            peer.keeps_results,
            self._share(peer, jobs),
            ratio_of(ours[: len(rates)], rates) if rates else None,
            self._failures.get(peer.name, ""),
        )


def measure(stage: Stage, names: Sequence[str] = ()) -> Beside:
    """So many rounds with the peers of these names, or with all."""
    jobs, ours = stage.sizes.most_jobs, list[float]()
    with peer_turns(stage, PEERS, names) as turns:
        for _ in range(stage.sizes.pairs):
            with stage.fresh() as url, fleet(url, stage.folder) as own:
                ours.append(own.run(jobs, described=False))
            stage.say(f"longshore {ours[-1]:,.0f} jobs/s")
            turns.round(jobs)
    return Beside(jobs, ours, turns.beside(ours, jobs))


@contextmanager
def peer_turns(stage: Stage, peers: Sequence[Peer], names: Sequence[str]) -> Iterator[PeerTurns]:
    """The peers that are wanted, with the server that they need."""
    wanted = [peer for peer in peers if not names or peer.name in names]
    if not names:
        wanted = wanted[: stage.sizes.most_peers]
    with ExitStack() as stack:
        yield PeerTurns(stage, wanted, _redis_for(wanted, stack, stage))


def _redis_for(peers: Sequence[Peer], stack: ExitStack, stage: Stage) -> RedisServer | None:
    if all(peer.store != "redis" for peer in peers):
        return None
    try:
        return stack.enter_context(RedisServer())
    except (RuntimeError, OSError) as error:
        stage.say(str(error))
        return None
