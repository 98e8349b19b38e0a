"""Dask: messages to actors, which keep nothing on disk. See `bench.actors`."""

import sys
import time

from distributed import Client, LocalCluster

DATA = "x" * 100


class Counter:
    """Counts its messages."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, data: str) -> int:
        """One more."""
        self.count += 1
        return self.count


if __name__ == "__main__":
    messages, actors = int(sys.argv[2]), int(sys.argv[3])
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        made = [client.submit(Counter, actor=True, pure=False) for _ in range(actors)]
        counters = [one.result() for one in made]
        for one in counters:
            one.add(DATA).result()
        began = time.monotonic()
        counted = [counters[n % actors].add(DATA) for n in range(messages)]
        for one in counted:
            one.result()
        print(time.monotonic() - began, flush=True)
