"""Scale: what workers that are connected and idle cost their dispatcher and the store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from msgspec import Struct

from bench.fleet import Fleet, fleet
from bench.helper import Helper
from bench.stage import Stage
from bench.usage import REPORTED_S, counters, cpu_s, memory_mb

PER_PROCESS = 2_500
SETTLE_S = 2.0


class Crowd(Struct, frozen=True):
    """So many idle workers of one dispatcher."""

    workers: int
    join_s: float
    cpu_percent: float
    memory_mb: float
    writes_per_s: float
    commits_per_s: float
    wal_bytes_per_s: float


class Scale(Struct, frozen=True):
    """One entry for each size."""

    crowds: list[Crowd]

    def crowd(self, workers: int) -> Crowd | None:
        """The entry of this size."""
        return next((crowd for crowd in self.crowds if crowd.workers == workers), None)


@contextmanager
def idle_workers(address: str, number: int) -> Iterator[float]:
    """So many workers are connected; answers how long it took them to join."""
    with ExitStack() as stack:
        left, helpers = number, []
        while left > 0:
            share = min(PER_PROCESS, left)
            helpers.append(stack.enter_context(Helper("idle_workers", address, str(share))))
            left -= share
        answers = [helper.answer() for helper in helpers]
        if (joined := sum(answer["joined"] for answer in answers)) < number:
            raise RuntimeError(f"only {joined:,} of {number:,} workers could join")
        yield max(answer["seconds"] for answer in answers)
        if gone := sum(helper.ask(do="look")["gone"] for helper in helpers):
            raise RuntimeError(f"{gone:,} of {number:,} workers were declared lost while idle")


def measure(stage: Stage) -> Scale:
    """A new dispatcher for each size."""
    crowds = []
    for number in stage.sizes.idle_workers:
        with stage.fresh() as url, fleet(url, stage.folder, workers=0) as ours:
            crowds.append(_watch(stage, ours, number))
    return Scale(crowds)


def _watch(stage: Stage, ours: Fleet, number: int) -> Crowd:
    [dispatcher] = ours.dispatchers
    with idle_workers(dispatcher.facts["backend"], number) as join_s:
        time.sleep(SETTLE_S)
        before = counters(ours.url)
        began, used = time.monotonic(), cpu_s([dispatcher.pid])
        # Who was heard of is written down in beats: the whole look is as long as some of them.
        time.sleep(stage.sizes.watch_s - REPORTED_S)
        after = counters(ours.url)
        seconds = time.monotonic() - began
        used = cpu_s([dispatcher.pid]) - used
        memory = memory_mb(dispatcher.pid)
        change = after.since(before, seconds)
    crowd = Crowd(
        number,
        join_s,
        100 * used / seconds,
        memory,
        change.writes,
        change.commits,
        change.wal_bytes,
    )
    stage.say(
        f"{number:,} idle workers: {crowd.cpu_percent:.1f} % CPU, {memory:.0f} MB, "
        f"{crowd.writes_per_s:.1f} rows written a second"
    )
    return crowd
