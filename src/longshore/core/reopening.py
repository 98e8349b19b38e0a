"""What the retry of a group opens again, and what its jobs then wait for.

A retry gives a new round to jobs that have ended. Whoever depends on one of them waits for it
again. So the counters of all jobs that wait are counted anew from the edges: what an end told them
before may not be so any more. What a job added leaves the group (it is *retired*) when the job runs
again: the new round adds its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import NamedTuple
from uuid import UUID

from longshore.core import effects
from longshore.core.dependencies import Marks, early, told
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.model.group import GroupState, RetryPlan
from longshore.model.job import JobState


class NodeState(NamedTuple):
    """A node and where its job is. `after` has the places of what it depends on.

    `scope` is the place of the node in whose scope it is. `adds` says that what is in its own
    scope came from its job, and goes with it: that is not so of a sub-group. `is_added` says that
    another job added it, in a scope or detached.
    """

    key: str
    state: JobState
    after: Sequence[int]
    scope: int | None = None
    adds: bool = True
    is_added: bool = False


class Closure(NamedTuple):
    """What a node tells others: whether it is closed, and how the ends in it and below it were."""

    is_closed: bool
    told: Marks
    open: int
    """How many nodes in its scope are not closed."""
    marks: Marks
    """What the ends in its scope told it."""


class Reopening(NamedTuple):
    """What a retry changes, by places. `running` are jobs that must end before it can."""

    reopened: list[int]
    held: list[int]
    """Jobs that were about to run, and must wait for others again."""
    running: list[int]
    counters: dict[int, tuple[int, Marks]]
    """What each job that waits from now on has left to wait for, and what it was told."""
    retired: list[int]
    """Jobs that leave the group, because what added them runs again."""
    scopes: dict[int, tuple[int, Marks]]
    """How many nodes in the scope of each node are open from now on, and what these told it."""
    wanted: frozenset[int] = frozenset()
    """What the retry is about: all of these run again, or leave the group."""


def reopening(nodes: Sequence[NodeState], keys: Sequence[str] = ()) -> Reopening:
    """What a retry does: to all that did not succeed, or to these keys and all below them."""
    wanted = below(nodes, named(nodes, keys)) if keys else not_succeeded(nodes)
    members = _members(nodes)
    opened = {place for place in wanted if nodes[place].state in TERMINAL}
    retired = added_by(nodes, opened)
    opened -= retired
    wanted |= retired
    running = [place for place in sorted(wanted) if nodes[place].state in OWNED]
    before, found = closures(nodes), closures(nodes, opened, retired)
    held, counters = [], {}
    for place, node in enumerate(nodes):
        if place in retired:
            continue
        waits_again = any(before[at] != found[at] for at in node.after)
        if node.state in effects.HOLD and waits_again:
            held.append(place)
            if node.adds and place in members:
                # A map that is half expanded: it may not begin anew with another list.
                running.append(place)
        if place in opened or node.state is JobState.WAITING or waits_again:
            counters[place] = counted(found, node.after)
    scopes = {place: (found[place].open, found[place].marks) for place in members}
    for place in retired:
        scopes.pop(place, None)
    changed = sorted(opened), held, running, counters, sorted(retired), scopes
    return Reopening(*changed, frozenset(wanted))


def not_succeeded(nodes: Sequence[NodeState]) -> set[int]:
    """The nodes whose jobs ended otherwise."""
    bad = TERMINAL - {JobState.SUCCEEDED}
    return {place for place, node in enumerate(nodes) if node.state in bad}


def _members(nodes: Sequence[NodeState]) -> dict[int, list[int]]:
    """What is in the scope of each node."""
    found: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        if node.scope is not None:
            found.setdefault(node.scope, []).append(place)
    return found


def named(nodes: Sequence[NodeState], keys: Sequence[str]) -> set[int]:
    """The nodes that these keys or prefixes name."""
    return {place for place, node in enumerate(nodes) if any(names(key, node.key) for key in keys)}


def below(nodes: Sequence[NodeState], first: Collection[int]) -> set[int]:
    """These nodes, and all that depend on them.

    Whoever depends on a node also depends on what is in its scope.
    """
    dependents: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        for at in node.after:
            dependents.setdefault(at, []).append(place)
    found, reached, left = set(first), set(first), list(first)
    while left:
        place = left.pop()
        others = dependents.get(place, [])
        found.update(others)
        scope = nodes[place].scope
        for other in others if scope is None else [*others, scope]:
            if other not in reached:
                reached.add(other)
                left.append(other)
    return found


def whole(nodes: Sequence[NodeState], key: str) -> list[str]:
    """The keys that a user means by one: the key of a sub-group names all of it.

    Its own node opens only if it has to: it has nothing to do.
    """
    stem, below = key.removesuffix("/"), f"{key.removesuffix('/')}/"
    own = [node for node in nodes if node.key == stem]
    if any(node.adds for node in own) or not any(node.key.startswith(below) for node in nodes):
        return [key]
    return [below, *(node.key for node in own if node.state is not JobState.SUCCEEDED)]


def names(key: str, other: str) -> bool:
    """Whether a key, or a prefix that ends in `/`, names the node with another key."""
    return other.startswith(key) if key.endswith("/") else other == key


def added_by(nodes: Sequence[NodeState], adders: Collection[int]) -> set[int]:
    """All that these jobs added, and what that added, and so on."""
    left = [place for place in adders if nodes[place].adds]
    members, detached = _members(nodes), _detached(nodes)
    found: set[int] = set()
    while left:
        place = left.pop()
        new = {*members.get(place, ()), *detached.get(place, ())} - found
        found |= new
        left += new
    return found


def _detached(nodes: Sequence[NodeState]) -> dict[int, list[int]]:
    """What each node added without a scope: its key lies below that of its adder.

    An adder was there before. So a job that a client added later, under the name of a sub-group,
    is not taken for the adder of what is in that.
    """
    places = {node.key: place for place, node in enumerate(nodes)}
    found: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        key = node.key if node.is_added and node.scope is None else ""
        while key:
            key = key.rpartition("/")[0]
            if places.get(key, place) < place:
                found.setdefault(places[key], []).append(place)
                break
    return found


def closures(
    nodes: Sequence[NodeState], opened: Collection[int] = (), retired: Collection[int] = ()
) -> list[Closure]:
    """What each node tells, if some of them are `opened` again and others leave the group.

    Those in a scope come before the node whose scope it is: of scopes in scopes, the inner first.
    """
    found: list[Closure] = [Closure(False, Marks.NOTHING, 0, Marks.NOTHING)] * len(nodes)
    members = _members(nodes)
    open_left = {place: len(inside) for place, inside in members.items()}
    frontier = [place for place in range(len(nodes)) if place not in open_left]
    while frontier:
        place = frontier.pop()
        inside = [found[at] for at in members.get(place, ()) if at not in retired]
        found[place] = _closure(nodes[place].state, place in opened, inside)
        scope = nodes[place].scope
        if scope is not None:
            open_left[scope] -= 1
            if not open_left[scope]:
                frontier.append(scope)
    return found


def _closure(state: JobState, is_opened: bool, inside: Sequence[Closure]) -> Closure:
    has_ended = state in TERMINAL and not is_opened
    left = sum(not one.is_closed for one in inside)
    marks = Marks.NOTHING
    for one in inside:
        marks |= one.told
    is_closed = has_ended and not left
    own = told(state) if is_closed else Marks.NOTHING
    return Closure(is_closed, own | (marks if is_closed else early(marks)), left, marks)


def counted(found: Sequence[Closure], after: Sequence[int]) -> tuple[int, Marks]:
    """The counters of a node that depends on these places."""
    unmet, marks = 0, Marks.NOTHING
    for place in after:
        unmet += not found[place].is_closed
        marks |= found[place].told
    return unmet, marks


def open_again(nodes: Sequence[NodeState], opened: Collection[int]) -> set[int]:
    """The nodes that are not closed any more: the `opened` ones, and the scopes they are in."""
    found = set(opened)
    for place in opened:
        at = nodes[place].scope
        while at is not None and at not in found:
            found.add(at)
            at = nodes[at].scope
    return found


def inner_first(nodes: Sequence[NodeState], places: Collection[int]) -> list[int]:
    """These nodes, those in the scopes of others before these."""
    depths: dict[int, int] = {}

    def depth(place: int) -> int:
        path = [place]
        while path[-1] not in depths and (scope := nodes[path[-1]].scope) is not None:
            path.append(scope)
        deep = depths.get(path[-1], 0)
        depths.update((at, deep + above) for above, at in enumerate(reversed(path)))
        return depths[place]

    return sorted(places, key=depth, reverse=True)


def retry_plan(
    group: UUID, state: GroupState, nodes: Sequence[NodeState], keys: Sequence[str]
) -> tuple[RetryPlan, Reopening]:
    """The answer to a retry, and what it changes if it is not refused."""
    keys = [one for key in keys for one in whole(nodes, key)]
    found = reopening(nodes, keys)
    reopened = tuple(nodes[place].key for place in found.reopened)
    running = tuple(nodes[place].key for place in found.running)
    refused = _refusal(state, nodes, keys, reopened, running)
    if refused:
        return RetryPlan(group, running=running, refused=refused), found
    retired = tuple(nodes[place].key for place in found.retired)
    return RetryPlan(group, reopened, running, retired=retired), found


def unknown_key(nodes: Sequence[NodeState], keys: Sequence[str]) -> str:
    """Says which of these keys and prefixes names no node; empty if each names one."""
    known = [node.key for node in nodes]
    for key in keys:
        if not any(names(key, one) for one in known):
            near = get_close_matches(key, known, n=1)
            hint = f" (nearest: '{near[0]}')" if near else ""
            return f"the group has no job '{key:.200}'{hint}"
    return ""


def _refusal(
    state: GroupState,
    nodes: Sequence[NodeState],
    keys: Sequence[str],
    reopened: Sequence[str],
    running: Sequence[str],
) -> str:
    if why := unknown_key(nodes, keys):
        return why
    if state in (GroupState.STAGING, GroupState.CANCELLING):
        return f"the group is {state}; retry it when it has ended"
    if running:
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        return f"'{running[0]}'{more} still runs; wait until it has ended, or cancel it"
    return "" if reopened else "there is nothing to retry: no job ended without success"
