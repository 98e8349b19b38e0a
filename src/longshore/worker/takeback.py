"""The agent's part in take-back: what it notes for the next agent, and takes from the last one.

It is on if the worker has a state folder and an executor whose attempts outlive the agent.
Otherwise nothing is noted, and a new agent is a new worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from longshore.core.takeback import Takeback, take_back
from longshore.model.attempt import Assignment, AttemptKey
from longshore.ports import Executor, ResumingExecutor, WorkerState
from longshore.wire.messages import Ready
from longshore.wire.worker_side import WorkerSession
from longshore.worker.identity import Begun

log = logging.getLogger("longshore.worker")


class AgentTakeback:
    """What passes from one agent of a worker to the next."""

    def __init__(self, state: WorkerState | None, executors: Mapping[str, Executor]) -> None:
        self._given = state
        self._state: WorkerState | None = None
        self._executors = {
            pool: executor
            for pool, executor in executors.items()
            if isinstance(executor, ResumingExecutor)
        }
        self._told: tuple[float, float] | None = None

    def opened(self) -> None:
        """The executors are open, and know whether their attempts outlive the agent."""
        if any(executor.outlives_agent for executor in self._executors.values()):
            self._state = self._given

    @property
    def is_on(self) -> bool:
        """Whether the next agent can be the same worker."""
        return self._state is not None

    def worker_id(self, new_id: Callable[[], UUID]) -> UUID:
        """The id of the worker that the last agent was; a new one if there was none."""
        known = None if self._state is None else self._state.worker
        return new_id() if known is None else known

    def resume(
        self, session: WorkerSession, ready: Ready, begun: dict[str, dict[int, Begun]], now: float
    ) -> Takeback:
        """Takes over what the last agent began; the dispatcher hears of it with READY."""
        if (state := self._state) is None:
            return Takeback()
        held = {pool: executor.held() for pool, executor in self._executors.items()}
        taken = take_back(state.begun, [one for some in held.values() for one in some], ready)
        if state.worker is not None:
            log.info(
                "resuming as worker %s, whose agent died: taken back %d, lost %d of its jobs",
                ready.worker,
                len(taken.resumed),
                len(taken.reports),
            )
        session.asking = state.joining
        session.resume(state.session, [one.assignment.key for one in taken.resumed])
        for pool, some in held.items():
            begun[pool] |= {
                one.assignment.token: Begun(one.assignment, now - one.age_s) for one in some
            }
            self._executors[pool].resume()
        session.resume(state.session, [report.key for report in taken.reports])
        for report in taken.reports:
            session.ended(report)
        return taken

    def began(self, assignment: Assignment) -> None:
        """An attempt is about to begin."""
        if self._state is not None:
            self._state.began(assignment)

    def ended(self, token: int) -> None:
        """An attempt has ended."""
        if self._state is not None:
            self._state.ended(token)

    def recorded(self, *attempts: Iterable[AttemptKey]) -> None:
        """The store has these ends, or refused them."""
        if self._state is not None:
            tokens = [token for some in attempts for _, token in some]
            for executor in self._executors.values():
                executor.recorded(tokens)
            self._state.recorded(tokens)

    def extend(self, session: WorkerSession) -> None:
        """Tells executors how long the lease lasts, if that has changed."""
        if self._state is not None and (times := session.stop_times) not in (None, self._told):
            self._told = times
            for executor in self._executors.values():
                executor.extend(*times)

    def forget(self) -> None:
        """The worker has lost its id, and with it all that it held."""
        if self._state is not None:
            self._state.forget()
