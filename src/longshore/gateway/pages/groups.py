"""The list of groups, with how far each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from longshore.client.connection import all_of
from longshore.client.neighbours import MAX_PATH_JOBS
from longshore.core.group_words import shown_counts
from longshore.gateway.models import Number
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.group import ENDED_GROUPS, Group, GroupFilter, GroupState

PAGE_GROUPS: Final = 25
_ORDER: Final = (
    "succeeded",
    "running",
    "cancelling",
    "ready",
    "delayed",
    "waiting",
    "failed",
    "dependency_failed",
    "cancelled",
    "skipped",
)


class GroupsQuery(Struct, frozen=True):
    """Which groups to list."""

    name: str = ""
    state: tuple[GroupState, ...] = ()
    before: Number | None = None


class Seen(Struct, frozen=True):
    """A page of the list; those that go on have their counts."""

    query: GroupsQuery
    groups: Sequence[Group]


async def look(call: Call) -> Seen:
    """Asks for a page of groups, and for the counts of those that go on and are not large."""
    query = call.query(GroupsQuery)
    wanted = GroupFilter(query.state, query.name or None, query.before, PAGE_GROUPS)
    groups = await call.connection.groups(wanted)
    counted = [
        group.id
        for group in groups
        if group.state not in ENDED_GROUPS and group.jobs <= MAX_PATH_JOBS
    ]
    whole = {one.id: one for one in await all_of(call.connection.group(id) for id in counted)}
    return Seen(query, [whole.get(group.id, group) for group in groups])


def show(seen: Seen, view: View) -> Regions:
    """The regions of the list."""
    return {
        "search": joined(parts.heading("Groups"), _search(seen, view)),
        "list": joined(_table(seen.groups, view), _paging(seen, view)),
    }


def _search(seen: Seen, view: View) -> Html:
    box = h(
        "input",
        type="search",
        name="name",
        value=seen.query.name,
        aria_label="Name",
        placeholder="the name of a group",
        autocomplete="off",
    )
    form = h("form", box, h("button", "Search", type="submit"), class_="query", role="search")
    return joined(form, _chips(seen, view))


def _chips(seen: Seen, view: View) -> Html:
    here = f"{view.root}groups/"
    links = [
        h(
            "a",
            word or "all",
            href=here + parts.url("", name=seen.query.name, state=word),
            aria_current="true"
            if seen.query.state == ((GroupState(word),) if word else ())
            else None,
        )
        for word in ("", "running", "paused", "failed", "succeeded", "cancelled")
    ]
    return h("nav", links, class_="chips", aria_label="States")


def _table(groups: Sequence[Group], view: View) -> Html:
    rows = [
        [
            parts.group_link(view.root, group.number),
            parts.group_link(view.root, group.number, group.name),
            parts.state(group.state),
            progress(group),
            parts.number(group.jobs),
            parts.when(group.created_at),
            parts.took(group.created_at, group.ended_at),
        ]
        for group in groups
    ]
    heads = ("group#", "name", "state", "progress", "jobs#", "submitted", "took#")
    return parts.table(heads, rows, "Groups, newest first", empty="no group matches")


def progress(group: Group) -> Html | None:
    """A bar of the states of a group's jobs, if they were counted."""
    counts: Mapping[str, int] = shown_counts(group)
    if not any(counts.values()):
        return None
    words = ", ".join(
        f"{counts[name]:,} {name.replace('_', ' ')}" for name in _ORDER if counts[name]
    )
    return parts.bar([(name, counts[name]) for name in _ORDER], group.jobs, words)


def _paging(seen: Seen, view: View) -> Html:
    query, here, links = seen.query, f"{view.root}groups/", []
    kept = {"name": query.name, "state": query.state[0].value if query.state else ""}
    if query.before is not None:
        links.append(h("a", "Newest", href=here + parts.url("", **kept), rel="first"))
    if len(seen.groups) == PAGE_GROUPS:
        older = parts.url("", **kept, before=seen.groups[-1].number)
        links.append(h("a", "Older", href=here + older, rel="next"))
    return h("nav", links, class_="paging", aria_label="More groups")


GROUPS: Final = Page(
    path="/groups/",
    id="page_groups",
    title=lambda _: "Groups",
    look=look,
    show=show,
    query=GroupsQuery,
)
