"""Locks: jobs of which one runs at a time for each key, beside Procrastinate's.

The same jobs with `Limit(1, key=...)` here and with a lock there, in turn, each on an empty store
and with processes just started, from the description of the first job on.
"""

from __future__ import annotations

from msgspec import Struct

from bench.children import ChildFailed
from bench.fleet import fleet
from bench.limits import APP
from bench.pairs import Ratio, ratio_of
from bench.peers.table import PEERS
from bench.peers.table import measure as measure_peer
from bench.stage import Stage

KIND = "noop_in_turn"
NAME = "procrastinate"


class Locks(Struct, frozen=True):
    """How many times as many jobs a second as the peer; or why that is not known."""

    name: str
    version: str
    jobs: int
    keys: int
    ours: list[float]
    ratio: Ratio | None
    failure: str = ""


def measure(stage: Stage) -> Locks:
    """On PostgreSQL."""
    peer = next(peer for peer in PEERS if peer.name == NAME)
    keys = stage.sizes.lock_keys
    jobs = max(keys, round(peer.most_jobs * stage.sizes.peer_share)) // keys * keys
    ours, theirs, failure = list[float](), list[float](), ""
    for _ in range(stage.sizes.pairs):
        with stage.fresh() as url, fleet(url, stage.folder, app=APP) as own:
            own.keys = keys
            ours.append(own.run(jobs, KIND, described=False))
        stage.say(f"longshore, {jobs:,} jobs of {keys} keys in turn: {ours[-1]:,.0f} jobs/s")
        if failure:
            continue
        try:
            with stage.empty() as url:
                theirs.append(measure_peer(peer, url, jobs, keys))
        except (ChildFailed, OSError) as error:
            failure = str(error)
            stage.say(f"{NAME} failed: {failure}")
        else:
            stage.say(f"{NAME} {theirs[-1]:,.0f} jobs/s")
    ratio = None if failure else ratio_of(ours, theirs)
    return Locks(peer.name, peer.version, jobs, keys, ours, ratio, failure)
