"""G4, no silence: what is said of a job that does not run is known, and true at that moment.

Now and then it asks `why` of some jobs, as a dispatcher would, and holds the words against the rows
of the store and the plans of the clients. What the words mean is written here a second time, from
what a reader takes from them. Words that nobody here knows are refused, too: nobody checks those.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Final
from uuid import UUID

from longshore.core.lanes import lane_of, serves
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.why import why
from longshore.dispatcher.limit_service import facts_of
from longshore.model.group import GATE, NOT_RUN, GroupState
from longshore.model.job import Job, JobState
from longshore.model.worker import WorkerView
from longshore.ports import Store
from longshore.testing.simulation.database import at_once
from longshore.testing.simulation.group_check import GroupCheck
from longshore.testing.simulation.ledger import Ledger
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.stores import Stores

EVERY_S: Final = 1.0
MOST: Final = 3
"""How many jobs are asked about at once."""
_NAMED: Final = re.compile(r"'([^']*)' \((\w+)")
_COUNTED: Final = re.compile(r"(\S+) is at ([\d,]+) of ([\d,]+)")
Truth = Callable[["WhyCheck", Job, str], bool]


class WhyCheck:
    """Asks why, and judges the answers."""

    def __init__(self, ledger: Ledger, groups: GroupCheck, stores: Stores, store: Store) -> None:
        self._ledger = ledger
        self._groups = groups
        self._stores = stores
        self._store = store
        self._next_at = 0.0
        self._turn = 0

    def look(self, now: float) -> None:
        """Raises `BrokenPromise` if the words for a job are unknown, empty or untrue."""
        if now < self._next_at:
            return
        self._next_at = now + EVERY_S
        waiting = [job for job in self._ledger.open_jobs() if self._is_still(job)]
        if not waiting:
            return
        self._turn += MOST
        first = self._turn % len(waiting)
        for job in islice([*waiting[first:], *waiting[:first]], MOST):
            self._ask(job)

    def _is_still(self, job: UUID) -> bool:
        return self._ledger.shots[job].state is not JobState.RUNNING

    def _ask(self, id: UUID) -> None:
        job = at_once(self._store.job(id))
        assert job is not None, f"{id} is in the store"
        words = why(job, at_once(facts_of(self._store, job)))
        known = [truth for pattern, truth in TRUTHS[job.state] if pattern.search(words)]
        if not known:
            raise BrokenPromise(Promise.NO_SILENCE, f"nobody knows what '{words}' means", id)
        if not all(truth(self, job, words) for truth in known):
            raise BrokenPromise(Promise.NO_SILENCE, f"it is not so that it is '{words}'", id)

    # what is so

    def named_jobs_are_so(self, job: Job, words: str) -> bool:
        """It waits for the jobs that are named, and these are in the states that are named."""
        node = self._groups.node(job.id)
        named = _NAMED.findall(words)
        if node is None or not named:
            return bool(named)
        found = ((self._groups.named(node.group, key), state) for key, state in named)
        shots = self._ledger.shots
        return all(one is None or shots[one].state.value == state for one, state in found)

    def what_it_needs_has_ended(self, job: Job, words: str) -> bool:
        """No job that its client made it depend on is still to end."""
        node, shots = self._groups.node(job.id), self._ledger.shots
        parents = () if node is None else node.parents
        return all(shots[one].state in TERMINAL for one in parents if one in shots)

    def its_group_is(self, state: GroupState) -> Callable[[Job, str], bool]:
        """Whether its group is in this state."""

        def is_so(job: Job, words: str) -> bool:
            node, groups = self._groups.node(job.id), self._stores.groups()
            # A new run is known once it is complete: until then it is one of those in this state.
            return state in groups.values() if node is None else groups.get(node.group) is state

        return is_so

    def an_actor_is_paused(self, job: Job, words: str) -> bool:
        """Some actor is paused, or is about to be resumed."""
        return any(one.paused or one.stopping for one in self._stores.actors().values())

    def it_has_a_time(self, job: Job, words: str) -> bool:
        """There is a time until which it is delayed."""
        return job.run_at is not None

    def its_keys_are_full(self, job: Job, words: str) -> bool:
        """As many hold slots of each key as are said to, and no more may."""
        counted = ((k, _number(held), _number(most)) for k, held, most in _COUNTED.findall(words))
        return all(self._ledger.held(key) == held >= most for key, held, most in counted)

    def it_has_a_rate(self, job: Job, words: str) -> bool:
        """A key is named, and it is one of its own."""
        return any(limit.key in words for limit in job.options.limits)

    def no_slot_is_free(self, job: Job, words: str) -> bool:
        """All slots of all workers that could run it are taken."""
        able = self._able(job)
        return bool(able) and not any(self._free(worker, job) > 0 for worker in able)

    def a_slot_is_free(self, job: Job, words: str) -> bool:
        """A worker that could run it has a free slot, and no key of its is full."""
        has_slots = self._ledger.has_slots(job.id)
        return has_slots and any(self._free(worker, job) > 0 for worker in self._able(job))

    def nobody_serves_it(self, job: Job, words: str) -> bool:
        """No live worker could run it."""
        return not self._able(job, draining=True)

    def all_are_draining(self, job: Job, words: str) -> bool:
        """Live workers could run it, and take nothing new."""
        return bool(self._able(job, draining=True)) and not self._able(job)

    def it_is_a_gate(self, job: Job, words: str) -> bool:
        """Somebody is to open it."""
        return job.kind == GATE

    def no_worker_runs_it(self, job: Job, words: str) -> bool:
        """It is a job that dispatchers take apart."""
        return job.kind in NOT_RUN

    def it_was_told(self, job: Job, words: str) -> bool:
        """Somebody has it."""
        return job.worker is not None

    def _able(self, job: Job, *, draining: bool = False) -> list[WorkerView]:
        lane = lane_of(job.queue, job.kind, job.target)
        alive = (one for one in at_once(self._store.workers()) if one.alive)
        return [one for one in alive if serves(one.info, lane) and (draining or not one.draining)]

    def _free(self, worker: WorkerView, job: Job) -> int:
        """How many slots for such a job a worker has free, by the rows of the jobs."""
        kinds, pool = worker.info.kinds, worker.info.kinds[job.kind].pool
        return worker.info.pools[pool] - sum(
            1
            for one, shot in self._ledger.shots.items()
            if shot.worker == worker.info.id and shot.state in OWNED
            if (kind := self._ledger.kind_of(one)) in kinds and kinds[kind].pool == pool
        )


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _group(state: GroupState) -> Truth:
    return lambda check, job, words: check.its_group_is(state)(job, words)


def _table(rows: dict[str, Truth]) -> tuple[tuple[re.Pattern[str], Truth], ...]:
    return tuple((re.compile(text), truth) for text, truth in rows.items())


TRUTHS: Final = {
    JobState.WAITING: _table(
        {
            r"^waiting for [\d,]+ of [\d,]+.*: '": WhyCheck.named_jobs_are_so,
            r"^waiting for a failure, and [\d,]+ of": WhyCheck.named_jobs_are_so,
            "^what it depends on has ended; ": WhyCheck.what_it_needs_has_ended,
            "^its group '.*' is not complete: ": _group(GroupState.STAGING),
            "^its group '.*' is paused; ": _group(GroupState.PAUSED),
            "^its group '.*' is being cancelled": _group(GroupState.CANCELLING),
            "^its actor is paused; ": WhyCheck.an_actor_is_paused,
        }
    ),
    JobState.DELAYED: _table({"^delayed until ": WhyCheck.it_has_a_time}),
    JobState.READY: _table(
        {
            r"\S+ is at [\d,]+ of [\d,]+": WhyCheck.its_keys_are_full,
            r"^[^;]*: next in |; \S+: next in ": WhyCheck.it_has_a_rate,
            "^(all|the only) .* busy": WhyCheck.no_slot_is_free,
            "^about to be given to ": WhyCheck.a_slot_is_free,
            "^no (worker|live worker|gateway) ": WhyCheck.nobody_serves_it,
            "^its state is of version ": WhyCheck.nobody_serves_it,
            "^every worker that serves .* is draining": WhyCheck.all_are_draining,
            "^waiting until somebody opens this gate": WhyCheck.it_is_a_gate,
            "^about to (become one job|be counted)": WhyCheck.no_worker_runs_it,
        }
    ),
    JobState.CANCELLING: _table({"^being cancelled; ": WhyCheck.it_was_told}),
}
"""By the state of a job: what may be said of it, and what must be so then."""
