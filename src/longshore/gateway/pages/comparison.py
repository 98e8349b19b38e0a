"""A group beside the last run of its name: what became of each key then and now."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from msgspec import Struct

from longshore.client.connection import all_of
from longshore.client.neighbours import MAX_PATH_JOBS
from longshore.core.run_comparison import Difference, JobRun, differences
from longshore.core.timing import span
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.page import View
from longshore.model.group import Group, GroupFilter, NodeView
from longshore.model.job import Job, JobFilter


class Comparison(Struct, frozen=True):
    """The run before, if there is one, and what is different; `too_large` if it is not looked."""

    before: Group | None
    found: Sequence[Difference] = ()
    too_large: bool = False


async def compared(call: Call, group: Group, nodes: Sequence[NodeView]) -> Comparison:
    """Compares a group with the last run of its name."""
    listed = await call.connection.groups(
        GroupFilter(name=group.name, before=group.number, limit=1)
    )
    if not listed:
        return Comparison(None)
    before = listed[0]
    if max(before.jobs, group.jobs) > MAX_PATH_JOBS:
        return Comparison(before, too_large=True)
    async with aclosing(call.connection.all_nodes(before.id)) as coming:
        old = [node async for node in coming]
    then, now = await all_of([_jobs(call, before), _jobs(call, group)])
    return Comparison(before, differences(_runs(old, then), _runs(nodes, now)))


async def _jobs(call: Call, group: Group) -> Sequence[Job]:
    return (await call.connection.jobs(JobFilter(group=group.id, limit=MAX_PATH_JOBS))).jobs


def _runs(nodes: Sequence[NodeView], jobs: Sequence[Job]) -> dict[str, JobRun]:
    took = {
        job.id: (job.ended_at - job.started_at).total_seconds()
        for job in jobs
        if job.started_at is not None and job.ended_at is not None
    }
    return {one.key: JobRun(one.kind, one.number, one.state, took.get(one.job)) for one in nodes}


def comparison(seen: Comparison, view: View) -> Html:
    """What is different, as a table."""
    if seen.before is None:
        return parts.section("Since the last run", h("p", "No run of this name came before."))
    link = parts.group_link(view.root, seen.before.number)
    if seen.too_large:
        words = f" A run has more than {MAX_PATH_JOBS:,} jobs: they are not compared."
        return parts.section("Since the last run", h("p", "The run before is ", link, ".", words))
    rows = [_row(one, view) for one in seen.found]
    heads = ("what", "kind", "jobs#", "keys", "before#", "now#")
    empty = "nothing: the same outcomes, and about the same run times"
    table = parts.table(heads, rows, "What is different", empty=empty)
    return parts.section("Since the last run", h("p", "The run before is ", link, "."), table)


def _row(one: Difference, view: View) -> list[Html | str | None]:
    links = [
        joined(", " if at else None, parts.job_link(view.root, number, key))
        for at, (key, number) in enumerate(one.keys)
    ]
    more = one.count - len(one.keys)
    return [
        h("strong", one.words, class_="error") if one.grave else one.words,
        one.kind,
        parts.number(one.count),
        h("span", links, f" and {more:,} more" if more > 0 else None),
        span(one.before_s) if one.before_s else None,
        span(one.now_s) if one.now_s else None,
    ]
