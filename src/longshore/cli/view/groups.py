"""Groups as tables and in words: lists, one group, why it is where it is, what would run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from rich.text import Text

from longshore.cli.view import jsonable
from longshore.cli.view.lists import age, brief_error
from longshore.cli.view.show import Table, View, duration, error_line, state_style, time
from longshore.core.graph import layers
from longshore.core.group_words import in_states
from longshore.core.lifecycle import TERMINAL
from longshore.core.outlook import Cost, Forecast, about
from longshore.core.text import visible
from longshore.model.group import ENDED_GROUPS, Condition, Group, GroupHead, GroupState, Node
from longshore.model.job import Job, JobState
from longshore.payload.values import unpack
from longshore.wire.messages import WhyAnswer

MAX_LABEL_CHARS: Final = 32
"""Longer keys and kinds are cut in the middle, where they are shown in a line or a box."""
MAX_CHAIN_SHOWN: Final = 6
"""Of a longer chain of jobs the first and the last are shown."""
_BAR_CELLS = 30


class FirstFailure(NamedTuple):
    """The job of a group that failed first, its key, and what that cost, if it was looked for."""

    job: Job
    key: str
    cost: Cost | None = None


class ShownGroup(NamedTuple):
    """A group, what failed first in it; its critical path and its end, if they were looked for."""

    group: Group
    failure: FirstFailure | None = None
    critical_path: tuple[str, ...] | None = None
    forecast: Forecast | None = None


def called(group: Group) -> str:
    """A group, as a sentence names it."""
    return f"group {group.number} ({group.name})"


def ended_jobs(group: Group) -> int:
    """How many jobs of a group have ended."""
    return sum(group.counts.get(state.value, 0) for state in TERMINAL)


def short(label: str, most: int = MAX_LABEL_CHARS) -> str:
    """A label, without a part of it if it is long. What tells keys apart is mostly at their end."""
    if len(label) <= most:
        return label
    tail = 2 * (most - 1) // 3
    return f"{label[: most - 1 - tail]}…{label[-tail:]}"


def chain_words(keys: Sequence[str]) -> str:
    """Jobs that depend on each other, the first first."""
    shown = [short(key) for key in keys]
    if len(keys) > MAX_CHAIN_SHOWN:
        half = MAX_CHAIN_SHOWN // 2
        shown[half:-half] = [f"… {len(keys) - 2 * half:,} more …"]
    return " → ".join(shown)


# lists


def groups_table(groups: Sequence[Group]) -> Table:
    """Groups, one a row, in full."""
    rows = [
        (
            str(one.number),
            one.state.value,
            one.name,
            str(one.jobs),
            time(one.created_at),
            _took(one),
            ", ".join(one.labels),
        )
        for one in groups
    ]
    columns = ("number", "state", "name", "jobs", "created", "took", "labels")
    return Table(columns, rows, frozenset({"number", "jobs"}))


def groups_screen(groups: Sequence[Group], now: datetime) -> Table:
    """Groups, one a row, for a terminal."""
    rows = [
        (
            str(one.number),
            one.state.value,
            one.name,
            str(one.jobs),
            age(one.created_at, now),
            _took(one),
            ", ".join(one.labels),
        )
        for one in groups
    ]
    columns = ("number", "state", "name", "jobs", "age", "took", "labels")
    return Table(columns, rows, frozenset({"number", "jobs", "age", "took"}), ("labels", "took"))


def _took(group: Group) -> str:
    if group.ended_at is None:
        return ""
    return duration(max(0.0, (group.ended_at - group.created_at).total_seconds()))


# one group


def group_json(shown: ShownGroup) -> dict[str, Any]:
    """A group with the number of its jobs in every state there is, and what failed first."""
    group, failure, path, forecast = shown
    counts = {state.value: group.counts.get(state.value, 0) for state in JobState}
    cost = failure and failure.cost
    first = failure and {
        "key": failure.key,
        "id": str(failure.job.id),
        "number": failure.job.number,
        "kind": failure.job.kind,
        "error": jsonable.plain(failure.job.error),
        "could_not_run": None if cost is None else cost.could_not_run,
        "cancelled": None if cost is None else cost.cancelled,
    }
    expected = forecast and forecast._asdict()
    found = {"first_failure": first, "critical_path": path, "expected": expected}
    return {**jsonable.plain(group), "counts": counts, **found}


def group_view(shown: ShownGroup) -> View:
    """A group: how far it is, where its jobs are, what failed first and why."""
    group = shown.group
    title = Text(f"{called(group)} ").append(group.state.value, style=state_style(group.state))
    lines = [(name, text) for name, text in _group_lines(shown) if text]
    width = max(len(name) for name, _ in lines)
    parts: list[Text | Table] = [title]
    for name, text in lines:
        parts.append(Text(f"  {name:<{width}}  ", "dim").append(visible(text), style="not dim"))
    return View(parts)


def _group_lines(shown: ShownGroup) -> list[tuple[str, str]]:
    group, failure, path, forecast = shown
    took = f" (took {_took(group)})" if group.ended_at else ""
    return [
        ("id", str(group.id)),
        ("progress", progress_bar(group)),
        ("jobs", in_states(group)),
        ("missing", _missing(group)),
        ("critical path", chain_words(path or ()) + (path_words(forecast) if forecast else "")),
        ("expected end", forecast_words(forecast) if forecast else ""),
        ("failed first", _failed_first(failure)),
        ("fail fast", "yes" if group.fail_fast else ""),
        ("cancelled by", group.cancelled_by),
        ("labels", ", ".join(group.labels)),
        ("created", time(group.created_at)),
        ("ended", f"{time(group.ended_at)}{took}"),
    ]


def progress_bar(group: Group) -> str:
    """How many jobs of a group have ended, as a bar and in numbers."""
    done, jobs = ended_jobs(group), group.jobs
    full = _BAR_CELLS * done // jobs if jobs else _BAR_CELLS
    percent = 100 * done // jobs if jobs else 100
    return f"{'━' * full}{'╌' * (_BAR_CELLS - full)} {done:,}/{jobs:,} ended ({percent}%)"


def _missing(group: Group) -> str:
    there = sum(group.counts.values())
    if group.state is not GroupState.STAGING:
        return ""
    return f"{group.jobs - there:,} of {group.jobs:,} jobs; nothing runs before they are sent"


def path_words(forecast: Forecast) -> str:
    """How long the critical path takes, after its jobs; nothing if that is all there is."""
    return f" (about {about(forecast.path_s)})" if forecast.path_s < forecast.left_s else ""


def forecast_words(forecast: Forecast) -> str:
    """When a group will have ended, about."""
    kinds = "these kinds" if forecast.known == forecast.kinds else _some_kinds(forecast)
    slots = f"{forecast.slots:,} slot{'s' if forecast.slots > 1 else ''}"
    return f"about {about(forecast.left_s)} left on {slots}, by earlier runs of {kinds}"


def _some_kinds(forecast: Forecast) -> str:
    return f"{forecast.known:,} of its {forecast.kinds:,} kinds"


def _failed_first(failure: FirstFailure | None) -> str:
    if failure is None:
        return ""
    job = failure.job
    error = brief_error(job.error) if job.error else "no reason was recorded"
    cost = _cost_words(failure.cost) if failure.cost else ""
    return f"'{failure.key}' (job {job.number}, {job.kind}): {error}{cost}"


def _cost_words(cost: Cost) -> str:
    words = ""
    if cost.could_not_run:
        words += f"; {_jobs(cost.could_not_run)} could not run because of it"
    if cost.cancelled:
        words += f"; fail_fast cancelled {_jobs(cost.cancelled)}"
    return words


def _jobs(count: int) -> str:
    return f"{count:,} job{'s' if count > 1 else ''}"


# why


def why_lines(shown: ShownGroup, whys: Sequence[WhyAnswer], most: int) -> list[str]:
    """Why a group is where it is: what runs, what could, what waits for what."""
    group = shown.group
    verb = "" if group.state in ENDED_GROUPS else "is "
    first = f"{called(group)} {verb}{group.state.value}: {in_states(group)}"
    lines = [first, *filter(None, [_missing(group)])]
    if shown.failure is not None:
        lines.append(f"failed first: {_failed_first(shown.failure)}")
    if group.state is GroupState.CANCELLING:
        by = group.cancelled_by or "its first failure, because of fail_fast"
        lines.append(f"it is being cancelled by {by}; what runs must stop first")
    by_state: dict[str, list[WhyAnswer]] = {}
    for one in whys:
        by_state.setdefault(one.state, []).append(one)
    for state, some in by_state.items():
        lines += [f"  '{one.key}' (job {one.number}, {state}): {one.why}" for one in some]
        more = group.counts.get(state, 0) - len(some)
        if more > 0 and len(some) >= most:
            lines.append(f"  and {more:,} more that are {state}")
    if not whys and group.state not in ENDED_GROUPS and group.state is not GroupState.STAGING:
        lines.append("all of its jobs have ended; a dispatcher is about to end the group")
    return lines


# what would run


def plan_json(head: GroupHead, nodes: Sequence[Node]) -> dict[str, Any]:
    """What a file describes, in the order in which it would start."""
    layer = _layer_of(nodes)
    return {
        "name": head.name,
        "fail_fast": head.fail_fast,
        "labels": list(head.labels),
        "jobs": [
            {
                "layer": layer[node.key],
                "key": node.key,
                "kind": node.job.kind,
                "args": jsonable.plain(unpack(node.job.args)),
                "after": [nodes[place].key for place in node.after],
                "on": node.on.value,
                "queue": node.job.queue,
            }
            for node in nodes
        ],
    }


def plan_view(head: GroupHead, nodes: Sequence[Node]) -> View:
    """What a file describes, in layers: those of one depend only on those above."""
    layer = _layer_of(nodes)
    edges = sum(len(node.after) for node in nodes)
    words = f"{head.name}: {len(nodes):,} jobs in {max(layer.values(), default=0):,} layers, "
    title = Text(f"{words}{edges:,} dependencies; nothing was submitted")
    rows = [
        (
            str(layer[node.key]),
            node.key,
            node.job.kind,
            ", ".join(nodes[place].key for place in node.after),
            node.on.value if node.on is not Condition.SUCCEEDED else "",
        )
        for node in sorted(nodes, key=lambda node: layer[node.key])
    ]
    return View([title, Table(("layer", "key", "kind", "after", "on"), rows, frozenset({"layer"}))])


def _layer_of(nodes: Sequence[Node]) -> Mapping[str, int]:
    edges = {node.key: [nodes[place].key for place in node.after] for node in nodes}
    return {key: number for number, some in enumerate(layers(edges), 1) for key in some}


def failure_words(shown: ShownGroup) -> str:
    """How a group ended, for an error message."""
    if shown.failure is None:
        return f"{called(shown.group)}: {in_states(shown.group)}"
    job = shown.failure.job
    error = error_line(job.error) if job.error else "no reason was recorded"
    return f"{called(shown.group)}: '{shown.failure.key}' failed first, {error}"
