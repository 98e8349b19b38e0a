"""The list of actors: by type, status and the fields that their class lists them by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from longshore.client.connection import all_of
from longshore.core.turns import split_kind
from longshore.errors import LongshoreError
from longshore.gateway.actors import cursor_of, listed_by
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import NOTHING, Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.actor import Actor, ActorFilter, ActorPage, ActorStatus
from longshore.model.depth import LaneView
from longshore.model.worker import WorkerView

PAGE_ACTORS: Final = 50
_STATES: Final = {"ready": "ready", "running": "running", "delayed": "sleeping", "failed": "failed"}
"""The states of turns that say how many actors there are of a status."""


class ActorsQuery(Struct, frozen=True):
    """Which actors to list."""

    type: str = ""
    status: ActorStatus | None = None
    fields: str = ""
    """Values that they are listed by: `plan=pro seats=5`."""
    after: str = ""


class Seen(Struct, frozen=True):
    """A page of the list."""

    query: ActorsQuery
    page: ActorPage
    types: Mapping[str, Mapping[str, int]]
    """By type, how many turns are in each state; empty for one that only workers know."""
    listed: tuple[str, ...]
    """The fields that actors of the chosen type are listed by."""
    error: str = ""


async def look(call: Call) -> Seen:
    """Asks for a page of actors; what is wrong with the search is a part of the answer."""
    query, connection = call.query(ActorsQuery), call.connection
    lanes, workers = await all_of([connection.lanes(), connection.workers()])
    page, error = ActorPage(), ""
    try:
        page = await connection.actors.page(_wanted(query))
    except LongshoreError as problem:
        error = str(problem)
    return Seen(query, page, _types(lanes, workers), listed_fields(workers, query.type), error)


def _wanted(query: ActorsQuery) -> ActorFilter:
    fields = listed_by(query.type or None, query.fields.split())
    after = cursor_of(query.after) if query.after else None
    return ActorFilter(query.type or None, query.status, after, PAGE_ACTORS, fields)


def _types(lanes: Iterable[LaneView], workers: Iterable[WorkerView]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for one in workers:
        for kind in one.info.kinds if one.alive else ():
            type, version = split_kind(kind)
            if version:
                found.setdefault(type, Counter())
    for lane in lanes:
        type, version = split_kind(lane.kind)
        if version:
            found.setdefault(type, Counter()).update(lane.counts)
    return dict(sorted(found.items()))


def listed_fields(workers: Iterable[WorkerView], type: str) -> tuple[str, ...]:
    """The fields that live workers say actors of a type are listed by."""
    found = {
        name: None
        for one in workers
        if one.alive
        for kind, info in one.info.kinds.items()
        if split_kind(kind)[0] == type
        for name in info.listed
    }
    return tuple(found)


def show(seen: Seen, view: View) -> Regions:
    """The regions of the list."""
    return {
        "search": joined(parts.heading("Actors"), _search(seen, view), _problem(seen.error)),
        "types": _types_table(seen, view),
        "list": joined(_table(seen.page.actors, view), _paging(seen, view)),
    }


def _search(seen: Seen, view: View) -> Html:
    query = seen.query
    names = dict.fromkeys(("", *seen.types, query.type))
    options = [
        h("option", name or "all types", value=name, selected=name == query.type) for name in names
    ]
    hint = " ".join(f"{name}=…" for name in seen.listed)
    box = h(
        "input",
        type="search",
        name="fields",
        value=query.fields,
        aria_label="Listed fields",
        placeholder=hint or "listed fields of a type, like plan=pro",
        autocomplete="off",
    )
    kept = h("input", type="hidden", name="status", value=query.status) if query.status else None
    types = h("select", options, name="type", aria_label="Type")
    go = h("button", "Search", type="submit")
    return joined(
        h("form", types, box, kept, go, class_="query", role="search"), _chips(seen, view)
    )


def _chips(seen: Seen, view: View) -> Html:
    query = seen.query
    links = [
        h(
            "a",
            word or "all",
            href=actors_url(view.root, query.type, word, query.fields),
            aria_current="true" if word == (query.status or "") else None,
        )
        for word in ("", *ActorStatus)
    ]
    return h("nav", links, class_="chips", aria_label="Status")


def actors_url(root: str, type: str = "", status: str = "", fields: str = "") -> str:
    """A list of actors."""
    return f"{root}actors/{parts.url('', type=type, status=status, fields=fields)}"


def _problem(words: str) -> Html | None:
    return h("p", words, class_="problem", role="alert") if words else None


def _types_table(seen: Seen, view: View) -> Html:
    """How the actors of each type are, as far as that is kept counted."""
    if seen.query.type or seen.query.fields or seen.query.after:
        return NOTHING
    rows = [
        [h("a", type, href=actors_url(view.root, type)), *_counts(type, counts, view)]
        for type, counts in seen.types.items()
    ]
    heads = ("type", "turn ready#", "turn running#", "wakes by itself#", "failed#")
    note = "An actor that only waits for a message is in no column."
    body = parts.table(heads, rows, "Types of actors", empty="no worker serves actors")
    return parts.section("Types", body, h("p", note, class_="muted") if rows else None)


def _counts(type: str, counts: Mapping[str, int], view: View) -> list[Html | str]:
    return [
        h("a", parts.number(counts[state]), href=actors_url(view.root, type, status))
        if counts.get(state)
        else "0"
        for state, status in _STATES.items()
    ]


def _table(actors: Sequence[Actor], view: View) -> Html:
    rows = [
        [
            actor_link(view.root, one.type, one.key),
            h("a", one.type, href=actors_url(view.root, one.type)),
            parts.state(one.status),
            _listed(one, view),
            parts.number(one.unread),
            parts.number(one.turn),
            parts.when(one.turned_at),
            _says(one),
        ]
        for one in actors
    ]
    heads = ("actor", "type", "status", "listed by", "unread#", "turns#", "last turn", "says")
    return parts.table(heads, rows, "Actors by type and key", empty="no actor matches")


def actor_link(root: str, type: str, key: str, words: str = "") -> Html:
    """A link to an actor."""
    return h("a", words or key, href=parts.url(root, "actors", type, key))


def _listed(one: Actor, view: View) -> Html:
    links = []
    for name, value in one.listed.items():
        term = f"{name}={value if ' ' not in value else ''}"
        words = f"{name}={msgspec.json.decode(value)}"
        href = actors_url(view.root, one.type, fields=term)
        links.append(words if " " in value else h("a", words, href=href))
    return h("span", [joined(" " if at else None, link) for at, link in enumerate(links)])


def _says(one: Actor) -> Html | None:
    if one.error is not None:
        return h("span", parts.error_words(one.error), class_="error")
    return h("span", "wakes ", parts.when(one.next_at)) if one.next_at else None


def _paging(seen: Seen, view: View) -> Html:
    query, links = seen.query, []
    if query.after:
        href = actors_url(view.root, query.type, query.status or "", query.fields)
        links.append(h("a", "First", href=href, rel="first"))
    after = seen.page.after
    if after is not None:
        text = msgspec.json.encode(after).decode()
        more = parts.url(
            "", type=query.type, status=query.status or "", fields=query.fields, after=text
        )
        links.append(h("a", "More", href=f"{view.root}actors/{more}", rel="next"))
    few = after if len(seen.page.actors) < PAGE_ACTORS else None
    words = f"The search stopped at {few[0]} '{few[1]}': “More” goes on." if few and after else ""
    note = h("span", words, class_="muted")
    return h("nav", links, note, class_="paging", aria_label="More actors")


ACTORS: Final = Page(
    path="/actors/",
    id="page_actors",
    title=lambda _: "Actors",
    look=look,
    show=show,
    query=ActorsQuery,
)
