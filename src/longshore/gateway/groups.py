"""Groups over HTTP: submit, list, show, draw, stream, hold, cancel, run again."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

from msgspec import UNSET, Meta, Struct, structs
from starlette.responses import Response

from longshore.client import jsonable
from longshore.client.callbacks import callbacks_of
from longshore.client.group_file import GroupFile, group_in_body, group_in_lines
from longshore.client.group_handle import check_opened
from longshore.client.group_plan import run_times, submit_group
from longshore.client.kind import Terms
from longshore.core.group_limits import MAX_NODES_LISTED, MAX_PLACE
from longshore.core.group_words import shown_counts, shown_state
from longshore.core.tracing import with_trace
from longshore.errors import Conflict, NotFound, WrongState
from longshore.gateway.bodies import Document, decoded, lines
from longshore.gateway.ids import has_key, new_id
from longshore.gateway.models import GateValue, GroupRerun, GroupRetry, Number
from longshore.gateway.operation import Call, answer
from longshore.gateway.problems import KeyReused
from longshore.gateway.streams import END, Event, Events
from longshore.model.group import (
    ENDED_GROUPS,
    GateVerdict,
    Group,
    GroupFilter,
    GroupState,
    GroupVerdict,
    NodeView,
)
from longshore.model.run_time import RunTime
from longshore.payload.values import pack

_THREAD_JOBS = 1_000
"""A group with so many jobs is put in order in a thread: other requests go on meanwhile."""


class GroupSubmitQuery(Struct, frozen=True):
    """How to submit."""

    strict: bool = False
    """Refuse kinds that no live worker serves."""


class GroupsQuery(Struct, frozen=True):
    """Which groups to list."""

    state: tuple[GroupState, ...] = ()
    name: str | None = None
    before: Number | None = None
    """Only groups with a lower number: the cursor."""
    limit: Annotated[int, Meta(ge=1)] = 50


class GraphQuery(Struct, frozen=True):
    """Which jobs of a group to list."""

    after: Annotated[int, Meta(ge=-1, lt=MAX_PLACE)] = -1
    """The cursor: the place of the last job of the page before."""
    limit: Annotated[int, Meta(ge=1)] = MAX_NODES_LISTED


class CancelQuery(Struct, frozen=True):
    """What to cancel of a group."""

    prefix: str = ""
    """Only the job with this key and all below it; with a `/` at its end only what is below."""


# submitting


async def submit(call: Call) -> Response:
    """Submits a group, all or nothing."""
    described = await call.body_as(_described)
    terms = await call.gateway.kinds.terms_of(described.kinds)
    # A repeat must put the jobs into the same order, whatever was learnt of their times since.
    times = {} if has_key() else await run_times(call.connection, described.kinds)
    id = new_id()
    known = await _known(call, id) if has_key() else None
    head, nodes = await _in_order(described, id, terms, times)
    if parent := call.traceparent:
        nodes = [structs.replace(node, job=with_trace(node.job, parent)) for node in nodes]
    try:
        done = await submit_group(
            call.connection, head, nodes, strict=call.query(GroupSubmitQuery).strict
        )
    except Conflict:
        if known is None:
            raise
        raise KeyReused(
            f"this Idempotency-Key made group {known.number} before, with another body; give a new "
            "request a new key"
        ) from None
    document = {"id": str(done.id), "number": done.number, "name": head.name}
    document |= {"jobs": head.jobs, "state": done.state.value}
    where = {"Location": f"/dispatcher/groups/{done.id}"}
    return answer(document, 201 if known is None else 200, where)


def _described(data: bytes, is_lines: bool) -> GroupFile:
    if is_lines:
        return group_in_lines(lines(data, Document))
    return group_in_body(decoded(data, Document))


async def _in_order(
    described: GroupFile, id: UUID, terms: dict[str, Terms], times: dict[str, RunTime]
) -> Any:
    ids = iter([id])
    # Only the first id counts: those of the jobs follow from it.
    make = lambda: next(ids, id)  # noqa: E731
    if len(described.jobs) < _THREAD_JOBS:
        return described.in_order(make, terms, times)
    return await asyncio.to_thread(described.in_order, make, terms, times)


async def _known(call: Call, id: UUID) -> Group | None:
    try:
        return await call.connection.group(id)
    except NotFound:
        return None


# looking


async def list_groups(call: Call) -> Response:
    """Lists groups, newest first."""
    query = call.query(GroupsQuery)
    limit = min(query.limit, call.settings.max_page)
    found = await call.connection.groups(GroupFilter(query.state, query.name, query.before, limit))
    after = found[-1].number if len(found) == limit else None
    briefs = [{k: v for k, v in jsonable.plain(one).items() if k != "counts"} for one in found]
    headers = None if after is None else call.next_link(before=after)
    return answer({"groups": briefs, "next": after}, headers=headers)


async def show_group(call: Call) -> Response:
    """Shows a group, and how many of its jobs are in each state."""
    group = await call.connection.group(call.ref("group"))
    how = group.id, group.round, group.watchers
    calls = await callbacks_of(call.connection, *how, ended=group.state in ENDED_GROUPS)
    return answer({**shown(group), "callbacks": jsonable.plain(calls)})


def shown(group: Group) -> dict[str, Any]:
    """A group as JSON."""
    return {**jsonable.plain(group), "counts": shown_counts(group)}


async def show_graph(call: Call) -> Response:
    """Shows jobs of a group in its order, and what they depend on."""
    query = call.query(GraphQuery)
    limit = min(query.limit, call.settings.max_page, MAX_NODES_LISTED)
    group = await call.connection.group(call.ref("group"))
    nodes = await call.connection.nodes(group.id, query.after, limit)
    after = query.after + limit if len(nodes) == limit else None
    document = {
        "id": str(group.id),
        "number": group.number,
        "nodes": [_node(node) for node in nodes],
        "edges": [{"from": key, "to": node.key} for node in nodes for key in node.after],
        "next": after,
    }
    return answer(document, headers=None if after is None else call.next_link(after=after))


def _node(node: NodeView) -> dict[str, Any]:
    return {**jsonable.plain(node), "state": shown_state(node).value}


# streaming


async def stream_group(call: Call) -> Response:
    """Streams the changes of a group until it has ended: a snapshot, then what changes."""
    if call.last_event == END:
        return Response(status_code=204)
    group = await call.connection.group(call.ref("group"))
    return call.gateway.streams.answer(_events(call, group.id))


class _Seen(Struct, frozen=True):
    group: Group
    nodes: tuple[NodeView, ...]


async def _events(call: Call, id: UUID) -> Events:
    async def look() -> _Seen:
        group = await call.connection.group(id)
        async with aclosing(call.connection.all_nodes(id)) as nodes:
            return _Seen(group, tuple([node async for node in nodes]))

    before: _Seen | None = None
    number = 0
    async with aclosing(call.gateway.streams.news(("group", id), look)) as news:
        async for seen in news:
            for event in _changes(before, seen):
                number += 1
                yield Event(event.name, event.data, str(number))
            before = seen
            if seen.group.state in ENDED_GROUPS:
                yield Event(END, {"state": seen.group.state.value}, END)
                return


def _changes(before: _Seen | None, seen: _Seen) -> list[Event]:
    """What to tell of a group that looked otherwise before."""
    if before is None:
        nodes = [_node(node) for node in seen.nodes]
        return [Event("snapshot", {"group": shown(seen.group), "nodes": nodes})]
    known = {node.key: node for node in before.nodes}
    events = [Event("job", _node(node)) for node in seen.nodes if known.get(node.key) != node]
    gone = known.keys() - {node.key for node in seen.nodes}
    events += [Event("removed", {"key": key}) for key in known if key in gone]
    if before.group != seen.group:
        events.append(Event("group", shown(seen.group)))
    return events


# changing


async def cancel(call: Call) -> Response:
    """Cancels what has not ended of a group."""
    prefix = call.query(CancelQuery).prefix
    return _changed(call, await call.connection.cancel_group(call.ref("group"), prefix))


async def pause(call: Call) -> Response:
    """Holds what has not begun of a group."""
    return _changed(call, await call.connection.pause_group(call.ref("group"), True))


async def resume(call: Call) -> Response:
    """Lets a group go on."""
    return _changed(call, await call.connection.pause_group(call.ref("group"), False))


def _changed(call: Call, verdict: GroupVerdict) -> Response:
    name = call.name("id")
    if verdict is GroupVerdict.NOT_FOUND:
        raise NotFound(f"there is no group {name}; `GET /dispatcher/groups/` lists those there are")
    if verdict is GroupVerdict.NOT_RUNNING:
        raise WrongState(
            f"group {name} is not running: it waits for parts, or is being cancelled; look at it "
            "again in a moment"
        )
    if verdict is GroupVerdict.ALREADY_ENDED:
        raise WrongState(f"group {name} has ended already; look at it to see how")
    status = 202 if verdict is GroupVerdict.CANCELLING else 200
    return answer({"id": name, "verdict": verdict.value}, status)


async def retry(call: Call) -> Response:
    """Runs again what did not succeed of a group; with `dry_run`, says what that would be."""
    wanted = await call.body(GroupRetry)
    args = None if wanted.args is UNSET else pack(wanted.args, "args")
    plan = await call.connection.retry_group(
        call.ref("group"), wanted.keys, dry_run=wanted.dry_run, args=args
    )
    if plan.refused:
        raise WrongState(f"group {call.name('id')} cannot be retried: {plan.refused}")
    return answer(jsonable.plain(plan))


async def rerun(call: Call) -> Response:
    """Runs a group anew that has ended, as a new group that takes over what succeeded."""
    wanted = await call.body(GroupRerun)
    plan = await call.connection.rerun_group(call.ref("group"), wanted.keys, dry_run=wanted.dry_run)
    if plan.refused:
        raise WrongState(f"group {call.name('id')} cannot be run anew: {plan.refused}")
    return answer(jsonable.plain(plan), 200 if plan.run is None else 201)


async def open_gate(call: Call) -> Response:
    """Opens a gate of a group with a value."""
    key = call.name()
    value = pack((await call.body(GateValue)).value, f"the value for gate '{key}'")
    verdict: GateVerdict = await call.connection.open_gate(call.ref("group"), key, value)
    check_opened(f"group {call.name('id')}", key, verdict)
    return answer({"key": key, "verdict": verdict.value})
