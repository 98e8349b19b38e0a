"""Draws what a run found: plots.py FOLDER reads its results.json and writes PNGs beside it.

Runs in bench/.venv, which has matplotlib and nothing of ours.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

OURS, LIMIT, DURABLE, OTHER, LINE = "#0b6e99", "#9aa5ab", "#d08c3f", "#e3c9a8", "#333333"
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.dpi": 150,
    "savefig.bbox": "tight",
}

Results = dict[str, Any]
Bar = tuple[str, float, float, float, str]


def throughput(results: Results) -> Any:
    """Bars: ours, the limit, the peers."""
    peers = (results.get("peers") or {}).get("peers", [])
    bars = [*_limits(results), *_ours(results), *_peers(peers)]
    return _bars(results, bars, "No-op jobs per second, end to end")


def plain(results: Results) -> Any:
    """Bars: our plain functions, and those of the peers."""
    rates = (results.get("plain") or {}).get("rates", [])
    if not rates:
        return None
    ours = [
        _bar(f"Longshore, {STORES[case['store']]}, {case['pool']}", case["rates"], OURS)
        for case in rates
    ]
    bars = [*ours, *_peers(rates[0]["peers"])]
    return _bars(results, bars, "Plain no-op functions per second, end to end")


def _bars(results: Results, bars: list[Bar], title: str) -> Any:
    if not bars:
        return None
    bars.sort(key=lambda bar: bar[1])
    names, values, lows, highs, colours = zip(*bars, strict=True)
    figure, axes = plt.subplots(figsize=(8, 0.38 * len(bars) + 1.2))
    spread = [
        [value - low for value, low in zip(values, lows, strict=True)],
        [high - value for value, high in zip(values, highs, strict=True)],
    ]
    axes.barh(names, values, color=colours, xerr=spread, ecolor=LINE, error_kw={"lw": 0.8})
    for place, (value, high) in enumerate(zip(values, highs, strict=True)):
        axes.annotate(f" {value:,.0f}", (high, place), va="center", fontsize=9)
    cores = (results.get("machine") or {}).get("cores", "?")
    axes.set_title(f"{title}, {cores} cores")
    axes.set_xlim(0, max(highs) * 1.12)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(axis="y", length=0)
    _legend(axes, set(colours))
    return figure


def _legend(axes: Any, colours: set[str]) -> None:
    kinds = [
        (OURS, "Longshore"),
        (LIMIT, "the database alone"),
        (DURABLE, "peer that survives a kill -9 of its store"),
        (OTHER, "peer that does not survive that"),
    ]
    patches = [Patch(color=colour, label=label) for colour, label in kinds if colour in colours]
    axes.legend(handles=patches, loc="lower right", frameon=False, fontsize=9)


def _bar(name: str, rates: list[float], colour: str) -> Bar:
    return name, statistics.median(rates), min(rates), max(rates), colour


STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}


def _limits(results: Results) -> Iterable[Bar]:
    cases = (results.get("throughput") or {}).get("cases", [])
    for store, ceiling in ((results.get("limit") or {}).get("ceilings") or {}).items():
        beside = [
            rate
            for case in cases
            if case["store"] == store and case["of_limit"]
            for rate in case["of_limit"]["others"]
        ]
        name = f"limit: SQL alone, {STORES[store]}"
        yield _bar(name, beside or [ceiling["jobs_per_s"]], LIMIT)


def _ours(results: Results) -> Iterable[Bar]:
    for case in (results.get("throughput") or {}).get("cases", []):
        number = case["dispatchers"]
        many = f"{number} dispatcher{'s' if number > 1 else ''}"
        yield _bar(f"Longshore, {STORES[case['store']]}, {many}", case["rates"], OURS)


def _peers(peers: list[Results]) -> Iterable[Bar]:
    for peer in peers:
        if peer["ratio"]:
            store = {"postgresql": "PostgreSQL", "redis": "Redis"}[peer["store"]]
            colour = DURABLE if peer["survives"] else OTHER
            yield _bar(f"{peer['name']}, {store}", peer["ratio"]["others"], colour)


def latency(results: Results) -> Any:
    """Histograms: to the start, to the result, and what is needed at the least."""
    cases = (results.get("latency") or {}).get("cases", [])
    if not cases:
        return None
    rows = (len(cases) + 1) // 2
    figure, all_axes = plt.subplots(rows, 2, figsize=(10, 2.9 * rows), squeeze=False)
    for axes, case in zip(all_axes.flat, cases, strict=False):
        _histogram(axes, case)
    figure.suptitle("Latency of one job", x=0.07, ha="left", weight="bold")
    figure.tight_layout()
    return figure


def _histogram(axes: Any, case: Results) -> None:
    parts = [
        ("one commit + two hops, alone", case["least"]["both"], LIMIT),
        ("submit → start", case["to_start"], OURS),
        ("submit → result", case["to_result"], DURABLE),
    ]
    most = max(times["p99_ms"] for _, times, _ in parts[1:]) * 1.1
    for name, times, colour in parts:
        label = f"{name}: {times['p50_ms']:.2f} / {times['p99_ms']:.2f} ms"
        axes.hist(
            times["samples_ms"], bins=80, range=(0, most), color=colour, alpha=0.75, label=label
        )
    axes.set_title(f"{STORES[case['store']]}, {case['load']}", fontsize=10)
    axes.set_xlabel("ms")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.legend(frameon=False, fontsize=8, title="p50 / p99", title_fontsize=8)


def flatness(results: Results) -> Any:
    """The curve under an old snapshot, and the fillings beside it."""
    flat = results.get("flatness")
    if not flat:
        return None
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 3.6), sharey=True, gridspec_kw={"width_ratios": [2, 1]}
    )
    curve = flat["curve"]
    ratios = [one / other for one, other in zip(curve["ones"], curve["others"], strict=True)]
    left.plot(flat["curve_s"], ratios, color=OURS, marker="o", ms=4)
    left.set_xlabel("seconds of load while an old snapshot is held")
    left.set_ylabel("throughput of that\nbeside an empty store")
    left.set_title("Under an old snapshot")
    _dots(right, flat["points"])
    right.set_title("With many other jobs")
    for axes in (left, right):
        axes.axhline(1, color=LINE, lw=0.8)
        axes.axhline(0.9, color=LINE, lw=0.8, ls=":")
    left.set_ylim(
        0, max(1.3, *ratios, *(point["ratio"]["high"] for point in flat["points"])) * 1.05
    )
    figure.tight_layout()
    return figure


def _dots(axes: Any, points: list[Results]) -> None:
    names = list(dict.fromkeys(point["name"] for point in points))
    colours = {"postgres": OURS, "sqlite": DURABLE}
    for store, colour in colours.items():
        shift = -0.12 if store == "postgres" else 0.12
        for point in (point for point in points if point["store"] == store):
            place, ratio = names.index(point["name"]) + shift, point["ratio"]
            axes.plot([place, place], [ratio["low"], ratio["high"]], color=colour, lw=2, alpha=0.4)
            axes.plot(place, ratio["median"], color=colour, marker="o")
    handles = [Patch(color=colour, label=STORES[store]) for store, colour in colours.items()]
    axes.legend(handles=handles, frameon=False, fontsize=9, loc="lower right")
    labels = [name.replace(" ready that", " ready\nthat") for name in names]
    axes.set_xticks(range(len(names)), labels, fontsize=8)
    axes.set_xlim(-0.5, len(names) - 0.5)


def scale(results: Results) -> Any:
    """CPU, memory and writes against the number of idle workers."""
    crowds = (results.get("scale") or {}).get("crowds", [])
    if not crowds:
        return None
    figure, all_axes = plt.subplots(1, 3, figsize=(11, 3.2))
    parts = [
        ("CPU, % of a core", "cpu_percent"),
        ("memory, MB", "memory_mb"),
        ("rows written per second", "writes_per_s"),
    ]
    workers = [crowd["workers"] for crowd in crowds]
    for axes, (name, field) in zip(all_axes, parts, strict=True):
        values = [crowd[field] for crowd in crowds]
        axes.plot(workers, values, color=OURS, marker="o")
        for place in zip(workers, values, strict=True):
            axes.annotate(
                f"{place[1]:,.1f}",
                place,
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=9,
            )
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("idle workers")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_ylim(0, max(values) * 1.25 or 1)
        axes.margins(x=0.12)
    figure.suptitle("One dispatcher and its idle workers", x=0.05, ha="left", weight="bold")
    figure.tight_layout()
    return figure


def main(folder: Path) -> None:
    """Draws whatever was measured."""
    results = json.loads((folder / "results.json").read_text())
    mpl.use("Agg")
    plots: list[Callable[[Results], Any]] = [throughput, plain, latency, flatness, scale]
    with mpl.rc_context(STYLE):
        for plot in plots:
            figure = plot(results)
            if figure is not None:
                figure.savefig(folder / f"{plot.__name__}.png", facecolor="white")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
