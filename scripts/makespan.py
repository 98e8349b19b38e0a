"""What the order by expected run time is worth: how long real graphs take on a few slots.

    .venv/bin/python scripts/makespan.py --slots 2,4,8 WORKFLOW.json …

A file has `{"tasks": [{"id", "after": [id, …], "runtime_s"}, …]}`. The kind of a task is its id
without the numbers in it. The order is made as a client makes it: by the number of jobs on the
longest path below, or by the mean run time of each kind. Then a free slot takes the first task that
can run, and the task takes as long as it really took.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from longshore.core.graph import makespan, start_order
from longshore.core.run_times import weight


def kind_of(id: str) -> str:
    """The name of a task without its numbers."""
    return re.sub(r"[0-9]+", "", id).strip("_.-")


def compared(tasks: list[dict[str, Any]], slots: int) -> tuple[float, float, float]:
    """How long the tasks take by count and by expected run time, and the least that is possible."""
    after = {task["id"]: task["after"] for task in tasks}
    seconds = {task["id"]: float(task["runtime_s"]) for task in tasks}
    runs: defaultdict[str, list[float]] = defaultdict(list)
    for id, ran_s in seconds.items():
        runs[kind_of(id)].append(ran_s)
    means = {id: weight(fmean(runs[kind_of(id)])) for id in after}
    took = [
        makespan({id: after[id] for id in start_order(after, weights)}, seconds, slots)
        for weights in (None, means)
    ]
    at_once = makespan(after, seconds, len(after))
    return took[0], took[1], max(at_once, sum(seconds.values()) / slots)


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--slots", default="2,4,8,16")
    given = parser.parse_args()
    print("| graph | jobs | slots | by count | by expected run time | no order can beat |")
    print("|---|---|---|---|---|---|")
    for file in given.files:
        tasks = json.loads(file.read_text())["tasks"]
        for slots in map(int, given.slots.split(",")):
            count, time, least = compared(tasks, slots)
            figures = " | ".join(f"{seconds:,.0f} s" for seconds in (count, time, least))
            print(f"| {file.stem} | {len(tasks):,} | {slots} | {figures} |")


if __name__ == "__main__":
    main()
