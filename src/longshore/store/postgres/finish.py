"""Finishes on the PostgreSQL store: one UPDATE for the batch, fenced by the tokens.

What an end does to a running job and to one that is being cancelled (`core.effects`) travels with
it; the database only picks one of the two by the state it finds. The job of an actor's turn that
was taken is removed instead, fenced in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
from msgspec import structs

from longshore.core import effects
from longshore.core.dependencies import Parent
from longshore.core.effects import Change
from longshore.core.lifecycle import TERMINAL
from longshore.core.publishing import PARTLY
from longshore.errors import StoreUnavailable
from longshore.model.actor import Message
from longshore.model.ends import (
    WITH_OUTBOX,
    End,
    PutAside,
    ReadDone,
    Succeeded,
    TurnTaken,
)
from longshore.model.ids import derive_id
from longshore.model.job import Ended, Finished, JobState, Refused, Submission, Submitted, Verdict
from longshore.model.reports import OutboxJob
from longshore.store.actor_rows import undelivered_job
from longshore.store.postgres.actors_sql import HOLD_ENDING, TAKE
from longshore.store.postgres.columns import unless_empty
from longshore.store.postgres.connections import TURNS, Transaction
from longshore.store.postgres.cursors import ClaimCursors
from longshore.store.postgres.sql import FINISH
from longshore.store.postgres.states import CODES, READY, STATES, head
from longshore.store.rows import INT64, LARGEST_INT, clean, pack_error

_FOUND_IN: Final = (JobState.RUNNING, JobState.CANCELLING)
"""The states whose changes `FINISH` takes, in this order."""

_json = msgspec.json.Encoder()

REMOVED: Final = (TurnTaken, ReadDone)
"""Ends that remove their jobs."""
Sent = tuple[Succeeded | TurnTaken, int, Submission]
"""What was sent, the end whose outbox it was in, and its index there."""
Taken = tuple[TurnTaken, UUID, int]
"""A turn that was taken, the worker that did, and when that was recorded."""


def quoted(text: str, *, ascii_only: bool = False) -> str:
    """A text as JSON that any database can keep."""
    if not text:
        return '""'
    kept = clean(text)
    if ascii_only:
        kept = kept.encode("ascii", "replace").decode()
    return _json.encode(kept).decode()


_JUDGED: Final = """
SELECT i.id, l.state, l.token, l.worker
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT state, token, worker FROM longshore.job WHERE id = i.id OFFSET 0
) AS l
"""

_NOTE: Final = """
UPDATE longshore.job AS j
SET history = substr(n.history, 2, length(n.history) - 2)
FROM (
    SELECT l.tid, jsonb_set(
        ('[' || l.history || ']')::jsonb, '{-1,3}', to_jsonb($2::text)
    )::text AS history
    FROM (
        SELECT ctid AS tid, history FROM longshore.job WHERE id = $1 OFFSET 0
    ) AS l
    OFFSET 0
) AS n
WHERE j.ctid = n.tid
"""


class FinishBatch:
    """The finishes of one transaction."""

    def __init__(self, tx: Transaction, marks: ClaimCursors) -> None:
        self.ready: Counter[int] = Counter()
        self.ended: list[Ended] = []
        self.sent: list[Sent] = []
        self.parents: list[Parent] = []
        """The jobs of groups that ended."""
        self.woken: dict[UUID, UUID] = {}
        """The jobs of groups that are to run again, and their groups."""
        self.taken: list[Taken] = []
        self.refused: list[tuple[Succeeded, int, str]] = []
        """Messages that jobs sent and nobody gets: the end, the index in its outbox, and why."""
        self._tx = tx
        self._marks = marks

    async def record(self, ends: Sequence[End]) -> list[Finished]:
        """Ends the attempts that still own their jobs; answers item by item."""
        answers: list[Finished | None] = [None] * len(ends)
        left = [place for place, end in enumerate(ends) if end.token in INT64]
        for _ in range(TURNS):
            rows = await self._end([ends[place] for place in left])
            for at, was, state, *_ in rows:
                place = left[at - 1]
                answers[place] = self._recorded(ends[place], was, STATES[state])
            if len(rows) == len(left):
                break
            left = await self._judge(ends, left, answers)
            if not left:
                break
        else:
            raise StoreUnavailable("jobs changed too often while they were finished; try again")
        return [
            answer or Finished(end.job, end.token, Verdict.STALE)
            for end, answer in zip(ends, answers, strict=True)
        ]

    def _recorded(self, end: End, was: int, state: JobState) -> Finished:
        self.ended += outcomes(end, was, state)
        if isinstance(end, WITH_OUTBOX) and end.outbox:
            items = enumerate(end.outbox)
            self.sent += [(end, at, item.job) for at, item in items if isinstance(item, OutboxJob)]
        return Finished(end.job, end.token, Verdict.RECORDED, state)

    async def _end(self, ends: Sequence[End]) -> Sequence[asyncpg.Record | tuple[int, int, int]]:
        """Ends attempts; answers of each that was: its place from 1 on, its state before and now.

        Rows may have more columns than that.
        """
        turns = [place for place, end in enumerate(ends, 1) if isinstance(end, REMOVED)]
        if not turns:
            return await self._end_jobs(ends)
        others = [place for place, end in enumerate(ends, 1) if not isinstance(end, REMOVED)]
        if others:
            # All in one statement, so that the locks are taken in the order of ids.
            await self._tx.fetch(HOLD_ENDING, *_keys(ends))
        rows = await self._end_jobs([ends[place - 1] for place in others])
        ended = [(others[at - 1], was, state) for at, was, state, *_ in rows]
        return ended + await self._take(ends, turns)

    async def _take(self, ends: Sequence[End], turns: Sequence[int]) -> list[tuple[int, int, int]]:
        """Removes the jobs of turns that were taken, and of reads that are over."""
        sound = [(place, end) for place in turns if _may_remove(end := ends[place - 1])]
        places, workers = [place for place, _ in sound], [end.worker for _, end in sound]
        jobs, tokens = _keys([end for _, end in sound])
        rows = await self._tx.fetch(TAKE, places, jobs, tokens, workers)
        for row in rows:
            self._tx.count(row["lane"], row["was"], None)
            end = ends[row["place"] - 1]
            if isinstance(end, TurnTaken):
                self.taken.append((end, row["worker"], row["now"]))
        return [(row["place"], row["was"], row["state"]) for row in rows]

    async def _end_jobs(self, ends: Sequence[End]) -> list[asyncpg.Record]:
        if not ends:
            return []
        rows = await self._tx.fetch(
            FINISH, *finish_columns(ends, isolate_bad_items=self._tx.isolate_bad_items)
        )
        counts = Counter(map(itemgetter("lane", "was", "state"), rows))
        for (lane, was, state), count in counts.items():
            self._tx.count(lane, was, state, count)
        self.ready += made_ready(rows, self._marks)
        self._note_groups(ends, rows)
        for row in rows:
            if row["watched"] and STATES[row["state"]] in TERMINAL:
                self._tx.watched_end(ends[row["place"] - 1].job)
        return rows

    def _note_groups(self, ends: Sequence[End], rows: Sequence[asyncpg.Record]) -> None:
        for row in rows:
            if (group := row["group_id"]) is None:
                continue
            state = STATES[row["state"]]
            end = ends[row["place"] - 1]
            if state not in TERMINAL:
                self.woken[end.job] = group
                continue
            [outcome] = outcomes(end, row["was"], state)
            self._tx.ended(group, end.job, row["state"], settled=True)
            self.parents.append(Parent(end.job, group, "", row["number"], state, outcome.error))

    async def _judge(
        self, ends: Sequence[End], left: list[int], answers: list[Finished | None]
    ) -> list[int]:
        """Answers what was not recorded; left is what would have been, had it not just changed."""
        self._tx.rest_on_found()
        unanswered = [place for place in left if answers[place] is None]
        rows = await self._tx.fetch(_JUDGED, [ends[place].job for place in unanswered])
        found = {row["id"]: (STATES[row["state"]], row["token"], row["worker"]) for row in rows}
        again = []
        for place in unanswered:
            end = ends[place]
            if end.job not in found or not _may_remove(end):
                continue
            state, token, worker = found[end.job]
            verdict = effects.judge(state, token, worker, end)
            if verdict is Verdict.RECORDED:
                again.append(place)
            elif verdict is Verdict.ALREADY_RECORDED:
                answers[place] = Finished(end.job, end.token, verdict, state)
        return again

    def lost_of_turns(
        self, taken: Sequence[Submitted | Refused]
    ) -> list[tuple[TurnTaken, Message]]:
        """What turns hear of jobs that they sent and that cannot be stored."""
        return [
            (end, undelivered_job(job, answer.message))
            for (end, _, job), answer in zip(self.sent, taken, strict=True)
            if isinstance(answer, Refused) and isinstance(end, TurnTaken)
        ]

    async def note(self, taken: Sequence[Submitted | Refused]) -> None:
        """Outbox items that cannot be stored are named in the history of the job that sent them."""
        notes: dict[int, tuple[Succeeded, list[str]]] = {}
        refused = self.refused + [
            (end, index, answer.message)
            for (end, index, _), answer in zip(self.sent, taken, strict=True)
            if isinstance(answer, Refused) and isinstance(end, Succeeded)
        ]
        for end, index, why in sorted(refused, key=itemgetter(1)):
            _, texts = notes.setdefault(id(end), (end, [end.info] if end.info else []))
            texts.append(effects.refused_item(index, why))
        for end, texts in notes.values():
            await self._tx.fetch(_NOTE, end.job, clean("; ".join(texts)))


def _keys(ends: Sequence[End]) -> tuple[list[UUID], list[int]]:
    return [end.job for end in ends], [end.token for end in ends]


def _may_remove(end: End) -> bool:
    """Whether a turn that was taken is the one that this job is; true of all other ends."""
    if not isinstance(end, TurnTaken):
        return True
    return 0 < end.number <= LARGEST_INT and end.job == derive_id(end.actor, end.number)


def outcomes(end: End, was: int, state: JobState) -> list[Ended]:
    """The outcome of a job that this end has ended; none if the job goes on."""
    if isinstance(end, Succeeded):
        return [Ended(end.job, state, end.result)]
    change = effects.of_end(end)[STATES[was]]
    return [effects.outcome(end.job, change, end)] if change.ends else []


def made_ready(rows: Sequence[asyncpg.Record], marks: ClaimCursors) -> Counter[int]:
    """How many jobs these rows of `FINISH` made ready, by lane; claims find them at once."""
    ready = Counter[int]()
    for row in rows:
        if row["state"] == READY:
            ready[row["lane"]] += 1
            marks.put_back(row["lane"], row["urgency"], (row["rank"], row["number"]))
    return ready


def change_row(change: Change, by: str | None, *, isolate_bad_items: bool) -> tuple[object, ...]:
    """A change as `CHANGE_COLUMNS` has it."""
    return (
        CODES[change.state],
        change.new_token,
        change.keeps_owner,
        change.ends,
        change.failures,
        change.crashes,
        change.keeps_error,
        pack_error(change.error),
        change.delay_s,
        head(change.state),
        None if by is None else quoted(by, ascii_only=isolate_bad_items),
        # The request that opened a round comes after the words, as an element of its own.
        quoted(change.info, ascii_only=isolate_bad_items)
        + (f',"{change.request}"' if change.request else ""),
        change.undoes_claim,
        change.keeps_deadline,
        change.deadline_s,
    )


def finish_columns(ends: Sequence[End], *, isolate_bad_items: bool) -> list[object]:
    """What `FINISH` takes: what differs from end to end in full, what they share once per shape."""
    shapes: dict[tuple[object, ...], int] = {}
    rows: list[tuple[object, ...]] = []
    places = []
    for end in ends:
        shape = _shape(end)
        place = shapes.get(shape)
        if place is None:
            place = shapes[shape] = len(rows) + 1
            effect, by = effects.of_end(end), end.by or None
            for state in _FOUND_IN:
                rows.append(
                    (
                        end.worker,
                        *change_row(effect[state], by, isolate_bad_items=isolate_bad_items),
                    )
                )
        places.append(place)
    results = [end.result if isinstance(end, Succeeded) else None for end in ends]
    *own, ran_s = _own_columns(ends, results)
    return [*own, places if len(shapes) > 1 else [], ran_s, *zip(*rows, strict=True)]


def success_columns(ends: Sequence[Succeeded]) -> list[object]:
    """What `SUCCEED_ALONE` takes."""
    return _own_columns(ends, [end.result for end in ends])


def _own_columns(ends: Sequence[End], results: list[bytes | None]) -> list[object]:
    return [
        [end.job for end in ends],
        [end.token for end in ends],
        *_results(results),
        unless_empty([end.ran_s for end in ends]),
    ]


def only_results(ends: Sequence[End]) -> list[Succeeded] | None:
    """The ends, if each is a success of which nothing but its result is to be stored."""
    plain = [
        end
        for end in ends
        if isinstance(end, Succeeded)
        and not (end.outbox or end.by or end.info or end.worker or end.versions)
    ]
    return plain if len(plain) == len(ends) else None


def _results(results: list[bytes | None]) -> tuple[list[bytes | None], int | None]:
    """The results, and whether the first stands for all: most jobs return nothing."""
    if results.count(results[0]) == len(results):
        return ([], None) if results[0] is None else (results[:1], 1)
    return results, None


def _shape(end: End) -> tuple[object, ...]:
    """Ends that have this in common do the same to their jobs."""
    if isinstance(end, Succeeded):
        return Succeeded, end.by, end.info, end.worker
    if isinstance(end, PARTLY) and end.versions:
        end = structs.replace(end, versions=())
    _, _, *rest = structs.astuple(structs.replace(end, ran_s=None))
    return type(end), *rest


def does_more(end: End) -> bool:
    """Whether an end has more to do than to change the row of its job."""
    if isinstance(end, Succeeded):
        return bool(end.outbox or end.versions)
    if isinstance(end, PARTLY):
        return bool(end.versions)
    return isinstance(end, TurnTaken | PutAside | ReadDone)
