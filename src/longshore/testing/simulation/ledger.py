"""The ledger: what the store did to every job, checked after every call that may change one.

It keeps a copy of what was last seen of each job. After a commit it looks at what is different, and
every difference must follow from that one call: from a finish under the token of that moment, a
claim of a ready job, a cancel, a loss of the very worker that owned it. The decisions are the
core's (`lifecycle`); that the store took them, all of them and no others, is what is checked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from longshore.core.lifecycle import MOVES, OWNED, TERMINAL, Event
from longshore.model.group import GroupPart
from longshore.model.job import Ended, Job, JobState, Verdict
from longshore.model.worker import Attended, SessionKey
from longshore.ports import Batch, BatchResult, Harvested
from longshore.store.rows import micros
from longshore.testing.simulation.actor_check import ActorCheck
from longshore.testing.simulation.batch_check import WOKEN, BatchCheck
from longshore.testing.simulation.database import Committed, at_once
from longshore.testing.simulation.deadlines import Deadlines
from longshore.testing.simulation.group_check import GroupCheck
from longshore.testing.simulation.limit_check import LimitCheck
from longshore.testing.simulation.loop import SimulatedLoop
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.running_bodies import RunningBodies
from longshore.testing.simulation.snapshots import NOWHERE, Change, Snapshot
from longshore.testing.simulation.stores import Key, Stores
from longshore.testing.simulation.trace import Trace
from longshore.testing.simulation.turn_bodies import is_turn
from longshore.testing.simulation.web_check import WebCheck
from longshore.testing.virtual import VirtualClock

_LOST: Final = frozenset({Event.LOST, Event.POISONED})
_EVENTS: Final[dict[str, frozenset[Event]]] = {
    "harvest": _LOST,
    "sweep": _LOST,
    "register_web_worker": _LOST,
    "resign_web_worker": _LOST,
    "promote": frozenset({Event.CAME_DUE}),
    "expire": frozenset({Event.EXPIRED}),
    "cancel": frozenset({Event.CANCEL_ASKED}),
    "retry": frozenset({Event.REOPENED}),
    "submit_group": frozenset({Event.DEPENDENCIES_MET, Event.DELAY_BEGAN}),
    "settle": WOKEN | {Event.HELD, Event.CANCEL_ASKED, Event.EXPANDED},
    "open_gate": frozenset({Event.OPENED}),
    "add_to_group": WOKEN,
    "rerun_group": frozenset({Event.DEPENDENCIES_MET, Event.DELAY_BEGAN}),
    "retry_group": frozenset({Event.REOPENED_TO_WAIT, Event.HELD, Event.CANCEL_ASKED}),
}
_REVOKING: Final = frozenset({"harvest", "sweep", "register_web_worker", "resign_web_worker"})
_REOPENING: Final = frozenset({"retry", "retry_group"})


class Ledger:
    """Watches a database. `bodies` knows what really ran."""

    def __init__(
        self,
        stores: Stores,
        loop: SimulatedLoop,
        trace: Trace,
        bodies: RunningBodies,
        groups: GroupCheck,
        actors: ActorCheck,
        web: WebCheck | None = None,
    ) -> None:
        self._web = web
        self._groups = groups
        self._actors = actors
        self._stores = stores
        self._store = stores.open()
        self._loop = loop
        self._trace = trace
        self._bodies = bodies
        self._shots: dict[UUID, Snapshot] = {}
        self._outcomes: dict[UUID, list[tuple[JobState, bytes | None]]] = {}
        self._keys: dict[UUID, Key] = {}
        self._turns: set[UUID] = set()
        """The jobs that are turns of actors."""
        self._last_token = 0
        utc = VirtualClock(loop).utc
        self._deadlines = Deadlines(utc, self._job)
        self._limits = LimitCheck(lambda: micros(utc()), self._job)

    # what clients were told

    def accepted(self, job: UUID) -> None:
        """A client was told that a job is accepted."""
        if job not in self._shots:
            raise BrokenPromise(Promise.DURABLE, "it was accepted, but is not in the store", job)

    def told(self, ended: Ended) -> None:
        """A client was told how a job or a group ended."""
        if self._groups.told(ended):
            return
        if (ended.state, ended.result) not in self._outcomes.get(ended.id, []):
            text = f"a client was told {ended.state}, which was never recorded"
            raise BrokenPromise(Promise.ONE_OUTCOME, text, ended.id)

    # what the store did

    def committed(self, commit: Committed) -> None:
        """A call was executed: whatever is different must follow from it."""
        changes, fresh, gone = self._look(commit.verb)
        if isinstance(commit.about, SessionKey):
            self._note_worker(commit, commit.about)
        for change in changes:
            self._note(commit, change)
        for job in fresh:
            self._note(commit, Change(job, NOWHERE, self._shots[job]))
        self._check_tokens(changes)
        added = self._groups.note_added(commit, fresh, self._shots)
        if isinstance(commit.about, Batch) and isinstance(commit.answer, BatchResult):
            self._note_refusals(commit.process.name, commit.about, commit.answer)
            known = {**self._shots, **gone, **{change.job: change.before for change in changes}}
            for job in fresh:
                del known[job]
            asks = self._groups.has, self._is_turn
            check = BatchCheck(commit.about, commit.answer, known, self._bodies, *asks)
            check.check(changes, [one for one in fresh if one not in added | self._turns])
        else:
            others = [one for one in fresh if one not in added | self._turns]
            self._check_changes(commit, changes, others)
            self._check_blame(commit.verb, changes)
        if self._web is not None:
            self._web.check(commit, changes, self._stores.web())
        self._deadlines.check(commit.verb, changes, fresh)
        begun = [job for job in fresh if self._shots[job].state in OWNED]
        begun += map(_job_of, filter(_has_begun, changes))
        self._limits.check(commit, begun, self._shots)
        if commit.verb in _REVOKING:
            lost = [one.job for one in changes if one.before.state in OWNED]
            self._limits.check_slots(lost, self._shots, self._held)
        for change in [*changes, *(Change(job, NOWHERE, self._shots[job]) for job in fresh)]:
            self._record(commit.verb, change)
        self._groups.check(commit, changes, fresh, self._shots, self._stores.groups())
        self._actors.check(commit, self._shots, gone, self._turns, self._stores.actors())
        self._check_keys([*fresh, *(change.job for change in changes)])
        if commit.verb == "log":
            self._check_logs()

    def _look(self, verb: str) -> tuple[list[Change], list[UUID], dict[UUID, Snapshot]]:
        """What is different since the last look: changed jobs, new ones, turns that are gone."""
        changes: list[Change] = []
        fresh: list[UUID] = []
        shots = self._stores.shots()
        for job, shot in shots.items():
            before = self._shots.get(job)
            if before == shot:
                continue
            self._shots[job] = shot
            if before is None:
                fresh.append(job)
                self._keys[job] = self._stores.key_of(job)
                if is_turn(self._keys[job][0]):
                    self._turns.add(job)
            else:
                changes.append(Change(job, before, shot))
        gone = dict[UUID, Snapshot]()
        if len(shots) < len(self._shots):
            gone = {job: shot for job, shot in self._shots.items() if job not in shots}
        for job in gone:
            if not self._is_turn(job):
                raise BrokenPromise(Promise.DURABLE, f"{verb} made it vanish from the store", job)
            del self._shots[job]
            self._turns.remove(job)
        return changes, fresh, gone

    def _held(self, key: str) -> int:
        """How many slots of a key are held, as the store says."""
        return at_once(self._store.limit_key(key)).held

    def _is_turn(self, job: UUID) -> bool:
        return job in self._turns

    def _job(self, id: UUID) -> Job:
        job = at_once(self._store.job(id))
        assert job is not None, f"{id} is in the store"
        return job

    def _note(self, commit: Committed, change: Change) -> None:
        before, after = change.before, change.after
        was = "" if before is NOWHERE else f"{before.state} → "
        parts = [f"{commit.verb}: {was}{after.state}"]
        if before.token != after.token:
            parts.append(f"token {before.token} → {after.token}")
        if (before.worker, before.session) != (after.worker, after.session) and after.worker:
            parts.append(f"on {self._trace.name(after.worker)}, session {after.session}")
        info = self._job(change.job).history[-1].info
        text = ", ".join([*parts, info] if info else parts)
        self._trace.note(self._loop.time(), commit.process.name, text, change.job)

    def _note_worker(self, commit: Committed, slot: SessionKey) -> None:
        worker, answer = self._trace.name(slot.worker), commit.answer
        took = isinstance(answer, Attended) or (isinstance(answer, Harvested) and answer.lost)
        verdict = "" if took else f": {type(answer).__name__.lower()}, nothing changes"
        text = f"{commit.verb} {worker}, session {slot.session}{verdict}"
        self._trace.note(self._loop.time(), commit.process.name, text)

    def _note_refusals(self, who: str, batch: Batch, pumped: BatchResult) -> None:
        for finish, answer in zip(batch.finishes, pumped.finished, strict=True):
            if answer.verdict is not Verdict.RECORDED:
                how = type(finish).__name__.lower()
                text = f"pump: {how} under token {finish.token} is {answer.verdict}"
                self._trace.note(self._loop.time(), who, text, finish.job)

    def _check_tokens(self, changes: Sequence[Change]) -> None:
        """A token that a job gets was never any job's before."""
        # A turn that is made anew, with another time, has had no token yet.
        given = [
            change
            for change in changes
            if change.before.token != change.after.token
            and (change.after.token or not self._is_turn(change.job))
        ]
        seen: set[int] = set()
        for job, _, after in given:
            if after.token <= self._last_token or after.token in seen:
                text = f"its new token {after.token} was given before"
                raise BrokenPromise(Promise.ONE_OWNER, text, job)
            seen.add(after.token)
        self._last_token = max(self._last_token, *seen) if seen else self._last_token

    def _check_changes(
        self, commit: Committed, changes: Sequence[Change], fresh: Sequence[UUID]
    ) -> None:
        verb, part = commit.verb, commit.about
        submitted = {node.job.id for node in part.nodes} if isinstance(part, GroupPart) else ()
        for job in fresh:
            if job in submitted:
                continue
            raise BrokenPromise(Promise.DURABLE, f"{verb} made it appear", job)
        for change in changes:
            if verb == "attend":
                _check_adopted(change)
            elif not (self._is_turn(change.job) and self._actors.check_moved(verb, change)):
                _check_move(verb, change)

    def _check_blame(self, verb: str, changes: Sequence[Change]) -> None:
        """The loss of a worker blames at most as many jobs of a pool as it has slots."""
        blamed = [one for one in changes if one.after.crashes > one.before.crashes]
        infos = {view.info.id: view.info for view in at_once(self._store.workers()) if blamed}
        count: Counter[tuple[UUID, str]] = Counter()
        for job, before, _ in blamed:
            info = infos.get(before.worker) if before.worker is not None else None
            kind = self._keys[job][0]
            if info is None or kind not in info.kinds:
                continue
            pool = info.kinds[kind].pool
            count[info.id, pool] += 1
            if count[info.id, pool] > info.pools[pool]:
                text = f"{verb} blames {count[info.id, pool]} jobs of {info.pools[pool]} slots"
                raise BrokenPromise(Promise.BLAME, text, job)

    def _record(self, verb: str, change: Change) -> None:
        """A terminal state is entered once a round, and left by a retry only."""
        job, before, after = change
        if self._is_turn(job):
            return  # `ActorCheck` knows how often it counts
        if before.state in TERMINAL and verb not in _REOPENING:
            text = f"{verb} changed it after it was {before.state}"
            raise BrokenPromise(Promise.ONE_OUTCOME, text, job)
        if after.state not in TERMINAL:
            return
        outcomes = self._outcomes.setdefault(job, [])
        outcomes.append((after.state, after.result))
        if len(outcomes) != after.round:
            text = f"{len(outcomes)} outcomes were recorded in {after.round} rounds"
            raise BrokenPromise(Promise.ONE_OUTCOME, text, job)

    def _check_keys(self, touched: Iterable[UUID]) -> None:
        for job in filter(self._holds_its_key, touched):
            key = self._keys[job]
            for other in self._shots:
                if self._keys[other] == key and other != job and self._holds_its_key(other):
                    text = f"{self._trace.name(other)} has the key '{key[1]}' too"
                    raise BrokenPromise(Promise.UNIQUE, text, job)

    def _holds_its_key(self, job: UUID) -> bool:
        """Whether no other job of its kind may have its unique key now."""
        return self._keys[job][1] is not None and self._shots[job].state not in TERMINAL

    def _check_logs(self) -> None:
        for job, token in self._stores.new_logs():
            owner = self._shots[job].token
            if owner != token:
                text = f"what token {token} said was kept, but its token is {owner}"
                raise BrokenPromise(Promise.ONE_OWNER, text, job)

    # the end

    def round_of(self, job: UUID) -> int:
        """The last round of a job; 0 if it is not in the store."""
        return self._shots[job].round if job in self._shots else 0

    def open_jobs(self) -> list[UUID]:
        """Jobs that have not ended."""
        return [job for job, shot in self._shots.items() if shot.state not in TERMINAL]

    @property
    def shots(self) -> Mapping[UUID, Snapshot]:
        """Every job as it was after the last commit."""
        return self._shots

    def has_room(self) -> list[UUID]:
        """The ready jobs with limits whose keys all have room for them."""
        waiting = self._limits.waiting(self._shots)
        return [job for job in waiting if self._limits.has_room(job, self._shots)]

    def held(self, key: str) -> int:
        """How many jobs hold a slot of a key of limits."""
        return self._limits.held(key, self._shots)

    def has_slots(self, job: UUID) -> bool:
        """Whether one more of each of its keys may run."""
        return self._limits.has_slots(job, self._shots)

    def kind_of(self, job: UUID) -> str:
        """The kind of a job."""
        return self._keys[job][0]

    def unsettled_actor(self) -> tuple[str, UUID] | None:
        """An actor that has something left to do, in words."""
        return self._actors.unsettled(self._shots)

    def check_end(self, children: Mapping[UUID, Sequence[UUID]]) -> None:
        """When all is over: every job ended, once in each round, and caused what it had to."""
        for job, shot in self._shots.items():
            recorded = len(self._outcomes.get(job, []))
            if recorded != shot.round:
                text = f"{recorded} outcomes were recorded in {shot.round} rounds"
                raise BrokenPromise(Promise.ONE_OUTCOME, text, job)
        self._groups.check_end(self._shots)
        for parent, caused in children.items():
            shot = self._shots[parent]
            for child in caused:
                if (child in self._shots) != (shot.state is JobState.SUCCEEDED):
                    text = f"it is {shot.state}, and what it was to cause does not fit that"
                    raise BrokenPromise(Promise.ONE_OUTCOME, text, parent)


