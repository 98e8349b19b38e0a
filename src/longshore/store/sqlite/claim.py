"""Claims of the SQLite store.

Theory. A claim reads little more than it takes, however many jobs the store holds. One probe of
the index `job_ready` for each wanted lane tells which lanes have ready jobs. The first entries of
that index are the best jobs of a lane. The claim reads a share of each lane and merges the lanes
lazily. Where the merge uses up the share of a lane, it reads on from there, twice as far each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from longshore.core.limited_starts import Start
from longshore.core.lookahead import before_barred
from longshore.core.placement import first_bytes, kept_slots
from longshore.core.turns import last_worker
from longshore.model.attempt import Attempt
from longshore.model.job import JobState, Options, Submission
from longshore.model.worker import Claim, SessionKey
from longshore.payload.needed_files import MOST_PARENTS, Needing, wishes
from longshore.store.rows import unpack_options
from longshore.store.sqlite.fair import give_turns
from longshore.store.sqlite.limits import NO_GATES, Asking, LaneGates, admit, hold, lane_gates
from longshore.store.sqlite.sql import (
    ATTENDED_NOW,
    CLAIM,
    LANE_TOP,
    LARGEST,
    PAYLOADS,
    Candidate,
    Row,
)
from longshore.store.sqlite.start_rules import may_start, open_lanes
from longshore.store.sqlite.transaction import Transaction

_PACK_BYTES: Final = 32 * 1024 * 1024
_FEWEST: Final = 8
_MOST_LOOKS: Final = 8
"""How often a claim reads on, when limits hold back what it has read."""
_FURTHER: Final = 32
"""From so many jobs on it then reads twice as many each time."""

_candidates = msgspec.json.Decoder(list[Candidate])
_lengths = msgspec.json.Decoder(list[tuple[int, int, int]])

_payload_bytes = attrgetter("payload_bytes")
_lane_and_crashes = attrgetter("lane", "crashes")
_tried = attrgetter("number", "kind", "attempt")

_PARENTS: Final = """
SELECT p.id FROM job AS j
JOIN node AS n ON n.job = j.number
JOIN edge AS e ON e.group_id = n.group_id AND e.child = n.place
JOIN node AS m ON m.group_id = e.group_id AND m.place = e.parent
JOIN job AS p ON p.number = m.job
WHERE j.id = ? LIMIT ?
"""

Payload = tuple[UUID, Options, bytes]


class Claims(NamedTuple):
    """What claims took, and how many from each lane.

    `left` are lanes in which they left jobs because of `max_bytes`, or because too many jobs have
    limits that are used up; `barred` those in which they met a job that may not be held ahead;
    `closed` those whose kind or queue has no room. `open_at` is when a rate lets the next begin.
    """

    claimed: list[Attempt]
    taken: Counter[int]
    left: set[int]
    barred: set[int]
    open_at: list[int]
    closed: set[int]


NO_CLAIMS: Final = Claims([], Counter(), set(), set(), [], set())


def claim(
    tx: Transaction,
    dispatcher: UUID,
    claims: Sequence[Claim],
    max_bytes: int,
    expiry_margin_s: float,
) -> Claims:
    """Places the best ready jobs on slots that may have them, one by one."""
    sessions = attending(tx, dispatcher, [slot for one in claims for slot in one.slots])
    done = Claims([], Counter(), set(), set(), [], set())
    if tx.remembered.has_fair:
        give_turns(tx, {lane for one in claims for lane in one.lanes})
    for one in claims:
        slots = [slot for slot in one.slots if sessions.get(slot.worker.int) == slot.session]
        for look in range(_MOST_LOOKS):
            most = max(len(slots), _FURTHER << look if look else 0)
            gates = _gates(tx, one, done) if slots else NO_GATES
            lanes = [lane for lane in one.lanes if lane not in gates.closed]
            best = _best(tx, lanes, most) if slots else []
            free = before_barred(best, one.ahead, _lane_and_crashes)
            fitting = first_bytes(free, _payload_bytes, max_bytes)
            if len(fitting) < len(free):
                done.left.update(one.lanes)
            found = payloads(tx, fitting)
            chosen = _choose(tx, one, fitting, found, len(slots), gates, done)
            if len(free) < len(best) or chosen.is_barred:
                done.barred.update(one.lanes)
            placed = _kept(tx, one, chosen.jobs, slots, found)
            took = _place(tx, chosen.jobs, placed, found, expiry_margin_s)
            if chosen.starts:
                hold(tx, chosen.starts, {attempt.number: attempt.token for attempt in took})
            done.claimed.extend(took)
            done.taken.update(job.lane for job in chosen.jobs)
            max_bytes -= sum(map(_payload_bytes, chosen.jobs))
            slots = _left(slots, took)
            if not chosen.has_more or not slots or max_bytes <= 0:
                break
        else:
            done.left.update(one.lanes)
    return done


class _Chosen(NamedTuple):
    """Which of the best jobs start, and which slots of keys some of them hold then.

    It `has_more` if some were put behind keys or passed over: others may start instead.
    """

    jobs: Sequence[Candidate]
    starts: Mapping[int, Start] = {}
    has_more: bool = False
    is_barred: bool = False


def _gates(tx: Transaction, claim: Claim, done: Claims) -> LaneGates:
    """The lanes of a claim under rules for kinds and queues; notes those that are closed."""
    gates = lane_gates(tx, claim.lanes)
    done.closed.update(gates.closed)
    if gates.open_at is not None:
        done.open_at.append(gates.open_at)
    return gates


def _choose(
    tx: Transaction,
    claim: Claim,
    jobs: Sequence[Candidate],
    found: Mapping[int, Payload],
    most: int,
    gates: LaneGates,
    done: Claims,
) -> _Chosen:
    """At most so many of these jobs, without those whose limits are used up.

    None with limits is held ahead.
    """
    if not (gates.keys or any(found[job.number][1].limits for job in jobs)):
        return _Chosen(jobs[:most])
    asking = {
        job.number: Asking(found[job.number][1], gates.keys.get(job.lane, ())) for job in jobs
    }
    if not any(one.options.limits or one.of_lane for one in asking.values()):
        return _Chosen(jobs[:most])
    if claim.ahead is not None:
        limited = {n for n, one in asking.items() if one.options.limits or one.of_lane}
        return _Chosen([*takewhile(lambda job: job.number not in limited, jobs)], is_barred=True)
    admitted = admit(tx, asking, most)
    if admitted.open_at is not None:
        done.open_at.append(admitted.open_at)
    starting = [job for job in jobs if job.number in admitted.starts]
    has_more = admitted.behind > 0 or admitted.passed_over
    return _Chosen(starting, admitted.starts, has_more)


def _left(slots: Sequence[SessionKey], took: Sequence[Attempt]) -> list[SessionKey]:
    """The slots that these attempts have left free."""
    used = Counter(SessionKey(one.worker, one.session) for one in took)
    left = []
    for slot in slots:
        if used[slot]:
            used[slot] -= 1
        else:
            left.append(slot)
    return left


def usable_slots(
    tx: Transaction,
    dispatcher: UUID,
    jobs: Sequence[Submission],
    slots: Sequence[SessionKey | None],
) -> list[SessionKey | None]:
    """The slots that these jobs may have, each in its place; None for the others."""
    may = [
        is_open and not job.options.limits
        for is_open, job in zip(may_start(tx, jobs), jobs, strict=True)
    ]
    sessions = attending(tx, dispatcher, [slot for slot in slots if slot is not None])
    return [
        slot
        if is_open and slot is not None and sessions.get(slot.worker.int) == slot.session
        else None
        for is_open, slot in zip(may, slots, strict=True)
    ]


def attending(tx: Transaction, dispatcher: UUID, slots: Sequence[SessionKey]) -> dict[int, int]:
    """The sessions of the workers that this dispatcher attends and may give jobs to."""
    # UUIDs as integers: their own hash is slow, and there may be thousands of slots.
    workers = {slot.worker.int for slot in slots}
    keys: list[Row] = [(worker.to_bytes(16, "big"), dispatcher.bytes) for worker in workers]
    return {int(id, 16): session for id, session in ATTENDED_NOW.find(tx.connection, keys)}


def _best(tx: Transaction, lanes: Iterable[int], most: int) -> list[Candidate]:
    """The first jobs of all these lanes together, in the order of claims."""
    found = open_lanes(tx, lanes)
    if not found:
        return []
    first = min(most, most // len(found) + _FEWEST)
    return list(islice(merge(*(_lane(tx, lane, first, most) for lane in found)), most))


def _lane(tx: Transaction, lane: int, first: int, most: int) -> Iterator[Candidate]:
    """The first jobs of one lane, read as they are asked for."""
    taken, size = 0, first
    while taken < most:
        answer = tx.execute(LANE_TOP, (lane, tx.now, size, taken)).fetchone()[0]
        rows = _candidates.decode(answer)
        yield from rows
        if len(rows) < size:
            return
        taken += size
        size = taken


def _kept(
    tx: Transaction,
    claim: Claim,
    jobs: Sequence[Candidate],
    slots: Sequence[SessionKey],
    found: Mapping[int, Payload],
) -> Sequence[SessionKey]:
    """The slots, in the order of the jobs: of whom had a turn last, or of whom has the files."""
    if claim.keeps:
        of_jobs = [found[job.number] for job in jobs]
        return kept_slots([last_worker(options, args) for _, options, args in of_jobs], slots)
    if claim.at_hand is None:
        return slots
    needing = [
        Needing(found[n][0], kind, found[n][2], tries) for n, kind, tries in map(_tried, jobs)
    ]
    near = wishes(claim.at_hand, needing, slots, partial(_parents, tx))
    return kept_slots(near, slots)


def _parents(tx: Transaction, job: UUID) -> list[UUID]:
    rows = tx.execute(_PARENTS, (job.bytes, MOST_PARENTS)).fetchall()
    return [UUID(bytes=id) for (id,) in rows]


def _place(
    tx: Transaction,
    jobs: Sequence[Candidate],
    slots: Sequence[SessionKey],
    found: Mapping[int, Payload],
    expiry_margin_s: float,
) -> list[Attempt]:
    """Gives the i-th job to the i-th slot, under a new token."""
    claimed = []
    for job, slot in zip(jobs, slots[: len(jobs)], strict=True):
        id, options, args = found[job.number]
        token, owner = tx.next_token(), (slot.worker, slot.session)
        tries = job.attempt + 1, job.failures, job.crashes
        of_job = id, job.number, token, job.kind, args, options
        attempt = Attempt(
            *of_job,
            *owner,
            *tries,
            priority=-job.urgency,
            begin_within_s=tx.seconds_to(job.deadline_at),
            round=job.round,
            waited_s=_waited_s(tx, job),
            lane=job.lane if options.fair else 0,
        )
        claimed.append(attempt)
    _store(tx, claimed, expiry_margin_s)
    for lane, number in Counter(job.lane for job in jobs).items():
        tx.count(lane, JobState.READY, JobState.RUNNING, number)
    return claimed


def _waited_s(tx: Transaction, job: Candidate) -> float | None:
    return None if job.ready_at is None else max(0.0, (tx.now - job.ready_at) / 1e6)


def _store(tx: Transaction, claimed: Sequence[Attempt], expiry_margin_s: float) -> None:
    """Writes the new owners of these jobs."""
    rows: list[Row] = []
    for one in claimed:
        owner, entry = tx.owner(one.worker)
        expires_at = tx.expires_at(one.options.timeout_s, expiry_margin_s)
        rows.append((one.number, one.token, owner, one.session, tx.now, expires_at, entry))
    CLAIM.run(tx.connection, rows)


def payloads(tx: Transaction, jobs: Sequence[Candidate]) -> dict[int, Payload]:
    """The ids, options and arguments of these jobs, by number."""
    found: dict[int, Payload] = {}
    for numbers in _packs(jobs):
        for text, values in PAYLOADS.pieces(numbers):
            lengths, data = tx.execute(text, values).fetchone()
            found.update(_unpacked(_lengths.decode(lengths), data))
    return found


def _unpacked(
    lengths: Sequence[tuple[int, int, int]], data: bytes
) -> Iterator[tuple[int, Payload]]:
    """Splits one run of bytes into ids, options and arguments."""
    at = 0
    for number, options_bytes, args_bytes in lengths:
        options_at = at + 16
        args_at = options_at + options_bytes
        id = UUID(bytes=data[at:options_at])
        at = args_at + args_bytes
        yield number, (id, unpack_options(data[options_at:args_at]), data[args_at:at])


def _packs(jobs: Sequence[Candidate]) -> Iterator[list[Row]]:
    """Numbers of jobs that may be read together: a single value has its limit in SQLite."""
    pack: list[Row] = []
    size = 0
    for job in jobs:
        if pack and (size + job.payload_bytes > _PACK_BYTES or len(pack) == LARGEST):
            yield pack
            pack, size = [], 0
        pack.append((job.number,))
        size += job.payload_bytes
    if pack:
        yield pack
