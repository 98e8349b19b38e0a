"""Groups as tables and in words: lists, one group, why it is where it is, what would run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from rich.text import Text

from longshore.cli.view.lists import age, brief_error
from longshore.cli.view.show import (
    Table,
    View,
    callback_lines,
    duration,
    error_line,
    state_style,
    time,
)
from longshore.client import jsonable
from longshore.client.neighbours import MAX_PATH_JOBS
from longshore.core.group_words import in_states, shown_counts, shown_state
from longshore.core.key_limits import group_key
from longshore.core.key_words import bounds_words
from longshore.core.lifecycle import TERMINAL
from longshore.core.outlook import Cost, Forecast, about
from longshore.core.text import visible
from longshore.model.group import (
    ENDED_GROUPS,
    Group,
    GroupState,
    NodeView,
    RetryPlan,
    RunPlan,
)
from longshore.model.job import Job
from longshore.payload.callback_words import CallbackView
from longshore.wire.messages import WhyAnswer

MAX_LABEL_CHARS: Final = 32
"""Longer keys and kinds are cut in the middle, where they are shown in a line or a box."""
MAX_CHAIN_SHOWN: Final = 6
"""Of a longer chain of jobs the first and the last are shown."""
MAX_PARTS_SHOWN: Final = 6
"""Of how many sub-groups and gates a view of a group tells."""
_BAR_CELLS = 30


class FirstFailure(NamedTuple):
    """The job of a group that failed first, its key, and what that cost, if it was looked for."""

    job: Job
    key: str
    cost: Cost | None = None


class GroupSection(NamedTuple):
    """A map, a sub-group, or what a job added: how many jobs below a key have ended."""

    key: str
    ended: int
    jobs: int


class ShownGroup(NamedTuple):
    """A group and what failed first in it; and, if these were looked for, some more.

    - `critical_path`: the longest chain of jobs that have not ended;
    - `forecast`: when it is expected to end;
    - `gates`: those that wait for somebody to open them;
    - `parts`: how far its maps and sub-groups are;
    - `callbacks`: what became of them.
    """

    group: Group
    failure: FirstFailure | None = None
    critical_path: tuple[str, ...] | None = None
    forecast: Forecast | None = None
    gates: tuple[str, ...] = ()
    parts: tuple[GroupSection, ...] = ()
    callbacks: tuple[CallbackView, ...] = ()


def parts_of(nodes: Sequence[NodeView]) -> tuple[GroupSection, ...]:
    """The outermost sub-groups, maps and jobs that added others, in the order of their jobs."""
    jobs: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for node in nodes:
        prefix, slash, _ = node.key.partition("/")
        if slash:
            jobs[prefix] += 1
            ended[prefix] += shown_state(node) in TERMINAL
    return tuple(GroupSection(key, ended[key], count) for key, count in jobs.items())


def called(group: Group) -> str:
    """A group, as a sentence names it."""
    return f"group {group.number} ({group.name})"


def ended_jobs(group: Group) -> int:
    """How many jobs of a group have ended."""
    counts = shown_counts(group)
    return sum(counts[state.value] for state in TERMINAL)


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
    group, failure, path, forecast, gates, parts, callbacks = shown
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
    found = {
        "first_failure": first,
        "callbacks": jsonable.plain(callbacks),
        "critical_path": path,
        "expected": forecast and forecast._asdict(),
        "gates": list(gates),
        "parts": [part._asdict() for part in parts],
    }
    return {**jsonable.plain(group), "counts": shown_counts(group), **found}


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
    group, failure, path, forecast, gates, parts, callbacks = shown
    took = f" (took {_took(group)})" if group.ended_at else ""
    return [
        ("id", str(group.id)),
        ("run of", _run_words(group)),
        ("progress", progress_bar(group)),
        ("jobs", in_states(group)),
        ("missing", _missing(group)),
        ("below", _parts_words(parts)),
        ("critical path", chain_words(path or ()) + (path_words(forecast) if forecast else "")),
        ("expected end", forecast_words(forecast, gates) if forecast else ""),
        ("gates", _gates_words(group, gates)),
        ("not told", _not_told(group)),
        ("failed first", _failed_first(failure)),
        ("fail fast", "yes" if group.fail_fast else ""),
        ("limit", _limit_words(group)),
        ("cancelled by", group.cancelled_by),
        ("labels", ", ".join(group.labels)),
        ("created", time(group.created_at)),
        ("ended", f"{time(group.ended_at)}{took}"),
        *callback_lines(callbacks),
    ]


def _limit_words(group: Group) -> str:
    """What limits all of its jobs together, and the key for which they count."""
    if group.limit is None:
        return ""
    return f"{bounds_words(group.limit.concurrency, group.limit.rate)} ({group_key(group.id)})"


def _not_told(group: Group) -> str:
    """What is not looked for, because the group is large."""
    if group.jobs <= MAX_PATH_JOBS:
        return ""
    what = "what the first failure cost"
    if group.state not in ENDED_GROUPS:
        what = f"the critical path, the expected end, gates, parts, {what}"
    return f"{what}: the group has more than {MAX_PATH_JOBS:,} jobs"


def _run_words(group: Group) -> str:
    """Which group it is a new run of, and how much it took over from that."""
    if group.run_of is None:
        return ""
    return f"group {group.run_of}; {group.taken_over:,} of {_jobs(group.jobs)} taken over from it"


def _parts_words(parts: Sequence[GroupSection]) -> str:
    """How far the maps and sub-groups are."""
    shown = [f"{part.key}/ {part.ended:,} of {part.jobs:,}" for part in parts[:MAX_PARTS_SHOWN]]
    if len(parts) > MAX_PARTS_SHOWN:
        shown.append(f"{len(parts) - MAX_PARTS_SHOWN:,} more")
    return ", ".join(shown)


def _gates_words(group: Group, gates: Sequence[str]) -> str:
    """Which gates wait for somebody, and how the first is opened."""
    if not gates:
        return ""
    shown = ", ".join(f"'{key}'" for key in gates[:MAX_PARTS_SHOWN])
    more = f" and {len(gates) - MAX_PARTS_SHOWN:,} more" if len(gates) > MAX_PARTS_SHOWN else ""
    opens = f"`longshore group open {group.number} {gates[0]}`"
    return (
        f"{shown}{more} wait to be opened: {opens}"
        if len(gates) > 1
        else (f"{shown} waits to be opened: {opens}")
    )


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


def forecast_words(forecast: Forecast, gates: Sequence[str] = ()) -> str:
    """When a group will have ended, about."""
    kinds = "these kinds" if forecast.known == forecast.kinds else _some_kinds(forecast)
    slots = f"{forecast.slots:,} slot{'s' if forecast.slots > 1 else ''}"
    when = " once its gates are open" if gates else ""
    return f"about {about(forecast.left_s)} left{when} on {slots}, by earlier runs of {kinds}"


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


def retry_words(ref: object, made: RetryPlan, is_plan: bool) -> str:
    """What a retry does, or would do."""
    would = "would " if is_plan else ""
    title = f"{len(made.reopened) + made.more:,} jobs of group {ref} {would}run again:"
    words = "\n  ".join([title, *made.reopened, *_and_more(made.more)])
    if made.retired:
        leave = f"{len(made.retired) + made.more_retired:,} {would}leave the group"
        title = f"{leave}, as the jobs that added them run again:"
        words += "\n" + "\n  ".join([title, *made.retired, *_and_more(made.more_retired)])
    return words


def _and_more(count: int) -> list[str]:
    return [f"and {count:,} more"] if count else []


def rerun_words(ref: object, made: RunPlan) -> str:
    """What a new run of a group does, or would do."""
    anew, taken = _jobs(made.anew), f"{made.taken_over:,}"
    title = f"a new run of group {ref} would run {anew} anew and take over {taken}:"
    if made.run is not None:
        title = f"group {made.run.number} is a new run of group {ref}: it runs {anew} anew "
        title += f"and takes over {taken}:"
    more = made.anew - len(made.keys)
    words = "\n  ".join([title, *made.keys, *_and_more(more)])
    if made.left_out:
        are = "are" if made.left_out > 1 else "is"
        words += f"\n{_jobs(made.left_out)} {are} left out, because what adds such jobs runs anew"
    return words


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


def failure_words(shown: ShownGroup) -> str:
    """How a group ended, for an error message."""
    if shown.failure is None:
        return f"{called(shown.group)}: {in_states(shown.group)}"
    job = shown.failure.job
    error = error_line(job.error) if job.error else "no reason was recorded"
    return f"{called(shown.group)}: '{shown.failure.key}' failed first, {error}"
