"""An ask of an actor at idle, beside one commit and two hops, on each store."""

from __future__ import annotations

from msgspec import Struct

from bench.actors import actor_fleet
from bench.helper import Helper
from bench.hops import measure_hops
from bench.pairs import Ratio, ratio_of
from bench.percentiles import Times, pooled, times_of
from bench.stage import STORES, Stage

WARM_UP = 30


class Ask(Struct, frozen=True):
    """Asks at idle, beside one commit and two hops, p50 of each pair."""

    store: str
    times: Times
    ratio: Ratio


def measure(stage: Stage) -> list[Ask]:
    """Asks on a fleet of its own for each store."""
    found = []
    for store in STORES:
        with stage.fresh(store) as url, actor_fleet(url, stage) as (_, client):
            client.ask(do="start", type="Counter", actors=1)
            found.append(_ask(stage, store, client))
    return found


def _ask(stage: Stage, store: str, client: Helper) -> Ask:
    pairs, pause_s = stage.sizes.pairs, stage.sizes.pause_s
    samples = stage.sizes.samples // pairs
    found, least = list[Times](), list[float]()
    with stage.fresh(store) as probe:
        for _ in range(pairs):
            least.append(measure_hops(probe, samples, pause_s).both.p50_ms)
            client.ask(do="ask", samples=WARM_UP, pause_s=pause_s)
            found.append(times_of(client.ask(do="ask", samples=samples, pause_s=pause_s)))
    ratio = ratio_of([times.p50_ms for times in found], least)
    stage.say(f"{store}, ask: {ratio.one:.2f} ms p50, {ratio.median:.2f} times commit and hops")
    return Ask(store, pooled(found), ratio)
