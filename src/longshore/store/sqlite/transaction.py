"""Transactions, and what all verbs that change jobs do alike.

Every change of a job's state goes through `Transaction`, so that the job's history, the tally of
its lane and the sequences change with it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from longshore.core.effects import Change
from longshore.core.lifecycle import OWNED
from longshore.model.job import Ended, JobState
from longshore.model.limits import LimitRule
from longshore.model.worker import Lane
from longshore.store.rows import LARGEST_INT, earlier, history_entry, later, pack_error
from longshore.store.sqlite.leaving import leave_keys
from longshore.store.sqlite.sql import (
    ADD_LANES,
    CHANGE,
    COUNT_ENDS,
    HELD_BY_ID,
    HELD_BY_NUMBER,
    HOLD_AGAIN,
    NEW_ROUND,
    NOTE_ENDS,
    NOTE_WATCHED,
    TALLY,
    UNDO_INSERT,
    Held,
    Row,
)

_held = msgspec.json.Decoder(list[Held])
_FAILED: Final = frozenset({JobState.FAILED, JobState.DEPENDENCY_FAILED})


class Changed(NamedTuple):
    """A change of a job, as `CHANGE` takes it."""

    number: int
    state: JobState
    token: int
    failures: int
    crashes: int
    run_at: int | None
    ended_at: int | None
    keeps_owner: bool
    result: bytes | None
    keep_error: bool
    error: bytes | None
    entry: str
    undoes_claim: bool
    began_at: int | None
    keeps_deadline: bool
    deadline_at: int | None


class Snapshot:
    """A transaction that reads. Everything in it happens at one moment, `now`."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.now = now

    def seconds_to(self, at: int | None) -> float | None:
        """How many seconds there are until this time."""
        return None if at is None else (at - self.now) / 1e6

    def pending_owned(self, lane: int) -> int:
        """How many more attempts run in a lane than the tally has so far."""
        return 0


class Remembered:
    """What a writer need not read again as long as nobody else writes to the file.

    Each statement less counts: see `sql`. Whoever changes one of these in a transaction changes it
    here too. If the transaction fails, everything is forgotten.
    """

    def __init__(self) -> None:
        self.lanes: set[int] = set()
        """Lanes that are stored."""
        self.sequences: tuple[int, int] | None = None
        """The last number and the last token."""
        self.paused: frozenset[str] | None = None
        """The queues that are paused."""
        self.has_holds: bool | None = None
        """Whether attempts hold slots of keys."""
        self.lane_rules: list[LimitRule] | None = None
        """The rules of limits for kinds and queues."""
        self.has_fair = False
        """Whether jobs may become ready that have no turn yet (`fair`). `open_limits` finds what
        others made so: a claim asks for none otherwise. It is never forgotten."""
        self._version = 0

    def forget_if_changed(self, version: int) -> None:
        """`version` is SQLite's count of what other connections committed to the file."""
        if version != self._version:
            self.forget()
            self._version = version

    def forget(self) -> None:
        """The file may hold something else."""
        self.lanes.clear()
        self.sequences = self.paused = self.has_holds = self.lane_rules = None


