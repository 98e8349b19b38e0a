"""Ray: a graph in layers, each task after two of the layer before. See `bench.groups`."""

import sys
import time

import ray

DATA = "x" * 100


@ray.remote
def noop(data: str, *before: object) -> None:
    """Does nothing."""


def run(layers: int, width: int) -> None:
    """Runs the whole graph."""
    above = [noop.remote(DATA) for _ in range(width)]
    for _ in range(layers - 1):
        above = [noop.remote(DATA, above[n], above[(n + 1) % width]) for n in range(width)]
    ray.get(above)


if __name__ == "__main__":
    layers, width = int(sys.argv[1]), int(sys.argv[2])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    run(2, 100)
    began = time.monotonic()
    run(layers, width)
    print(time.monotonic() - began, flush=True)
    ray.shutdown()
