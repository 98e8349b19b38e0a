"""What jobs do, by script: end well or badly, early or never, take their process or worker down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct, msgpack

from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.group import Condition
from longshore.model.ids import submitted_id
from longshore.model.job import (
    JobError,
    LogEntry,
    LogKind,
    Options,
    Reason,
    RetryPolicy,
    Submission,
)
from longshore.model.reports import (
    CrashReport,
    FailureReport,
    OutboxJob,
    OutboxNode,
    ReleaseReport,
    Report,
    SkipReport,
    SuccessReport,
)
from longshore.model.worker import KindInfo
from longshore.ports import OnLog, OnReport
from longshore.testing.simulation.actor_plans import Fate, Temper
from longshore.testing.simulation.loop import Process, current_process
from longshore.testing.simulation.turn_bodies import input_of, is_turn, turn_report

NO_ID: Final = UUID(int=0)
"""The store gives added jobs ids of their own."""


class Behaviour(Struct, frozen=True, kw_only=True):
    """What becomes of a job's attempts. Of the first ones some fail, crash or kill, in this order;
    whatever comes after them ends well, unless it hangs.
    """

    takes_s: float = 0.1
    fails: int = 0
    crashes: int = 0
    kills: int = 0
    hangs: bool = False
    stubborn: bool = False
    """Does not stop when it is asked to, only when it is killed."""
    skips: bool = False
    """Ends as skipped where another one would succeed."""
    logs: int = 0
    children: int = 0
    adds: tuple[Added, ...] = ()
    """What it adds to its group when it succeeds."""

    @property
    def work_s(self) -> float:
        """How long it takes, with all that it adds."""
        return self.takes_s + sum(one.behaviour.work_s for one in self.adds)


class Added(Struct, frozen=True):
    """A job that another adds to its group; `after` has places among those of the same adder."""

    key: str
    after: tuple[int, ...]
    on: Condition
    detached: bool
    behaviour: Behaviour

    @property
    def node(self) -> OutboxNode:
        """It, as its adder reports it. Its arguments say how it behaves."""
        options = Options(retry=RetryPolicy(attempts=2, backoff_s=0.1))
        job = Submission(NO_ID, "work", args_of(self.behaviour), options=options)
        return OutboxNode(self.key, job, self.after, self.on, self.detached)


class _Args(Struct, frozen=True):
    behaviour: Behaviour = Behaviour()


def args_of(behaviour: Behaviour) -> bytes:
    """Arguments that say how their job behaves."""
    return msgpack.encode(_Args(behaviour))


def behaviour_in(args: bytes) -> Behaviour:
    """What the arguments of an added job say."""
    return msgpack.decode(args, type=_Args).behaviour


class Witness(Protocol):
    """Is told of every body that starts and stops."""

    def started(self, process: Process, assignment: Assignment, stubborn: bool) -> None:
        """A body begins to run."""

    def stopped(self, process: Process, attempt: AttemptKey, how: str) -> None:
        """A body runs no more, at this very moment."""

    def reported(self, process: Process, report: Report) -> None:
        """This is what is said of a body that ran."""

    def forgot(self, attempt: AttemptKey) -> None:
        """A worker knows no more of an attempt that it had; it may begin once more."""


class Script:
    """The script: how every job behaves, and how often it has run so far."""

    def __init__(self, random: Random, die: Callable[[Process, str], None]) -> None:
        self.behaviours: dict[UUID, Behaviour] = {}
        self.tempers: dict[str, Temper] = {}
        self.random = random
        self.die = die
        self._runs: dict[UUID, int] = {}
        self._turns: dict[str, int] = {}

    def behaviour(self, job: UUID, args: bytes = b"\x80") -> Behaviour:
        """How a job behaves; one that a job caused as its arguments say, or it just ends well."""
        known = self.behaviours.get(job)
        return behaviour_in(args) if known is None else known

    def turn(self, key: str) -> Behaviour:
        """How the next run of an actor's turn behaves."""
        temper, run = self.tempers[key], self._turns.get(key, 0)
        self._turns[key] = run + 1
        fate = temper.fates[run] if run < len(temper.fates) else None
        return Behaviour(
            takes_s=self.random.uniform(0.0, temper.takes_s),
            fails=int(fate is Fate.FAILS),
            crashes=int(fate is Fate.CRASHES),
            kills=int(fate is Fate.KILLS),
            hangs=fate is Fate.HANGS,
            stubborn=temper.stubborn,
        )

    def next_run(self, job: UUID) -> int:
        """How often a job's body has begun, this time included."""
        self._runs[job] = self._runs.get(job, 0) + 1
        return self._runs[job]


class _Body:
    """One attempt that runs."""

    def __init__(self, assignment: Assignment, behaviour: Behaviour) -> None:
        self.assignment = assignment
        self.behaviour = behaviour
        self.last_words: Report | None = None
        self.timers: list[asyncio.TimerHandle] = []


