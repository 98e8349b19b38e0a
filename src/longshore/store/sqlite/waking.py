"""Actors on SQLite: what is known of one between two turns, and how its next turn is made.

Whatever changes an actor calls `wake` last. It reads all actors that were touched in one statement,
lets `core.turns` decide, and writes what follows for all of them at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from longshore.core import effects, placement
from longshore.core.lanes import lane_of
from longshore.core.placement import SlotOffers
from longshore.core.turns import Step, TurnJob, go, last_worker, next_step, next_wake, turn_job
from longshore.model.actor import ActorTerms, Timer
from longshore.model.attempt import Attempt
from longshore.model.job import JobState, Submission, Submitted
from longshore.model.worker import SessionKey
from longshore.store.actor_rows import NEVER, unpack_terms, unpack_timers
from longshore.store.rows import clean
from longshore.store.sqlite.claim import usable_slots
from longshore.store.sqlite.prune import DROP_JOBS, DROP_LOGS
from longshore.store.sqlite.sql import Bulk, Lookup, Row
from longshore.store.sqlite.submit import accept
from longshore.store.sqlite.transaction import Snapshot, Transaction

ACTIVE: Final = "active"
PAUSED: Final = "paused"
STOPPING: Final = "stopping"

LAST_TURN: Final = "t.actor = a.number AND t.n = (SELECT max(n) FROM turn WHERE actor = a.number)"
LAST_NUMBER: Final = """max(t.read_up_to, coalesce(
    (SELECT max(m.number) FROM message AS m WHERE m.actor = a.number), 0))"""


class ActorRow(Struct, array_like=True):
    """An actor between two turns, and the job of its next turn, if there is one."""

    number: int
    hex_id: str
    type: str
    key: str
    status: str
    hex_terms: str
    turn: int
    version: int
    read: int
    starts: int
    hex_timers: str
    has_mail: int
    first_due: int | None
    hex_worker: str
    job: int | None
    lane: int | None
    state: JobState | None
    failures: int | None
    run_at: int | None

    @property
    def id(self) -> UUID:
        """Its id."""
        return UUID(hex=self.hex_id)

    @property
    def last_worker(self) -> UUID | None:
        """The worker that took its last turn."""
        return UUID(hex=self.hex_worker) if self.hex_worker else None

    @property
    def terms(self) -> ActorTerms:
        """How its turns run."""
        return unpack_terms(bytes.fromhex(self.hex_terms))

    @property
    def timers(self) -> tuple[Timer, ...]:
        """The timers that its last turn left."""
        return unpack_timers(bytes.fromhex(self.hex_timers))

    def wake(self) -> int | None:
        """When its next turn is due."""
        delayed_at = None if self.first_due == NEVER else self.first_due
        return next_wake(
            starts=bool(self.starts),
            has_mail=bool(self.has_mail),
            timers=self.timers,
            delayed_at=delayed_at,
        )

    def next_job(self) -> TurnJob | None:
        """The job of its next turn, as `next_step` wants it."""
        return None if self.state is None else TurnJob(self.state, self.failures or 0, self.run_at)


_ROW: Final = f"""SELECT json_group_array(json_array(a.number, hex(a.id), a.type, a.key, a.status,
        hex(a.terms), t.n, t.version, t.read_up_to, t.starts, hex(t.timers),
        EXISTS (SELECT 1 FROM message AS m INDEXED BY message_unread
            WHERE m.due_at IS NULL AND m.actor = a.number),
        (SELECT min(m.due_at) FROM message AS m INDEXED BY message_due
            WHERE m.due_at IS NOT NULL AND m.actor = a.number), hex(t.worker),
        job.number, job.lane, job.state, job.failures, job.run_at))
    FROM {{rows}} AS v CROSS JOIN actor AS a ON {{named}}
    CROSS JOIN turn AS t ON {LAST_TURN}
    LEFT JOIN job INDEXED BY job_actor ON job.actor_id = a.number AND job.actor_id IS NOT NULL"""
_BY_NUMBER: Final = Lookup(_ROW.replace("{named}", "a.number = v.column1"), 1, ActorRow)
_BY_NAME: Final = Lookup(
    _ROW.replace("{named}", "a.type = v.column1 AND a.key = v.column2"), 2, ActorRow
)
_ASSIGN: Final = Bulk(
    "UPDATE job SET actor_id = v.column2 FROM {rows} AS v WHERE job.id = v.column1", 2
)


def named(tx: Snapshot, type: str, key: str) -> ActorRow | None:
    """The actor of this type and key, if there is one."""
    if clean(type) != type or clean(key) != key:
        return None
    return next(iter(_BY_NAME.find(tx.connection, [(type, key)])), None)


def numbered(tx: Snapshot, numbers: Sequence[int]) -> list[ActorRow]:
    """The actors with these numbers, in their order."""
    found = _BY_NUMBER.find(tx.connection, [(number,) for number in numbers])
    return sorted(found, key=lambda row: row.number)


def drop_jobs(tx: Transaction, jobs: Sequence[tuple[int, int, JobState]]) -> None:
    """Removes jobs of turns, by their numbers, lanes and states, with what they logged."""
    for _, lane, state in jobs:
        tx.count(lane, state, None)
    numbers: list[Row] = [(number,) for number, _, _ in jobs]
    DROP_LOGS.run(tx.connection, numbers)
    DROP_JOBS.run(tx.connection, numbers)


def drop_job(tx: Transaction, actor: ActorRow) -> None:
    """Removes the job of an actor's next turn, if there is one."""
    if actor.job is not None and actor.lane is not None and actor.state is not None:
        drop_jobs(tx, [(actor.job, actor.lane, actor.state)])