def _has_begun(change: Change) -> bool:
    return change.after.state is JobState.RUNNING and change.after.token != change.before.token


def _job_of(change: Change) -> UUID:
    return change.job


def _check_adopted(change: Change) -> None:
    job, before, after = change
    if before.state not in OWNED or after != before._replace(session=after.session):
        text = f"attend changed more than its session: {before} → {after}"
        raise BrokenPromise(Promise.ONE_OUTCOME, text, job)


def _check_move(verb: str, change: Change) -> None:
    """A change by any verb but the pump must be one that this verb is for."""
    job, before, after = change
    moves = MOVES[before.state]
    follow = {moves[event] for event in _EVENTS.get(verb, ()) if event in moves}
    if verb == "settle" and JobState.READY in follow:
        follow.add(JobState.SUCCEEDED)  # reached and expanded at once; `GroupCheck` knows which may
    reopened = before.state in TERMINAL
    rounds = before.round + reopened
    if after.state not in follow or after.round != rounds:
        text = f"{verb} took it from {before.state} to {after.state}, round {after.round}"
        raise BrokenPromise(Promise.ONE_OUTCOME, text, job)
    if (reopened or verb in _REVOKING) and after.token == before.token:
        text = f"{verb} left it its token {before.token}"
        raise BrokenPromise(Promise.ONE_OWNER, text, job)
