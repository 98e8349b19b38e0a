"""Dask: a graph in layers, each task after two of the layer before. See `bench.groups`."""

import sys
import time

from distributed import Client, LocalCluster

DATA = "x" * 100

Key = tuple[str, int, int]


def noop(data: str, *before: object) -> None:
    """Does nothing."""


def graph(name: str, layers: int, width: int) -> tuple[dict[Key, object], list[Key]]:
    """The graph as Dask takes it, and the keys of its last layer."""
    tasks: dict[Key, object] = {(name, 0, n): (noop, DATA) for n in range(width)}
    for layer in range(1, layers):
        for n in range(width):
            before = (name, layer - 1, n), (name, layer - 1, (n + 1) % width)
            tasks[name, layer, n] = (noop, DATA, *before)
    return tasks, [(name, layers - 1, n) for n in range(width)]


if __name__ == "__main__":
    layers, width = int(sys.argv[1]), int(sys.argv[2])
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.get(*graph("first", 2, 100), optimize_graph=False)
        began = time.monotonic()
        client.get(*graph("measured", layers, width), optimize_graph=False)
        print(time.monotonic() - began, flush=True)