class SimulatedExecutor:
    """Runs attempts by script, as an executor with one process for each of them."""

    def __init__(
        self,
        slots: int,
        kinds: dict[str, KindInfo],
        on_report: OnReport,
        on_log: OnLog,
        *,
        script: Script,
        witness: Witness,
        abort_grace_s: float,
    ) -> None:
        self.slots = slots
        self.kinds = kinds
        self._on_report = on_report
        self._on_log = on_log
        self._script = script
        self._witness = witness
        self._abort_grace_s = abort_grace_s
        self._process = current_process()
        self._bodies: dict[AttemptKey, _Body] = {}
        self._unreported = 0

    async def open(self) -> None:
        """There is nothing to start."""

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt."""
        behaviour, run = self._next_run(assignment)
        self._witness.started(self._process, assignment, behaviour.stubborn)
        assert len(self._bodies) + self._unreported < self.slots, "started past its slots"
        body = self._bodies[assignment.key] = _Body(assignment, behaviour)
        for seq in range(behaviour.logs):
            self._after(body, behaviour.takes_s * seq / behaviour.logs, self._say, body, seq)
        if assignment.timeout_s is not None:
            self._after(body, assignment.timeout_s, self._time_out, body)
        if not behaviour.hangs:
            takes_s = behaviour.takes_s * self._script.random.uniform(0.8, 1.2)
            self._after(body, takes_s, self._end, body, run)

    def _next_run(self, assignment: Assignment) -> tuple[Behaviour, int]:
        """How this run of a job behaves, and which one it is; each run of a turn is the first."""
        if is_turn(assignment.kind):
            return self._script.turn(input_of(assignment).key), 1
        behaviour = self._script.behaviour(assignment.job, assignment.args)
        return behaviour, 0 if behaviour.hangs else self._script.next_run(assignment.job)

    def _after(self, body: _Body, seconds: float, then: Callable[..., None], *args: object) -> None:
        loop = asyncio.get_running_loop()
        body.timers.append(loop.call_later(seconds, then, *args))

    def _say(self, body: _Body, seq: int) -> None:
        job, token = body.assignment.key
        self._on_log(LogEntry(job, token, seq, LogKind.STEP, f"step {seq}@{token}".encode()))

    def _end(self, body: _Body, run: int) -> None:
        behaviour = body.behaviour
        if run <= behaviour.fails:
            self._stop(body, _failure(body.assignment), "raises")
        elif run <= behaviour.fails + behaviour.crashes:
            self._stop(body, _crash(body.assignment), "crashes its process")
        elif run <= behaviour.fails + behaviour.crashes + behaviour.kills:
            self._script.die(self._process, "killed by a job")
        elif behaviour.skips:
            report = SkipReport(*body.assignment.key, note="by script")
            self._stop(body, report, "skips itself")
        elif is_turn(body.assignment.kind):
            self._stop(body, turn_report(body.assignment), "takes its turn")
        else:
            self._stop(body, _success(body.assignment, behaviour), "succeeds")

    def _time_out(self, body: _Body) -> None:
        error = JobError(Reason.TIMED_OUT, f"took too long, token {body.assignment.token}")
        report = FailureReport(*body.assignment.key, error=error)
        self.abort(report)

    def abort(self, report: Report) -> None:
        """Asks an attempt to stop; kills it after the abort grace."""
        body = self._bodies.get(report.key)
        if body is None or body.last_words is not None:
            return
        body.last_words = report
        how = "does not stop and is killed" if body.behaviour.stubborn else "is aborted"
        obeys_in_s = self._script.random.uniform(0.0, 0.2)
        stops_in_s = self._abort_grace_s if body.behaviour.stubborn else obeys_in_s
        self._after(body, stops_in_s, self._stop, body, report, how)

    def kill(self) -> None:
        """Kills everything at once; what was not aborted already is handed back."""
        for body in list(self._bodies.values()):
            released = ReleaseReport(*body.assignment.key)
            self._stop(body, body.last_words or released, "is killed")

    def forget(self, attempt: AttemptKey) -> bool:
        """Loses an attempt without a word; False if it does not run."""
        body = self._bodies.get(attempt)
        if body is None or body.last_words is not None:
            return False
        self._take_off(body, "is forgotten")
        self._witness.forgot(attempt)
        return True

    async def close(self) -> None:
        """Kills whatever is left, without reporting it."""
        for body in list(self._bodies.values()):
            self._take_off(body, "is killed")

    def _stop(self, body: _Body, report: Report, how: str) -> None:
        if not self._take_off(body, how):
            return
        self._witness.reported(self._process, report)
        self._unreported += 1
        hop_s = self._script.random.uniform(0.0, 0.002)
        asyncio.get_running_loop().call_later(hop_s, self._report, report)

    def _take_off(self, body: _Body, how: str) -> bool:
        if self._bodies.pop(body.assignment.key, None) is None:
            return False
        for timer in body.timers:
            timer.cancel()
        self._witness.stopped(self._process, body.assignment.key, how)
        return True

    def _report(self, report: Report) -> None:
        self._unreported -= 1
        self._on_report(report)


def result_of(token: int) -> bytes:
    """The result of an attempt says which attempt it is of."""
    return msgpack.encode({"token": token})


def token_in(result: bytes | None) -> int | None:
    """The attempt that a result is of."""
    return msgpack.decode(result, type=dict[str, int])["token"] if result else None


def child_of(job: UUID, round: int, index: int) -> Submission:
    """A job that another one causes in a round; the same however often it is run in it."""
    options = Options(retry=RetryPolicy(attempts=3))
    return Submission(submitted_id(job, round, index), "work", b"\x80", options=options)


def _success(assignment: Assignment, behaviour: Behaviour) -> Report:
    of_round = assignment.job, assignment.round
    sent = [OutboxJob(child_of(*of_round, at)) for at in range(behaviour.children)]
    added = [one.node for one in behaviour.adds]
    result = result_of(assignment.token)
    return SuccessReport(*assignment.key, result=result, outbox=(*sent, *added))


def _failure(assignment: Assignment) -> Report:
    error = JobError(Reason.RAISED, f"by script, token {assignment.token}", "Scripted")
    return FailureReport(*assignment.key, error=error)


def _crash(assignment: Assignment) -> Report:
    error = JobError(Reason.CRASHED, f"by script, token {assignment.token}")
    return CrashReport(*assignment.key, error=error)