class TurnSlots(NamedTuple):
    """The slots on which new turns may start, and who gives them.

    An attempt expires `expiry_margin_s` after its timeout.
    """

    dispatcher: UUID
    offers: SlotOffers
    expiry_margin_s: float

    def slots(self, tx: Transaction, jobs: Sequence[Submission]) -> list[SessionKey | None]:
        """The slots that these turns may have, each in its place; None for the others."""
        ready = [(place, job) for place, job in enumerate(jobs) if job.delay_s is None]
        order = [
            placement.Woken(
                (-job.priority, place),
                _lane(job),
                len(job.args),
                last_worker(job.options, job.args),
            )
            for place, job in ready
        ]
        found: list[SessionKey | None] = [None] * len(jobs)
        for at, slot in self.offers.take(order).items():
            found[ready[at][0]] = slot
        return usable_slots(tx, self.dispatcher, jobs, found) if any(found) else found


NO_SLOTS: Final = TurnSlots(UUID(int=0), SlotOffers((), 0), 0.0)


class Woken:
    """What became ready, by lane: of actors in the set given first, and of all others.

    `started` are the turns that began.
    """

    def __init__(self, first: Collection[int]) -> None:
        self.started: list[Attempt] = []
        self._first = first
        self.by_ends: Counter[int] = Counter()
        self.by_sends: Counter[int] = Counter()

    def add(self, actor: int, lane: int) -> None:
        """The turn of this actor became ready."""
        (self.by_ends if actor in self._first else self.by_sends)[lane] += 1


def wake(
    tx: Transaction,
    actors: Collection[int],
    first: Collection[int] = (),
    slots: TurnSlots = NO_SLOTS,
) -> Woken:
    """Brings the next turns of these actors to where their mail and their timers want them.

    New turns start on the slots that there are for them.
    """
    woken = Woken(first)
    tx.flush()
    changed: list[tuple[ActorRow, Step, float | None]] = []
    for actor in numbered(tx, sorted(actors)):
        if actor.status != STOPPING:
            step = next_step(actor.next_job(), actor.wake(), tx.now, paused=actor.status == PAUSED)
            changed.append((actor, *step))
    drop_jobs(tx, [_dropped(one) for one, step, _ in changed if step in (Step.REMOVE, Step.ANEW)])
    made = [(one, s) for one, step, s in changed if step in (Step.MAKE, Step.ANEW)]
    _make(tx, made, woken, slots)
    _move(tx, [one for one in changed if one[1] in (Step.GO, Step.HOLD)], woken)
    return woken


def _dropped(actor: ActorRow) -> tuple[int, int, JobState]:
    assert actor.job is not None
    assert actor.lane is not None
    assert actor.state is not None
    return actor.job, actor.lane, actor.state


def _make(
    tx: Transaction,
    actors: Sequence[tuple[ActorRow, float | None]],
    woken: Woken,
    slots: TurnSlots,
) -> None:
    """Makes the next turns of these actors, begun, ready or with a delay."""
    if not actors:
        return
    jobs: list[Submission] = []
    for one, delay_s in actors:
        of_turn = one.id, one.type, one.terms, one.version, one.turn + 1, delay_s
        jobs.append(turn_job(*of_turn, one.last_worker))
    usable = slots.slots(tx, jobs)
    answers, _, started = accept(tx, jobs, usable, slots.expiry_margin_s)
    assert all(isinstance(answer, Submitted) for answer in answers), answers
    woken.started += started
    begun = {one.id.int for one in started}
    assigned: list[Row] = []
    for (one, delay_s), job in zip(actors, jobs, strict=True):
        assigned.append((job.id.bytes, one.number))
        if delay_s is None and job.id.int not in begun:
            woken.add(one.number, _lane(job))
    _ASSIGN.run(tx.connection, assigned)


def _lane(job: Submission) -> int:
    return lane_of(job.queue, job.kind, job.target).hash


def _move(
    tx: Transaction, actors: Sequence[tuple[ActorRow, Step, float | None]], woken: Woken
) -> None:
    """Lets the next turns of these actors go, or holds them."""
    if not actors:
        return
    held = tx.held([actor.job or 0 for actor, _, _ in actors])
    for (actor, step, delay_s), row in zip(actors, held, strict=True):
        assert row is not None
        if step is Step.HOLD:
            tx.apply(row, effects.HOLD[row.state])
            continue
        tx.apply(row, go(row.state, delay_s, actor.terms.options.expires_s))
        if row.state is JobState.READY:
            woken.add(actor.number, row.lane)
