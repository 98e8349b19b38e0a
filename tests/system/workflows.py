"""The shapes of four workflows of science, and a plain model of how each task must end."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from longshore.model.group import Condition
from longshore.model.job import JobState

S = JobState
FAILURES = frozenset({S.FAILED, S.DEPENDENCY_FAILED})

CHROMOSOMES, PIECES, POPULATIONS = 8, 10, 7
BANDS, TILES, COLUMNS, OVERLAPS = 3, 80, 8, 414
CHUNKS = (59, 68, 69)


class Task(NamedTuple):
    """What a task depends on, and how."""

    after: tuple[str, ...] = ()
    on: Condition = Condition.SUCCEEDED


Workflow = dict[str, Task]


def genome() -> Workflow:
    """Chromosomes: each in pieces that are merged; then two analyses for each population."""
    flow: Workflow = {}
    for one in range(CHROMOSOMES):
        pieces = {f"piece-{one}-{n}": Task() for n in range(PIECES)}
        flow |= pieces
        flow[f"merge-{one}"] = Task(tuple(pieces))
        flow[f"sift-{one}"] = Task()
        both = (f"merge-{one}", f"sift-{one}")
        for n in range(POPULATIONS):
            flow[f"overlap-{one}-{n}"] = flow[f"frequency-{one}-{n}"] = Task(both)
    return flow


def epigenomics() -> Workflow:
    """Lanes of reads: each is split, its chunks go through four steps, and all is merged."""
    flow: Workflow = {}
    for lane, chunks in enumerate(CHUNKS):
        flow[f"split-{lane}"] = Task()
        for chunk in range(chunks):
            before = f"split-{lane}"
            for step in ("filter", "convert", "pack", "map"):
                key = f"{step}-{lane}-{chunk}"
                flow[key] = Task((before,))
                before = key
        flow[f"merge-{lane}"] = Task(tuple(f"map-{lane}-{n}" for n in range(chunks)))
    flow["merge"] = Task(tuple(f"merge-{lane}" for lane in range(len(CHUNKS))))
    flow["index"] = Task(("merge",))
    flow["pileup"] = Task(("index",))
    return flow


def montage() -> Workflow:
    """A mosaic in three bands: tiles, where they overlap, one model, corrected tiles, a sum."""
    flow: Workflow = {}
    for band in range(BANDS):
        flow |= {f"project-{band}-{n}": Task() for n in range(TILES)}
        fits = {
            f"fit-{band}-{a}-{b}": Task((f"project-{band}-{a}", f"project-{band}-{b}"))
            for a, b in _nearest()
        }
        flow |= fits
        flow[f"concat-{band}"] = Task(tuple(fits))
        flow[f"model-{band}"] = Task((f"concat-{band}",))
        corrected = {
            f"correct-{band}-{n}": Task((f"project-{band}-{n}", f"model-{band}"))
            for n in range(TILES)
        }
        flow |= corrected
        flow[f"table-{band}"] = Task(tuple(corrected))
        flow[f"sum-{band}"] = Task((f"table-{band}", *corrected))
        flow[f"view-{band}"] = Task((f"sum-{band}",))
    flow["view"] = Task(tuple(f"sum-{band}" for band in range(BANDS)))
    return flow


def _nearest() -> list[tuple[int, int]]:
    """The pairs of tiles that overlap: those that lie nearest to each other."""

    def distance(pair: tuple[int, int]) -> int:
        (row, column), (other_row, other_column) = (divmod(tile, COLUMNS) for tile in pair)
        return int((row - other_row) ** 2 + (column - other_column) ** 2)

    return sorted(combinations(range(TILES), 2), key=distance)[:OVERLAPS]


def variants() -> Workflow:
    """One sample: prepared, aligned, recalibrated, called, and reported on as a whole."""
    sources = ("dictionary", "genome", "fasta", "indels", "intervals", "beds", "known", "quality")
    flow = {key: Task() for key in (*sources, "versions")}
    flow["align"] = Task(("genome",))
    flow["split"] = Task(("beds",))
    flow["mark"] = Task(("align", "fasta"))
    flow["mark-index"] = Task(("mark",))
    marked = ("mark", "mark-index")
    flow["depth-1"] = flow["stats-1"] = Task(marked)
    prepared = (*marked, "beds", "dictionary", "fasta")
    flow["recalibrate"] = Task((*prepared, "known", "indels"))
    flow["apply"] = Task((*prepared, "recalibrate"))
    flow["apply-index"] = Task(("apply",))
    applied = ("apply", "apply-index")
    flow["depth-2"] = flow["stats-2"] = Task(applied)
    flow["call"] = Task((*applied, "fasta", "split"))
    flow["call-stats"] = Task(("call",))
    tables = ("count", "bias", "summary")
    flow |= {key: Task(("call", "intervals")) for key in tables}
    told = ("depth-1", "depth-2", "stats-1", "stats-2", "call-stats", "quality", "versions")
    flow["report"] = Task((*told, *tables, "mark", "recalibrate"))
    return flow


WORKFLOWS = {make.__name__: make() for make in (genome, epigenomics, montage, variants)}
SIZES = {
    "genome": (208, 304),
    "epigenomics": (793, 985),
    "montage": (1738, 4698),
    "variants": (26, 50),
}
"""How many tasks each has, and how many dependencies."""


def size(flow: Workflow) -> tuple[int, int]:
    """How many tasks there are, and how many dependencies."""
    return len(flow), sum(len(task.after) for task in flow.values())


def model(flow: Workflow, failing: set[str]) -> dict[str, JobState]:
    """What must become of each task: each comes after those that it depends on.

    No task here wants the success of one that may be skipped.
    """
    found: dict[str, JobState] = {}
    for key, task in flow.items():
        ends = {found[other] for other in task.after}
        found[key] = S.FAILED if key in failing else S.SUCCEEDED
        if task.on is Condition.SUCCEEDED and ends & FAILURES:
            found[key] = S.DEPENDENCY_FAILED
        elif task.on is Condition.FAILED and not ends & FAILURES:
            found[key] = S.SKIPPED
    return found
