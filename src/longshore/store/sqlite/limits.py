"""Limits of the SQLite store.

Only one transaction writes at a time, so a count holds until its commit. What may start decides the
core (`core.limited_starts`).

Lanes under rules for kinds and queues are looked at before their jobs: one without room is left out
(`lane_gates`). Without such a rule that costs no statement: the rules are remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from longshore.core.fairness import NEW
from longshore.core.key_views import MOST_COUNTED, Holder, KeyWaits, key_view
from longshore.core.limited_starts import Behind, KeyState, Start, Starts, soonest
from longshore.model.job import Options, Submission, Submitted
from longshore.model.limits import JobLimit, KeyView, LimitsOpened
from longshore.model.waited import KEY_WAITS_KEPT_S
from longshore.store.rows import unpack_options
from longshore.store.sqlite.lane_rules import holders, lanes_under_rules, others, ready_lanes
from longshore.store.sqlite.leaving import leave_keys
from longshore.store.sqlite.limit_rules import limit_rules, rules_of_lanes
from longshore.store.sqlite.sql import Bulk
from longshore.store.sqlite.states import OWNED_LIST
from longshore.store.sqlite.transaction import Snapshot, Transaction

_IS_HELD: Final = f"""EXISTS (SELECT 1 FROM job WHERE job.number = hold.job
    AND job.token = hold.token AND job.state IN {OWNED_LIST})"""
_FREE_SLOTS: Final = f"DELETE FROM hold WHERE NOT {_IS_HELD} RETURNING key"
_SLOTS: Final = (
    f"SELECT key, slot FROM hold WHERE key IN (SELECT value FROM json_each(?)) AND {_IS_HELD}"
)
_DROP_FREE: Final = f"""
    DELETE FROM hold WHERE key IN (SELECT value FROM json_each(?)) AND NOT {_IS_HELD}"""
_EVEN_AT: Final = "SELECT key, even_at FROM limit_key WHERE key IN (SELECT value FROM json_each(?))"
_HOLD: Final = Bulk(
    "INSERT INTO hold (key, slot, job, token) SELECT * FROM {rows} WHERE column1 IS NOT NULL", 4
)
_PASS: Final = Bulk(
    """INSERT INTO limit_key (key, even_at) SELECT * FROM {rows} WHERE column1 IS NOT NULL
    ON CONFLICT DO UPDATE SET even_at = excluded.even_at""",
    2,
)
_PUT_BEHIND: Final = Bulk(
    """UPDATE job SET blocked_on = v.column2, blocked_at = ?1 FROM {rows} AS v
    WHERE job.number = v.column1 AND job.state = 'ready' AND job.blocked_on IS NULL""",
    2,
)
_BEHIND: Final = "INDEXED BY job_blocked WHERE state = 'ready' AND blocked_on IS NOT NULL"
_NEXT_KEY: Final = f"SELECT min(blocked_on) FROM job {_BEHIND} AND blocked_on > ?"
_NEXT_HELD: Final = "SELECT min(key) FROM hold WHERE key > ?"
_NEXT_PACED: Final = "SELECT min(key) FROM limit_key WHERE key > ?"
_NEXT_LANE: Final = f"SELECT min(lane) FROM job {_BEHIND} AND blocked_on = ? AND lane > ?"
_FIRST: Final = f"""SELECT number, options FROM job {_BEHIND} AND blocked_on = ? AND lane = ?
    ORDER BY priority DESC, rank, number LIMIT 1"""
_TO_WAKE: Final = f"""SELECT json_group_array(number) FROM (
    SELECT number FROM job {_BEHIND} AND blocked_on = ?1 AND lane = ?2
        AND (deadline_at IS NULL OR deadline_at > ?3)
    ORDER BY priority DESC, rank, number LIMIT ?4)"""
_HOLDERS: Final = f"""SELECT hold.job, job.started_at, job.options
    FROM hold CROSS JOIN job ON job.number = hold.job
    WHERE hold.key = ? AND {_IS_HELD} ORDER BY hold.job"""
_FORGET_HOLDS: Final = f"""
    DELETE FROM hold WHERE (key, slot) IN (
        SELECT key, slot FROM hold WHERE NOT {_IS_HELD} LIMIT ?)"""
_FORGET_KEYS: Final = """
    DELETE FROM limit_key WHERE key IN (
        SELECT key FROM limit_key
        WHERE even_at < ? AND (waited_at IS NULL OR waited_at < ?) LIMIT ?)"""
_WAITS: Final = f"""SELECT coalesce(sum(waited_us), 0), coalesce(sum(stays), 0),
    (SELECT count(*) FROM (SELECT 1 FROM job {_BEHIND} AND blocked_on = ?1 LIMIT ?3)),
    (SELECT coalesce(sum(?2 - blocked_at), 0) FROM (
        SELECT blocked_at FROM job {_BEHIND} AND blocked_on = ?1
        ORDER BY lane, priority DESC, rank LIMIT ?3))
    FROM limit_key WHERE key = ?1"""
_BEFORE_ALL: Final = -(1 << 63)


class Admitted(NamedTuple):
    """Which of some jobs may start, and the slots that each holds then; what the others wait for.

    `open_at` is when the first of these may start, if a rate holds it back. `passed_over` says that
    jobs were left because a key of their lane has no more room.
    """

    starts: dict[int, Start]
    behind: int
    open_at: int | None
    passed_over: bool


class Asking(NamedTuple):
    """A job that wants to start: its options, and the keys of its lane that rules limit."""

    options: Options
    of_lane: Sequence[str] = ()


class LaneGates(NamedTuple):
    """The lanes that rules limit, with their keys; of them those in which nothing may begin now.

    `open_at` is when the first of these may let a job begin, if a rate holds it back.
    """

    keys: Mapping[int, Sequence[str]] = {}
    closed: frozenset[int] = frozenset()
    open_at: int | None = None


NO_GATES: Final = LaneGates()


def lane_gates(tx: Transaction, lanes: Iterable[int]) -> LaneGates:
    """Which of these lanes rules limit, and in which nothing may begin now."""
    rules = rules_of_lanes(tx)
    found = lanes_under_rules(tx, lanes, rules) if rules else {}
    if not found:
        return NO_GATES
    decide = _starts(tx, {key for keys in found.values() for key in keys})
    closed = {lane: shut for lane, keys in found.items() if (shut := decide.closed(keys))}
    return LaneGates(found, frozenset(closed), soonest(one.until for one in closed.values()))


def admit(tx: Transaction, jobs: Mapping[int, Asking], most: int) -> Admitted:
    """Decides which jobs start, in this order, at most so many; puts others behind keys."""
    keys = {limit.key for job in jobs.values() for limit in job.options.limits}
    decide = _starts(tx, keys.union(*(job.of_lane for job in jobs.values())))
    starts: dict[int, Start] = {}
    behind: dict[int, Behind] = {}
    passed_over = False
    for number, job in jobs.items():
        if len(starts) == most:
            break
        match decide.of(job.options.limits, job.of_lane):
            case Start() as start:
                starts[number] = start
            case Behind() if decide.closed(job.of_lane):
                passed_over = True
            case Behind() as found:
                behind[number] = found
    waiting = [(number, found.key) for number, found in behind.items()]
    _PUT_BEHIND.run(tx.connection, waiting, (tx.now,))
    _PASS.run(tx.connection, list(decide.passed.items()))
    open_at = soonest(found.until for found in behind.values())
    return Admitted(starts, len(behind), open_at, passed_over)


def hold(tx: Transaction, starts: Mapping[int, Start], tokens: Mapping[int, int]) -> None:
    """Notes the slots that these jobs hold, which started with these tokens."""
    rows = [
        (key, slot, number, tokens[number])
        for number, start in starts.items()
        for key, slot in start.slots
    ]
    tx.execute(_DROP_FREE, (_json({key for key, *_ in rows}),))
    _HOLD.run(tx.connection, rows)
    tx.remembered.has_holds = True


def free_ended(tx: Transaction) -> Counter[int]:
    """Lets jobs go before claims that waited for slots which are free by now; by lane."""
    return _free_slots(tx) + _freed_lanes(tx)


def _freed_lanes(tx: Transaction) -> Counter[int]:
    """How many jobs may begin in lanes under rules, in which others have just ended."""
    rules = rules_of_lanes(tx)
    freed = lanes_under_rules(tx, tx.freed_lanes(), rules) if rules else {}
    return _rooms(tx, ready_lanes(tx, rules, {key for keys in freed.values() for key in keys}))[0]


def _rooms(tx: Transaction, lanes: Mapping[int, Sequence[str]]) -> tuple[Counter[int], int | None]:
    """How many jobs may begin in these lanes, and when the first may in one that a rate closes."""
    if not lanes:
        return Counter(), None
    decide = _starts(tx, {key for keys in lanes.values() for key in keys})
    rooms = {lane: min(decide.room(JobLimit(key)) for key in keys) for lane, keys in lanes.items()}
    shut = (decide.closed(keys) for keys in lanes.values())
    open_at = soonest(one.until for one in shut if one is not None)
    return Counter({lane: room for lane, room in rooms.items() if room}), open_at


def _free_slots(tx: Transaction) -> Counter[int]:
    if tx.remembered.has_holds is None:
        [found] = tx.execute("SELECT EXISTS (SELECT 1 FROM hold)").fetchone()
        tx.remembered.has_holds = bool(found)
    if not tx.remembered.has_holds:
        return Counter()
    freed = {key for (key,) in tx.execute(_FREE_SLOTS).fetchall()}
    tx.remembered.has_holds = None
    return _open(tx, sorted(freed))[0] if freed and _is_any_behind(tx) else Counter()


def put_behind_waiting(
    tx: Transaction, jobs: Sequence[Submission], answers: Sequence[object]
) -> None:
    """New jobs of a key go behind those that wait for it already."""
    limited = [
        (answer.number, job)
        for job, answer in zip(jobs, answers, strict=True)
        if job.options.limits and isinstance(answer, Submitted) and not answer.existing
    ]
    if not (limited and _is_any_behind(tx)):
        return
    keys = {limit.key for _, job in limited for limit in job.options.limits}
    waited_for = {key for key in keys if _is_waited_for(tx, key)}
    rows = []
    for number, job in limited:
        key = next((one.key for one in job.options.limits if one.key in waited_for), None)
        if key is not None:
            rows.append((number, key))
    _PUT_BEHIND.run(tx.connection, rows, (tx.now,))


def _is_any_behind(tx: Snapshot) -> bool:
    """Whether any job waits behind a key: mostly none does, and then no key need be looked at."""
    return tx.execute(_NEXT_KEY, ("",)).fetchone()[0] is not None


def _is_waited_for(tx: Snapshot, key: str) -> bool:
    return (
        tx.execute(f"SELECT 1 FROM job {_BEHIND} AND blocked_on = ? LIMIT 1", (key,)).fetchone()
        is not None
    )


def _starts(tx: Snapshot, keys: Collection[str]) -> Starts:
    wanted = _json(keys)
    states = {key: KeyState() for key in keys}
    for key, slot in tx.execute(_SLOTS, (wanted,)):
        states[key].slots.add(slot)
    for key, even_at in tx.execute(_EVEN_AT, (wanted,)):
        states[key].even_at = even_at
    rules = limit_rules(tx)
    for key, number in others(tx, keys, rules).items():
        states[key].others = number
    return Starts(rules, states, tx.now)


def _open(tx: Transaction, keys: Sequence[str]) -> tuple[Counter[int], int | None]:
    """Lets as many jobs behind these keys go before claims as may start, of every lane."""
    decide = _starts(tx, keys)
    ready: Counter[int] = Counter()
    times: list[int | None] = []
    for key in keys:
        for lane, limit in _lanes_behind(tx, key):
            if room := decide.room(limit):
                [numbers] = tx.execute(_TO_WAKE, (key, lane, tx.now, room)).fetchone()
                ready[lane] += leave_keys(tx.connection, numbers, tx.now)
            times.append(decide.until(limit))
    return ready, soonest(times)


def _lanes_behind(tx: Snapshot, key: str) -> list[tuple[int, JobLimit]]:
    """The lanes with jobs behind a key, and the limit that the first of each brings."""
    found = []
    lane = _BEFORE_ALL
    while (next_lane := tx.execute(_NEXT_LANE, (key, lane)).fetchone()[0]) is not None:
        lane = next_lane
        _, options = tx.execute(_FIRST, (key, lane)).fetchone()
        found.append((lane, _limit_of(unpack_options(options), key)))
    return found


def _limit_of(options: Options, key: str) -> JobLimit:
    return next((one for one in options.limits if one.key == key), JobLimit(key))


def open_limits(tx: Transaction, after: str = "", most: int = 1000) -> LimitsOpened:
    """Looks at so many keys behind which jobs wait: see the port."""
    keys: list[str] = []
    last = after
    while len(keys) < most:
        [key] = tx.execute(_NEXT_KEY, (last,)).fetchone()
        if key is None:
            last = ""
            break
        if key != NEW:
            keys.append(key)
        last = key
    ready, open_at = _open(tx, keys) if keys else (Counter[int](), None)
    if not after:
        in_lanes, next_at = _rooms(tx, ready_lanes(tx, rules_of_lanes(tx)))
        ready, open_at = ready + in_lanes, soonest([open_at, next_at])
    return LimitsOpened(dict(ready), tx.seconds_to(open_at), last)


def forget_keys(tx: Transaction, most: int) -> bool:
    """Forgets slots that nobody holds, and keys whose rate has all its room again.

    Answers whether there may be more of them.
    """
    slots = tx.execute(_FORGET_HOLDS, (most,)).rowcount
    old = tx.now - round(KEY_WAITS_KEPT_S * 1e6)
    keys = tx.execute(_FORGET_KEYS, (tx.now, old, most)).rowcount
    return max(slots, keys) >= most


def limit_key(tx: Snapshot, key: str) -> KeyView:
    """A key as it is now."""
    rows = tx.execute(_HOLDERS, (key,)).fetchall()
    first = [options for *_, options in rows[:1]] or [
        options
        for lane in [tx.execute(_NEXT_LANE, (key, _BEFORE_ALL)).fetchone()[0]]
        if lane is not None
        for _, options in [tx.execute(_FIRST, (key, lane)).fetchone()]
    ]
    limit = _limit_of(unpack_options(first[0]), key) if first else JobLimit(key)
    rules = limit_rules(tx)
    held = {number: Holder(number, began) for number, began, _ in rows}
    held |= {one.number: one for one in holders(tx, key, rules)}
    found = tx.execute("SELECT even_at FROM limit_key WHERE key = ?", (key,)).fetchone()
    return key_view(
        limit,
        rules,
        [held[number] for number in sorted(held)],
        found[0] if found else 0,
        tx.now,
        KeyWaits(*tx.execute(_WAITS, (key, tx.now, MOST_COUNTED)).fetchone()),
        is_wanted=bool(ready_lanes(tx, rules, [key])),
    )


def limit_keys(
    tx: Snapshot, after: str = "", most: int = 25, waited_for: bool = False
) -> list[str]:
    """The first so many keys after one that the store knows something of."""
    looks = [_NEXT_KEY] if waited_for else [_NEXT_KEY, _NEXT_HELD, _NEXT_PACED]
    found: list[str] = []
    while len(found) < most:
        next_keys = [tx.execute(look, (after,)).fetchone()[0] for look in looks]
        after = min((key for key in next_keys if key is not None), default="")
        if not after:
            break
        if after != NEW:
            found.append(after)
    return found


def _json(values: Iterable[str]) -> str:
    return msgspec.json.encode(list(values)).decode()
