"""The page of one group: how far it is, its graph, what failed and what that cost, its chart."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Final, Literal
from urllib.parse import quote

from msgspec import Struct, structs

from longshore.client.connection import all_of
from longshore.client.forecasting import forecast_of, run_times_of
from longshore.client.neighbours import MAX_PATH_JOBS
from longshore.core.access import Right
from longshore.core.group_words import shown_counts, shown_state
from longshore.core.grown import with_scopes
from longshore.core.layout import Layout
from longshore.core.outlook import about, critical_path, lost_with, remaining
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.comparison import Comparison, compared, comparison
from longshore.gateway.pages.gantt import MOST_JOBS, gantt
from longshore.gateway.pages.graph import Drawn, graph, states
from longshore.gateway.pages.groups import progress
from longshore.gateway.pages.html import NOTHING, Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.group import ENDED_GROUPS, GATE, Group, GroupState, NodeView
from longshore.model.job import Job, JobFilter, JobState

MOST_WHOLE: Final = 2_000
"""A group with more jobs is folded, unless somebody wants it whole."""
MOST_DRAWN: Final = 5_000
"""A group with more jobs is always folded."""
_MOST_FAILED: Final = 8
_MOST_WEIGHED: Final = 100
"""Of so many failed jobs it is looked what each kept from running."""
_MOST_PATH: Final = 12
_MOST_LOST: Final = 20
"""So many of those are named that could not run because of one."""
_FAILED: Final = (JobState.FAILED, JobState.DEPENDENCY_FAILED, JobState.CANCELLED)
_KEYS: Final = ("+", "−", "fit")


class GroupQuery(Struct, frozen=True):
    """How to draw the graph."""

    fold: Literal["yes", "no", ""] = ""
    only: Literal["failed", ""] = ""
    """`failed`: what failed, what could not run because of it, and what was cancelled."""
    compare: Literal["before", ""] = ""
    """`before`: with the last run of its name."""


class Failure(Struct, frozen=True):
    """A job that failed, and those that could not run because of it."""

    key: str
    job: Job
    lost: Sequence[NodeView]


class Seen(Struct, frozen=True):
    """What the page shows."""

    group: Group
    nodes: Sequence[NodeView]
    layout: Layout
    folded: bool
    path: tuple[str, ...]
    left: str
    """How long it will still take, about; empty if nothing tells."""
    failed: Sequence[Failure]
    ran: Sequence[Job]
    query: GroupQuery
    comparison: Comparison | None


async def look(call: Call) -> Seen:
    """Asks for a group, all its jobs and what is known of their times."""
    connection = call.connection
    group = await connection.group(call.ref("group"))
    async with aclosing(connection.all_nodes(group.id)) as coming:
        nodes = [structs.replace(one, state=shown_state(one)) async for one in coming]
    query = call.query(GroupQuery)
    drawn = _those_that_failed(nodes) if query.only else nodes
    folded = _is_folded(query.fold, len(drawn))
    layout = await call.gateway.layouts.of(group.id, drawn, folded=folded, part=query.only)
    path, left = await _outlook(call, group, nodes)
    failed, ran = await all_of([_failed(call, nodes), _ran(call, group)])
    since = await compared(call, group, nodes) if query.compare else None
    return Seen(group, nodes, layout, folded, path, left, failed, ran, query, since)


def _those_that_failed(nodes: Sequence[NodeView]) -> Sequence[NodeView]:
    """What did not go well, with the edges between."""
    kept = {node.key for node in nodes if node.state in _FAILED}
    return [
        structs.replace(
            node,
            after=tuple(key for key in node.after if key in kept),
            scope=node.scope if node.scope in kept else None,
        )
        for node in nodes
        if node.key in kept
    ]


def _is_folded(wanted: str, jobs: int) -> bool:
    if jobs > MOST_DRAWN or not wanted:
        return jobs > MOST_WHOLE
    return wanted == "yes"


async def _outlook(
    call: Call, group: Group, nodes: Sequence[NodeView]
) -> tuple[tuple[str, ...], str]:
    """The critical path of what is left, and how long that takes."""
    if group.state in ENDED_GROUPS or len(nodes) > MAX_PATH_JOBS:
        return (), ""
    live = remaining(with_scopes(nodes))
    times = await run_times_of(call.connection, live)
    found = await forecast_of(call.connection, group, live, times)
    return critical_path(live, times), "" if found is None else about(found.left_s)


async def _failed(call: Call, nodes: Sequence[NodeView]) -> Sequence[Failure]:
    """What failed, that first which kept the most from running."""
    failed = [node for node in nodes if node.state is JobState.FAILED][:_MOST_WEIGHED]
    if not failed:
        return ()
    costs = [(lost_with(nodes, node.key), node) for node in failed]
    costs.sort(key=lambda one: -len(one[0]))
    worst = costs[:_MOST_FAILED]
    wanted = JobFilter(ids=tuple(node.job for _, node in worst), limit=len(worst))
    jobs = {job.id: job for job in (await call.connection.jobs(wanted)).jobs}
    return [Failure(node.key, jobs[node.job], lost) for lost, node in worst if node.job in jobs]


async def _ran(call: Call, group: Group) -> Sequence[Job]:
    return (await call.connection.jobs(JobFilter(group=group.id, limit=MOST_JOBS))).jobs


def show(seen: Seen, view: View) -> Regions:
    """The regions of the page."""
    return {
        "head": _head(seen, view),
        "failed": _failures(seen, view),
        "compare": comparison(seen.comparison, view) if seen.comparison else NOTHING,
        "gates": _gates(seen, view),
        "graph": _graph(seen, view),
        "states": h("div", hidden=True, data_states=states(seen.layout)),
        "gantt": _chart(seen, view),
        "facts": _facts(seen, view),
    }


# the head


def _head(seen: Seen, view: View) -> Html:
    group = seen.group
    title = joined(f"Group {group.number} ", h("span", group.name, class_="kind"))
    counts = shown_counts(group)
    legend = [
        h(
            "a",
            h("i", class_=f"dot f-{name}"),
            f"{count:,} {name.replace('_', ' ')}",
            href=parts.jobs_url(view.root, f"group:{group.number} state:{name}"),
        )
        for name, count in counts.items()
        if count
    ]
    return joined(
        parts.heading(title, parts.state(group.state), _actions(group, view)),
        progress(group),
        h("p", legend, class_="legend"),
        _outlook_words(seen),
    )


def _outlook_words(seen: Seen) -> Html | None:
    if not seen.path:
        is_large = len(seen.nodes) > MAX_PATH_JOBS and seen.group.state not in ENDED_GROUPS
        untold = f"No critical path is told of groups of more than {MAX_PATH_JOBS:,} jobs."
        return h("p", untold, class_="why") if is_large else None
    shown = " → ".join(seen.path[:_MOST_PATH]) + (" → …" if len(seen.path) > _MOST_PATH else "")
    left = f"About {seen.left} to go. " if seen.left else ""
    return h("p", left, "Critical path: ", h("code", shown), class_="why")


def _actions(group: Group, view: View) -> list[Html]:
    if not view.may(Right.SUBMIT):
        return []
    path, name = f"dispatcher/groups/{group.id}", f"group {group.number} ({group.name})"
    retry = parts.action("Retry", "POST", f"{path}/retry", plan=True)
    match group.state:
        case GroupState.FAILED | GroupState.CANCELLED:
            return [retry, parts.action("Run anew", "POST", f"{path}/rerun", plan=True)]
        case GroupState.SUCCEEDED:
            return []
        case GroupState.PAUSED:
            buttons = [parts.action("Resume", "POST", f"{path}/resume")]
        case _:
            words = f"Let no more jobs of {name} begin? What runs goes on."
            buttons = [parts.action("Pause", "POST", f"{path}/pause", confirm=words)]
    words = f"Cancel {name}? What has not ended will not run, and what runs is stopped."
    cancel = parts.action("Cancel", "DELETE", path, confirm=words, danger=True)
    return [*buttons, *([retry] if group.counts.get("failed") else []), cancel]


# what failed, what waits for a person


def _failures(seen: Seen, view: View) -> Html:
    if not seen.failed:
        return NOTHING
    rows = [
        [
            parts.job_link(view.root, one.job.number),
            one.key,
            h("span", parts.error_words(one.job.error), class_="error") if one.job.error else None,
            _lost(one.lost, view),
            parts.when(one.job.ended_at),
        ]
        for one in seen.failed
    ]
    heads = ("job#", "key", "error", "because of it", "ended")
    body = parts.table(heads, rows, "What failed")
    all_failed = seen.group.counts.get(JobState.FAILED.value, 0)
    where = parts.jobs_url(view.root, f"group:{seen.group.number} state:failed")
    more = h("p", h("a", f"all {all_failed:,} that failed", href=where))
    rest = more if all_failed > len(rows) else None
    return h("section", h("h2", "What failed"), body, rest, class_="card bad")


def _lost(nodes: Sequence[NodeView], view: View) -> Html | None:
    """Those that could not run because of one, folded."""
    if not nodes:
        return None
    links = [
        h("li", parts.job_link(view.root, node.number, node.key)) for node in nodes[:_MOST_LOST]
    ]
    more = len(nodes) - _MOST_LOST
    rest = h("li", f"and {more:,} more", class_="muted") if more > 0 else None
    return h("details", h("summary", f"{len(nodes):,} could not run"), h("ul", links, rest))


def _gates(seen: Seen, view: View) -> Html:
    ready = [n for n in seen.nodes if n.kind == GATE and n.state is JobState.READY]
    if not ready:
        return NOTHING
    rows = [
        [node.key, _open(seen.group, node.key) if view.may(Right.SUBMIT) else None]
        for node in ready
    ]
    return parts.section("Gates that wait for somebody", parts.table(("gate", ""), rows, "Gates"))


def _open(group: Group, key: str) -> Html:
    return h(
        "button",
        "Open",
        type="button",
        class_="action",
        data_form='{"value": true}',
        data_method="POST",
        data_path=f"dispatcher/groups/{group.id}/gates/{quote(key, safe='')}",
        data_done=f"Gate {key} is open.",
        aria_label=f"Open gate {key}",
    )


# the graph


def _graph(seen: Seen, view: View) -> Html:
    numbers = {node.key: node.number for node in seen.nodes}
    plain = view.live and not seen.folded
    drawn = Drawn(view.root, seen.group.number, numbers, seen.path, plain)
    tools = [
        *(
            h("button", sign, type="button", data_zoom=by, hidden=True, aria_label=words)
            for sign, by, words in (
                ("+", "0.8", "Closer"),
                ("−", "1.25", "Farther"),
                ("Fit", "fit", "All"),
            )
        ),
        _fold_link(seen, view),
        _only_link(seen, view),
    ]
    extent = f"{seen.layout.jobs:,} jobs, {len(seen.layout.edges):,} edges"
    words = h("span", f"{extent}, alike ones as one" if seen.folded else extent, class_="muted")
    box = h("div", graph(seen.layout, drawn), class_="graph still", tabindex=0, aria_label="Graph")
    return h("section", h("h2", "Graph"), h("div", tools, words, class_="graph-tools"), box)


def _fold_link(seen: Seen, view: View) -> Html | None:
    if seen.folded and seen.layout.jobs <= MOST_DRAWN:
        return h("a", "Show every job", href=_here(seen, view, fold="no"))
    if not seen.folded and seen.layout.jobs > len(_KEYS) * 7:
        return h("a", "Show alike jobs as one", href=_here(seen, view, fold="yes"))
    return None


def _only_link(seen: Seen, view: View) -> Html | None:
    if seen.query.only:
        return h("a", "Show all jobs", href=_here(seen, view, only=""))
    if not any(node.state in _FAILED for node in seen.nodes):
        return None
    return h("a", "Only what failed", href=_here(seen, view, only="failed"))


def _here(seen: Seen, view: View, **changes: str) -> str:
    """The address of this page, otherwise shown."""
    given = {**structs.asdict(seen.query), **changes}
    kept = {name: value for name, value in given.items() if value}
    return parts.url(view.root, "groups", seen.group.number, **kept)


def _chart(seen: Seen, view: View) -> Html:
    keys = {node.job: node.key for node in seen.nodes}
    chart = gantt(seen.ran, keys, view.root)
    if chart is None:
        return NOTHING
    title = (
        "When its jobs ran"
        if len(seen.ran) < MOST_JOBS
        else f"When its newest {MOST_JOBS} jobs ran"
    )
    return parts.section(title, chart)


def _facts(seen: Seen, view: View) -> Html:
    group = seen.group
    of = None if group.run_of is None else parts.group_link(view.root, group.run_of)
    same = f"{view.root}groups/{parts.url('', name=group.name)}"
    return parts.section(
        "Facts",
        parts.facts(
            [
                ("submitted", parts.when(group.created_at)),
                ("took", parts.took(group.created_at, group.ended_at)),
                ("ended", parts.when(group.ended_at)),
                ("round", str(group.round) if group.round > 1 else None),
                ("new run of", of),
                ("taken over", parts.number(group.taken_over) if group.taken_over else None),
                ("cancelled by", group.cancelled_by),
                ("labels", ", ".join(group.labels)),
                ("same name", h("a", f"all runs of {group.name}", href=same)),
                ("the run before", None if seen.comparison else _compare_link(seen, view)),
                ("id", h("code", str(group.id))),
            ]
        ),
    )


def _compare_link(seen: Seen, view: View) -> Html:
    return h("a", "what is different since", href=_here(seen, view, compare="before"))


GROUP: Final = Page(
    path="/groups/{id}",
    id="page_group",
    title=lambda seen: f"Group {seen.group.number} {seen.group.name}",
    look=look,
    show=show,
    query=GroupQuery,
)
