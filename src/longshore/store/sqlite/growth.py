"""Groups that grow, on SQLite: what attempts add, what maps and sub-groups become, and gates.

Whoever adds nodes holds the write lock of the file. So the places that follow the highest of the
group are free, and nobody sees a group that has grown in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from longshore.core import effects, growth
from longshore.core.dependencies import Parent, becomes
from longshore.core.effects import Effect
from longshore.core.lanes import MAP_LANE, SCOPE_LANE
from longshore.core.lifecycle import TERMINAL
from longshore.errors import LongshoreError
from longshore.model.ends import End
from longshore.model.group import GATE, GateVerdict, GroupState
from longshore.model.job import JobState
from longshore.model.limits import JobLimit
from longshore.model.reports import OutboxNode
from longshore.payload.maps import Elements, elements
from longshore.payload.values import are_same
from longshore.store.filling import too_large
from longshore.store.group_limits import limited, unpack_limit
from longshore.store.rows import Adder, NodeItem, clean, grown_items, grown_taken
from longshore.store.sqlite.group_reads import group
from longshore.store.sqlite.nodes import add_nodes, first_taken
from longshore.store.sqlite.results import referenced
from longshore.store.sqlite.settling import ENDED_NODES, NODES, Settling, WaitingNode, Wake
from longshore.store.sqlite.sql import HELD, Bulk, Held, Row
from longshore.store.sqlite.transaction import Snapshot, Transaction

_PARENTS: Final = """SELECT node.job, 0, 0 FROM edge INDEXED BY edge_child
    CROSS JOIN node ON node.group_id = edge.group_id AND node.place = edge.parent
    WHERE edge.group_id = ? AND edge.child = ?"""
_TO_EXPAND: Final = f"""
    job INDEXED BY job_ready
    WHERE job.state = 'ready' AND job.blocked_on IS NULL AND job.lane IN ({MAP_LANE}, {SCOPE_LANE})
        AND (SELECT g.state FROM job_group AS g WHERE g.number = job.group_id) = 'running'"""
IS_TO_EXPAND: Final = f"EXISTS (SELECT 1 FROM {_TO_EXPAND})"
"""SQL: whether a map or a sub-group can become jobs now."""
_HELD_TO_EXPAND: Final = f"""
    SELECT json_group_array({HELD.format(place="0")})
    FROM (SELECT number FROM {_TO_EXPAND} LIMIT ?) AS some CROSS JOIN job USING (number)"""
_GROWING: Final = """
    SELECT node.key, node.place, node.expanded, g.id, g.state, g.staged,
        (SELECT max(place) FROM node AS other WHERE other.group_id = g.number) + 1,
        CASE job.rank WHEN 0 THEN job.number ELSE job.rank END, g.own_limit
    FROM node CROSS JOIN job_group AS g ON g.number = node.group_id
    CROSS JOIN job ON job.number = node.job WHERE node.job = ?"""
_KEYS: Final = Bulk(
    """SELECT node.key FROM {rows} AS v
    CROSS JOIN node ON node.group_id = v.column1 AND node.key = v.column2 LIMIT 1""",
    2,
)
GREW: Final = """
    UPDATE job_group SET staged = staged + ?2, edges = coalesce(edges, ?5) + ?4, sweep_from = CASE
        WHEN state = 'cancelling' THEN min(coalesce(sweep_from, ?3), ?3) ELSE sweep_from END
    WHERE number = ?1"""
"""So many nodes with so many edges are new; ?5 is how many edges there were, if that is known."""
_GATE: Final = """
    SELECT job.number, job.kind, job.result FROM node CROSS JOIN job ON job.number = node.job
    WHERE node.group_id = ? AND node.key = ?"""


class _Growing(NamedTuple):
    """A node that adds others, and its group. `first` is the next place in it."""

    number: int
    group_id: UUID
    state: GroupState
    staged: int
    first: int
    adder: Adder
    expanded: int
    limit: JobLimit | None


def _growing(tx: Transaction, row: Held) -> _Growing:
    found = tx.execute(_GROWING, (row.number,)).fetchone()
    key, place, expanded, id, state, staged, first, rank, limit = found
    adder = Adder(row.uuid, row.round, key, place, rank)
    assert row.group is not None
    group_id = UUID(bytes=id)
    now = (GroupState(state), staged, first)
    return _Growing(row.group, group_id, *now, adder, expanded, unpack_limit(limit))


# what attempts add


class Growth:
    """What the ends of one transaction add to groups."""

    def __init__(self, tx: Transaction, max_group_jobs: int) -> None:
        self._tx = tx
        self._max_group_jobs = max_group_jobs
        self._grown: list[tuple[int, list[NodeItem]]] = []
        self._unwanted: list[int] = []
        """The jobs that were added by attempts that were being cancelled."""
        self._swept: set[UUID] = set()

    def add(self, row: Held, end: End) -> End:
        """Adds what an attempt adds that ends now; answers its end, or a refusal as its end."""
        nodes = growth.added(end)
        if not nodes:
            return end
        if row.group is None:
            return growth.refused(end, growth.why_not(None, nodes, 0, self._max_group_jobs))
        into = _growing(self._tx, row)
        why = growth.why_not(into.adder.key, nodes, into.staged, self._max_group_jobs)
        items = why or _grown(self._tx, into, nodes)
        if isinstance(items, str):
            return growth.refused(end, items)
        numbers = _store(self._tx, into, row.number, items)
        self._grown.append((into.number, items))
        if row.state is JobState.CANCELLING:
            self._unwanted += numbers
        if into.state is GroupState.CANCELLING:
            self._swept.add(into.group_id)
        return end

    def begin(self, settling: Settling) -> None:
        """Lets the new jobs begin that depend on nothing, as far as their groups allow."""
        if not self._grown:
            return
        settling.groups |= self._swept
        for row in self._tx.held(self._unwanted):
            if row is not None:
                _change(self._tx, settling, row, effects.CANCEL)
        self._tx.flush()
        for number, items in self._grown:
            _wake(self._tx, settling, number, items)


def _grown(
    tx: Transaction, into: _Growing, nodes: Sequence[OutboxNode], index: int = 0
) -> list[NodeItem] | str:
    """The nodes as they are stored; or why they cannot be."""
    items = grown_items(into.adder, nodes, into.first, index)
    if isinstance(items, str):
        return items
    keys: list[Row] = [(into.number, item.node.key) for item in items]
    held = {key for text, values in _KEYS.pieces(keys) for (key,) in tx.execute(text, values)}
    taken = next((item.node for item in items if item.node.key in held), None)
    taken = taken or first_taken(tx, items)
    return items if taken is None else grown_taken(taken)


def _store(tx: Transaction, into: _Growing, adder: int, items: Sequence[NodeItem]) -> list[int]:
    """Adds these nodes to a group; answers the numbers of their jobs."""
    numbers = add_nodes(tx, into.number, limited(items, into.group_id, into.limit))
    inside = sum(item.node.scope is not None for item in items)
    tx.execute("UPDATE node SET open = open + ? WHERE job = ?", (inside, adder))
    edges = sum(len(item.parents) for item in items)
    tx.execute(GREW, (into.number, len(items), into.first, edges, None))
    return numbers


def _wake(tx: Transaction, settling: Settling, group: int, items: Sequence[NodeItem]) -> None:
    """Wakes those of these new jobs that depend on nothing."""
    keys: list[Row] = [(group, item.place, tx.now) for item in items if not item.parents]
    nodes = sorted(NODES.find(tx.connection, keys), key=lambda node: node.place)
    wake_waiting(tx, settling, nodes)


def wake_waiting(tx: Transaction, settling: Settling, nodes: Sequence[WaitingNode]) -> None:
    """Makes the jobs ready that wait for nothing, and ends those that cannot run any more."""
    wakes = []
    for node in nodes:
        change = becomes(node.waiting) if node.state is JobState.WAITING else None
        if change is not None and change.state is JobState.DEPENDENCY_FAILED:
            # Its counters were made anew: who failed must be looked for.
            change = becomes(node.waiting, _parents(tx, node))
        if change is not None:
            wakes.append(Wake(node.group, node.job, change))
    settling.wake(wakes)


def _parents(tx: Transaction, node: WaitingNode) -> list[Parent]:
    """What a node depends on, as it would hear of it now."""
    rows: list[Row] = tx.execute(_PARENTS, (node.group, node.place)).fetchall()
    return [one.parent for one in ENDED_NODES.find(tx.connection, rows)]


def _change(tx: Transaction, settling: Settling, row: Held, effect: Effect) -> None:
    """Ends a job that no worker has."""
    change = effect[row.state]
    tx.apply(row, change)
    settling.ended.append(effects.outcome(row.uuid, change))


# maps and sub-groups


def to_expand(tx: Snapshot) -> set[UUID]:
    """The groups of maps and sub-groups that can become jobs now."""
    groups = f"SELECT DISTINCT group_id FROM {_TO_EXPAND}"
    rows = tx.execute(f"SELECT id FROM job_group WHERE number IN ({groups})")
    return {UUID(bytes=id) for (id,) in rows}


def expand(tx: Transaction, settling: Settling, most: int, max_group_jobs: int) -> int:
    """Ends sub-groups that are reached, and makes jobs of maps; answers of how many jobs."""
    done = 0
    for row in tx.held_where(_HELD_TO_EXPAND, (most,)):
        if done >= most:
            break
        if row.lane == SCOPE_LANE:
            _change(tx, settling, row, effects.EXPANDED)
            done += 1
        else:
            done += max(1, _expand_map(tx, settling, row, most - done, max_group_jobs))
    tx.flush()
    return done


def _expand_map(
    tx: Transaction, settling: Settling, row: Held, most: int, max_group_jobs: int
) -> int:
    """Makes some elements of a map jobs; answers how many."""
    into = _growing(tx, row)
    try:
        found = _elements(tx, row, into, most)
    except LongshoreError as error:
        _change(tx, settling, row, effects.of_no_expansion(str(error)))
        return 0
    left = found.total - into.expanded
    nodes = [OutboxNode(one.key, one.job) for one in found.jobs]
    why = growth.why_not(into.adder.key, nodes, into.staged, max_group_jobs)
    if into.staged + left > max_group_jobs:
        why = growth.too_many(left, into.staged, max_group_jobs)
    items = why or _grown(tx, into, nodes, into.expanded)
    if isinstance(items, str):
        _change(tx, settling, row, effects.of_no_expansion(items))
        return 0
    _store(tx, into, row.number, items)
    cursor = into.expanded + len(items)
    tx.execute("UPDATE node SET expanded = ? WHERE job = ?", (cursor, row.number))
    if cursor >= found.total:
        _change(tx, settling, row, effects.EXPANDED)
    tx.flush()
    _wake(tx, settling, into.number, items)
    return len(items)


def _elements(tx: Transaction, row: Held, into: _Growing, most: int) -> Elements:
    """The next elements of a map; raises a `LongshoreError` if its list cannot become jobs."""
    [args] = tx.execute("SELECT args FROM job WHERE number = ?", (row.number,)).fetchone()
    results = referenced(tx, row.uuid, args)
    if problem := too_large(results):
        raise LongshoreError(problem)
    return elements(args, results, row.uuid, row.round, into.expanded, most)


# gates


def open_gate(
    tx: Transaction, ref: UUID | int, key: str, value: bytes | None = None, by: str = ""
) -> GateVerdict:
    """Ends a gate that was reached as succeeded, with this result."""
    found = group(tx, ref)
    gate = tx.execute(_GATE, (found.number, clean(key))).fetchone() if found else None
    if gate is None:
        return GateVerdict.NOT_FOUND
    number, kind, result = gate
    [row] = tx.held([number])
    assert row is not None
    if kind != GATE:
        return GateVerdict.NOT_A_GATE
    effect = effects.of_opening(by or "a client")
    if row.state in effect:
        tx.apply(row, effect[row.state], by=by, result=value)
        return GateVerdict.OPENED
    if row.state not in TERMINAL:
        return GateVerdict.NOT_REACHED
    is_same = row.state is JobState.SUCCEEDED and are_same(result, value)
    return GateVerdict.ALREADY_OPEN if is_same else GateVerdict.ALREADY_ENDED
