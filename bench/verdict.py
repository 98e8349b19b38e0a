"""The level that Longshore is held to, and whether a run reached it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.fleet import THREADS
from bench.groups import Groups
from bench.level import STORE_NAMES, Verdict, at_least, at_most, spread
from bench.pairs import Ratio
from bench.plain import BLOCK_S, BURN_S, CORES, MIXED_PROCESSES, WORKERS, Rates
from bench.programs import WORKERS as COMMAND_WORKERS
from bench.results import Results
from bench.rule_verdicts import beat, fairness, limits, locks, schedules
from bench.sleeping import Sleeping

FLAT = 0.9
MESSAGES_TO_MANY = 10_000
MESSAGES_TO_ONE = 5_000
PAGE_MS = 100


def verdicts(results: Results) -> list[Verdict]:
    """Every level that this run can say something of."""
    jobs = (_peers, _limit, _sqlite, _plain, _programs, _containers, _filesets, _groups, _graph)
    actors = (_actors, _asks, _sleeping, _actor_costs, _actor_peers)
    rules = (limits, locks, fairness, schedules, beat)
    parts = (*jobs, *actors, *rules, _http, _dashboard, _latency, _flatness, _memory, _idle)
    return [verdict for part in parts for verdict in part(results)]


def _peers(results: Results) -> Iterator[Verdict]:
    if results.peers is None:
        return
    for peer in results.peers.peers:
        if peer.ratio is None:
            continue
        fastest = peer.name == "pgqueuer"
        yield Verdict(
            f"throughput on PostgreSQL, against {peer.name}",
            "1.3 times" if fastest else "ahead",
            "1.5 times" if fastest else "",
            f"{peer.ratio.median:.2f} times{spread(peer.ratio)}",
            peer.ratio.median >= 1.3 if fastest else peer.ratio.median > 1,
            peer.ratio.median >= 1.5 if fastest else None,
        )


def _http(results: Results) -> Iterator[Verdict]:
    if results.http is None:
        return
    http = results.http
    levels = (
        ("requests a second over HTTP, one job each", 2_500, http.single_per_s),
        ("jobs a second over HTTP, a hundred in a request", 15_000, http.batched_per_s),
    )
    for words, least, found in levels:
        yield Verdict(words, f"{least:,}", "", f"{found:,.0f}", found >= least)
    yield Verdict(
        "CPU of a gateway with 1,000 long polls and 1,000 streams that wait",
        "under 5 % of a core",
        "",
        f"{http.waiting_percent:.1f} %",
        http.waiting_percent < 5,
    )
    yield Verdict(
        "throughput over ZeroMQ beside a flood of HTTP, of that without",
        "0.9",
        "",
        f"{http.flooded.median:.2f}{spread(http.flooded)}",
        http.flooded.median >= 0.9,
    )


def _dashboard(results: Results) -> Iterator[Verdict]:
    found = results.dashboard
    if found is None:
        return
    size = f"{found.ended:,} jobs ended and {found.ready:,} ready"
    for one in found.pages:
        yield Verdict(
            f"dashboard: {one.page}, {size}, {STORE_NAMES[one.store]}, p50",
            f"at most {PAGE_MS} ms",
            "",
            f"{one.times.p50_ms:.1f} ms (p99 {one.times.p99_ms:.1f})",
            one.times.p50_ms <= PAGE_MS,
        )
    more_percent, more = found.tabs.more_percent, found.tabs.more_statements
    name = f"dashboard: {found.tabs.tabs} tabs while nothing happens"
    shown = f"{more_percent:.1f} % more than with none"
    yield Verdict(f"{name}: CPU", "at most 2 % of a core", "", shown, more_percent <= 2)
    shown = f"{more:.1f} more than with none"
    yield Verdict(f"{name}: statements a second", "at most 1", "", shown, more <= 1)


def _containers(results: Results) -> Iterator[Verdict]:
    if results.containers is None:
        return
    over = results.containers.overhead_percent
    yield Verdict(
        "containers as jobs: time beyond the bare calls of the API",
        "at most 15 %",
        "",
        f"{over:.0f} %{spread(results.containers.ratio)}",
        over <= 15,
    )


def _filesets(results: Results) -> Iterator[Verdict]:
    if results.filesets is None:
        return
    found = results.filesets
    yield at_least("a fileset to a worker on the same machine, of `cp -r`", 0.5, found.pulled)
    more_mb = found.peak_mb - found.tenth_peak_mb
    yield Verdict(
        f"{found.small_files:,} small files pushed: memory beyond that of a tenth of them",
        "at most 100 MB",
        "",
        f"{more_mb:.0f} MB",
        more_mb <= 100,
    )


def _limit(results: Results) -> Iterator[Verdict]:
    if results.throughput is None:
        return
    for case in results.throughput.cases:
        ratio = case.of_limit
        if ratio is None or case.store != "postgres":
            continue
        many = "1 dispatcher" if case.dispatchers == 1 else f"{case.dispatchers} dispatchers"
        yield Verdict(
            f"throughput on PostgreSQL, {many}, of the limit",
            "0.4",
            "0.6",
            f"{ratio.median:.2f}{spread(ratio)}",
            ratio.median >= 0.4,
            ratio.median >= 0.6,
        )


def _sqlite(results: Results) -> Iterator[Verdict]:
    if results.throughput is None:
        return
    ratio = results.throughput.file_of_server
    yield Verdict(
        "throughput on SQLite, against PostgreSQL",
        "1",
        "20,000 jobs/s",
        f"{ratio.median:.2f}{spread(ratio)}, {ratio.one:,.0f} jobs/s",
        ratio.median >= 1,
        ratio.one >= 20_000,
    )


def _plain(results: Results) -> Iterator[Verdict]:
    plain = results.plain
    if plain is None:
        return
    for case in plain.rates:
        yield _plain_rate(case)
    for name, most, ratio in (
        (f"{BLOCK_S:g} s of time.sleep, {WORKERS * THREADS} threads", 1.15, plain.blocking),
        (f"mixed lengths, {WORKERS * MIXED_PROCESSES} processes", 1.2, plain.mixed),
    ):
        shown = f"{ratio.median:.2f} times{spread(ratio)}, {ratio.one:.2f} s in {ratio.other:.2f} s"
        required = f"at most {most:g} times"
        yield Verdict(
            f"plain: {name}, in the ideal time", required, "", shown, ratio.median <= most
        )
    ratio = plain.computing
    yield Verdict(
        f"plain: {BURN_S:g} s of CPU, {CORES} processes, of bare processes",
        "0.95",
        "",
        f"{ratio.median:.2f}{spread(ratio)}",
        ratio.median >= 0.95,
    )


def _programs(results: Results) -> Iterator[Verdict]:
    if results.programs is not None:
        level = f"programs: no-op commands, of {COMMAND_WORKERS} bare posix_spawn loops"
        yield at_least(level, 0.5, results.programs.commands)


def _plain_rate(case: Rates) -> Verdict:
    """Ahead of every peer that ran."""
    ratios = {peer.name: peer.ratio for peer in case.peers if peer.ratio}
    peers = "".join(f", {ratio.median:.2f} times {name}" for name, ratio in ratios.items())
    return Verdict(
        f"plain: throughput in {case.pool}, {STORE_NAMES[case.store]}",
        "ahead of the plain functions of every peer" if ratios else "",
        "10,000 jobs/s",
        f"{case.jobs_per_s:,.0f} jobs/s{peers}",
        all(ratio.median > 1 for ratio in ratios.values()),
        case.jobs_per_s >= 10_000,
    )


def _groups(results: Results) -> Iterator[Verdict]:
    groups = results.groups
    if groups is None:
        return
    for graph in groups.graphs:
        name = f"groups: {graph.jobs:,} jobs in layers, {STORE_NAMES[graph.store]}"
        yield at_least(f"{name}, of the same without a group", 0.6, graph.of_plain)
        yield at_least(f"{name}, of the same group without edges", 0.6, graph.of_edgeless)
    yield at_least("groups: two dispatchers on one group, of one", 0.95, groups.two_of_one)
    yield from _group_times(groups)


def _graph(results: Results) -> Iterator[Verdict]:
    for peer in results.graph or ():
        if peer.ratio and not peer.nearest:
            yield at_least(f"groups: nodes/s on PostgreSQL, in {peer.name}'s", 5, peer.ratio)


def _group_times(groups: Groups) -> Iterator[Verdict]:
    for chain in groups.chains:
        name = f"groups: chain, end recorded to next start, p50, {STORE_NAMES[chain.store]}"
        yield at_most(f"{name}, in (one commit + two hops)", 2.5, chain.ratio)
    for submit in groups.submits:
        name = f"groups: submit of {submit.jobs:,} jobs, {STORE_NAMES[submit.store]}"
        yield at_most(f"{name}, in that of submit_many", 1.5, submit.ratio)


def _actors(results: Results) -> Iterator[Verdict]:
    actors = results.actors
    if actors is None:
        return
    for one in actors.rates:
        least = MESSAGES_TO_ONE if one.actors == 1 else MESSAGES_TO_MANY
        many = "one actor" if one.actors == 1 else f"{one.actors:,} actors"
        shown = f"{one.per_s:,.0f} ({min(one.rates):,.0f} to {max(one.rates):,.0f})"
        name = f"actors: durable messages/s to {many}, {STORE_NAMES[one.store]}"
        yield Verdict(name, f"{least:,}", "", shown, one.per_s >= least)


def _asks(results: Results) -> Iterator[Verdict]:
    for ask in results.asks or ():
        name = f"actors: ask at idle, p50, {STORE_NAMES[ask.store]}, in (one commit + two hops)"
        yield at_most(name, 3, ask.ratio)


def _actor_costs(results: Results) -> Iterator[Verdict]:
    actors = results.actors
    if actors is None:
        return
    for one in actors.steady:
        where = "under an old snapshot" if one.held else "on an empty store"
        name = f"actors: {one.turns:,} messages one by one to one actor {where}"
        shown = f"{one.last_of_first:.2f}; rows {', '.join(f'{n:,}' for n in one.rows)}"
        cost = f"{name}: CPU of a turn, last third of first"
        yield Verdict(cost, "at most 1.1", "", shown, one.last_of_first <= 1.1)
        first, last = one.tick_ms
        shown = f"{first:.1f} ms late at first, {last:.1f} in the end"
        is_flat = last <= max(1.1 * first, first + 1)
        yield Verdict(f"{name}: timers beside it", "at most 1.1 times", "", shown, is_flat)


def _sleeping(results: Results) -> Iterator[Verdict]:
    for found in results.sleeping or ():
        yield from _of_sleepers(found)


def _of_sleepers(found: Sleeping) -> Iterator[Verdict]:
    where = STORE_NAMES[found.store]
    name = f"actors: {found.actors:,} sleep with a timer each over the next hour, {where}"
    more = found.memory - found.memory_empty
    shown = f"{found.memory:.0f} MB, {found.memory_empty:.0f} with none"
    yield Verdict(f"{name}: memory", "no more than 10 MB", "", shown, more <= 10)
    late = found.late
    shown = f"{late.p99_ms:,.0f} ms (p50 {late.p50_ms:,.0f}), {found.fired:,} fired" if late else ""
    is_met = late is not None and late.p99_ms <= 1000
    yield Verdict(f"{name}: lateness of timers, p99", "1 s", "", shown or "none fired", is_met)
    yield at_least(f"{name}: jobs/s, of an empty store", 0.95, found.jobs_of_empty)
    yield at_most(f"{name}: CPU of a job, of an empty store", 1.05, found.cpu_of_empty)


def _actor_peers(results: Results) -> Iterator[Verdict]:
    for peer in results.actor_peers or ():
        if peer.ratio is None:
            continue
        name = f"actors: messages/s on PostgreSQL, in {peer.name}'s"
        if peer.durable:
            yield at_least(f"{name}, ours in bulk", 3, peer.ratio)
            if peer.singles is not None:
                yield at_least(f"{name}, both one by one, {peer.at_once} at once", 3, peer.singles)
        else:
            shown = f"{peer.ratio.median:.2f}{spread(peer.ratio)}"
            yield Verdict(f"{name}, which keeps nothing", "", "", shown, True)


def _latency(results: Results) -> Iterator[Verdict]:
    if results.latency is None:
        return
    case = results.latency.case("postgres")
    middle, least = case.p50_ratio, case.least.both
    for name, most, ratio, among, found_ms, least_ms in (
        ("p50", 2.5, middle.median, spread(middle), case.to_start.p50_ms, least.p50_ms),
        ("p99", 4.0, case.p99_ratio, "", case.to_start.p99_ms, least.p99_ms),
    ):
        yield Verdict(
            f"idle latency submit → start, {name}, in (one commit + two hops)",
            f"at most {most:g} times",
            "",
            f"{ratio:.2f} times{among}, {found_ms:.2f} ms in {least_ms:.2f} ms",
            ratio <= most,
        )
    for case in results.latency.cases:
        if case.load == "idle":
            name = f"idle latency submit → result, p50, {STORE_NAMES[case.store]}"
            shown = f"{case.to_result.p50_ms:.2f} ms"
            ideal = f"one commit + two hops: {case.least.both.p50_ms:.2f} ms"
            yield Verdict(name, "", "", f"{shown} ({ideal})", True)


def _flatness(results: Results) -> Iterator[Verdict]:
    flat = results.flatness
    if flat is None:
        return
    for point in flat.points:
        ratio = point.ratio
        shown = f"{ratio.median:.2f}{spread(ratio)}"
        yield _flat(f"{point.store}, {point.name}", ratio.spread, ratio.median, shown)
    curve = _smoothed(flat.curve)
    third = max(1, len(curve) // 3)
    fall = statistics.fmean(curve[-third:]) / statistics.fmean(curve[:third])
    shown = (
        f"lowest {min(curve):.2f}, median {flat.curve.median:.2f}, last third of first {fall:.2f}"
    )
    name = f"postgres, {flat.snapshot_s:.0f} s under an old snapshot"
    yield _flat(name, flat.curve.spread, min(curve), shown)
    rows = {"empty": flat.empty.rows, "old snapshot": flat.snapshot.rows}
    rows |= {point.name: point.reads.rows for point in flat.points if point.reads}
    shown = ", ".join(f"{name}: {count}" for name, count in rows.items())
    same = len(set(rows.values())) == 1
    yield Verdict("rows read by a claim of 100", "the same at every point", "", shown, same)


def _flat(name: str, spread: float, lowest: float, shown: str) -> Verdict:
    required = f"{FLAT} of empty, less the spread of {spread:.2f}"
    return Verdict(f"flat: {name}", required, "", shown, lowest >= FLAT - spread)


def _smoothed(curve: Ratio) -> list[float]:
    """Each point with its neighbours: one slow moment of the machine is no slope."""
    points = [one / other for one, other in zip(curve.ones, curve.others, strict=True)]
    return [
        statistics.median(points[max(0, place - 1) : place + 2]) for place in range(len(points))
    ]


def _memory(results: Results) -> Iterator[Verdict]:
    if results.cost is None:
        return
    queued = results.cost.queued
    yield Verdict(
        f"dispatcher's memory, {queued.jobs:,} jobs queued, {queued.workers:,} workers",
        "under 200 MB",
        "",
        f"{queued.memory_mb:.0f} MB (at most {queued.peak_mb:.0f})",
        queued.memory_mb < 200,
    )


def _idle(results: Results) -> Iterator[Verdict]:
    crowd = results.scale.crowd(1_000) if results.scale else None
    if crowd is not None:
        yield Verdict(
            "CPU of a dispatcher with 1,000 idle workers",
            "under 10 % of a core",
            "",
            f"{crowd.cpu_percent:.1f} %",
            crowd.cpu_percent < 10,
        )