class Transaction(Snapshot):
    """A transaction that writes. It does not read what is `remembered`.

    `last_number` is the highest number that a job had so far.
    """

    def __init__(
        self, connection: sqlite3.Connection, now: int, remembered: Remembered | None = None
    ) -> None:
        super().__init__(connection, now)
        self.remembered = remembered or Remembered()
        self._new_lanes: dict[int, Lane] = {}
        self._written_lanes: set[int] = set()
        self._sequences = self.remembered.sequences or self._read_sequences()
        self.last_number, self._token = self._sequences
        self._tally: defaultdict[tuple[int, str], int] = defaultdict(int)
        self._changes: list[Changed] = []
        self._owners: dict[int, tuple[bytes, str]] = {}
        self._ended: list[tuple[int, int, JobState]] = []
        """The jobs of groups that ended, with their groups."""
        self._watched: list[int] = []
        """The watched jobs that ended."""
        self.has_noted_groups = False
        """Whether a group ended that is watched."""
        self.ended_by_submits: list[Ended] = []
        """The jobs that new ones ended, themselves or others (see `crowds`)."""
        self.stopping: list[UUID] = []
        """The running jobs that new ones have had cancelled."""
        self._left: list[int] = []
        """Jobs behind keys that are ready no more."""
        self._woken: set[int] = set()
        """The groups of which jobs are to run."""

    def _read_sequences(self) -> tuple[int, int]:
        number, token = self.execute("SELECT number, token FROM sequence").fetchone()
        return number, token

    def next_number(self) -> int:
        """A number that no job had before."""
        self.last_number += 1
        return self.last_number

    def undo_jobs(self, after: int) -> None:
        """Removes the jobs with higher numbers; this number is the last one again."""
        self.execute(UNDO_INSERT, (after,))
        self.last_number = after

    def next_token(self) -> int:
        """A token that no attempt had before."""
        self._token += 1
        return self._token

    def count(self, lane: int, before: str | None, after: str | None, number: int = 1) -> None:
        """Some jobs of a lane go from one state to another, or appear, or disappear."""
        if before is not None:
            self._tally[lane, before] -= number
        if after is not None:
            self._tally[lane, after] += number

    def pending_owned(self, lane: int) -> int:
        """How many more attempts run in a lane than the tally has so far."""
        return sum(self._tally.get((lane, state), 0) for state in OWNED)

    def freed_lanes(self) -> list[int]:
        """The lanes in which fewer attempts run than before this transaction."""
        lanes = {lane for lane, state in self._tally if state in OWNED}
        return [lane for lane in lanes if self.pending_owned(lane) < 0]

    def owner(self, worker: UUID) -> tuple[bytes, str]:
        """The id of a worker as it is stored, and the history entry of attempts that it begins."""
        # A UUID's own hash, bytes and text are slow, and thousands of jobs go to a few workers.
        key = worker.int
        if key not in self._owners:
            entry = history_entry(JobState.RUNNING, self.now, str(worker))
            self._owners[key] = (worker.bytes, entry)
        return self._owners[key]

    def expires_at(self, timeout_s: float | None, margin_s: float) -> int | None:
        """When an attempt that begins now expires; None if it never does."""
        return None if timeout_s is None else later(self.now, timeout_s + margin_s)

    def add_lane(self, lane: Lane) -> None:
        """Notes a lane for `flush`, unless it is stored already."""
        if lane.hash not in self.remembered.lanes:
            self._new_lanes[lane.hash] = lane

    def held(self, refs: Sequence[UUID | int]) -> list[Held | None]:
        """These jobs, as far as they exist. One that is named twice is one value in two places."""
        ids: list[Row] = []
        numbers: list[Row] = []
        for place, ref in enumerate(refs):
            if isinstance(ref, UUID):
                ids.append((place, ref.bytes))
            elif 0 < ref <= LARGEST_INT:
                numbers.append((place, ref))
        rows = HELD_BY_ID.find(self.connection, ids)
        rows += HELD_BY_NUMBER.find(self.connection, numbers)
        by_number: dict[int, Held] = {}
        found: list[Held | None] = [None] * len(refs)
        for row in rows:
            found[row.place] = by_number.setdefault(row.number, row)
        return found

    def held_where(self, query: str, values: Row) -> list[Held]:
        """The jobs that a query finds, in the order of their numbers."""
        found = _held.decode(self.execute(query, values).fetchone()[0])
        return sorted(found, key=lambda row: row.number)

    def apply(
        self,
        row: Held,
        change: Change,
        *,
        by: str = "",
        result: bytes | None = None,
        ran_s: float | None = None,
    ) -> None:
        """The change is made when `flush` is next called; `row` says so at once."""
        now, state = self.now, change.state
        self.count(row.lane, row.state, state)
        row.state = state
        if row.is_behind:
            self._left.append(row.number)
            row.is_behind = 0
        if row.watched and change.ends:
            self.watched_end(row.number)
        if row.group is not None:
            if change.ends:
                self.ended(row.group, row.number, state)
            elif state in (JobState.READY, JobState.DELAYED):
                self._woken.add(row.group)
        if change.new_token:
            row.token = self.next_token()
        if change.new_round:
            row.failures = row.crashes = 0
            self.execute(NEW_ROUND, (row.number,))
        row.failures += change.failures
        row.crashes += change.crashes
        self._changes.append(
            Changed(
                row.number,
                state,
                row.token,
                row.failures,
                row.crashes,
                self._in(change.delay_s),
                now if change.ends else None,
                change.keeps_owner,
                result,
                change.keeps_error,
                pack_error(change.error),
                history_entry(state, now, by, change.info, change.request),
                change.undoes_claim,
                earlier(now, ran_s),
                change.keeps_deadline,
                self._in(change.deadline_s),
            )
        )

    def watched_end(self, job: int) -> None:
        """A job ended that is watched."""
        self._watched.append(job)

    @property
    def has_watched_ends(self) -> bool:
        """Whether a job or a group ended that is watched."""
        return bool(self._watched) or self.has_noted_groups

    def ended(self, group: int, job: int, state: JobState) -> None:
        """A job of a group ended. Its dependents are to hear of it."""
        self._ended.append((group, job, state))

    def take_ended(self) -> list[Row]:
        """The jobs of groups that ended, for the caller to settle at once."""
        if not self._ended:
            return []
        taken: list[Row] = [(job, -1, 0) for _, job, _ in self._ended]
        self._count_ends()
        return taken

    def _count_ends(self) -> None:
        counts: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        for group, _, state in self._ended:
            count = counts[group]
            count[0] += 1
            count[1] += state in _FAILED
            count[2] += state is JobState.CANCELLED
        rows: list[Row] = [(group, *count) for group, count in counts.items()]
        COUNT_ENDS.run(self.connection, rows)
        self._ended = []

    def note_group_ends(self) -> None:
        """Notes the ends that were not taken: `settle` delivers them later."""
        if self._ended:
            NOTE_ENDS.run(self.connection, [(job,) for _, job, _ in self._ended])
            self._count_ends()

    def _in(self, seconds: float | None) -> int | None:
        return None if seconds is None else later(self.now, seconds)

    def flush(self) -> None:
        """Writes changes and new lanes, so that the statements that follow see them."""
        if self._changes:
            CHANGE.run(self.connection, self._changes)
            self._changes = []
        if self._left:
            leave_keys(self.connection, msgspec.json.encode(self._left).decode(), self.now)
            self._left = []
        if len(self._new_lanes) > len(self._written_lanes):
            self._add_lanes()

    def _add_lanes(self) -> None:
        unwritten = sorted(self._new_lanes.keys() - self._written_lanes)
        lanes = [self._new_lanes[hash] for hash in unwritten]
        ADD_LANES.run(
            self.connection, [(lane.hash, lane.queue, lane.kind, lane.target) for lane in lanes]
        )
        self._written_lanes.update(unwritten)

    def settle(self) -> None:
        """Writes the rest, before the commit."""
        self.flush()
        self.note_group_ends()
        NOTE_WATCHED.run(self.connection, [(job,) for job in self._watched])
        for group in self._woken:
            # The job of a paused group must be held again.
            self.execute(HOLD_AGAIN, (group,))
        changed = [(lane, state, n) for (lane, state), n in self._tally.items() if n]
        TALLY.run(self.connection, changed)
        if (self.last_number, self._token) != self._sequences:
            values = (self.last_number, self._token)
            self.execute("UPDATE sequence SET number = ?, token = ?", values)

    def committed(self) -> None:
        """Remembers what it stored."""
        self.remembered.lanes.update(self._new_lanes)
        self.remembered.sequences = (self.last_number, self._token)
