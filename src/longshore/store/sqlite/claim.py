"""Claims of the SQLite store.

Theory. A claim reads little more than it takes, however many jobs the store holds. One probe of
the index `job_ready` for each wanted lane tells which lanes have ready jobs. The first entries of
that index are the best jobs of a lane. The claim reads a share of each lane and merges the lanes
lazily. Where the merge uses up the share of a lane, it reads on from there, twice as far each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Final
from uuid import UUID

import msgspec

from longshore.core.placement import first_bytes
from longshore.model.attempt import Attempt
from longshore.model.job import JobState, Options, Submission
from longshore.model.worker import Claim, SessionKey
from longshore.store.rows import unpack_options
from longshore.store.sqlite.sql import (
    ATTENDED_NOW,
    CLAIM,
    LANE_TOP,
    LARGEST,
    OPEN_LANES,
    PAUSED,
    PAYLOADS,
    Candidate,
    Row,
)
from longshore.store.sqlite.transaction import Transaction

_PACK_BYTES: Final = 32 * 1024 * 1024
_FEWEST: Final = 8

_candidates = msgspec.json.Decoder(list[Candidate])
_hashes = msgspec.json.Decoder(list[int])
_names = msgspec.json.Decoder(set[str])
_lengths = msgspec.json.Decoder(list[tuple[int, int, int]])

_payload_bytes = attrgetter("payload_bytes")

Payload = tuple[UUID, Options, bytes]


def claim(
    tx: Transaction,
    dispatcher: UUID,
    claims: Sequence[Claim],
    max_bytes: int,
    expiry_margin_s: float,
) -> tuple[list[Attempt], Counter[int], set[int]]:
    """Places the best ready jobs on slots that may have them, one by one.

    Answers the attempts, how many came from each lane, and the lanes in which it left jobs because
    of `max_bytes`.
    """
    attending = _attending(tx, dispatcher, [slot for one in claims for slot in one.slots])
    claimed: list[Attempt] = []
    taken: Counter[int] = Counter()
    left: set[int] = set()
    for one in claims:
        slots = [slot for slot in one.slots if attending.get(slot.worker.int) == slot.session]
        best = _best(tx, one.lanes, len(slots)) if slots else []
        fitting = first_bytes(best, _payload_bytes, max_bytes)
        if len(fitting) < len(best):
            left.update(one.lanes)
        claimed += _place(tx, fitting, slots, expiry_margin_s)
        taken.update(job.lane for job in fitting)
        max_bytes -= sum(map(_payload_bytes, fitting))
    return claimed, taken, left


def usable_slots(
    tx: Transaction,
    dispatcher: UUID,
    jobs: Sequence[Submission],
    slots: Sequence[SessionKey | None],
) -> list[SessionKey | None]:
    """The slots that these jobs may have, each in its place; None for the others."""
    queues = msgspec.json.encode({job.queue for job in jobs}).decode()
    paused = _names.decode(tx.execute(PAUSED, (queues,)).fetchone()[0])
    attending = _attending(tx, dispatcher, [slot for slot in slots if slot is not None])
    return [
        slot
        if slot is not None
        and attending.get(slot.worker.int) == slot.session
        and job.queue not in paused
        else None
        for job, slot in zip(jobs, slots, strict=True)
    ]


def _attending(tx: Transaction, dispatcher: UUID, slots: Sequence[SessionKey]) -> dict[int, int]:
    """The sessions of the workers that this dispatcher attends and may give jobs to."""
    # UUIDs as integers: their own hash is slow, and there may be thousands of slots.
    workers = {slot.worker.int for slot in slots}
    keys: list[Row] = [(worker.to_bytes(16, "big"), dispatcher.bytes) for worker in workers]
    return {int(id, 16): session for id, session in ATTENDED_NOW.find(tx.connection, keys)}


def _best(tx: Transaction, lanes: Iterable[int], most: int) -> list[Candidate]:
    """The first jobs of all these lanes together, in the order of claims."""
    wanted = msgspec.json.encode(list(dict.fromkeys(lanes))).decode()
    lanes = _hashes.decode(tx.execute(OPEN_LANES, (wanted,)).fetchone()[0])
    if not lanes:
        return []
    first = min(most, most // len(lanes) + _FEWEST)
    return list(islice(merge(*(_lane(tx, lane, first, most) for lane in lanes)), most))


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


def _place(
    tx: Transaction, jobs: Sequence[Candidate], slots: Sequence[SessionKey], expiry_margin_s: float
) -> list[Attempt]:
    """Gives the i-th job to the i-th slot, under a new token."""
    payloads = _payloads(tx, jobs)
    claimed = []
    for job, slot in zip(jobs, slots[: len(jobs)], strict=True):
        id, options, args = payloads[job.number]
        token, owner = tx.next_token(), (slot.worker, slot.session)
        tries = job.attempt + 1, job.failures, job.crashes
        of_job = id, job.number, token, job.kind, args, options
        left_s = tx.seconds_to(job.deadline_at)
        claimed.append(
            Attempt(*of_job, *owner, *tries, priority=-job.urgency, begin_within_s=left_s)
        )
    _store(tx, claimed, expiry_margin_s)
    for lane, number in Counter(job.lane for job in jobs).items():
        tx.count(lane, JobState.READY, JobState.RUNNING, number)
    return claimed


def _store(tx: Transaction, claimed: Sequence[Attempt], expiry_margin_s: float) -> None:
    """Writes the new owners of these jobs."""
    rows: list[Row] = []
    for one in claimed:
        owner, entry = tx.owner(one.worker)
        expires_at = tx.expires_at(one.options.timeout_s, expiry_margin_s)
        rows.append((one.number, one.token, owner, one.session, tx.now, expires_at, entry))
    CLAIM.run(tx.connection, rows)


def _payloads(tx: Transaction, jobs: Sequence[Candidate]) -> dict[int, Payload]:
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
