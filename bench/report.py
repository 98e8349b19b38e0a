"""Results as Markdown: the verdict first, then a table for each workload."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench.actor_peers import ActorPeer
from bench.containers import AT_ONCE
from bench.fleet import SLOTS, THREADS
from bench.http import BATCH, CONNECTIONS, WAITING
from bench.markdown import first_line, shown, table
from bench.plain import (
    BLOCK_S,
    BURN_S,
    CORES,
    LONG_S,
    LONG_SHARE,
    MIXED_PROCESSES,
    SHORT_S,
    WORKERS,
    Plain,
)
from bench.results import Results
from bench.rule_report import beat, fairness, limits, locks, schedules
from bench.verdict import verdicts

DOCS = Path(__file__).parent.parent / "docs"
ONE_RUN = "## One run"
PLOTS = ("throughput", "plain", "latency", "flatness", "scale")


def write_report(results: Results, folder: Path) -> None:
    """`results.md` in the folder."""
    lines = [*_head(results), *_verdict(results)]
    for part in _PARTS:
        lines += part(results)
    for name in PLOTS:
        if (folder / f"{name}.png").exists():
            lines += ["", f"![{name}]({name}.png)"]
    (folder / "results.md").write_text("\n".join(lines) + "\n")


def write_docs(folder: Path) -> None:
    """The report and its pictures become those of docs/performance.md."""
    report = (folder / "results.md").read_text().replace("# Longshore, measured", "# One run", 1)
    for name in PLOTS:
        if (picture := folder / f"{name}.png").exists():
            shutil.copy(picture, DOCS / "performance")
            report = report.replace(f"({name}.png)", f"(performance/{name}.png)")
    page = DOCS / "performance.md"
    before, _, _ = page.read_text().partition(ONE_RUN)
    page.write_text(before + re.sub("^#", "##", report, flags=re.MULTILINE))


def _head(results: Results) -> Iterator[str]:
    yield "# Longshore, measured"
    yield ""
    yield f"{results.at}, on: {results.machine}."
    yield f"Load of the machine before the run: {results.load_before:.2f}."
    yield ""
    yield "Ratios are medians of interleaved pairs, with the least and the most in brackets."
    yield "PostgreSQL runs with fsync on, all else as it comes."
    for name, reason in results.failures.items():
        yield ""
        yield f"**{name} failed**: {reason.splitlines()[0]}"


def _verdict(results: Results) -> list[str]:
    found = verdicts(results)
    if not found:
        return []
    rows = [(v.level, v.required, v.aimed, v.measured, v.word) for v in found]
    return ["", "## Verdict", *table(["level", "required", "aimed", "measured", ""], rows)]


def _limit(results: Results) -> Iterator[str]:
    if results.limit is None:
        return
    yield from ["", "## Limit: the bare SQL of the hot path"]
    tried = {name for ceiling in results.limit.ceilings.values() for name in ceiling.tried}
    ways = sorted(tried)
    rows = [
        (
            ceiling.store,
            f"{ceiling.jobs_per_s:,.0f}",
            f"{ceiling.way}, {ceiling.connections}",
            *(f"{ceiling.tried[way]:,.0f}" if way in ceiling.tried else "" for way in ways),
        )
        for ceiling in results.limit.ceilings.values()
    ]
    yield from table(["store", "best, jobs/s", "way, connections", *ways], rows)
    rows = [
        (store, *(f"{t.p50_ms:.2f} / {t.p99_ms:.2f}" for t in (h.commit, h.round_trip, h.both)))
        for store, h in results.limit.hops.items()
    ]
    head = ["store", "commit, ms p50 / p99", "ZeroMQ round trip", "one after the other"]
    yield from table(head, rows)


def _throughput(results: Results) -> Iterator[str]:
    if results.throughput is None:
        return
    yield from ["", "## Throughput of coroutines"]
    rows = [
        (
            case.store,
            case.dispatchers,
            f"{case.jobs:,}",
            f"{case.jobs_per_s:,.0f} ({min(case.rates):,.0f}–{max(case.rates):,.0f})",
            shown(case.of_limit),
        )
        for case in results.throughput.cases
    ]
    yield from table(["store", "dispatchers", "N", "jobs/s", "of the limit"], rows)
    pairs = {
        "SQLite / PostgreSQL": results.throughput.file_of_server,
        "until the client has all outcomes / until they are recorded, on PostgreSQL": (
            results.throughput.collected_of_run
        ),
    }
    sides = [
        (name, shown(ratio), f"{ratio.one:,.0f} / {ratio.other:,.0f}")
        for name, ratio in pairs.items()
    ]
    yield from table(["in turn, 1 dispatcher", "ratio", "jobs/s"], sides)


def _peers(results: Results) -> Iterator[str]:
    if results.peers is None:
        return
    yield from ["", "## Peers, in the same run, from the first `call(…)` on"]
    ours = results.peers
    settings = f"1 dispatcher, 2 workers of {SLOTS:,} slots"
    rate = f"**{ours.jobs_per_s:,.0f}**"
    rows: list[Sequence[object]] = [
        ("**longshore**", "postgresql", f"{ours.jobs:,}", rate, "", "yes", "yes", settings)
    ]
    for peer in sorted(ours.peers, key=lambda peer: -(peer.ratio.other if peer.ratio else 0)):
        rate = f"{peer.ratio.other:,.0f}" if peer.ratio else f"failed: {first_line(peer.failure)}"
        words = ["yes" if word else "no" for word in (peer.survives, peer.keeps_results)]
        name = f"{peer.name} {peer.version}"
        rows.append(
            (name, peer.store, f"{peer.jobs:,}", rate, shown(peer.ratio), *words, peer.note)
        )
    head = ["", "store", "N", "jobs/s", "longshore is so many times as fast"]
    yield from table([*head, "survives kill -9 of its store", "keeps results", "settings"], rows)


def _plain(results: Results) -> Iterator[str]:
    plain = results.plain
    if plain is None:
        return
    yield from ["", "## Plain functions"]
    names = [f"{peer.name} {peer.version}" for peer in plain.rates[0].peers]
    rows = [
        (
            case.store,
            case.pool,
            f"{case.jobs:,}",
            f"{case.jobs_per_s:,.0f} ({min(case.rates):,.0f}–{max(case.rates):,.0f})",
            *(shown(peer.ratio) or f"failed: {first_line(peer.failure)}" for peer in case.peers),
        )
        for case in plain.rates
    ]
    head = ["store", "run in", "N", "jobs/s", *(f"times {name}" for name in names)]
    yield from table(head, rows)
    yield from table(["on PostgreSQL", "measured", "ideal", "ratio"], _plain_work(plain))


def _plain_work(plain: Plain) -> Iterator[Sequence[str]]:
    threads, processes = WORKERS * THREADS, WORKERS * MIXED_PROCESSES
    naps = f"jobs of {BLOCK_S:g} s of time.sleep on {threads} threads"
    lengths = f"{LONG_SHARE:.0%} of the jobs sleep {LONG_S:g} s, the others {SHORT_S:g} s"
    for name, ratio in (
        (naps, plain.blocking),
        (f"{lengths}, on {processes} processes", plain.mixed),
    ):
        yield name, f"{ratio.one:.2f} s", f"{ratio.other:.2f} s", shown(ratio)
    ratio = plain.computing
    name = f"jobs that compute for {BURN_S:g} s on {CORES} processes, beside bare processes"
    yield name, f"{ratio.one:.1f} jobs/s", f"{ratio.other:.1f} jobs/s", shown(ratio)


def _programs(results: Results) -> Iterator[str]:
    programs = results.programs
    if programs is None:
        return
    yield from ["", "## Commands"]
    ratio = programs.commands
    row = (f"{programs.jobs:,}", f"{ratio.one:,.0f}", f"{ratio.other:,.0f}", shown(ratio))
    head = ["commands that do nothing", "a second", "bare posix_spawn loops", "ratio"]
    yield from table(head, [row])


def _groups(results: Results) -> Iterator[str]:
    groups = results.groups
    if groups is None:
        return
    yield from ["", "## Groups: jobs that depend on each other"]
    rows: list[Sequence[object]] = [
        (
            one.store,
            f"{one.jobs:,} jobs in layers, jobs/s, beside {beside}",
            f"{ratio.one:,.0f}",
            f"{ratio.other:,.0f}",
            shown(ratio),
        )
        for one in groups.graphs
        for beside, ratio in (
            ("the same jobs without a group, which run while they are submitted", one.of_plain),
            ("the same group without its edges", one.of_edgeless),
        )
    ]
    two = groups.two_of_one
    words = "two dispatchers beside one, jobs/s"
    rows.append(("postgres", words, f"{two.one:,.0f}", f"{two.other:,.0f}", shown(two)))
    rows += [
        (
            one.store,
            "chain, ms from a recorded end to the next start, beside one commit and two hops",
            f"{one.ratio.one:.2f} (a step {median(one.steps):.2f})",
            f"{one.ratio.other:.2f}",
            shown(one.ratio),
        )
        for one in groups.chains
    ]
    rows += [
        (
            one.store,
            f"submit of {one.jobs:,} jobs, s, beside submit_many",
            f"{one.ratio.one:.2f}",
            f"{one.ratio.other:.2f}",
            shown(one.ratio),
        )
        for one in groups.submits
    ]
    yield from table(["store", "what", "measured", "beside", "ratio"], rows)


def _graph(results: Results) -> Iterator[str]:
    if not results.graph:
        return
    yield from ["", "## The small graph beside others"]
    rows: list[Sequence[object]] = []
    for peer in results.graph:
        nearest = f" ({peer.nearest})" if peer.nearest else ""
        name = f"the small graph, nodes/s, beside {peer.name} {peer.version}{nearest}"
        if peer.ratio is None:
            rows.append(("postgres", name, "", f"failed: {first_line(peer.failure)}", ""))
        else:
            sides = f"{peer.ratio.one:,.0f}", f"{peer.ratio.other:,.0f}"
            rows.append(("postgres", name, *sides, shown(peer.ratio)))
    yield from table(["store", "what", "measured", "beside", "ratio"], rows)


def _actors(results: Results) -> Iterator[str]:
    actors = results.actors
    if actors is None:
        return
    yield from ["", "## Actors"]
    rates = [
        (
            one.store,
            f"{one.messages:,}",
            f"{one.actors:,}",
            f"{one.per_s:,.0f} ({min(one.rates):,.0f}–{max(one.rates):,.0f})",
        )
        for one in actors.rates
    ]
    yield from table(["store", "messages", "to actors", "messages/s"], rates)
    steady = [
        (
            "an old snapshot is held" if one.held else "empty",
            f"{one.turns:,} in {one.seconds:.0f} s",
            " / ".join(f"{cost:,.0f}" for cost in one.cpu_us),
            " / ".join(f"{count:,}" for count in one.rows),
            " / ".join(f"{late:.1f}" for late in one.tick_ms),
        )
        for one in actors.steady
    ]
    head = ["store", "messages to one actor", "µs of CPU each, by thirds", "rows at their ends"]
    yield from table([*head, "timers late, ms, first and last third"], steady)


def _sleeping(results: Results) -> Iterator[str]:
    if results.sleeping is None:
        return
    yield from ["", "## Sleeping actors, a timer each over the next hour"]
    sleeping = [
        (
            one.store,
            f"{one.actors:,}",
            f"{one.fired:,}",
            f"{one.late.p50_ms:,.0f} / {one.late.p99_ms:,.0f}" if one.late else "",
            f"{one.memory:.0f} MB, {one.memory_empty:.0f}",
            shown(one.jobs_of_empty),
            shown(one.cpu_of_empty),
        )
        for one in results.sleeping
    ]
    head = ["store", "sleep", "timers fired", "late, ms p50 / p99", "memory, with none"]
    yield from table([*head, "jobs/s, of an empty store", "CPU of a job"], sleeping)


def _actor_peers(results: Results) -> Iterator[str]:
    if results.actor_peers is None:
        return
    yield from ["", "## Messages to actors beside others"]
    yield from table(_ACTOR_PEERS, map(_actor_peer, results.actor_peers))


def _asks(results: Results) -> Iterator[str]:
    if results.asks is None:
        return
    yield from ["", "## Asks"]
    asks = [
        (
            one.store,
            f"{one.times.p50_ms:.2f} / {one.times.p99_ms:.2f}",
            f"{one.ratio.other:.2f}",
            shown(one.ratio),
        )
        for one in results.asks
    ]
    yield from table(["store", "ask, ms p50 / p99", "commit + two hops", "ratio"], asks)


_ACTOR_PEERS = ["peer", "settings", "keeps messages", "messages/s", "ours in bulk", "ratio"]
_ACTOR_PEERS += ["ours one by one", "ratio"]


def _actor_peer(peer: ActorPeer) -> Sequence[str]:
    name, keeps = f"{peer.name} {peer.version}", "yes" if peer.durable else "no"
    if peer.ratio is None:
        return name, peer.note, keeps, f"failed: {first_line(peer.failure)}", *[""] * 4
    sides = f"{peer.ratio.other:,.0f}", f"{peer.ratio.one:,.0f}"
    each = f"{peer.singles.one:,.0f}" if peer.singles else "", shown(peer.singles)
    return name, peer.note, keeps, *sides, shown(peer.ratio), *each


def _latency(results: Results) -> Iterator[str]:
    if results.latency is None:
        return
    yield from ["", "## Latency, ms p50 / p99"]
    rows = [
        (
            case.store,
            f"{case.load} ({case.jobs_per_s:,.0f} jobs/s)" if case.jobs_per_s else case.load,
            f"{case.to_start.p50_ms:.2f} / {case.to_start.p99_ms:.2f}",
            f"{case.to_result.p50_ms:.2f} / {case.to_result.p99_ms:.2f}",
            f"{case.least.both.p50_ms:.2f} / {case.least.both.p99_ms:.2f}",
            f"{shown(case.p50_ratio)} / {case.p99_ratio:.2f}",
        )
        for case in results.latency.cases
    ]
    head = ["store", "load", "submit → start", "submit → result", "commit + two hops", "ratio"]
    yield from table(head, rows)


def _flatness(results: Results) -> Iterator[str]:
    flat = results.flatness
    if flat is None:
        return
    yield from ["", "## Flatness"]
    held = f"an old snapshot is held for {flat.snapshot_s:.0f} s of load"
    rows: list[Sequence[object]] = [
        ("postgres", "empty", "1", flat.empty.rows, flat.empty.entries),
        ("postgres", held, shown(flat.curve), flat.snapshot.rows, flat.snapshot.entries),
    ]
    for point in flat.points:
        reads = (point.reads.rows, point.reads.entries) if point.reads else ("", "")
        rows.append((point.store, point.name, shown(point.ratio), *reads))
    head = ["store", "what it holds", "throughput of that on an empty one"]
    yield from table([*head, "rows a claim of 100 reads", "index entries"], rows)


def _scale(results: Results) -> Iterator[str]:
    if results.scale is None:
        return
    yield from ["", "## Scale: idle workers of one dispatcher"]
    rows = [
        (
            f"{crowd.workers:,}",
            f"{crowd.cpu_percent:.1f} %",
            f"{crowd.memory_mb:.0f} MB",
            f"{crowd.writes_per_s:.1f}",
            f"{crowd.commits_per_s:.1f}",
            f"{crowd.wal_bytes_per_s / 1000:.1f} kB",
            f"{crowd.join_s:.1f} s",
        )
        for crowd in results.scale.crowds
    ]
    head = ["workers", "CPU of a core", "memory", "rows written a second", "commits a second"]
    yield from table([*head, "WAL a second", "all joined within"], rows)


def _http(results: Results) -> Iterator[str]:
    if results.http is None:
        return
    found = results.http
    yield from ["", f"## HTTP: one gateway, PostgreSQL, {CONNECTIONS} connections"]
    rows = [
        ("requests a second, one job each", f"{found.single_per_s:,.0f}"),
        (f"jobs a second, {BATCH} in a request", f"{found.batched_per_s:,.0f}"),
        ("CPU of the gateway for a request with one job", f"{found.gateway_us:.0f} µs"),
        ("CPU of the dispatcher for it", f"{found.dispatcher_us:.0f} µs"),
        ("CPU of an idle gateway", f"{found.idle_percent:.1f} % of a core"),
        (
            f"with {WAITING:,} long polls and {WAITING:,} streams that wait",
            f"{found.waiting_percent:.1f} % (dispatcher {found.waiting_dispatcher_percent:.1f} %)",
        ),
        ("throughput over ZeroMQ beside a flood, of that without", shown(found.flooded)),
        ("workers that missed their lease in the flood", str(found.lost)),
    ]
    yield from table(["what", "measured"], rows)


def _dashboard(results: Results) -> Iterator[str]:
    found = results.dashboard
    if found is None:
        return
    yield from ["", f"## Dashboard, {found.ended:,} jobs ended, {found.ready:,} ready"]
    rows = [
        (one.store, one.page, f"{one.times.p50_ms:.1f} / {one.times.p99_ms:.1f}")
        for one in found.pages
    ]
    yield from table(["store", "page", "ms p50 / p99"], rows)
    tabs = found.tabs
    used = [
        (
            f"{tabs.tabs} tabs",
            f"{tabs.gateway_percent:.1f} %",
            f"{tabs.dispatcher_percent:.1f} %",
            f"{tabs.statements:.1f}",
        ),
        (
            "none",
            f"{tabs.idle_gateway_percent:.1f} %",
            f"{tabs.idle_dispatcher_percent:.1f} %",
            f"{tabs.idle_statements:.1f}",
        ),
    ]
    head = ["open, while nothing happens", "gateway, of a core", "dispatcher"]
    yield from table([*head, "statements a second at PostgreSQL"], used)


def _containers(results: Results) -> Iterator[str]:
    if results.containers is None:
        return
    found = results.containers
    yield from ["", f"## Containers: {AT_ONCE} at once, one dispatcher, one worker, PostgreSQL"]
    rows = [
        ("containers a second as jobs", f"{found.ratio.one:.1f}"),
        ("by bare calls of the API (create, start, wait, remove)", f"{found.ratio.other:.1f}"),
        ("as jobs, of those by bare calls", shown(found.ratio)),
    ]
    yield from table(["what", "measured"], rows)


def _filesets(results: Results) -> Iterator[str]:
    if results.filesets is None:
        return
    found = results.filesets
    yield from ["", "## Filesets: one gateway, PostgreSQL, a worker on the same machine"]
    size = f"{found.total_bytes / 1e9:g} GB in 1,000 files"
    rows = [
        (f"{size}: MB a second to a worker", f"{found.pulled.one / 1e6:,.0f}"),
        ("by `cp -r`", f"{found.pulled.other / 1e6:,.0f}"),
        ("to a worker, of those by `cp -r`", shown(found.pulled)),
        (f"{found.small_files:,} small files: pushed a second", f"{found.small_per_s:,.0f}"),
        ("the most memory of the command", f"{found.peak_mb:,.0f} MB"),
        ("the same for a tenth of the files", f"{found.tenth_peak_mb:,.0f} MB"),
    ]
    yield from table(["what", "measured"], rows)


def _recovery(results: Results) -> Iterator[str]:
    if results.recovery is None:
        return
    yield from ["", "## Recovery: kill -9 under load, two dispatchers, three workers"]
    rows = [
        (
            kill.role,
            f"{kill.usual_gap_s:.2f} s",
            f"{kill.gap_s:.2f} s",
            "" if kill.ran_s is None else f"{kill.held} jobs within {kill.ran_s:.1f} s",
        )
        for kill in results.recovery.kills
    ]
    head = [
        "killed",
        "longest gap before",
        "longest gap after",
        "what it (or its workers) held had run",
    ]
    yield from table(head, rows)


def _cost(results: Results) -> Iterator[str]:
    if results.cost is None:
        return
    job, queued = results.cost.per_job, results.cost.queued
    store = job.store
    yield from ["", "## Cost of one job"]
    head = ["WAL bytes", "commits", "rows inserted", "updated", "deleted", "dead", "bytes on disk"]
    row = [f"{store.wal_bytes:,.0f}", f"{store.commits:.4f}", f"{store.inserted:.3f}"]
    row += [f"{store.updated:.3f}", f"{store.deleted:.3f}", f"{store.dead:.3f}"]
    yield from table(head, [[*row, f"{store.disk_bytes:,.0f}"]])
    spent = (job.dispatcher_us, job.workers_us, job.postgres_us, job.client_us)
    head = ["CPU of the dispatcher", "of the workers", "of PostgreSQL", "of the client"]
    yield from table(head, [[f"{us:.0f} µs" for us in spent]])
    yield ""
    how = "submitted through the client" if queued.by_client else "put there by SQL"
    yield f"A dispatcher with {queued.jobs:,} jobs queued ({how}) and {queued.workers:,} workers"
    yield f"has {queued.memory_mb:.0f} MB in memory, and had {queued.peak_mb:.0f} at most."


_PARTS = (
    _limit,
    _throughput,
    _peers,
    _plain,
    _programs,
    _groups,
    _graph,
    _actors,
    _sleeping,
    _actor_peers,
    _asks,
    _http,
    _dashboard,
    _containers,
    _filesets,
    _latency,
    _flatness,
    limits,
    locks,
    fairness,
    schedules,
    beat,
    _scale,
    _recovery,
    _cost,
)
