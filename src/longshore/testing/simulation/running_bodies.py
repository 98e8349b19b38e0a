"""The bodies that really run, where, and what was said of them when they stopped.

Two bodies of one job must never run at once on workers that their machines schedule (G6): whoever
cannot renew its lease stops before anybody else starts. A worker that was frozen for longer than
the margin between its stop and the end of its lease is exempt: it is only fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.ends import End, NotBegun, Succeeded, TurnTaken
from longshore.model.reports import ReleaseReport, Report, SuccessReport, TurnReport
from longshore.testing.simulation.bodies import token_in
from longshore.testing.simulation.loop import Process
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.trace import Trace


class Shift:
    """One body that runs or ran."""

    def __init__(self, process: Process, token: int) -> None:
        self.process = process
        self.token = token
        self.is_over = False
        self._frozen_before_s = process.frozen_for_s()

    @property
    def frozen_s(self) -> float:
        """For how long its worker was frozen under it."""
        return self.process.frozen_for_s() - self._frozen_before_s


class RunningBodies:
    """All bodies there ever were. `is_fair` says whether nothing but dispatchers died lately."""

    def __init__(self, trace: Trace, excused_s: float, is_fair: Callable[[], bool]) -> None:
        self._trace = trace
        self._excused_s = excused_s
        self._is_fair = is_fair
        self._shifts: dict[UUID, list[Shift]] = {}
        self._attempts: dict[AttemptKey, Shift] = {}
        self._reports: dict[AttemptKey, Report] = {}
        self._answers: dict[UUID, set[bytes]] = {}
        self._turns: set[AttemptKey] = set()
        """Turns that were recorded. Their jobs are gone: a repeat of their ends is refused."""

    # what executors tell

    def started(self, process: Process, assignment: Assignment, stubborn: bool) -> None:
        """A body begins to run: nobody else may run the same job now."""
        job, token = assignment.key
        self._note(process, f"starts it, token {token}" + (", stubborn" if stubborn else ""), job)
        if assignment.key in self._attempts:
            raise BrokenPromise(Promise.ONE_OWNER, f"its attempt {token} was started twice", job)
        shifts = self._shifts.setdefault(job, [])
        for other in shifts:
            if self._overlaps(other):
                text = (
                    f"{process.name} starts token {token} while {other.process.name} still runs "
                    f"token {other.token}"
                )
                raise BrokenPromise(Promise.SELF_STOP, text, job)
        shift = self._attempts[assignment.key] = Shift(process, token)
        shifts.append(shift)

    def _overlaps(self, other: Shift) -> bool:
        runs = not other.is_over and other.process.runs
        return runs and other.frozen_s < self._excused_s

    def stopped(self, process: Process, attempt: AttemptKey, how: str) -> None:
        """A body runs no more."""
        self._attempts[attempt].is_over = True
        self._note(process, f"{how}, token {attempt[1]}", attempt[0])

    def reported(self, process: Process, report: Report) -> None:
        """What is said of a body that ran. With nothing amiss nobody hands a job back (G8)."""
        self._reports[report.key] = report
        if isinstance(report, ReleaseReport) and self._is_fair():
            text = f"{process.name} gave token {report.token} up, though only dispatchers died"
            raise BrokenPromise(Promise.NO_SPECIAL_PROCESS, text, report.job)

    def forgot(self, attempt: AttemptKey) -> None:
        """A web worker lost an attempt: the same one may be given to it again."""
        self._attempts.pop(attempt, None)

    def answered(self, job: UUID, answer: bytes) -> None:
        """What a plain worker, which knows of no attempts, says of a job."""
        self._answers.setdefault(job, set()).add(answer)

    def _note(self, process: Process, text: str, job: UUID) -> None:
        self._trace.note(process.loop.time(), process.name, text, job)

    # what the store did

    def check_recorded(self, finish: End) -> None:
        """A success that is recorded was reported, by the very attempt that owns the job.

        No body ran under the token of an attempt that is recorded as not begun.
        """
        if isinstance(finish, NotBegun) and (finish.job, finish.token) in self._attempts:
            text = f"token {finish.token} was recorded as not begun, but its body ran"
            raise BrokenPromise(Promise.ONE_OUTCOME, text, finish.job)
        if isinstance(finish, TurnTaken):
            self._check_turn(finish)
        if not isinstance(finish, Succeeded):
            return
        if finish.result in self._answers.get(finish.job, ()):
            return
        report = self._reports.get((finish.job, finish.token))
        if report is None or not isinstance(report, SuccessReport):
            text = f"a success of token {finish.token} was recorded that nobody reported"
            raise BrokenPromise(Promise.ONE_OWNER, text, finish.job)
        if token_in(finish.result) != finish.token:
            text = f"token {token_in(finish.result)} made the result of token {finish.token}"
            raise BrokenPromise(Promise.ONE_OWNER, text, finish.job)

    def _check_turn(self, end: TurnTaken) -> None:
        self._turns.add((end.job, end.token))
        report = self._reports.get((end.job, end.token))
        if not isinstance(report, TurnReport) or report.turn != end.turn:
            text = f"a turn of token {end.token} was recorded that nobody reported"
            raise BrokenPromise(Promise.ONE_OWNER, text, end.job)

    def check_refused(self, finish: End) -> None:
        """A result is refused only if something else went wrong than a dispatcher (G8)."""
        attempt = finish.job, finish.token
        known = attempt in self._reports and attempt not in self._turns
        if known and isinstance(finish, Succeeded | TurnTaken) and self._is_fair():
            text = f"the result of token {finish.token} was refused, though only dispatchers died"
            raise BrokenPromise(Promise.NO_SPECIAL_PROCESS, text, finish.job)
