"""What claims send for slots, and the attempts that their rows are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import asyncpg

from longshore.model.attempt import Attempt
from longshore.model.worker import SessionKey
from longshore.store.rows import unpack_options


def slot_columns(slots: Sequence[SessionKey]) -> tuple[list[UUID], list[int], list[int]]:
    """Each session once, and for each slot, in order, which of them it is of."""
    known: dict[SessionKey, int] = {}
    places = [known.setdefault(slot, len(known) + 1) for slot in slots]
    return [slot.worker for slot in known], [slot.session for slot in known], places


def left_of(slots: Sequence[SessionKey], taken: Sequence[Attempt]) -> list[SessionKey]:
    """The slots that these attempts have left free."""
    if not taken:
        return list(slots)
    if len(taken) == len(slots):
        return []
    used = Counter((attempt.worker.int, attempt.session) for attempt in taken)
    left = []
    for slot in slots:
        if used[slot.worker.int, slot.session]:
            used[slot.worker.int, slot.session] -= 1
        else:
            left.append(slot)
    return left


def claimed_attempt(
    row: asyncpg.Record, workers: Sequence[UUID], sessions: Sequence[int]
) -> Attempt:
    """The attempt that a row of `CLAIM` is."""
    _, _, _, _, place, lane, urgency, _, id, number, token, kind, args, options, *tries = row
    slot = workers[place - 1], sessions[place - 1]
    found = unpack_options(options)
    of_job = id, number, token, kind, args, found
    begun, failures, crashes, left_s, round, waited_s = tries
    tried = begun, failures, crashes, False, ~urgency, left_s, round
    lane = lane if found.fair else 0
    return Attempt(*of_job, *slot, *tried, waited_s=waited_s, lane=lane)
