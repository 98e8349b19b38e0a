"""G5, order: no job of a group runs before its condition holds, and every group ends once.

It knows the graphs as the clients submitted them and as jobs that ended made them grow, and the
jobs' states as the ledger saw them. What conditions mean is written here a second time, from the
docs: the check is not to trust the core. A job is as all that is in its scope: whoever depends on
it depends on each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final
from uuid import UUID

from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.model.group import (
    ENDED_GROUPS,
    Condition,
    GroupState,
    GroupSubmitted,
    NodeView,
    RetryPlan,
    RunPlan,
)
from longshore.model.job import Ended, JobState, Verdict
from longshore.ports import Batch, BatchResult, Settled
from longshore.testing.simulation.database import Additions, Committed, Rerun
from longshore.testing.simulation.group_nodes import (
    GroupNode,
    added_nodes,
    outside_nodes,
    planned_nodes,
)
from longshore.testing.simulation.group_plans import GroupPlan
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.run_check import NewRun
from longshore.testing.simulation.snapshots import NOWHERE, Change, Snapshot

S, G = JobState, GroupState
Shots = Mapping[UUID, Snapshot]

FAILURES: Final = frozenset({S.FAILED, S.DEPENDENCY_FAILED})
_NOT_BEGUN: Final = frozenset({S.READY, S.DELAYED})
_AWAKE: Final = _NOT_BEGUN | {S.RUNNING, S.SUCCEEDED}
"""What a job that waited may be after one call. A sub-group may end as soon as it is reached."""
_MOVES: Final[Mapping[str, Mapping[GroupState | None, Set[GroupState]]]] = {
    "submit_group": {None: {G.STAGING, G.RUNNING}, G.STAGING: {G.RUNNING}},
    "settle": {
        G.RUNNING: {G.CANCELLING, *ENDED_GROUPS},
        G.PAUSED: ENDED_GROUPS,
        G.CANCELLING: ENDED_GROUPS,
    },
    "cancel_group": {G.RUNNING: {G.CANCELLING}, G.PAUSED: {G.CANCELLING}},
    "pause_group": {G.RUNNING: {G.PAUSED}, G.PAUSED: {G.RUNNING}},
    "retry_group": {state: {G.RUNNING} for state in ENDED_GROUPS},
    "rerun_group": {None: {G.STAGING, G.RUNNING}, G.STAGING: {G.RUNNING}},
}
"""Which call may take a group from which state to which."""


class GroupCheck:
    """Every group of a scenario, and where it was when last seen."""

    def __init__(
        self, plans: Iterable[GroupPlan], nodes_of: Callable[[UUID], list[NodeView]]
    ) -> None:
        self._plans = {plan.id: plan for plan in plans}
        self._nodes = {
            node.job: node for plan in self._plans.values() for node in planned_nodes(plan)
        }
        self._ever_left: set[UUID] = set()
        """Groups that jobs left, because their adders ran again."""
        self._states: dict[UUID, GroupState] = {}
        self._outcomes: dict[UUID, list[JobState]] = {}
        self._by_user: set[UUID] = set()
        """Groups that a user cancelled, in this round of theirs."""
        self._ever_cancelling: set[UUID] = set()
        self._opened: set[UUID] = set()
        self._nodes_of = nodes_of
        """Which jobs the store has of a new run."""
        self._runs: dict[UUID, NewRun] = {}
        self._taken: set[UUID] = set()
        """The jobs that a new run took over."""

    def has(self, job: UUID) -> bool:
        """Whether it is a job of a group."""
        return job in self._nodes

    def node(self, job: UUID) -> GroupNode | None:
        """What is known of a job of a group."""
        return self._nodes.get(job)

    def named(self, group: UUID, key: str) -> UUID | None:
        """The job of a group with this key."""
        found = (one.job for one in self._nodes.values() if (one.group, one.key) == (group, key))
        return next(found, None)

    def is_group(self, id: UUID | None) -> bool:
        """Whether it is the id of a group."""
        return id in self._plans or id in self._runs

    def told(self, ended: Ended) -> bool:
        """A client was told how something ended. Answers whether it was a group."""
        if not self.is_group(ended.id):
            return False
        if ended.state not in self._outcomes.get(ended.id, []):
            text = f"a client was told that its group {ended.state}, which was never recorded"
            raise BrokenPromise(Promise.ORDER, text, ended.id)
        return True

    # how groups grow

    def note_added(self, commit: Committed, fresh: Sequence[UUID], shots: Shots) -> set[UUID]:
        """The jobs that one call added to groups, as it had to. They are nodes from now on."""
        new: list[GroupNode] = []
        if isinstance(commit.about, Batch) and isinstance(commit.answer, BatchResult):
            for end, answer in zip(commit.about.finishes, commit.answer.finished, strict=True):
                adder = self._nodes.get(end.job)
                if answer.verdict is Verdict.RECORDED and adder is not None:
                    new += added_nodes(adder, end, shots[end.job].round)
        elif commit.verb == "settle" and fresh:
            maps = [node for node in self._nodes.values() if node.elements and node.job in shots]
            elements = [one for node in maps for one in node.of_map(shots[node.job].round)]
            new += [one for one in elements if one.job in fresh]
        elif isinstance(commit.about, Additions) and isinstance(commit.answer, GroupSubmitted):
            new += self._from_outside(commit.about)
        elif isinstance(commit.about, Rerun) and isinstance(commit.answer, RunPlan):
            return self._note_run(commit.about, commit.answer, fresh, shots)
        for node in new:
            if node.job not in shots:
                self._broke(node.adder or node.job, f"it added '{node.key}', which is not there")
            self._nodes[node.job] = node
        return {node.job for node in new}

    def _from_outside(self, about: Additions) -> list[GroupNode]:
        """What a client added, unless this was a repeat."""
        known = {node.key: node.job for node in self._of(about.group)}
        return [node for node in outside_nodes(about, known) if node.job not in self._nodes]

    def _note_run(
        self, about: Rerun, plan: RunPlan, fresh: Sequence[UUID], shots: Shots
    ) -> set[UUID]:
        """The jobs that one step copied. With the last step they are nodes."""
        run = self._runs.get(about.run)
        if run is None:
            run = NewRun.of(self._of(about.group), about.keys, shots)
            run.check_plan(about, plan)
        if plan.run is None:
            return set()
        self._runs[about.run] = run
        views = self._nodes_of(about.run)
        if plan.run.state is not G.STAGING and not self._of(about.run):
            nodes = run.copied(about.run, views, shots)
            self._nodes.update((node.job, node) for node in nodes)
            taken = nodes[: len(run.taken)]
            self._taken.update(node.job for node in taken)
            self._opened.update(node.job for node in taken if node.is_gate)
        return {view.job for view in views}.intersection(fresh)

    def _note_retired(self, group: UUID, plan: RetryPlan) -> None:
        """Jobs leave a group. No job runs again while what it added before stays."""
        keys = {node.key: node.job for node in self._of(group)}
        for key in plan.retired:
            del self._nodes[keys[key]]
            self._ever_left.add(group)
        reopened = {keys[key] for key in plan.reopened}
        for node in self._of(group):
            if node.adder in reopened:
                self._broke(node.job, "its adder runs again, and it is still in the group")

    def _of(self, group: UUID) -> list[GroupNode]:
        return [node for node in self._nodes.values() if node.group == group]

    # what the store did

    def check(
        self,
        commit: Committed,
        changes: Sequence[Change],
        fresh: Sequence[UUID],
        shots: Shots,
        states: dict[UUID, GroupState],
    ) -> None:
        """What one call did to jobs of groups, and to groups, which now are in these states."""
        before, self._states = self._states, states
        self._note_user(commit, changes)
        for change in [*changes, *(Change(job, NOWHERE, shots[job]) for job in fresh)]:
            is_copied = commit.verb == "rerun_group" and change.job in self._taken
            has_moved = change.before.state is not change.after.state
            if change.job in self._nodes and has_moved and not is_copied:
                self._check_job(commit.verb, change, before, shots)
        for group, state in states.items():
            if state is not before.get(group):
                self._check_group(commit.verb, group, before.get(group), shots)
            elif state is G.PAUSED and isinstance(commit.answer, Settled):
                self._check_paused(group, commit.answer, shots)

    def _note_user(self, commit: Committed, changes: Sequence[Change]) -> None:
        if not isinstance(commit.about, UUID):
            return
        if commit.verb == "cancel_group" and self._states[commit.about] is G.CANCELLING:
            self._by_user.add(commit.about)
        if commit.verb == "retry_group" and changes:
            self._by_user.discard(commit.about)
            if isinstance(commit.answer, RetryPlan):
                self._note_retired(commit.about, commit.answer)

    def _check_job(
        self, verb: str, change: Change, before: Mapping[UUID, GroupState], shots: Shots
    ) -> None:
        job, was, now = change.job, change.before.state, change.after.state
        node = self._nodes[job]
        on, parents = node.on, self._parents(node, shots)
        group = before.get(node.group)
        if was is S.WAITING and now in _AWAKE:
            if may_be(on, parents) is not None:
                self._broke(job, f"{verb} woke it, but it is {on} of {_words(parents)}")
            if G.RUNNING not in (group, self._states[node.group]):
                self._broke(job, f"{verb} woke it, though its group was {group}")
        elif was is S.WAITING and now in (S.DEPENDENCY_FAILED, S.SKIPPED):
            if may_be(on, parents) is not now:
                self._broke(job, f"it is {now} without a cause: {on} of {_words(parents)}")
        elif verb == "settle" and now in (S.CANCELLED, S.CANCELLING) and group is not G.CANCELLING:
            self._broke(job, f"it was cancelled, though its group was {group}")
        elif verb == "settle" and now is S.WAITING and group is not G.PAUSED:
            self._broke(job, f"it was held, though its group was {group}")
        elif verb == "retry_group" and now is S.CANCELLED:
            self._broke(job, "a retry cancelled it, and it is still in its group")
        if verb == "settle" and now is S.SUCCEEDED and not node.is_expanded:
            self._broke(job, "nobody ran it, but it succeeded")
        if node.is_gate:
            self._check_gate(verb, node, change)
        if node.elements and now is S.SUCCEEDED and len(self._inside(job)) < node.elements:
            self._broke(job, f"of {node.elements} elements {len(self._inside(job))} became jobs")

    def _check_gate(self, verb: str, node: GroupNode, change: Change) -> None:
        """No worker runs a gate, and it succeeds only if its client opened it where it could."""
        was, now = change.before.state, change.after
        if now.state in OWNED:
            self._broke(node.job, f"{verb} made a gate {now.state}")
        if now.state is not S.SUCCEEDED:
            return
        if verb != "open_gate" or was is not S.READY:
            self._broke(node.job, f"{verb} opened the gate, which was {was}")
        if node.value is None or now.result != node.value:
            self._broke(node.job, f"the gate was opened with {now.result!r}, not {node.value!r}")
        self._opened.add(node.job)

    def told_open(self, job: UUID) -> None:
        """A client was told that a gate is open."""
        if job not in self._opened:
            self._broke(job, "a client was told that the gate is open, which was never recorded")

    def _parents(self, node: GroupNode, shots: Shots) -> set[JobState]:
        """The states of all that a node waits for."""
        states, left = set[JobState](), list(node.parents)
        while left:
            job = left.pop()
            states.add(shots[job].state if job in shots else S.WAITING)
            left += self._inside(job)
        return states

    def _inside(self, job: UUID) -> list[UUID]:
        """What is in the scope of a job."""
        return [node.job for node in self._nodes.values() if node.scope == job]

    def _check_group(self, verb: str, group: UUID, was: GroupState | None, shots: Shots) -> None:
        now = self._states[group]
        if now not in _MOVES.get(verb, {}).get(was, ()):
            self._broke(group, f"{verb} took the group from {was} to {now}")
        if now is G.CANCELLING:
            self._ever_cancelling.add(group)
        if now not in ENDED_GROUPS:
            return
        self._outcomes.setdefault(group, []).append(S(now.value))
        states = {shots[node.job].state for node in self._of(group)}
        if not states <= TERMINAL:
            self._broke(group, f"the group is {now}, but its jobs are {_words(states)}")
        if now is not self._right_end(group, states):
            self._broke(group, f"the group is {now}; its jobs are {_words(states)}")

    def _right_end(self, group: UUID, states: Set[JobState]) -> GroupState:
        if group in self._by_user:
            return G.CANCELLED
        if states & FAILURES:
            return G.FAILED
        return G.CANCELLED if S.CANCELLED in states else G.SUCCEEDED

    def _check_paused(self, group: UUID, settled: Settled, shots: Shots) -> None:
        """Once a paused group is swept, none of its jobs is about to start."""
        if group in settled.groups:
            return
        for node in self._of(group):
            state = shots[node.job].state
            if state in _NOT_BEGUN:
                self._broke(node.job, f"it is {state}, though its paused group was swept")

    # the end

    def open_group(self) -> tuple[str, UUID] | None:
        """A group that has not ended, in words."""
        for group, state in self._states.items():
            if state not in ENDED_GROUPS:
                return f"the group is {state}, and all its jobs have ended; still so", group
        return None

    def check_end(self, shots: Shots) -> None:
        """When all is over: each job of a group that was never retried ended as it had to.

        What a new run took over may have had other parents, in an earlier round of its group.
        """
        for group in self._states:
            nodes = [node for node in self._of(group) if node.job not in self._taken]
            if group not in self._ever_left and all(shots[one.job].round == 1 for one in nodes):
                for node in nodes:
                    self._check_outcome(node, shots)

    def _check_outcome(self, node: GroupNode, shots: Shots) -> None:
        parents, state = self._parents(node, shots), shots[node.job].state
        doomed = may_be(node.on, parents)
        right = {S.SUCCEEDED, S.FAILED} if doomed is None else {doomed}
        if doomed is None and node.skips:
            right.add(S.SKIPPED)
        if node.group in self._ever_cancelling:
            right.add(S.CANCELLED)
        if state not in right:
            self._broke(node.job, f"it is {state}: {node.on} of {_words(parents)}")

    def _broke(self, what: UUID, text: str) -> None:
        raise BrokenPromise(Promise.ORDER, text, what)


def may_be(on: Condition, parents: Set[JobState]) -> JobState | None:
    """What a job is whose dependencies are in these states: None if it may run."""
    ended = parents <= TERMINAL
    if on is Condition.ENDED:
        return None if ended else S.WAITING
    if on is Condition.FAILED:
        if parents & FAILURES:
            return None
        return S.SKIPPED if ended else S.WAITING
    if parents & {*FAILURES, S.CANCELLED}:
        return S.DEPENDENCY_FAILED
    if not ended:
        return S.WAITING
    return S.SKIPPED if S.SKIPPED in parents else None


def _words(states: Set[JobState]) -> str:
    return ", ".join(sorted(states)) or "nothing"
