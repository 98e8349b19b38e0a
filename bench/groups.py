"""Groups: what dependencies cost, beside the same jobs without any, and beside other graphs.

- A graph in layers, each job after two of the layer before, in turn with two others on the same
  fleet: as many jobs without a group, and the same group with its edges taken away. The first runs
  while it is submitted, which no group may; the second differs by nothing but the dependencies. A
  small graph and a large one. The small one on two dispatchers.
- A chain: from the recorded end of a job to the start of the next, beside one commit and two hops.
- The submit of a large group, in turn with `submit_many` of the same jobs.

Beside other graphs (`measure_peers`):

- Ray and Dask, which keep nothing on disk, on the small graph.
- DBOS and Celery, which have no graphs of jobs that are submitted as one, on the nearest that they
  have: layer after layer, without the edges between single jobs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from msgspec import Struct, structs

from bench.children import Child, ChildFailed
from bench.fleet import Fleet, fleet
from bench.hops import measure_hops
from bench.pairs import Ratio, interleave, ratio_of
from bench.peers import table
from bench.peers.table import MEASURE_S, Peer, measure_graph, peer_command, pinned
from bench.redis_server import RedisServer
from bench.stage import STORES, Stage

PEERS = {"ray": "ray", "dask": "distributed"}
"""The peers with graphs, and the package that each is pinned by."""
NEAREST = {
    "dbos": "steps of one workflow, layer after layer",
    "celery": "on Redis, a chord for each layer",
}
"""The peers without graphs of jobs, and what comes nearest."""
MOST_NEAREST_PAIRS = 2
"""Each of those takes up to half a minute for the graph."""
CHAIN_WARM_UP = 20


class Graph(Struct, frozen=True):
    """A graph in layers beside the same jobs without dependencies, in jobs per second.

    `of_plain` is beside jobs that are submitted without a group, `of_edgeless` beside the same
    group with its edges taken away.
    """

    store: str
    dispatchers: int
    jobs: int
    of_plain: Ratio
    of_edgeless: Ratio


class Chain(Struct, frozen=True):
    """Milliseconds from an end to the next start, beside one commit and two hops, p50 of each pair.

    The end is as the store recorded it. `steps` are from one start to the next.
    """

    store: str
    ratio: Ratio
    steps: list[float]


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
    nearest: str = ""
    """What it runs instead, if it has no such graphs."""


class Groups(Struct, frozen=True):
    """What was measured; `two_of_one` is of two dispatchers beside one, on PostgreSQL."""

    graphs: list[Graph]
    two_of_one: Ratio
    chains: list[Chain]
    submits: list[Submit]


def measure(stage: Stage) -> Groups:
    """All but the others."""
    graphs, chains, submits = [], [], []
    for store in STORES:
        with stage.fresh(store) as url, fleet(url, stage.folder) as ours:
            graphs += list(_graphs(stage, store, ours))
            chains.append(_chain(stage, store, ours))
            submits.append(_submit(stage, store, ours))
    return Groups(graphs, _two_of_one(stage), chains, submits)


def measure_peers(stage: Stage, names: Sequence[str] = ()) -> list[GraphPeer]:
    """The small graph beside the others, or beside those of these names."""
    wanted = [name for name in (*PEERS, *NEAREST) if not names or name in names]
    return [_beside(stage, name) for name in wanted]


def _graphs(stage: Stage, store: str, ours: Fleet) -> Iterator[Graph]:
    ours.warm(stage.sizes)
    ours.run_group(2, 100)
    for layers, width in (stage.sizes.graph, stage.sizes.large_graph):
        yield _graph(stage, store, ours, layers, width)


def _graph(stage: Stage, store: str, ours: Fleet, layers: int, width: int) -> Graph:
    jobs = layers * width
    layered, plain, edgeless = [], [], []
    for _ in range(stage.sizes.pairs):
        layered.append(ours.run_group(layers, width))
        plain.append(ours.run_alone(jobs))
        edgeless.append(ours.run_group(layers, width, edges=False))
    found = Graph(
        store, len(ours.dispatchers), jobs, ratio_of(layered, plain), ratio_of(layered, edgeless)
    )
    for name, ratio in (("without a group", found.of_plain), ("without edges", found.of_edgeless)):
        rates = f"{ratio.one:,.0f} and {ratio.other:,.0f} jobs/s"
        stage.say(f"{store}, {jobs:,} jobs: {ratio.median:.2f} of those {name} ({rates})")
    return found


def _chain(stage: Stage, store: str, ours: Fleet) -> Chain:
    found, steps, least = [], [], []
    with stage.fresh(store) as probe:
        for _ in range(stage.sizes.pairs):
            times = ours.clients[0].ask(do="chain", jobs=stage.sizes.chain_jobs)
            found.append(statistics.median(times["recorded"][CHAIN_WARM_UP:]))
            steps.append(statistics.median(times["step"][CHAIN_WARM_UP:]))
            hops = measure_hops(probe, stage.sizes.samples // stage.sizes.pairs, 0.0)
            least.append(hops.both.p50_ms)
    ratio = ratio_of(found, least)
    stage.say(f"{store}, chain: {ratio.one:.2f} ms a job, {ratio.median:.2f} commits and hops")
    return Chain(store, ratio, steps)


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
    version, nearest = pinned(name, PEERS.get(name, name)), NEAREST.get(name, "")
    pairs = min(stage.sizes.pairs, MOST_NEAREST_PAIRS) if nearest else stage.sizes.pairs
    ours, theirs = [], []
    try:
        for _ in range(pairs):
            with stage.fresh() as url, fleet(url, stage.folder) as own:
                own.run_group(2, 100)
                ours.append(own.run_group(layers, width))
            theirs.append(_nodes_per_s(stage, name, layers, width))
    except (ChildFailed, IndexError, ValueError, RuntimeError, OSError) as error:
        stage.say(f"{name} failed: {error}")
        return GraphPeer(name, version, None, str(error), nearest)
    ratio = ratio_of(ours, theirs)
    stage.say(f"{name}: {ratio.other:,.0f} nodes/s; we are {ratio.median:.2f} times as fast")
    return GraphPeer(name, version, ratio, nearest=nearest)


def _nodes_per_s(stage: Stage, name: str, layers: int, width: int) -> float:
    """How fast a peer runs the graph, or what comes nearest."""
    match name:
        case "dbos":
            # The process that measures is the one that runs the workflow.
            alone = structs.replace(_peer(name), workers=0)
            with stage.empty() as url:
                return measure_graph(alone, url, layers, width)
        case "celery":
            with RedisServer() as redis:
                return measure_graph(_peer(name), redis.clear(), layers, width)
        case _:
            with Child([*peer_command(name), str(layers), str(width)]) as measuring:
                return layers * width / float(measuring.await_end(MEASURE_S).split()[-1])


def _peer(name: str) -> Peer:
    return next(peer for peer in table.PEERS if peer.name == name)
