"""Limits: what it costs that jobs count for keys, while no limit ever holds one back.

On one fleet take turns: jobs without a limit, jobs that all have one key, and jobs with one of many
keys each, whose rows are all in the store. What jobs cost if no limit is declared is the business
of `bench.duel`.
"""

from __future__ import annotations

from msgspec import Struct

from bench.costed import costed_run
from bench.fleet import Fleet, fleet
from bench.pairs import Ratio, ratio_of
from bench.stage import STORES, Stage

APP = "bench.limited_app:app"
FREE, ONE, MANY = "noop", "noop_one_key", "noop_many_keys"
WARM_UPS = 2


class Limited(Struct, frozen=True):
    """Jobs with limits beside jobs without, in jobs a second and in CPU a job, on one store."""

    store: str
    jobs: int
    keys: int
    one_key: Ratio
    many_keys: Ratio
    one_key_cpu: Ratio
    many_keys_cpu: Ratio


def measure(stage: Stage) -> list[Limited]:
    """Both kinds of stores."""
    found = []
    for store in STORES:
        with stage.fresh(store) as url, fleet(url, stage.folder, app=APP) as ours:
            ours.keys = stage.sizes.limit_keys
            found.append(_beside_free(stage, store, ours))
    return found


def _beside_free(stage: Stage, store: str, ours: Fleet) -> Limited:
    jobs = ours.warm(stage.sizes)
    for kind in (ONE, MANY):
        for _ in range(WARM_UPS):
            ours.run(jobs, kind)
    ours.run(max(0, ours.keys - WARM_UPS * jobs) or 1, MANY)
    runs: dict[str, list[tuple[float, float]]] = {FREE: [], ONE: [], MANY: []}
    for pair in range(stage.sizes.pairs):
        for kind in runs if pair % 2 else reversed(runs):
            runs[kind].append(costed_run(stage, ours, jobs, kind))
    of_free = [_ratio(runs, kind, at) for at in (0, 1) for kind in (ONE, MANY)]
    found = Limited(store, jobs, ours.keys, *of_free)
    for name, speed, cpu in (
        ("one key", found.one_key, found.one_key_cpu),
        (f"{found.keys:,} keys", found.many_keys, found.many_keys_cpu),
    ):
        stage.say(
            f"{store}, {name}: {speed.one:,.0f} jobs/s, {speed.median:.2f} of those without limits "
            f"({speed.other:,.0f}); {cpu.median:.2f} times the CPU ({cpu.one:.0f} µs a job)"
        )
    return found


def _ratio(runs: dict[str, list[tuple[float, float]]], kind: str, at: int) -> Ratio:
    return ratio_of([run[at] for run in runs[kind]], [run[at] for run in runs[FREE]])
