"""Groups: what dependencies cost, beside the same jobs without any, and beside other graphs.

- A graph in layers, each job after two of the layer before, in turn with as many jobs without
  dependencies on the same fleet: a small graph and a large one. The small one on two dispatchers.
- A chain: from the start of a job to that of the next, beside one commit and two hops.
- The submit of a large group, in turn with `submit_many` of the same jobs.
- Ray and Dask, which keep nothing on disk, on the small graph. The other peers have no graphs of
  jobs that are submitted as one.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from msgspec import Struct

from bench.children import Child, ChildFailed
from bench.fleet import Fleet, fleet
from bench.hops import measure_hops
from bench.pairs import Ratio, interleave, ratio_of
from bench.peers.table import MEASURE_S, peer_command, pinned
from bench.stage import STORES, Stage

PEERS = {"ray": "ray", "dask": "distributed"}
"""The peers with graphs, and the package that each is pinned by."""
CHAIN_WARM_UP = 20


class Graph(Struct, frozen=True):
    """A graph in layers beside the same jobs without dependencies, in jobs per second."""

    store: str
    dispatchers: int
    jobs: int
    of_plain: Ratio


class Chain(Struct, frozen=True):
    """Milliseconds from one start to the next, beside one commit and two hops, p50 of each pair."""

    store: str
    ratio: Ratio


class Submit(Struct, frozen=True):
    """Seconds to describe and submit a group, beside those of `submit_many`."""

    store: str
    jobs: int
    ratio: Ratio


class GraphPeer(Struct, frozen=True):
    """How many times as fast as a peer we are on the small graph; or why that is not known."""

    name: str
    version: str
    ratio: Ratio | None
    failure: str = ""


class Groups(Struct, frozen=True):
    """What was measured; `two_of_one` is of two dispatchers beside one, on PostgreSQL."""

    graphs: list[Graph]
    two_of_one: Ratio
    chains: list[Chain]
    submits: list[Submit]
    peers: list[GraphPeer]


def measure(stage: Stage, names: Sequence[str] = ()) -> Groups:
    """All of it."""
    graphs, chains, submits = [], [], []
    for store in STORES:
        with stage.fresh(store) as url, fleet(url, stage.folder) as ours:
            graphs += list(_graphs(stage, store, ours))
            chains.append(_chain(stage, store, ours))
            submits.append(_submit(stage, store, ours))
    two_of_one = _two_of_one(stage)
    peers = [_beside(stage, name) for name in PEERS if not names or name in names]
    return Groups(graphs, two_of_one, chains, submits, peers)


def _graphs(stage: Stage, store: str, ours: Fleet) -> Iterator[Graph]:
    ours.warm(stage.sizes)
    ours.run_group(2, 100)
    for layers, width in (stage.sizes.graph, stage.sizes.large_graph):
        ratio = _in_turn(stage.sizes.pairs, ours, layers, width)
        jobs = layers * width
        rates = f"{ratio.one:,.0f} and {ratio.other:,.0f} jobs/s"
        stage.say(f"{store}, {jobs:,} jobs: {ratio.median:.2f} of those without groups ({rates})")
        yield Graph(store, len(ours.dispatchers), jobs, ratio)


def _in_turn(pairs: int, ours: Fleet, layers: int, width: int) -> Ratio:
    return interleave(
        pairs, lambda: ours.run_group(layers, width), lambda: ours.run_alone(layers * width)
    )


def _chain(stage: Stage, store: str, ours: Fleet) -> Chain:
    found, least = [], []
    with stage.fresh(store) as probe:
        for _ in range(stage.sizes.pairs):
            steps = ours.clients[0].ask(do="chain", jobs=stage.sizes.chain_jobs)
            found.append(statistics.median(steps[CHAIN_WARM_UP:]))
            hops = measure_hops(probe, stage.sizes.samples // stage.sizes.pairs, 0.0)
            least.append(hops.both.p50_ms)
    ratio = ratio_of(found, least)
    stage.say(f"{store}, chain: {ratio.one:.2f} ms a job, {ratio.median:.2f} commits and hops")
    return Chain(store, ratio)


def _submit(stage: Stage, store: str, ours: Fleet) -> Submit:
    layers, width = stage.sizes.large_graph
    client = ours.clients[0]

    def seconds(as_group: bool) -> float:
        asked = client.ask(do="submit", layers=layers, width=width, as_group=as_group)
        return float(asked)

    ratio = interleave(stage.sizes.pairs, lambda: seconds(True), lambda: seconds(False))
    jobs = layers * width
    stage.say(f"{store}, submit of {jobs:,} jobs: {ratio.median:.2f} times submit_many")
    return Submit(store, jobs, ratio)


def _two_of_one(stage: Stage) -> Ratio:
    """Two dispatchers on one group, in turn with one."""
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(
                fleet(stack.enter_context(stage.fresh()), stage.folder, dispatchers=number)
            )
            for number in (1, 2)
        )
        for ours in (one, two):
            ours.warm(stage.sizes)
            ours.run_group(2, 100)
        layers, width = stage.sizes.graph
        pairs = stage.sizes.pairs
        run = interleave(
            pairs, lambda: two.run_group(layers, width), lambda: one.run_group(layers, width)
        )
    stage.say(f"two dispatchers on one group: {run.median:.2f} of one")
    return run


def _beside(stage: Stage, name: str) -> GraphPeer:
    """Rounds of our small graph on a fleet just started, and of the peer's."""
    layers, width = stage.sizes.graph
    version = pinned(name, PEERS[name])
    command = [*peer_command(name), str(layers), str(width)]
    ours, theirs = [], []
    try:
        for _ in range(stage.sizes.pairs):
            with stage.fresh() as url, fleet(url, stage.folder) as own:
                own.run_group(2, 100)
                ours.append(own.run_group(layers, width))
            with Child(command) as measuring:
                seconds = float(measuring.await_end(MEASURE_S).split()[-1])
            theirs.append(layers * width / seconds)
    except (ChildFailed, IndexError, ValueError) as error:
        return GraphPeer(name, version, None, str(error))
    ratio = ratio_of(ours, theirs)
    stage.say(f"{name}: {ratio.other:,.0f} nodes/s; we are {ratio.median:.2f} times as fast")
    return GraphPeer(name, version, ratio)
